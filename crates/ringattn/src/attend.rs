//! One attention over given tensors.

mod shard;

use crate::agreement::{Terms, agree};
use crate::engines::Engine;
use crate::error::{AttendError, Error};
use crate::launch::{Collected, Task, collect, launch};
use crate::options::RunOptions;
use crate::recording::RankRecording;
use crate::report::{Headline, RankRecord, Report};
use crate::tensor::Tensor;
use ringattn_comm::Communicator;
use ringattn_core::{
    AttentionShape, DType, Interval, Mask, NaturalLog, OutOfMemory, Position, QueryIntervals, Rank,
    try_filled, try_reserved,
};
use ringattn_engine::cpu::{Arrangement, CpuBackend, CpuBlock, CpuState, Kernel, OutputRows};
use ringattn_engine::{Job, RankPlan, Trace, run};
use ringattn_plan::{Layout, Plan, Prepared, Problem, Schedule};
use serde::Serialize;
use shard::AttendedShard;
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

/// Attends over the ranks of `options`. `None` in a process of an MPI job that is not rank 0, where the
/// result is.
///
/// Between threads, tensors in memory are read in place, and the output is written where it is
/// returned: the process holds each once. A process of a job holds the rows of its rank, and that of
/// rank 0 the whole output once all is computed.
///
/// # Errors
/// When the input does not fit together, or a rank, memory or the numbers fail.
pub fn attend(
    input: &AttendInput,
    options: &RunOptions,
) -> Result<Option<(AttendOutput, Report<AttendResult>)>, Error> {
    let (plan, scale) = options.engine.together(&options.stop, || checked(input, options))?;
    options.meter.start(u64::try_from(plan.problem().pairs()).unwrap_or(u64::MAX));
    agree(options, || Ok(terms(input, scale, &plan, options)))?;
    let Some((output, records, wall)) = attend_ranks((input, scale), &plan, options)? else {
        return Ok(None);
    };
    let result = AttendResult { queries: plan.problem().queries, softmax_scale: scale };
    let mask = input.mask.to_string();
    let headline = Headline { command: "attend", options, plan: &plan, mask, layers: 1 };
    Ok(Some((output, Report::new(&headline, records, wall, result))))
}

/// The plan and the factor of `q.k`, if the run can be and fits into memory.
fn checked(input: &AttendInput, options: &RunOptions) -> Result<(Plan, f64), Error> {
    options.check_ranks()?;
    let plan = plan(input, options)?;
    let head_dim = plan.problem().shape.head_dim();
    let scale = input.softmax_scale.unwrap_or_else(|| 1.0 / (head_dim as f64).sqrt());
    let narrow = scale as f32;
    if !narrow.is_finite() || (scale != 0.0 && !narrow.is_normal()) {
        return Err(Error::Scale { scale });
    }
    check_memory(input, &plan, options)?;
    Ok((plan, scale))
}

