//! Attention over a ring of local ranks, from whole tensors to whole tensors, and its oracle.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ringattn_comm::{Communicator, RunError, local};
use ringattn_core::{Attention, AttentionShape, Elements, Interval, Position, Rank, Slot};
use ringattn_engine::cpu::{
    Arrangement, CpuBackend, CpuBlock, CpuState, Isa, Kernel, KernelError, OutputRows, SharedRows,
};
use ringattn_engine::{
    EngineError, Job, Measured, NonFinite, Overlap, RankPlan, Recorder, Trace, run,
};
use ringattn_oracle::{Dense, Random, Tolerance, attention};
use ringattn_plan::{Plan, Timeline};
use std::time::{Duration, Instant};

/// Q `[queries, Hq, d]`, K and V `[keys, Hk, d]`, in the order of positions.
#[derive(Clone)]
pub(crate) struct Whole {
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
}

/// `out` `[queries, Hq, d]` and `lse` `[Hq, queries]`, in the order of positions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gathered {
    pub(crate) out: Vec<f32>,
    pub(crate) lse: Vec<f32>,
    pub(crate) measured: Vec<Measured>,
    pub(crate) queries: usize,
}

impl Whole {
    pub(crate) fn random(shape: AttentionShape, queries: u64, keys: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let keys = keys as usize * shape.key_width();
        Self {
            q: random.normals(queries as usize * shape.query_width()),
            k: random.normals(keys),
            v: random.normals(keys),
        }
    }
}

fn rows(whole: &[f32], width: usize, positions: impl Iterator<Item = Position>) -> Vec<f32> {
    positions.flat_map(|p| whole[p.0 as usize * width..][..width].iter().copied()).collect()
}

pub(crate) fn scale(shape: AttentionShape) -> f32 {
    1.0 / (shape.head_dim() as f32).sqrt()
}

/// Runs the plan on local ranks with one thread each.
pub(crate) fn ring(
    plan: &Plan,
    whole: &Whole,
    non_finite: NonFinite,
) -> Result<Gathered, RunError<EngineError<KernelError>>> {
    overlapping(plan, whole, (non_finite, Overlap::On))
}

/// The same with or without compute while messages travel.
pub(crate) fn overlapping(
    plan: &Plan,
    whole: &Whole,
    (non_finite, overlap): (NonFinite, Overlap),
) -> Result<Gathered, RunError<EngineError<KernelError>>> {
    Ok(ring_from(plan, whole, (non_finite, overlap, None))?.0)
}

/// The same with what every rank did when.
pub(crate) fn recorded(
    plan: &Plan,
    whole: &Whole,
    non_finite: NonFinite,
) -> Result<(Gathered, Timeline), RunError<EngineError<KernelError>>> {
    ring_from(plan, whole, (non_finite, Overlap::On, Some(Instant::now())))
}

