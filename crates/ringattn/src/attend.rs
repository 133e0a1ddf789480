//! One attention over given tensors.

use crate::error::{AttendError, Error};
use crate::launch::launch;
use crate::options::RunOptions;
use crate::report::{Headline, RankRecord, Report};
use crate::tensor::Tensor;
use ringattn_comm::Communicator;
use ringattn_core::{
    Attention, AttentionShape, DType, Interval, Mask, NaturalLog, Position, QueryIntervals,
    try_filled,
};
use ringattn_engine::cpu::{CpuBackend, CpuBlock, CpuQueries, Kernel};
use ringattn_engine::{Job, RankPlan, run};
use ringattn_plan::{Plan, Prepared, Problem, Schedule};
use serde::Serialize;
use std::time::{Duration, Instant};

/// What to attend.
#[derive(Clone, Debug)]
pub struct AttendInput<'a> {
    /// `[B * Hq, Lq, d]`.
    pub queries: Tensor<'a>,
    /// `[B * Hk, Lk, d]`.
    pub keys: Tensor<'a>,
    /// `[B * Hk, Lk, d]`.
    pub values: Tensor<'a>,
    /// Which keys each query sees.
    pub mask: Mask,
    /// Where the tokens are; `None`: query and key `i` at position `i`, which needs `Lq = Lk`.
    pub positions: Option<Positions>,
    /// The factor of `q.k`; `None`: `1 / sqrt(d)`.
    pub softmax_scale: Option<f64>,
    /// The type in which K and V are kept and sent; `None`: the type of the keys.
    pub kv_dtype: Option<DType>,
}

/// Global positions of queries and keys; the keys' must not decrease.
#[derive(Clone, Debug)]
pub struct Positions {
    /// One for each query.
    pub queries: Vec<u64>,
    /// One for each key.
    pub keys: Vec<u64>,
}

/// The largest position: what lies behind it must still be a number.
const MAX_POSITION: u64 = i64::MAX as u64;

/// The result of attention.
#[derive(Clone, Debug, PartialEq)]
pub struct AttendOutput {
    /// `[B * Hq, Lq, d]`.
    pub out: Vec<f32>,
    /// Natural log-sum-exp of the scaled logits, `[B * Hq, Lq]`.
    pub lse: Vec<f32>,
}

/// What `attend` adds to the report.
#[derive(Clone, Debug, Serialize)]
pub struct AttendResult {
    /// Query tokens.
    pub queries: u64,
    /// The factor of `q.k`.
    pub softmax_scale: f64,
}

/// Attends over the ranks of `options`.
///
/// # Errors
/// When the input does not fit together, or a rank, memory or the numbers fail.
pub fn attend(
    input: &AttendInput<'_>,
    options: &RunOptions,
) -> Result<(AttendOutput, Report<AttendResult>), Error> {
    let plan = plan(input, options)?;
    let head_dim = plan.problem().shape.head_dim();
    let scale = input.softmax_scale.unwrap_or_else(|| 1.0 / (head_dim as f64).sqrt());
    let narrow = scale as f32;
    if !narrow.is_finite() || (scale != 0.0 && !narrow.is_normal()) {
        return Err(Error::Scale { scale });
    }
    check_memory(&plan, options)?;
    options.meter.start(u64::try_from(plan.problem().pairs()).unwrap_or(u64::MAX));
    let start = Instant::now();
    let prepared = plan.prepare();
    let results = launch(options, |comm| attend_rank(input, (&prepared, scale), options, &comm))?;
    let output = gather(&plan, &results)?;
    let wall = start.elapsed();
    let records: Vec<_> = results.into_iter().map(|result| result.record).collect();
    let result = AttendResult { queries: plan.problem().queries, softmax_scale: scale };
    let mask = input.mask.to_string();
    let headline = Headline { command: "attend", options, plan: &plan, mask, layers: 1 };
    Ok((output, Report::new(&headline, &records, wall, result)))
}

/// What one rank found.
struct RankResult {
    attention: Attention,
    record: RankRecord,
}

fn plan(input: &AttendInput<'_>, options: &RunOptions) -> Result<Plan, Error> {
    let (q, k, v) = (&input.queries, &input.keys, &input.values);
    let same = |what, expected: u64, actual: u64| {
        let mismatch =
            || Error::Mismatch { what, expected: expected.to_string(), actual: actual.to_string() };
        if expected == actual { Ok(()) } else { Err(mismatch()) }
    };
    same("the head dimension of k", q.head_dim() as u64, k.head_dim() as u64)?;
    same("the head dimension of v", k.head_dim() as u64, v.head_dim() as u64)?;
    same("the number of heads of v", k.heads() as u64, v.heads() as u64)?;
    same("the number of tokens of v", k.tokens(), v.tokens())?;
    let shape = AttentionShape::new(q.heads(), k.heads(), q.head_dim())?;
    let (queries, keys) = (q.tokens(), k.tokens());
    let mask = match &input.positions {
        None => {
            same("the number of keys without q_positions and k_positions", queries, keys)?;
            input.mask.clone()
        }
        Some(positions) => {
            same("the length of q_positions", queries, positions.queries.len() as u64)?;
            same("the length of k_positions", keys, positions.keys.len() as u64)?;
            by_index(&input.mask, positions)?
        }
    };
    let kv_dtype = input.kv_dtype.unwrap_or(k.dtype());
    let problem = Problem { shape, queries, keys, mask, kv_dtype };
    let layouts = (options.layout(queries)?, options.layout(keys)?);
    Ok(Plan::with_layouts(problem, layouts.0, layouts.1, Schedule::RingPassKv)?)
}