/// What the ranks of a job must have in common.
fn terms(input: &AttendInput, scale: f64, plan: &Plan, options: &RunOptions) -> Terms {
    let mut terms = Terms::new("attend", options);
    terms.add("the softmax scale", format_args!("{scale:e}"));
    for (what, tensor) in [("q", &input.queries), ("k", &input.keys), ("v", &input.values)] {
        terms.add(&format!("the tensor {what} as"), format_args!("{tensor:?}"));
    }
    terms.add_plan(plan);
    terms
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

/// Refuses before the start when what the run adds to its inputs exceeds the limit in the process
/// that needs most.
fn check_memory(input: &AttendInput, plan: &Plan, options: &RunOptions) -> Result<(), Error> {
    let problem = plan.problem();
    let (number, index) = (4_u64, 8_u64);
    let shared = options.engine.ranks_in_process(options.ranks) == options.ranks;
    let largest = |layout: &Layout| layout.ranks().map(|rank| layout.count(rank)).max();
    // Rows that the process computes.
    let (queries, keys) = if shared {
        (problem.queries, problem.keys)
    } else {
        (largest(plan.query_layout()).unwrap_or(0), largest(plan.key_layout()).unwrap_or(0))
    };
    // The output, in which the state's y grows.
    let wide = queries.saturating_mul(number * problem.shape.query_width() as u64);
    // m, z and lse of the ranks, and lse in the order of positions.
    let narrow = queries.saturating_mul(4 * number * problem.shape.query_heads() as u64);
    // The tokens of the ranks' slots, and an interval of each query.
    let indices = queries.saturating_mul(3).saturating_add(keys);
    // Between processes, two blocks visit while q, k and v are held: the one in use and the next.
    let visiting = if shared { 0 } else { keys.saturating_mul(2 * problem.kv_bytes_per_token()) };
    let copies = [
        input.queries.copied_bytes(queries, input.queries.dtype()),
        input.keys.copied_bytes(keys, problem.kv_dtype),
        input.values.copied_bytes(keys, problem.kv_dtype),
    ];
    let parts = [wide, narrow, indices.saturating_mul(index), visiting].into_iter().chain(copies);
    let running = parts.fold(0, u64::saturating_add);
    // Afterwards the process of rank 0 holds the whole output and its own rows.
    let row = number * (problem.shape.query_width() + problem.shape.query_heads()) as u64;
    let at_the_end = problem.queries.saturating_add(queries).saturating_mul(row);
    options.check_memory(if shared { running } else { running.max(at_the_end) })
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

/// The output, what each rank measured, and how long they took.
type Attended = (AttendOutput, Vec<RankRecord>, Duration);

/// Runs the ranks; `None` where another process has the output.
fn attend_ranks(
    (input, scale): (&AttendInput, f64),
    plan: &Plan,
    options: &RunOptions,
) -> Result<Option<Attended>, Error> {
    let start = Instant::now();
    let prepared = plan.prepare();
    // Threads write their rows of one output in place, processes make room for their own.
    let mut output = match options.engine {
        Engine::Local => Some(AttendOutput::empty(plan)?),
        Engine::Mpi(_) => None,
    };
    let tokens = tokens_of_all(plan.query_layout(), options)?;
    let places = match &mut output {
        Some(output) => Some(Places::new(&mut output.out, &tokens, plan)?),
        None => None,
    };
    let attending = Attending { input, scale, prepared, places, options, epoch: start };
    let shards = launch(options, &attending)?;
    drop(attending);
    let wall = start.elapsed();
    let mut records = Vec::with_capacity(options.ranks as usize);
    let collected = collect(options, shards, |rank, shard: AttendedShard| {
        let output = match &mut output {
            Some(output) => output,
            None => output.insert(AttendOutput::empty(plan)?),
        };
        shard.put_into(output, &tokens_of(plan.query_layout(), rank)?, plan);
        records.push(shard.record);
        Ok(())
    })?;
    let output = output.filter(|_| collected == Collected::Here);
    Ok(output.map(|output| (output, records, wall)))
}

/// The tokens of the ranks of this process, by rank; none of a rank that is another process.
fn tokens_of_all(
    layout: &Layout,
    options: &RunOptions,
) -> Result<Vec<Arc<Vec<usize>>>, OutOfMemory> {
    match options.engine {
        Engine::Local => layout.ranks().map(|rank| tokens_of(layout, rank)).collect(),
        Engine::Mpi(_) => Ok(Vec::new()),
    }
}

/// The token of each slot of the rank.
fn tokens_of(layout: &Layout, rank: Rank) -> Result<Arc<Vec<usize>>, OutOfMemory> {
    let mut tokens = try_reserved(layout.count(rank) as usize)?;
    tokens.extend(layout.positions(rank).map(|position| position.0 as usize));
    Ok(Arc::new(tokens))
}

/// Where the ranks of one process write: each its own rows of one output, which it locks once.
struct Places<'a> {
    tokens: &'a [Arc<Vec<usize>>],
    rows: Vec<Mutex<OutputRows<'a>>>,
}

impl<'a> Places<'a> {
    fn new(out: &'a mut [f32], tokens: &'a [Arc<Vec<usize>>], plan: &Plan) -> Result<Self, Error> {
        let (shape, total) = (plan.problem().shape, plan.problem().queries as usize);
        let arrangement = Arrangement::head_major(shape.query_heads(), total, shape.head_dim());
        let rows = OutputRows::split(out, arrangement, tokens.iter().map(|tokens| &tokens[..]))?;
        Ok(Self { tokens, rows: rows.into_iter().map(Mutex::new).collect() })
    }
}

/// The task of a rank.
struct Attending<'a> {
    input: &'a AttendInput,
    scale: f64,
    prepared: Prepared<'a>,
    /// `None`: each rank makes room for its own rows.
    places: Option<Places<'a>>,
    options: &'a RunOptions,
    epoch: Instant,
}

