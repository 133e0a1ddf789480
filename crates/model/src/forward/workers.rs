//! What the threads of one rank need for the dense layers, and the cutting of rows.

use ringattn_engine::cpu::dense::{StagedRows, Workspace};
use ringattn_engine::cpu::{BusyTime, Team};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Rows of a block: large enough that reading a weight costs little, small enough that activations
/// stay in cache, several blocks where there are rows for several threads, and a multiple of the
/// micro-kernel's rows.
pub(crate) fn row_block(rows: usize) -> usize {
    rows.div_ceil(8).next_multiple_of(12).clamp(12, 192)
}

/// The rank's threads, reusable scratch memory, and the processor time spent on dense layers.
pub(crate) struct Workers {
    team: Arc<Team>,
    scratch: Mutex<Vec<Scratch>>,
    busy: BusyTime,
}

/// Memory of one thread for one block of rows; contents are lost between uses.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Normalised rows.
    pub(crate) normed: Vec<f32>,
    /// The rows that dense layers read.
    pub(crate) staged: StagedRows,
    /// Gate activations, or logits.
    pub(crate) wide: Vec<f32>,
    /// Up activations.
    pub(crate) up: Vec<f32>,
    /// What a dense product needs.
    pub(crate) dense: Workspace,
}

impl Workers {
    /// Work for these threads.
    pub(crate) fn new(team: Arc<Team>) -> Self {
        Self { team, scratch: Mutex::default(), busy: BusyTime::default() }
    }

    /// How many threads work.
    pub(crate) fn threads(&self) -> usize {
        self.team.threads()
    }

    /// Runs `body` on the caller's thread with some scratch memory.
    pub(crate) fn with_scratch<T>(&self, body: impl FnOnce(&mut Scratch) -> T) -> T {
        let mut scratch = self.shelf().pop().unwrap_or_default();
        let result = body(&mut scratch);
        self.shelf().push(scratch);
        result
    }

    /// Runs `body` on every item with some scratch memory; the first error ends it.
    pub(crate) fn each<T: Send, E: Send>(
        &self,
        items: Vec<T>,
        body: impl Fn(T, &mut Scratch) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        self.team.each(items, &self.busy, |item| {
            let mut scratch = self.shelf().pop().unwrap_or_default();
            let result = body(item, &mut scratch);
            self.shelf().push(scratch);
            result
        })
    }

    /// Processor time spent in bodies so far.
    pub(crate) fn busy(&self) -> Duration {
        self.busy.total()
    }

    fn shelf(&self) -> std::sync::MutexGuard<'_, Vec<Scratch>> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scratch {
    /// Sets the length of a buffer whose content will be overwritten.
    pub(crate) fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
        buffer.resize(len, 0.0);
        buffer
    }
}
