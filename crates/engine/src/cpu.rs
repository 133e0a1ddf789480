//! The backend for the machine's own cores: blocks in memory, shared between ranks by handle, read
//! and written where they lie.

mod block;
mod cache;
mod device;
mod format;
mod queries;
mod rows;
mod state;

pub use block::CpuBlock;
pub use cache::{CacheError, CacheShape, KvCache};
pub use device::{Affinity, Device};
pub use ringattn_kernel::{
    Arrangement, BusyTime, Isa, KEY_TILE, Kernel, KernelError, OutputRows, Pinning, QUERY_TILE,
    Team, TeamError, TileVisit, dense, limits, on_large_pages, pointwise, thread_cpu_time,
    tile_visits,
};
pub use rows::SharedRows;
pub use state::{CpuOutput, CpuState};

use crate::backend::{Accumulator, Backend, MergeOrder, Tensor};
use ringattn_core::{AttentionShape, Interval, Partial, Progress, Slot};
use ringattn_kernel::{Problem, Rows, Work, non_finite};
use ringattn_plan::Handover;
use std::time::Duration;

/// The cores of this machine, driven by one rank.
pub struct CpuBackend {
    kernel: Kernel,
    problem: Problem,
}

impl CpuBackend {
    /// A backend for one shape and scale.
    pub fn new(kernel: Kernel, shape: AttentionShape, softmax_scale: f32) -> Self {
        let problem = Problem { shape, softmax_scale };
        Self { kernel, problem }
    }
}

impl Backend for CpuBackend {
    /// `Hq` heads.
    type Queries = SharedRows;
    type Block = CpuBlock;
    type State<'s> = CpuState<'s>;
    type Partial = Partial;
    type Output<'s> = CpuOutput<'s>;
    /// The work is done when `absorb` returns.
    type Token = ();
    type Error = KernelError;

    fn absorb(
        &self,
        (queries, block): (&SharedRows, &CpuBlock),
        intervals: &[Interval<Slot>],
        state: Accumulator<'_, '_, Self>,
        progress: &dyn Progress,
    ) -> Result<(), KernelError> {
        let work = Work { queries: queries.rows(), block: block.view(), intervals };
        let state = match state {
            Accumulator::Own(state) => state.lend(),
            Accumulator::Visiting(partial) => state::lend(partial)?,
        };
        self.kernel.absorb(&self.problem, &work, state, progress)
    }

    fn wait(&self, (): ()) -> Result<(), KernelError> {
        Ok(())
    }

    fn empty(&self, queries: &SharedRows) -> Result<Partial, KernelError> {
        state::empty(self.problem.shape, queries.rows().len())
    }

    fn part_with(
        &self,
        state: &mut CpuState<'_>,
        handover: Handover,
    ) -> Result<Partial, KernelError> {
        let partial = state.partial(self.problem.shape)?;
        if handover == Handover::Given {
            state.clear();
        }
        Ok(partial)
    }

    fn merge(
        &self,
        state: &mut CpuState<'_>,
        arrived: Partial,
        order: MergeOrder,
    ) -> Result<(), KernelError> {
        state.merge(arrived, order)
    }

    fn finish<'s>(&self, state: Self::State<'s>) -> Result<Self::Output<'s>, KernelError> {
        Ok(state.finish())
    }

    fn non_finite_inputs(
        &self,
        tensor: Tensor,
        queries: &SharedRows,
        block: &CpuBlock,
    ) -> Vec<Slot> {
        match tensor {
            Tensor::Query => non_finite_slots(&queries.rows()),
            Tensor::Key => non_finite_slots(&block.view().keys),
            Tensor::Value => non_finite_slots(&block.view().values),
        }
    }

    fn non_finite_results(&self, output: &CpuOutput<'_>) -> Vec<Slot> {
        output.non_finite.clone()
    }

    fn compute_time(&self) -> Duration {
        self.kernel.busy()
    }
}

/// Slots whose row in any head holds a NaN or an infinity, in order.
fn non_finite_slots(rows: &Rows<'_>) -> Vec<Slot> {
    let mut slots = Vec::new();
    rows.for_each(|_, slot, row| {
        if non_finite(row).is_some() {
            slots.push(Slot(slot as u64));
        }
    });
    in_order(slots)
}

/// Slots that were found head by head, each once.
fn in_order(mut slots: Vec<Slot>) -> Vec<Slot> {
    slots.sort_unstable();
    slots.dedup();
    slots
}
