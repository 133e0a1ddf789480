//! One attention over given tensors.

use crate::error::{AttendError, Error};
use crate::launch::launch;
use crate::options::RunOptions;
use crate::report::{Headline, RankRecord, Report};
use crate::tensor::Tensor;
use ringattn_comm::Communicator;
use ringattn_core::{
    AttentionShape, DType, Interval, Mask, NaturalLog, OutOfMemory, Position, QueryIntervals, Rank,
    try_filled, try_reserved,
};
use ringattn_engine::cpu::{Arrangement, CpuBackend, CpuBlock, CpuState, Kernel, OutputRows};
use ringattn_engine::{Job, RankPlan, run};
use ringattn_plan::{Layout, Plan, Prepared, Problem, Schedule};
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What to attend.
#[derive(Clone, Debug)]
pub struct AttendInput {
    /// `[B * Hq, Lq, d]`.
    pub queries: Tensor,
    /// `[B * Hk, Lk, d]`.
    pub keys: Tensor,
    /// `[B * Hk, Lk, d]`.
    pub values: Tensor,
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

/// Attends over the ranks of `options`. The tensors are read in place, and the output is written
/// where it is returned: the process holds each once.
///
/// # Errors
/// When the input does not fit together, or a rank, memory or the numbers fail.
pub fn attend(
    input: &AttendInput,
    options: &RunOptions,
) -> Result<(AttendOutput, Report<AttendResult>), Error> {
    let plan = plan(input, options)?;
    let head_dim = plan.problem().shape.head_dim();
    let scale = input.softmax_scale.unwrap_or_else(|| 1.0 / (head_dim as f64).sqrt());
    let narrow = scale as f32;
    if !narrow.is_finite() || (scale != 0.0 && !narrow.is_normal()) {
        return Err(Error::Scale { scale });
    }
    check_memory(input, &plan, options)?;
    options.meter.start(u64::try_from(plan.problem().pairs()).unwrap_or(u64::MAX));
    let start = Instant::now();
    let mut output = AttendOutput::empty(&plan)?;
    let records = attend_into(&mut output, (input, scale), &plan, options)?;
    let wall = start.elapsed();
    let result = AttendResult { queries: plan.problem().queries, softmax_scale: scale };
    let mask = input.mask.to_string();
    let headline = Headline { command: "attend", options, plan: &plan, mask, layers: 1 };
    Ok((output, Report::new(&headline, &records, wall, result)))
}

/// What one rank found.
struct RankResult {
    /// `[Hq, rows]`.
    lse: Vec<NaturalLog>,
    record: RankRecord,
}

fn plan(input: &AttendInput, options: &RunOptions) -> Result<Plan, Error> {
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

/// Refuses before the start when what the run adds to its inputs exceeds the limit.
fn check_memory(input: &AttendInput, plan: &Plan, options: &RunOptions) -> Result<(), Error> {
    let problem = plan.problem();
    let (number, index) = (4_u64, 8_u64);
    // The output, in which the state's y grows.
    let wide = problem.queries.saturating_mul(number * problem.shape.query_width() as u64);
    // m, z and lse of the ranks, and lse in the order of positions.
    let narrow = problem.queries.saturating_mul(4 * number * problem.shape.query_heads() as u64);
    // The tokens of the ranks' slots, and an interval of each query.
    let indices = problem.queries.saturating_mul(3).saturating_add(problem.keys);
    let copies = [
        input.queries.copied_bytes(input.queries.dtype()),
        input.keys.copied_bytes(problem.kv_dtype),
        input.values.copied_bytes(problem.kv_dtype),
    ];
    let parts = [wide, narrow, indices.saturating_mul(index)].into_iter().chain(copies);
    options.check_memory(parts.fold(0, u64::saturating_add))
}

impl AttendOutput {
    /// Zeros of the plan's shape.
    fn empty(plan: &Plan) -> Result<Self, OutOfMemory> {
        let (shape, queries) = (plan.problem().shape, plan.problem().queries as usize);
        Ok(Self {
            out: try_filled(queries.saturating_mul(shape.query_width()), 0.0)?,
            lse: try_filled(queries.saturating_mul(shape.query_heads()), 0.0)?,
        })
    }
}

/// Runs the ranks, each of which writes its own rows of `out` in place, and puts their lse into the
/// order of positions.
fn attend_into(
    output: &mut AttendOutput,
    (input, scale): (&AttendInput, f64),
    plan: &Plan,
    options: &RunOptions,
) -> Result<Vec<RankRecord>, Error> {
    let (shape, total) = (plan.problem().shape, plan.problem().queries as usize);
    let arrangement = Arrangement::head_major(shape.query_heads(), total, shape.head_dim());
    let ranks = plan.query_layout().ranks();
    let tokens =
        ranks.map(|rank| tokens(plan.query_layout(), rank)).collect::<Result<Vec<_>, _>>()?;
    let lists = tokens.iter().map(|tokens| &tokens[..]);
    let owners = OutputRows::split(&mut output.out, arrangement, lists)?;
    let owners: Vec<_> = owners.into_iter().map(Mutex::new).collect();
    let prepared = plan.prepare();
    let results = launch(options, |comm| {
        let rank = comm.rank().index();
        let part = Part { input, scale, prepared: &prepared, queries: &tokens[rank] };
        // Each rank locks its own, once.
        let mut out = owners[rank].lock().unwrap_or_else(PoisonError::into_inner);
        attend_rank(&part, out.reborrow(), options, &comm)
    })?;
    let mut records = Vec::with_capacity(results.len());
    for (RankResult { lse, record }, tokens) in results.into_iter().zip(&tokens) {
        for (index, NaturalLog(lse)) in lse.into_iter().enumerate() {
            let (head, slot) = (index / tokens.len(), index % tokens.len());
            output.lse[head * total + tokens[slot]] = lse;
        }
        records.push(record);
    }
    Ok(records)
}

/// The token of each slot of the rank.
fn tokens(layout: &Layout, rank: Rank) -> Result<Arc<Vec<usize>>, OutOfMemory> {
    let mut tokens = try_reserved(layout.count(rank) as usize)?;
    tokens.extend(layout.positions(rank).map(|position| position.0 as usize));
    Ok(Arc::new(tokens))
}

/// What one rank is to do.
struct Part<'a> {
    input: &'a AttendInput,
    scale: f64,
    prepared: &'a Prepared<'a>,
    /// The token of each of its query slots.
    queries: &'a Arc<Vec<usize>>,
}

fn attend_rank<C: Communicator>(
    part: &Part<'_>,
    out: OutputRows<'_>,
    options: &RunOptions,
    comm: &C,
) -> Result<RankResult, AttendError> {
    let Part { input, scale, prepared, .. } = *part;
    let (rank, plan) = (comm.rank(), prepared.plan());
    let problem = plan.problem();
    let rank_plan = RankPlan::new(prepared, rank);
    let device = options.device();
    let kernel = Kernel::with_team(device.isa, device.team(rank)?)?;
    let backend = CpuBackend::new(kernel, problem.shape, scale as f32);
    let queries = input.queries.rows(part.queries, input.queries.dtype())?;
    let key_tokens = if plan.key_layout() == plan.query_layout() {
        Arc::clone(part.queries)
    } else {
        tokens(plan.key_layout(), rank)?
    };
    let keys = input.keys.rows(&key_tokens, problem.kv_dtype)?;
    let values = input.values.rows(&key_tokens, problem.kv_dtype)?;
    let block = CpuBlock::new(keys, values);
    let state = CpuState::empty(out)?;
    let attended = |pairs| options.meter.add(pairs);
    let non_finite = options.non_finite;
    let job = Job { plan: &rank_plan, queries: &queries, block, non_finite, attended: &attended };
    let (output, measured) = run(&job, state, &backend, comm)?;
    let expected = *rank_plan.expectation();
    let record = RankRecord { measured, expected, dense: Duration::ZERO };
    Ok(RankResult { lse: output.lse, record })
}
