//! The backend for the machine's own cores: blocks in memory, shared between ranks by handle.

use crate::backend::{Backend, Tensor};
use ringattn_core::{
    Attention, AttentionShape, DType, Elements, ElementsView, Interval, Message, MessageError,
    NaturalLog, OutOfMemory, Partial, Progress, Rank, Slot, bf16, f16,
};
use ringattn_kernel::{KeysValues, Problem, Queries, Work, non_finite};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

pub use ringattn_kernel::{
    BusyTime, Isa, Kernel, KernelError, Pinning, Team, TeamError, dense, pointwise, thread_cpu_time,
};

/// The cores that every rank of a process gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The instruction set.
    pub isa: Isa,
    /// Threads of each rank.
    pub threads: usize,
    /// Whether threads stay on one processor each.
    pub affinity: Affinity,
}

/// Whether the threads of all ranks stay on one processor each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// The system moves them as it likes.
    #[default]
    Free,
    /// Rank by rank, thread by thread, on the processors that the process may use.
    Pinned,
}

impl Device {
    /// The threads of `rank`.
    ///
    /// # Errors
    /// When they cannot be started or pinned.
    pub fn team(&self, rank: Rank) -> Result<Arc<Team>, KernelError> {
        let pinning = match self.affinity {
            Affinity::Free => Pinning::Free,
            Affinity::Pinned => Pinning::From { first: rank.index() * self.threads },
        };
        Ok(Arc::new(Team::new(self.threads, pinning)?))
    }
}

/// Why the cores could not do it.
#[derive(Debug, Error)]
pub enum CpuError {
    /// The kernel refused or was interrupted.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// No memory for the state of the query rows.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// The rank's queries, `[rows, Hq, d]`.
#[derive(Clone, Debug)]
pub struct CpuQueries {
    /// The elements, `rows * Hq * d` of them.
    pub data: Vec<f32>,
    /// Query tokens.
    pub rows: usize,
}

/// A K,V block; a clone is a second handle to the same memory, immutable from its making on.
#[derive(Clone, Debug)]
pub struct CpuBlock(Arc<Tensors>);

#[derive(Debug)]
struct Tensors {
    /// Keys and values, `[rows, Hk, d]` each.
    keys: Elements,
    values: Elements,
    rows: usize,
}

impl CpuBlock {
    /// A block of `rows` tokens, `keys` and `values` `[rows, Hk, d]`.
    pub fn new(keys: Elements, values: Elements, rows: usize) -> Self {
        Self(Arc::new(Tensors { keys, values, rows }))
    }

    fn view(&self) -> KeysValues<'_> {
        let Tensors { keys, values, rows } = &*self.0;
        KeysValues { keys: keys.view(), values: values.view(), rows: *rows }
    }
}

impl Message for CpuBlock {
    const KIND: &'static str = "K,V block";

    fn byte_len(&self) -> u64 {
        (self.0.keys.bytes().len() + self.0.values.bytes().len()) as u64
    }

    fn header(&self) -> Vec<u64> {
        let dtype = match self.0.keys.view().dtype() {
            DType::F32 => 0,
            DType::Bf16 => 1,
            DType::F16 => 2,
        };
        vec![self.0.rows as u64, dtype, self.0.keys.bytes().len() as u64]
    }

    fn to_bytes(&self) -> Vec<u8> {
        [self.0.keys.bytes(), self.0.values.bytes()].concat()
    }

    fn from_bytes(header: &[u64], payload: &[u8]) -> Result<Self, MessageError> {
        let kind = Self::KIND;
        let &[rows, dtype, key_bytes] = header else {
            return Err(MessageError::Header { kind, expected: 3, actual: header.len() });
        };
        let actual = payload.len() as u64;
        let expected = key_bytes.saturating_mul(2);
        if actual != expected {
            return Err(MessageError::Payload { kind, expected, actual });
        }
        let (keys, values) = payload.split_at(payload.len() / 2);
        let elements = |bytes: &[u8]| match dtype {
            0 => Ok(Elements::F32(bytemuck::pod_collect_to_vec::<u8, f32>(bytes))),
            1 => Ok(Elements::Bf16(bytemuck::pod_collect_to_vec::<u8, bf16>(bytes))),
            2 => Ok(Elements::F16(bytemuck::pod_collect_to_vec::<u8, f16>(bytes))),
            value => Err(MessageError::Field { kind, field: "dtype", value }),
        };
        Ok(Self::new(elements(keys)?, elements(values)?, rows as usize))
    }
}

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
    type Queries = CpuQueries;
    type Block = CpuBlock;
    type State = Partial;
    type Output = Attention;
    /// The work is done when `absorb` returns.
    type Token = ();
    type Error = CpuError;

    fn begin(&self, queries: &CpuQueries) -> Result<Partial, CpuError> {
        Ok(Partial::identity(self.problem.shape, queries.rows)?)
    }

    fn absorb(
        &self,
        (queries, block): (&CpuQueries, &CpuBlock),
        intervals: &[Interval<Slot>],
        state: &mut Partial,
        progress: &dyn Progress,
    ) -> Result<(), CpuError> {
        let queries = Queries { data: &queries.data, rows: queries.rows };
        let work = Work { queries, block: block.view(), intervals };
        Ok(self.kernel.absorb(&self.problem, &work, state, progress)?)
    }

    fn wait(&self, (): ()) -> Result<(), CpuError> {
        Ok(())
    }

    fn finish(&self, state: Partial) -> Result<Attention, CpuError> {
        Ok(state.finish())
    }

    fn non_finite_inputs(
        &self,
        tensor: Tensor,
        queries: &CpuQueries,
        block: &CpuBlock,
    ) -> Vec<Slot> {
        let shape = self.problem.shape;
        match tensor {
            Tensor::Query => bad_rows(ElementsView::F32(&queries.data), shape.query_width()),
            Tensor::Key => bad_rows(block.view().keys, shape.key_width()),
            Tensor::Value => bad_rows(block.view().values, shape.key_width()),
        }
    }

    fn non_finite_results(&self, output: &Attention) -> Vec<Slot> {
        let shape = self.problem.shape;
        let rows = output.out.len() / shape.query_width();
        let mut bad = bad_rows(ElementsView::F32(&output.out), shape.query_width());
        let lse = output.lse.iter().enumerate().filter(|(_, NaturalLog(lse))| !lse.is_finite());
        bad.extend(lse.map(|(index, _)| Slot((index % rows) as u64)));
        bad.sort_unstable();
        bad.dedup();
        bad
    }

    fn compute_time(&self) -> Duration {
        self.kernel.busy()
    }
}

/// Rows of `[rows, width]` that hold a NaN or an infinity.
fn bad_rows(values: ElementsView<'_>, width: usize) -> Vec<Slot> {
    let mut rows = Vec::new();
    let mut start = 0;
    while let Some(index) = non_finite(values.skip(start)) {
        let row = (start + index) / width;
        rows.push(Slot(row as u64));
        start = (row + 1) * width;
    }
    rows
}
