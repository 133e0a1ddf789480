//! Attention over a ring of local ranks, from whole tensors to whole tensors, and its oracle.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ringattn_comm::{Communicator, RunError, local};
use ringattn_core::{
    Attention, AttentionShape, Elements, Interval, NaturalLog, Position, Rank, Slot,
};
use ringattn_engine::cpu::{
    Arrangement, CpuBackend, CpuBlock, CpuState, Isa, Kernel, KernelError, OutputRows, SharedRows,
};
use ringattn_engine::{EngineError, Job, Measured, NonFinite, RankPlan, run};
use ringattn_oracle::{Dense, Random, Tolerance, attention};
use ringattn_plan::{Layout, Plan};
use std::time::Duration;

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

fn shard(whole: &[f32], width: usize, layout: &Layout, rank: Rank) -> Vec<f32> {
    let row = |p: Position| whole[p.0 as usize * width..][..width].iter().copied();
    layout.positions(rank).flat_map(row).collect()
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
    let problem = plan.problem();
    let shape = problem.shape;
    let prepared = plan.prepare();
    let results = local::run(plan.world_size(), Duration::from_secs(60), |comm| {
        let rank = comm.rank();
        let rank_plan = RankPlan::new(&prepared, rank);
        let kernel = Kernel::new(Isa::detect(), 1).unwrap();
        let backend = CpuBackend::new(kernel, shape, scale(shape));
        let arrangement = |heads, layout: &Layout| {
            Arrangement::token_major(heads, layout.count(rank) as usize, shape.head_dim())
        };
        let query_rows = arrangement(shape.query_heads(), plan.query_layout());
        let data = shard(&whole.q, shape.query_width(), plan.query_layout(), rank);
        let mut out = vec![f32::NAN; data.len()];
        let queries = SharedRows::whole(Elements::F32(data), query_rows);
        let part = |x| {
            let data = shard(x, shape.key_width(), plan.key_layout(), rank);
            let key_rows = arrangement(shape.key_heads(), plan.key_layout());
            SharedRows::whole(Elements::from_f32(data, problem.kv_dtype), key_rows)
        };
        let block = CpuBlock::new(part(&whole.k), part(&whole.v));
        let state = CpuState::empty(OutputRows::whole(&mut out, query_rows).unwrap()).unwrap();
        let job = Job { plan: &rank_plan, queries: &queries, block, non_finite, attended: &|_| () };
        let (output, measured) = run(&job, state, &backend, &comm)?;
        let lse = output.lse;
        Ok((Attention { out, lse }, measured))
    })?;
    let (width, heads, total) =
        (shape.query_width(), shape.query_heads(), problem.queries as usize);
    let mut gathered = Gathered {
        out: vec![f32::NAN; total * width],
        lse: vec![f32::NAN; total * heads],
        measured: Vec::new(),
        queries: total,
    };
    for (rank, (attention, measured)) in (0..).map(Rank).zip(results) {
        let rows = plan.query_layout().count(rank) as usize;
        for (slot, position) in plan.query_layout().positions(rank).enumerate() {
            let at = position.0 as usize;
            gathered.out[at * width..][..width]
                .copy_from_slice(&attention.out[slot * width..][..width]);
            for head in 0..heads {
                let NaturalLog(lse) = attention.lse[head * rows + slot];
                gathered.lse[head * total + at] = lse;
            }
        }
        gathered.measured.push(measured);
    }
    Ok(gathered)
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