/// Recorded where there is a moment to count time from.
fn ring_from(
    plan: &Plan,
    whole: &Whole,
    (non_finite, overlap, epoch): (NonFinite, Overlap, Option<Instant>),
) -> Result<(Gathered, Timeline), RunError<EngineError<KernelError>>> {
    let problem = plan.problem();
    let shape = problem.shape;
    let prepared = plan.prepare();
    let results = local::run(plan.world_size(), Duration::from_secs(60), |comm| {
        let rank = comm.rank();
        let rank_plan = RankPlan::new(&prepared, rank);
        let kernel = Kernel::new(Isa::detect(), 1).unwrap();
        let backend = CpuBackend::new(kernel, shape, scale(shape));
        let arrangement =
            |heads, tokens: u64| Arrangement::token_major(heads, tokens as usize, shape.head_dim());
        let query_rows = arrangement(shape.query_heads(), plan.query_count(rank));
        let data = rows(&whole.q, shape.query_width(), plan.query_positions(rank));
        let mut out = vec![f32::NAN; data.len()];
        let queries = SharedRows::whole(Elements::F32(data), query_rows);
        let part = |x| {
            let data = rows(x, shape.key_width(), plan.key_layout().positions(rank));
            let key_rows = arrangement(shape.key_heads(), plan.key_layout().count(rank));
            SharedRows::whole(Elements::from_f32(data, problem.kv_dtype), key_rows)
        };
        let block = CpuBlock::new(part(&whole.k), part(&whole.v));
        let state = CpuState::empty(OutputRows::whole(&mut out, query_rows).unwrap()).unwrap();
        let recorder = epoch.map(|epoch| Recorder::new(rank, epoch));
        let (attended, trace) = (&|_| (), Trace::new(recorder.as_ref(), 0));
        if recorder.is_some() {
            // So that no wait is for another's thread to start.
            comm.barrier()?;
        }
        let job = Job {
            plan: &rank_plan,
            queries: &queries,
            block,
            non_finite,
            attended,
            trace,
            overlap,
        };
        let (output, measured) = run(&job, state, &backend, &comm)?;
        let lse = output.lse;
        Ok((Attention { out, lse }, measured, recorder.map_or(Vec::new(), Recorder::into_spans)))
    })?;
    let (width, heads, total) =
        (shape.query_width(), shape.query_heads(), problem.queries as usize);
    let mut gathered = Gathered {
        out: vec![f32::NAN; total * width],
        lse: vec![f32::NAN; total * heads],
        measured: Vec::new(),
        queries: total,
    };
    let mut timeline = Timeline { world_size: plan.world_size(), spans: Vec::new() };
    for (rank, (attention, measured, spans)) in (0..).map(Rank).zip(results) {
        timeline.spans.extend(spans);
        gathered.measured.push(measured);
        if !plan.answers(rank) {
            let empty = attention.lse.iter().all(|lse| lse.0 == f32::NEG_INFINITY);
            assert!(empty && attention.out.iter().all(|&x| x == 0.0), "rank {rank} has a rest");
            continue;
        }
        let rows = plan.query_count(rank) as usize;
        for (slot, position) in plan.query_positions(rank).enumerate() {
            let at = position.0 as usize;
            let out = attention.out[slot * width..][..width].iter();
            write_once(&mut gathered.out[at * width..][..width], out.copied());
            let lse = (0..heads).map(|head| attention.lse[head * rows + slot].0);
            for (head, lse) in lse.enumerate() {
                write_once(&mut gathered.lse[head * total + at..][..1], std::iter::once(lse));
            }
        }
    }
    Ok((gathered, timeline))
}

/// Writes values that nobody has written, or finds there the same bits.
fn write_once(to: &mut [f32], values: impl Iterator<Item = f32>) {
    for (to, value) in to.iter_mut().zip(values) {
        assert!(to.is_nan() || to.to_bits() == value.to_bits(), "ranks differ: {to} and {value}");
        *to = value;
    }
}

/// What each query sees, as slots of the whole sequence.
pub(crate) fn visible(plan: &Plan) -> Vec<Interval<Slot>> {
    let problem = plan.problem();
    let all = Interval::from_len(problem.keys);
    Interval::<Position>::from_len(problem.queries)
        .iter()
        .map(|query| problem.mask.visible(query).intersect(all))
        .map(|keys| Interval::new(Slot(keys.start().0), Slot(keys.end().0)))
        .collect()
}

/// Dense attention in f64 of the same problem.
pub(crate) fn dense(plan: &Plan, whole: &Whole) -> Dense {
    let shape = plan.problem().shape;
    let operands = (&whole.q[..], &whole.k[..], &whole.v[..]);
    attention(operands, &visible(plan), shape, f64::from(scale(shape)))
}

/// Asserts that every number lies within the tolerance, and that rows which see nothing are exactly
/// empty.
pub(crate) fn assert_close(actual: &Gathered, dense: &Dense, what: &dyn std::fmt::Display) {
    if let Some(violation) = Tolerance::of(dense).violation(dense, &actual.out, &actual.lse) {
        panic!("{violation}\n{what}");
    }
    let (total, heads) = (actual.queries, dense.lse.len() / actual.queries.max(1));
    let head_dim = dense.out.len() / dense.lse.len().max(1);
    for (index, _) in dense.lse.iter().enumerate().filter(|(_, lse)| lse.is_infinite()) {
        let (head, row) = (index / total, index % total);
        let out = &actual.out[(row * heads + head) * head_dim..][..head_dim];
        assert!(out.iter().all(|&x| x == 0.0), "row {row} head {head} sees nothing\n{what}");
    }
}