impl Task for Attending<'_> {
    type Shard = AttendedShard;
    type Error = AttendError;

    fn run<C: Communicator>(&self, comm: &C) -> Result<AttendedShard, AttendError> {
        let rank = comm.rank();
        if let Some(Places { tokens, rows }) = &self.places {
            let (tokens, rows) = (&tokens[rank.index()], &rows[rank.index()]);
            let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
            let (record, lse) = self.attend(tokens, rows.reborrow(), comm)?;
            return Ok(AttendedShard::new(record, lse, Vec::new()));
        }
        let shape = self.prepared.plan().problem().shape;
        let tokens = tokens_of(self.prepared.plan().query_layout(), rank)?;
        let mut out = try_filled(tokens.len().saturating_mul(shape.query_width()), 0.0)?;
        let arrangement =
            Arrangement::head_major(shape.query_heads(), tokens.len(), shape.head_dim());
        let rows = OutputRows::whole(&mut out, arrangement)?;
        let (record, lse) = self.attend(&tokens, rows, comm)?;
        Ok(AttendedShard::new(record, lse, out))
    }
}

impl Attending<'_> {
    /// Attends for the queries of these tokens.
    fn attend<C: Communicator>(
        &self,
        query_tokens: &Arc<Vec<usize>>,
        out: OutputRows<'_>,
        comm: &C,
    ) -> Result<(RankRecord, Vec<f32>), AttendError> {
        let Self { input, options, .. } = *self;
        let (rank, plan) = (comm.rank(), self.prepared.plan());
        let problem = plan.problem();
        let recording = RankRecording::begin(options, comm, self.epoch)?;
        let rank_plan = RankPlan::new(&self.prepared, rank);
        let device = options.device();
        let kernel = Kernel::with_team(device.isa, device.team(rank)?)?;
        let backend = CpuBackend::new(kernel, problem.shape, self.scale as f32);
        let queries = input.queries.rows(query_tokens, input.queries.dtype())?;
        let key_tokens = if plan.key_layout() == plan.query_layout() {
            Arc::clone(query_tokens)
        } else {
            tokens_of(plan.key_layout(), rank)?
        };
        let keys = input.keys.rows(&key_tokens, problem.kv_dtype)?;
        let values = input.values.rows(&key_tokens, problem.kv_dtype)?;
        let block = CpuBlock::new(keys, values);
        let state = CpuState::empty(out)?;
        #[cfg(feature = "fault-injection")]
        let watch = comm.progress();
        let attended = |pairs| {
            options.meter.add(pairs);
            #[cfg(feature = "fault-injection")]
            if let Some(fault) = &options.fault {
                fault.attended(rank, &watch);
            }
        };
        let non_finite = options.non_finite;
        let trace = Trace::new(recording.recorder(), 0);
        let attended: &(dyn Fn(u64) + Sync) = &attended;
        let overlap = options.overlap;
        let job = Job {
            plan: &rank_plan,
            queries: &queries,
            block,
            non_finite,
            attended,
            trace,
            overlap,
        };
        let (output, measured) = run(&job, state, &backend, comm)?;
        let counts = (measured, *rank_plan.expectation());
        let lse = output.lse.into_iter().map(|NaturalLog(lse)| lse).collect();
        let mut record = RankRecord::new(comm, counts, Duration::ZERO);
        record.spans = recording.into_spans();
        Ok((record, lse))
    }
}
