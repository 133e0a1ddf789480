//! Forward and decode rows: one block folded into fresh states, through the engine's CPU backend.

use super::BenchError;
use super::case::{BenchMask, Case, STRIPES, WINDOW};
use super::inputs::Inputs;
use crate::error::Error;
use ringattn_core::{
    AttentionShape, Elements, Interval, Mask, Message, Progress, Rank, Slot, Window, try_filled,
};
use ringattn_engine::cpu::{
    Arrangement, CpuBackend, CpuBlock, CpuState, Isa, Kernel, OutputRows, SharedRows,
};
use ringattn_engine::{Accumulator, Backend};
use ringattn_plan::{BlockId, Layout, LayoutKind, Plan, Problem, Schedule};
use std::hint::black_box;

/// A row that is ready to run.
pub(super) struct Attention {
    backend: CpuBackend,
    shape: AttentionShape,
    queries: SharedRows,
    block: CpuBlock,
    intervals: Vec<Interval<Slot>>,
    /// `[rows, Hq, d]`, reused from run to run as a model reuses it from layer to layer.
    out: Vec<f32>,
}

impl Attention {
    pub(super) fn new(case: &Case, isa: Isa, inputs: &mut Inputs) -> Result<Self, Error> {
        let shape = AttentionShape::new(case.query_heads, case.kv_heads, case.head_dim)?;
        let (world_size, block) = match case.mask {
            // The block of a rank behind the queries': the diagonal is not part of the interval.
            BenchMask::StripedShard => (STRIPES, BlockId(Rank(STRIPES - 1))),
            _ => (1, BlockId(Rank(0))),
        };
        let plan = plan(case, shape, world_size)?;
        let (rows, keys) = (case.queries as usize, plan.key_layout().count(block.0) as usize);
        let arrangement = arrangement(&shape, rows);
        let data = inputs.numbers(rows * shape.query_width(), 1).map_err(BenchError::from)?;
        let kernel = Kernel::new(isa, case.threads).map_err(BenchError::from)?;
        let out = try_filled(rows * shape.query_width(), 0.0).map_err(BenchError::from)?;
        Ok(Self {
            backend: CpuBackend::new(kernel, shape, 1.0 / (case.head_dim as f32).sqrt()),
            shape,
            queries: SharedRows::whole(Elements::F32(data), arrangement),
            block: inputs.block(case, keys)?,
            intervals: plan.intervals(Rank(0), block).collect(),
            out,
        })
    }

    /// (query, key) pairs of a head.
    pub(super) fn pairs(&self) -> u64 {
        self.intervals.iter().map(|seen| seen.len()).sum()
    }

    /// Bytes of the keys and values.
    pub(super) fn bytes(&self) -> u64 {
        self.block.byte_len()
    }

    pub(super) fn run(&mut self, progress: &dyn Progress) -> Result<(), BenchError> {
        let Self { backend, shape, queries, block, intervals, out } = self;
        let place = OutputRows::whole(out, arrangement(shape, intervals.len()))?;
        let mut state = CpuState::empty(place)?;
        // This backend's work is done when the call returns.
        backend.absorb((&*queries, &*block), intervals, Accumulator::Own(&mut state), progress)?;
        black_box(backend.finish(state)?);
        Ok(())
    }
}

/// `rows` tokens of all query heads, `[rows, Hq, d]`.
fn arrangement(shape: &AttentionShape, rows: usize) -> Arrangement {
    Arrangement::token_major(shape.query_heads(), rows, shape.head_dim())
}

/// The plan that the row is a part of.
fn plan(case: &Case, shape: AttentionShape, world_size: u32) -> Result<Plan, Error> {
    let causal = || Mask::Causal;
    let mask = match case.mask {
        BenchMask::Full => Mask::Full,
        BenchMask::Causal | BenchMask::StripedShard => causal(),
        BenchMask::CausalWindow => {
            causal().and(Mask::Window(Window { left: WINDOW as i64 - 1, right: 0 }))
        }
    };
    let (queries, keys) = (case.queries * u64::from(world_size), case.tokens);
    let problem = Problem { shape, queries, keys, mask, kv_dtype: case.dtype.plain()? };
    let layout = |len| Layout::new(LayoutKind::Striped, None, len, world_size);
    Ok(Plan::with_layouts(problem, layout(queries)?, layout(keys)?, Schedule::RingPassKv)?)
}
