//! Scoring a document: the log-probability of every token given those before it.
//!
//! Each rank carries its own tokens through all layers; attention is the only place where ranks
//! meet. The rank that owns position `i` predicts token `i + 1`.

use crate::forward::{DensePassError, Head, LayerPass, RotaryTable, Target, Workers};
use crate::load::Model;
use ringattn_comm::{CommError, Communicator};
use ringattn_core::{
    DType, Elements, Mask, OutOfMemory, Position, Progress, Rank, Window, try_filled,
};
use ringattn_engine::cpu::{
    Arrangement, CpuBackend, CpuBlock, CpuState, Device, Kernel, KernelError, OutputRows,
    SharedRows,
};
use ringattn_engine::{
    EngineError, Job, Measured, NonFinite, Overlap, RankPlan, Recorder, Trace, run,
};
use ringattn_plan::{Expectation, Layout, Plan, PlanError, Prepared, Problem, Schedule};
use std::time::Duration;
use thiserror::Error;

/// The plans of a model's layers: one for each different window.
#[derive(Clone, Debug)]
pub struct LayerPlans {
    layout: Layout,
    plans: Vec<Plan>,
    of_layer: Vec<usize>,
}

impl LayerPlans {
    /// Plans for a document whose tokens are placed by `layout`.
    ///
    /// # Errors
    /// When sizes exceed what a plan can count.
    pub fn new(model: &Model, layout: &Layout) -> Result<Self, PlanError> {
        let mut windows: Vec<Option<u64>> = Vec::new();
        let mut plans = Vec::new();
        let mut of_layer = Vec::new();
        for &window in &model.config.sliding_window {
            let known = windows.iter().position(|&w| w == window);
            of_layer.push(known.unwrap_or(windows.len()));
            if known.is_none() {
                windows.push(window);
                plans.push(Plan::new(problem(model, layout, window), layout.clone(), SCHEDULE)?);
            }
        }
        Ok(Self { layout: layout.clone(), plans, of_layer })
    }

    /// Which rank owns which token.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The different plans; at least one for a model with layers.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// All of them, ready to be walked by every rank.
    pub fn prepare(&self) -> Vec<Prepared<'_>> {
        self.plans.iter().map(Plan::prepare).collect()
    }

    /// The plan of each layer, by index into [`LayerPlans::plans`].
    pub fn of_layer(&self) -> &[usize] {
        &self.of_layer
    }
}

const SCHEDULE: Schedule = Schedule::RingPassKv;

fn problem(model: &Model, layout: &Layout, window: Option<u64>) -> Problem {
    // A query sees itself and the `W - 1` keys before it.
    let mask = match window {
        None => Mask::Causal,
        Some(window) => {
            let left = i64::try_from(window).unwrap_or(i64::MAX) - 1;
            Mask::Causal.and(Mask::Window(Window { left, right: 0 }))
        }
    };
    let (queries, keys) = (layout.len(), layout.len());
    Problem { shape: model.config.attention, queries, keys, mask, kv_dtype: DType::F32 }
}

/// What every rank is told.
#[derive(Clone, Copy, Debug)]
pub struct ScoreJob<'a> {
    /// The model, shared by all ranks of the process.
    pub model: &'a Model,
    /// All token ids of the document, below the vocabulary size.
    pub tokens: &'a [u32],
    /// The plans of its layers.
    pub plans: &'a LayerPlans,
    /// The same, prepared.
    pub prepared: &'a [Prepared<'a>],
    /// Where each rank computes.
    pub device: Device,
    /// What to do about values that are not finite.
    pub non_finite: NonFinite,
    /// Whether blocks travel while others are attended.
    pub overlap: Overlap,
}

/// A token and the log-probability (natural) that the tokens before it give to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenScore {
    /// The token's position, from 1 on.
    pub position: Position,
    /// Its id.
    pub token: u32,
    /// `ln p(token | tokens before)`.
    pub logprob: f64,
}

/// What one rank found.
#[derive(Clone, Debug)]
pub struct RankScores {
    /// The rank.
    pub rank: Rank,
    /// Scores of the tokens after this rank's own, in order.
    pub scores: Vec<TokenScore>,
    /// Counts and times of attention, summed over the layers.
    pub measured: Measured,
    /// What the plans say of the counts, summed likewise.
    pub expected: Expectation,
    /// Processor time of the dense layers.
    pub dense: Duration,
}

