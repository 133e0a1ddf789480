//! The kernel as its callers hold it: an instruction set, threads, and workspaces to reuse.

use crate::isa::MicroShape;
use crate::problem::validate;
use crate::workspace::Shelf;
use crate::{Isa, KernelError, Problem, Work, absorb, thread_cpu_time};
use pulp::WithSimd;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use ringattn_core::{Partial, Progress};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Folds blocks of keys and values into online-softmax states.
///
/// One kernel serves any number of problems, also at the same time from several threads. Its
/// workspaces stay allocated between calls.
pub struct Kernel {
    isa: Isa,
    pub(crate) micro: MicroShape,
    threads: usize,
    /// `None` for one thread, which is the caller's.
    pool: Option<ThreadPool>,
    pub(crate) shelf: Shelf,
    busy_nanos: AtomicU64,
}

impl Kernel {
    /// A kernel for `isa` with `threads` threads of its own; with one, work runs on the caller's.
    ///
    /// # Errors
    /// When this processor lacks `isa`, when `threads` is 0 or cannot be started.
    pub fn new(isa: Isa, threads: usize) -> Result<Self, KernelError> {
        let micro = MicroShape::of(isa).ok_or(KernelError::Isa { isa })?;
        let refusal = |reason: String| KernelError::Threads { threads, reason };
        let pool = match threads {
            0 => return Err(refusal("at least one is needed".into())),
            1 => None,
            _ => Some(
                ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .thread_name(|index| format!("kernel-{index}"))
                    .build()
                    .map_err(|error| refusal(error.to_string()))?,
            ),
        };
        Ok(Self {
            isa,
            micro,
            threads,
            pool,
            shelf: Shelf::default(),
            busy_nanos: AtomicU64::new(0),
        })
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// How many threads work.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Processor time that all threads have spent on work so far.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_nanos.load(Ordering::Relaxed))
    }

    /// Folds the block into `state`: afterwards each row's state covers the slots of its interval
    /// as well. Calls `progress` once per packed group of tiles and once per tile of query rows.
    ///
    /// A NaN or infinity, or a logit beyond f32, leaves a NaN or infinity in the state of exactly
    /// the rows that see it.
    ///
    /// # Errors
    /// When the parts of the work do not fit together (nothing is changed then), when memory is
    /// lacking, or when `progress` says to stop (the state is then of no further use).
    pub fn absorb(
        &self,
        problem: &Problem,
        work: &Work<'_>,
        state: &mut Partial,
        progress: &dyn Progress,
    ) -> Result<(), KernelError> {
        validate(problem, work, state)?;
        absorb::absorb(self, problem, work, state, progress)
    }

    /// Runs `body` on every item, on all threads.
    pub(crate) fn each<T: Send>(
        &self,
        items: Vec<T>,
        body: impl Fn(T) -> Result<(), KernelError> + Sync + Send,
    ) -> Result<(), KernelError> {
        let timed = |item| {
            let start = thread_cpu_time();
            let result = body(item);
            let nanos = (thread_cpu_time() - start).as_nanos() as u64;
            self.busy_nanos.fetch_add(nanos, Ordering::Relaxed);
            result
        };
        match &self.pool {
            Some(pool) => pool.install(|| items.into_par_iter().try_for_each(timed)),
            None => items.into_iter().try_for_each(timed),
        }
    }

    /// Runs `op` with the kernel's instruction set.
    pub(crate) fn run<Op: WithSimd>(&self, op: Op) -> Result<Op::Output, KernelError> {
        self.isa.run(op).ok_or(KernelError::Isa { isa: self.isa })
    }
}
