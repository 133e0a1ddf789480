//! The threads of one rank for the dense layers, and the cutting of rows.

use rayon::prelude::*;
use ringattn_engine::cpu::dense::Workspace;
use ringattn_engine::cpu::thread_cpu_time;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Rows of a block: large enough that reading a weight costs little, small enough that activations
/// stay in cache, several blocks where there are rows for several threads, and a multiple of the
/// micro-kernel's rows.
pub(crate) fn row_block(rows: usize) -> usize {
    rows.div_ceil(8).next_multiple_of(12).clamp(12, 504)
}

/// Threads, reusable scratch memory, and the processor time spent on them.
pub(crate) struct Workers {
    pool: Option<rayon::ThreadPool>,
    scratch: Mutex<Vec<Scratch>>,
    busy_nanos: AtomicU64,
}

/// Memory of one thread for one block of rows; contents are lost between uses.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Normalised rows.
    pub(crate) normed: Vec<f32>,
    /// Gate activations, or logits.
    pub(crate) wide: Vec<f32>,
    /// Up activations.
    pub(crate) up: Vec<f32>,
    /// What a dense product needs.
    pub(crate) dense: Workspace,
}

impl Workers {
    /// `threads` threads; with one, work runs on the caller's.
    pub(crate) fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        let pool = match threads {
            0 | 1 => None,
            _ => Some(rayon::ThreadPoolBuilder::new().num_threads(threads).build()?),
        };
        Ok(Self { pool, scratch: Mutex::default(), busy_nanos: AtomicU64::new(0) })
    }

    /// Runs `body` on every item with some scratch memory; the first error ends it.
    pub(crate) fn each<T: Send, E: Send>(
        &self,
        items: Vec<T>,
        body: impl Fn(T, &mut Scratch) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let timed = |item| {
            let start = thread_cpu_time();
            let mut scratch = self.shelf().pop().unwrap_or_default();
            let result = body(item, &mut scratch);
            self.shelf().push(scratch);
            let spent = (thread_cpu_time() - start).as_nanos() as u64;
            self.busy_nanos.fetch_add(spent, Ordering::Relaxed);
            result
        };
        match &self.pool {
            Some(pool) => pool.install(|| items.into_par_iter().try_for_each(timed)),
            None => items.into_iter().try_for_each(timed),
        }
    }

    /// Processor time spent in bodies so far.
    pub(crate) fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_nanos.load(Ordering::Relaxed))
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
