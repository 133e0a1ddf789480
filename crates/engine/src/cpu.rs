//! The backend for the machine's own cores: blocks in memory, shared between ranks by handle, read
//! and written where they lie.

mod block;
mod device;
mod rows;
mod state;

pub use block::CpuBlock;
pub use device::{Affinity, Device};
pub use ringattn_kernel::{
    Arrangement, BusyTime, Isa, Kernel, KernelError, OutputRows, Pinning, Team, TeamError, dense,
    pointwise, thread_cpu_time,
};
pub use rows::SharedRows;
pub use state::{CpuOutput, CpuState};

use crate::backend::{Backend, Tensor};
use ringattn_core::{AttentionShape, ElementsView, Interval, Progress, Slot};
use ringattn_kernel::{Problem, Rows, Work, non_finite};
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
    type Output<'s> = CpuOutput<'s>;
    /// The work is done when `absorb` returns.
    type Token = ();
    type Error = KernelError;

    fn absorb(
        &self,
        (queries, block): (&SharedRows, &CpuBlock),
        intervals: &[Interval<Slot>],
        state: &mut CpuState<'_>,
        progress: &dyn Progress,
    ) -> Result<(), KernelError> {
        let work = Work { queries: queries.rows(), block: block.view(), intervals };
        self.kernel.absorb(&self.problem, &work, state.lend(), progress)
    }

    fn wait(&self, (): ()) -> Result<(), KernelError> {
        Ok(())
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
        let bad = |rows: Rows<'_>| {
            let (heads, _) = rows.shape();
            bad_slots((heads, rows.len()), |head, slot| non_finite(rows.row(head, slot)).is_some())
        };
        match tensor {
            Tensor::Query => bad(queries.rows()),
            Tensor::Key => bad(block.view().keys),
            Tensor::Value => bad(block.view().values),
        }
    }

    fn non_finite_results(&self, output: &CpuOutput<'_>) -> Vec<Slot> {
        let CpuOutput { out, lse } = output;
        let ((heads, _), rows) = (out.shape(), out.len());
        bad_slots((heads, rows), |head, slot| {
            let out = ElementsView::F32(out.row(head, slot));
            !lse[head * rows + slot].0.is_finite() || non_finite(out).is_some()
        })
    }

    fn compute_time(&self) -> Duration {
        self.kernel.busy()
    }
}

/// Slots that are bad in any head, in order. Heads are the outer loop, as in most tensors here.
fn bad_slots((heads, rows): (usize, usize), bad: impl Fn(usize, usize) -> bool) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    for head in 0..heads {
        let found = (0..rows).filter(|&slot| bad(head, slot)).map(|slot| Slot(slot as u64));
        slots.extend(found);
    }
    slots.sort_unstable();
    slots.dedup();
    slots
}