/// Why a rank could not score.
#[derive(Debug, Error)]
pub enum ScoreError {
    /// Attention failed.
    #[error("layer {layer}: {source}")]
    Attention {
        /// The layer.
        layer: usize,
        /// Why.
        source: EngineError<KernelError>,
    },
    /// The dense part failed.
    #[error(transparent)]
    Dense(#[from] DensePassError),
    /// The kernel or its threads could not be made.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// No memory for activations.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The ranks could not compare their clocks.
    #[error(transparent)]
    Clock(#[from] CommError),
    /// A token that the model does not have.
    #[error("token {token} at position {position} is outside the vocabulary of {vocabulary}")]
    Vocabulary {
        /// Where.
        position: Position,
        /// The id.
        token: u32,
        /// Ids that there are.
        vocabulary: usize,
    },
    /// A log-probability that is not finite.
    #[error("the log-probability of token {position} is not finite")]
    NonFinite {
        /// The rank that computed it.
        rank: Rank,
        /// The token.
        position: Position,
    },
}

/// Who is told what a rank does.
pub struct ScoreObserver<'a> {
    /// Called with the rank's tokens after each layer and after the vocabulary head.
    pub part_done: &'a (dyn Fn(u64) + Sync),
    /// Records the rank's attentions.
    pub recorder: Option<&'a Recorder>,
}

/// Runs the rank's part of the job.
///
/// # Errors
/// When a peer, the device or memory fails, and when values are not finite.
pub fn score_rank<C: Communicator>(
    job: &ScoreJob<'_>,
    comm: &C,
    observer: &ScoreObserver<'_>,
) -> Result<RankScores, ScoreError> {
    let rank = comm.rank();
    let (config, isa) = (&job.model.config, job.device.isa);
    let team = job.device.team(rank)?;
    let workers = Workers::new(team.clone());
    let watch = comm.progress();
    let plans: Vec<_> = job.prepared.iter().map(|plan| RankPlan::new(plan, rank)).collect();
    let layout = job.plans.layout();
    let frequencies = &config.rope.inverse_frequencies;
    let tokens = layout.count(rank) as usize;
    let rotary = RotaryTable::new(layout.positions(rank), tokens, frequencies)?;
    let pass = LayerPass { config, rotary: &rotary, workers: &workers, isa, progress: &watch };
    let kernel = Kernel::with_team(isa, team)?;
    let scale = (1.0 / (config.attention.head_dim() as f64).sqrt()) as f32;
    let backend = CpuBackend::new(kernel, config.attention, scale);

    let mut hidden = embed(job, layout.positions(rank))?;
    let rows = hidden.len() / config.hidden_size;
    let (shape, head_dim) = (config.attention, config.attention.head_dim());
    let query_rows = Arrangement::token_major(shape.query_heads(), rows, head_dim);
    let key_rows = Arrangement::token_major(shape.key_heads(), rows, head_dim);
    // One buffer for all layers: attention sums into it, the output projection reads it.
    let mut attended = try_filled(rows * shape.query_width(), 0.0)?;
    let (mut measured, mut expected) = (Measured::default(), Expectation::default());
    for (layer, weights) in job.model.weights.layers.iter().enumerate() {
        let plan = &plans[job.plans.of_layer[layer]];
        let projected = pass.project(weights, &hidden)?;
        let queries = SharedRows::whole(Elements::F32(projected.q), query_rows);
        let keys = SharedRows::whole(Elements::F32(projected.k), key_rows);
        let values = SharedRows::whole(Elements::F32(projected.v), key_rows);
        let block = CpuBlock::new(keys, values);
        let state = CpuState::empty(OutputRows::whole(&mut attended, query_rows)?)?;
        let non_finite = job.non_finite;
        let trace = Trace::new(observer.recorder, layer as u32);
        let uncounted = &|_| ();
        let attention = Job {
            plan,
            queries: &queries,
            block,
            non_finite,
            attended: uncounted,
            trace,
            overlap: job.overlap,
        };
        let (_, counted) = run(&attention, state, &backend, comm)
            .map_err(|source| ScoreError::Attention { layer, source })?;
        measured += counted;
        expected += *plan.expectation();
        pass.feed_forward(weights, &attended, &mut hidden)?;
        (observer.part_done)(rows as u64);
    }
    let scores = predict(job, layout, (&hidden, &workers), comm)?;
    (observer.part_done)(rows as u64);
    Ok(RankScores { rank, scores, measured, expected, dense: workers.busy() })
}

/// Embeddings of the tokens at these positions, `[rows, H]`.
fn embed(
    job: &ScoreJob<'_>,
    positions: impl Iterator<Item = Position>,
) -> Result<Vec<f32>, ScoreError> {
    let config = &job.model.config;
    let positions: Vec<_> = positions.collect();
    let mut hidden = try_filled(positions.len() * config.hidden_size, 0.0)?;
    for (position, row) in positions.into_iter().zip(hidden.chunks_exact_mut(config.hidden_size)) {
        let token = job.tokens[position.0 as usize];
        let vocabulary = config.vocab_size;
        if token as usize >= vocabulary {
            return Err(ScoreError::Vocabulary { position, token, vocabulary });
        }
        let embedding = &job.model.weights.embedding;
        embedding.row(token as usize, row).map_err(DensePassError::Dense)?;
    }
    Ok(hidden)
}

/// Log-probabilities of the tokens that follow this rank's.
fn predict<C: Communicator>(
    job: &ScoreJob<'_>,
    layout: &Layout,
    (hidden, workers): (&[f32], &Workers),
    comm: &C,
) -> Result<Vec<TokenScore>, ScoreError> {
    let (rank, config) = (comm.rank(), &job.model.config);
    let next: Vec<_> = layout
        .positions(rank)
        .map(|position| position.0 + 1)
        .filter_map(|next| Some((Position(next), *job.tokens.get(next as usize)?)))
        .collect();
    let mut targets: Vec<_> =
        next.iter().map(|&(_, token)| Target { token, logprob: f64::NAN }).collect();
    // The document's last token, which is its owner's last, predicts nothing.
    let hidden = &hidden[..targets.len() * config.hidden_size];
    let watch = comm.progress();
    let progress: &dyn Progress = &watch;
    let head = Head { config, weights: &job.model.weights, workers, isa: job.device.isa, progress };
    head.score(hidden, &mut targets)?;
    let scores: Vec<_> = next
        .into_iter()
        .zip(targets)
        .map(|((position, token), target)| TokenScore { position, token, logprob: target.logprob })
        .collect();
    let bad = scores.iter().find(|score| !score.logprob.is_finite());
    match bad {
        Some(&TokenScore { position, .. }) if job.non_finite == NonFinite::Refuse => {
            Err(ScoreError::NonFinite { rank, position })
        }
        _ => Ok(scores),
    }
}
