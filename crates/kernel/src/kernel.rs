//! The kernel as its callers hold it: an instruction set, a team, and workspaces to reuse.

use crate::clock::BusyTime;
use crate::isa::MicroShape;
use crate::problem::validate;
use crate::state::StateMut;
use crate::team::{Pinning, Team};
use crate::workspace::Shelf;
use crate::{Isa, KernelError, Problem, Work, absorb};
use pulp::WithSimd;
use ringattn_core::Progress;
use std::sync::Arc;
use std::time::Duration;

/// Folds blocks of keys and values into online-softmax states.
///
/// One kernel serves any number of problems, also at the same time from several threads. Its
/// workspaces stay allocated between calls.
pub struct Kernel {
    isa: Isa,
    pub(crate) micro: MicroShape,
    team: Arc<Team>,
    pub(crate) shelf: Shelf,
    busy: BusyTime,
}

impl Kernel {
    /// A kernel for `isa` with `threads` threads of its own; with one, work runs on the caller's.
    ///
    /// # Errors
    /// When this processor lacks `isa`, when `threads` is 0 or cannot be started.
    pub fn new(isa: Isa, threads: usize) -> Result<Self, KernelError> {
        Self::with_team(isa, Arc::new(Team::new(threads, Pinning::Free)?))
    }

    /// A kernel for `isa` whose work is done by `team`.
    ///
    /// # Errors
    /// When this processor lacks `isa`.
    pub fn with_team(isa: Isa, team: Arc<Team>) -> Result<Self, KernelError> {
        let micro = MicroShape::of(isa).ok_or(KernelError::Isa { isa })?;
        Ok(Self { isa, micro, team, shelf: Shelf::default(), busy: BusyTime::default() })
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// How many threads work.
    pub fn threads(&self) -> usize {
        self.team.threads()
    }

    /// Processor time that all threads have spent on work so far.
    pub fn busy(&self) -> Duration {
        self.busy.total()
    }

    /// Folds the block into `state`, a [`StateMut`] or a `&mut Partial`: afterwards each row's state
    /// covers the slots of its interval as well. Calls `progress` once per packed group of tiles and
    /// once per tile of query rows; where the query rows are eight or fewer, once per 1024 keys or so
    /// of some heads.
    ///
    /// A NaN or infinity, or a logit beyond f32, leaves a NaN or infinity in the state of exactly
    /// the rows that see it.
    ///
    /// # Errors
    /// When the parts of the work do not fit together (nothing is changed then), when memory is
    /// lacking, or when `progress` says to stop (the state is then of no further use).
    pub fn absorb<'s>(
        &self,
        problem: &Problem,
        work: &Work<'_>,
        state: impl Into<StateMut<'s>>,
        progress: &dyn Progress,
    ) -> Result<(), KernelError> {
        let state = state.into();
        validate(problem, work, &state)?;
        absorb::absorb(self, problem, work, state, progress)
    }

    /// Runs `body` on every item, on all threads, the first items first.
    pub(crate) fn each<T: Send>(
        &self,
        items: Vec<T>,
        body: impl Fn(T) -> Result<(), KernelError> + Sync,
    ) -> Result<(), KernelError> {
        self.team.each(items, &self.busy, body)
    }

    /// Runs `op` with the kernel's instruction set.
    pub(crate) fn run<Op: WithSimd>(&self, op: Op) -> Result<Op::Output, KernelError> {
        self.isa.run(op).ok_or(KernelError::Isa { isa: self.isa })
    }
}