/// The mask over positions as one over indices: an increasing list of key positions turns each
/// interval of positions into one of indices.
fn by_index(mask: &Mask, positions: &Positions) -> Result<Mask, Error> {
    let mut all = positions.queries.iter().chain(&positions.keys);
    if let Some(&position) = all.find(|&&position| position > MAX_POSITION) {
        return Err(Error::Position { position, limit: MAX_POSITION });
    }
    for (index, pair) in positions.keys.windows(2).enumerate() {
        if pair[1] < pair[0] {
            let (previous, actual) = (pair[0], pair[1]);
            return Err(Error::KeyPositions { index: index + 1, previous, actual });
        }
    }
    let below = |position: Position| {
        Position(positions.keys.partition_point(|&key| key < position.0) as u64)
    };
    let intervals: Vec<_> = positions
        .queries
        .iter()
        .map(|&query| mask.visible(Position(query)))
        .map(|keys| Interval::new(below(keys.start()), below(keys.end())))
        .collect();
    Ok(Mask::Intervals(QueryIntervals::new(intervals)))
}

/// Refuses before the start when the buffers of all ranks exceed the limit.
fn check_memory(plan: &Plan, options: &RunOptions) -> Result<(), Error> {
    let problem = plan.problem();
    let f32_size = 4_u64;
    let rows = problem.queries.saturating_mul(f32_size);
    // Queries, the state's y, and the gathered output; m, z and lse of both.
    let wide = rows.saturating_mul(3 * problem.shape.query_width() as u64);
    let narrow = rows.saturating_mul(4 * problem.shape.query_heads() as u64);
    options.check_memory(wide.saturating_add(narrow).saturating_add(problem.kv_bytes()))
}

fn attend_rank<C: Communicator>(
    input: &AttendInput<'_>,
    (prepared, scale): (&Prepared<'_>, f64),
    options: &RunOptions,
    comm: &C,
) -> Result<RankResult, AttendError> {
    let (rank, plan) = (comm.rank(), prepared.plan());
    let problem = plan.problem();
    let rank_plan = RankPlan::new(prepared, rank);
    let device = options.device();
    let kernel = Kernel::with_team(device.isa, device.team(rank)?)?;
    let backend = CpuBackend::new(kernel, problem.shape, scale as f32);
    let rows = plan.query_layout().count(rank) as usize;
    let data = input.queries.gather(plan.query_layout(), rank)?;
    let queries = CpuQueries { data, rows };
    let keys = input.keys.shard(plan.key_layout(), rank, problem.kv_dtype)?;
    let values = input.values.shard(plan.key_layout(), rank, problem.kv_dtype)?;
    let block = CpuBlock::new(keys, values, plan.key_layout().count(rank) as usize);
    let attended = |pairs| options.meter.add(pairs);
    let non_finite = options.non_finite;
    let job = Job { plan: &rank_plan, queries: &queries, block, non_finite, attended: &attended };
    let (attention, measured) = run(&job, &backend, comm)?;
    let expected = *rank_plan.expectation();
    Ok(RankResult { attention, record: RankRecord { measured, expected, dense: Duration::ZERO } })
}

/// Puts the ranks' rows back into the order of positions, heads first.
fn gather(plan: &Plan, results: &[RankResult]) -> Result<AttendOutput, Error> {
    let shape = plan.problem().shape;
    let (heads, head_dim) = (shape.query_heads(), shape.head_dim());
    let total = plan.problem().queries as usize;
    let mut output = AttendOutput {
        out: try_filled(total * shape.query_width(), 0.0)?,
        lse: try_filled(total * heads, 0.0)?,
    };
    let layout = plan.query_layout();
    for (rank, RankResult { attention, .. }) in layout.ranks().zip(results) {
        let rows = layout.count(rank) as usize;
        for (slot, position) in layout.positions(rank).enumerate() {
            for head in 0..heads {
                let at = head * total + position.0 as usize;
                let from = (slot * heads + head) * head_dim;
                output.out[at * head_dim..][..head_dim]
                    .copy_from_slice(&attention.out[from..from + head_dim]);
                let NaturalLog(lse) = attention.lse[head * rows + slot];
                output.lse[at] = lse;
            }
        }
    }
    Ok(output)
}
