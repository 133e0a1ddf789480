//! How to run: ranks, threads, layout, deadlines, and how to watch and stop a run.

use crate::engines::Engine;
use crate::error::Error;
use crate::host;
use crate::recording::Recording;
use ringattn_comm::{CommError, StopSignal, local};
use ringattn_core::Rank;
use ringattn_engine::cpu::{Affinity, Device, Isa};
use ringattn_engine::{NonFinite, Overlap};
use ringattn_plan::{Layout, LayoutError, LayoutKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes that a thread of a rank works in: packed keys and values, tiles, a panel of logits.
const WORKSPACE: u64 = 3 << 20;

/// Called when ranks do not end although the run has, with the cause and these ranks.
pub type StuckHook = Arc<dyn Fn(&CommError, &[Rank]) + Send + Sync>;

/// Everything about a run that does not change its result.
#[derive(Clone)]
pub struct RunOptions {
    /// Ranks `p`.
    pub ranks: u32,
    /// Where they are.
    pub engine: Engine,
    /// Threads of each rank; `None` shares the machine's cores among the ranks on it, at least 1 each.
    pub threads: Option<usize>,
    /// Whether threads stay on one processor each.
    pub affinity: Affinity,
    /// Which rank owns which token.
    pub layout: LayoutKind,
    /// The block of the layout, where it has one to choose.
    pub block: Option<u64>,
    /// How long a rank may stand still while others wait for it.
    pub timeout: Duration,
    /// Refuse to start when more bytes than this are predicted for one process beside the inputs: for a
    /// model its weights and activations, for tensors the outputs and what has to be copied.
    pub memory_limit: Option<u64>,
    /// What to do about values that are not finite.
    pub non_finite: NonFinite,
    /// Whether blocks travel while others are attended.
    pub overlap: Overlap,
    /// The instruction set of the kernel.
    pub isa: Isa,
    /// Whether the run is recorded; its report then has a timeline.
    pub recording: Recording,
    /// Ends the run from outside.
    pub stop: StopSignal,
    /// Shows how far the run is.
    pub meter: Arc<Meter>,
    /// What to do when ranks do not end; such a run does not return by itself.
    pub on_stuck: Option<StuckHook>,
    /// A rank that is to fail.
    #[cfg(feature = "fault-injection")]
    pub fault: Option<crate::fault::Fault>,
}

impl RunOptions {
    /// `ranks` ranks in a striped layout, everything else at its default.
    pub fn new(ranks: u32) -> Self {
        Self {
            ranks,
            engine: Engine::Local,
            threads: None,
            affinity: Affinity::Free,
            layout: LayoutKind::Striped,
            block: None,
            timeout: local::DEFAULT_TIMEOUT,
            memory_limit: None,
            non_finite: NonFinite::Refuse,
            overlap: Overlap::On,
            isa: Isa::detect(),
            recording: Recording::Off,
            stop: StopSignal::new(),
            meter: Arc::default(),
            on_stuck: None,
            #[cfg(feature = "fault-injection")]
            fault: None,
        }
    }

    /// Threads of each rank on this machine.
    pub fn threads_per_rank(&self) -> usize {
        let shared = || host::cores() / self.engine.ranks_here(self.ranks).max(1);
        self.threads.unwrap_or_else(shared).max(1)
    }

    /// Threads of all ranks of this process together, no more than it has cores for.
    pub(crate) fn process_threads(&self) -> usize {
        let all = self.threads_per_rank().saturating_mul(self.ranks.max(1) as usize);
        all.min(host::cores().max(self.threads_per_rank()))
    }

    pub(crate) fn device(&self) -> Device {
        Device { isa: self.isa, threads: self.threads_per_rank(), affinity: self.affinity }
    }

    /// Refuses a run for which `buffers` bytes and the workspaces of all threads exceed the limit.
    pub(crate) fn check_memory(&self, buffers: u64) -> Result<(), Error> {
        let Some(limit) = self.memory_limit else { return Ok(()) };
        let ranks = u64::from(self.engine.ranks_in_process(self.ranks));
        let threads = ranks.saturating_mul(self.threads_per_rank() as u64);
        let predicted = buffers.saturating_add(threads.saturating_mul(WORKSPACE));
        if predicted > limit { Err(Error::MemoryLimit { predicted, limit }) } else { Ok(()) }
    }

    /// Refuses a number of ranks that the engine does not have.
    pub(crate) fn check_ranks(&self) -> Result<(), Error> {
        match self.engine.size() {
            Some(size) if size != self.ranks => Err(Error::Mismatch {
                what: "the number of ranks",
                expected: format!("{size}, the size of the MPI job"),
                actual: self.ranks.to_string(),
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn layout(&self, len: u64) -> Result<Layout, LayoutError> {
        Layout::new(self.layout, self.block, len, self.ranks)
    }
}

/// How far a run is, in units that its command chooses (pairs, or tokens times layers).
#[derive(Debug, Default)]
pub struct Meter {
    done: AtomicU64,
    total: AtomicU64,
}

impl Meter {
    /// Units done and units in all; the total is 0 until the run knows it.
    pub fn read(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    pub(crate) fn start(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, units: u64) {
        self.done.fetch_add(units, Ordering::Relaxed);
    }
}
