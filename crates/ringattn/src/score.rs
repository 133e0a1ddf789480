//! Log-probabilities of a document under a model.

use crate::agreement::{Terms, agree, digest};
use crate::error::Error;
use crate::launch::{Collected, Task, collect, launch};
use crate::options::RunOptions;
use crate::recording::RankRecording;
use crate::report::{Headline, RankRecord, Report};
use ringattn_comm::Communicator;
use ringattn_core::{Message, MessageError, Payload, Position, try_reserved};
use ringattn_model::{
    LayerPlans, Model, ScoreError, ScoreJob, ScoreObserver, TokenScore, score_rank,
};
use ringattn_plan::Plan;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// Opens a model, unless its files alone exceed the memory limit.
///
/// # Errors
/// As for [`Model::open`], and when the limit is exceeded.
pub fn open_model(path: &Path, options: &RunOptions) -> Result<Model, Error> {
    if options.memory_limit.is_some() {
        options.check_memory(Model::stored_bytes(path)?)?;
    }
    Ok(Model::open(path)?)
}

/// The scores of a document.
#[derive(Clone, Debug)]
pub struct ScoreOutput {
    /// One for each token but the first, in order.
    pub scores: Vec<TokenScore>,
    /// The sums.
    pub summary: ScoreResult,
}

/// What `score` adds to the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoreResult {
    /// Tokens that got a log-probability.
    pub scored_tokens: usize,
    /// Sum of the log-probabilities (natural).
    pub total_logprob: f64,
    /// Mean negative log-probability; `None` when no token was scored.
    pub mean_nll: Option<f64>,
    /// `exp(mean_nll)`; `None` when no token was scored.
    pub perplexity: Option<f64>,
    /// Whether the document is longer than what the model was trained on.
    pub beyond_trained_context: bool,
}

/// Scores `tokens` over the ranks of `options`. `None` in a process of an MPI job that is not rank 0,
/// where the result is.
///
/// # Errors
/// When there is no token, one is outside the vocabulary, or a rank, memory or the numbers fail.
pub fn score(
    model: &Model,
    tokens: &[u32],
    options: &RunOptions,
) -> Result<Option<(ScoreOutput, Report<ScoreResult>)>, Error> {
    let plans = options.engine.together(&options.stop, || checked(model, tokens, options))?;
    // The layers, and the vocabulary head as one more.
    options.meter.start(tokens.len() as u64 * (plans.of_layer().len() as u64 + 1));
    agree(options, || terms(model, tokens, &plans, options))?;
    let prepared = plans.prepare();
    let job = ScoreJob {
        model,
        tokens,
        plans: &plans,
        prepared: &prepared,
        device: options.device(),
        non_finite: options.non_finite,
        overlap: options.overlap,
    };
    let start = Instant::now();
    let shards = launch(options, &Scoring { job, options, epoch: start })?;
    let wall = start.elapsed();
    let (mut records, mut scores) = (Vec::new(), Vec::new());
    let collected = collect(options, shards, |_, shard: ScoredShard| {
        records.push(shard.record);
        if scores.is_empty() {
            scores = try_reserved(tokens.len())?;
        }
        scores.extend(shard.scores);
        Ok(())
    })?;
    if collected != Collected::Here {
        return Ok(None);
    }
    scores.sort_unstable_by_key(|score| score.position);
    let output = ScoreOutput { summary: summary(model, tokens, &scores), scores };
    let plan = first_plan(&plans);
    let mask = plan.problem().mask.to_string();
    let headline =
        Headline { command: "score", options, plan, mask, layers: plans.of_layer().len() };
    let report = Report::new(&headline, records, wall, output.summary.clone());
    Ok(Some((output, report)))
}

/// The plans, if the run can be and fits into memory.
fn checked(model: &Model, tokens: &[u32], options: &RunOptions) -> Result<LayerPlans, Error> {
    options.check_ranks()?;
    check_tokens(model, tokens)?;
    if model.isa() != options.isa {
        return Err(Error::Mismatch {
            what: "the instruction set that the weights are packed for",
            expected: options.isa.to_string(),
            actual: model.isa().to_string(),
        });
    }
    let layout = options.layout(tokens.len() as u64)?;
    let plans = LayerPlans::new(model, &layout)?;
    check_memory(model, &plans, options)?;
    Ok(plans)
}

/// What the ranks of a job must have in common.
fn terms(
    model: &Model,
    tokens: &[u32],
    plans: &LayerPlans,
    options: &RunOptions,
) -> Result<Terms, Error> {
    let mut terms = Terms::new("score", options);
    terms.add("a model with the digest", format_args!("{:016x}", model.digest()?));
    terms.add("tokens with the digest", format_args!("{:016x}", digest(&tokens)));
    plans.plans().iter().for_each(|plan| terms.add_plan(plan));
    Ok(terms)
}

/// The task of a rank.
struct Scoring<'a> {
    job: ScoreJob<'a>,
    options: &'a RunOptions,
    epoch: Instant,
}

impl Task for Scoring<'_> {
    type Shard = ScoredShard;
    type Error = ScoreError;

    fn run<C: Communicator>(&self, comm: &C) -> Result<ScoredShard, ScoreError> {
        let recording = RankRecording::begin(self.options, comm, self.epoch)?;
        let observer = ScoreObserver {
            part_done: &|tokens| self.options.meter.add(tokens),
            recorder: recording.recorder(),
        };
        let found = score_rank(&self.job, comm, &observer)?;
        let mut record = RankRecord::new(comm, (found.measured, found.expected), found.dense);
        record.spans = recording.into_spans();
        Ok(ScoredShard { record, scores: found.scores })
    }
}

/// What one rank found.
struct ScoredShard {
    record: RankRecord,
    scores: Vec<TokenScore>,
}

/// The bytes of the record in the header; record and scores, three words each, in the payload.
impl Message for ScoredShard {
    const KIND: &'static str = "scores";

    fn byte_len(&self) -> u64 {
        24 * self.scores.len() as u64
    }

    fn header(&self) -> Vec<u64> {
        vec![self.record.to_bytes().len() as u64]
    }

    fn payload(&self) -> Payload {
        let words = |score: &TokenScore| {
            [score.position.0, u64::from(score.token), score.logprob.to_bits()]
        };
        let mut bytes = self.record.to_bytes();
        bytes.extend(self.scores.iter().flat_map(words).flat_map(u64::to_ne_bytes));
        bytes.into()
    }

    fn from_payload(header: &[u64], payload: Vec<u8>) -> Result<Self, MessageError> {
        let kind = Self::KIND;
        let &[expected] = header else {
            return Err(MessageError::Header { kind, expected: 1, actual: header.len() });
        };
        let actual = payload.len() as u64;
        let parts = payload.split_at_checked(usize::try_from(expected).unwrap_or(usize::MAX));
        let found = parts.and_then(|(record, rest)| {
            let (scores, rest) = rest.as_chunks::<24>();
            Some((RankRecord::from_bytes(record)?, scores)).filter(|_| rest.is_empty())
        });
        let (record, scores) = found.ok_or(MessageError::Payload { kind, expected, actual })?;
        Ok(Self { record, scores: scores.iter().map(token_score).collect() })
    }
}

fn token_score(bytes: &[u8; 24]) -> TokenScore {
    let word = |index: usize| u64::from_ne_bytes(bytes.as_chunks().0[index]);
    let (position, token) = (Position(word(0)), word(1) as u32);
    TokenScore { position, token, logprob: f64::from_bits(word(2)) }
}

/// The plan of the first layer; a model that loads has one.
fn first_plan(plans: &LayerPlans) -> &Plan {
    &plans.plans()[0]
}

fn check_tokens(model: &Model, tokens: &[u32]) -> Result<(), Error> {
    if tokens.is_empty() {
        return Err(Error::NoTokens);
    }
    let vocabulary = model.config.vocab_size;
    match tokens.iter().position(|&token| token as usize >= vocabulary) {
        Some(index) => Err(Error::Vocabulary { index, token: tokens[index], vocabulary }),
        None => Ok(()),
    }
}

fn summary(model: &Model, tokens: &[u32], scores: &[TokenScore]) -> ScoreResult {
    let total = scores.iter().fold(0.0, |total, score| total + score.logprob);
    let mean_nll = (!scores.is_empty()).then(|| -total / scores.len() as f64);
    let beyond = model.config.trained_context.is_some_and(|trained| tokens.len() as u64 > trained);
    ScoreResult {
        scored_tokens: scores.len(),
        total_logprob: total,
        mean_nll,
        perplexity: mean_nll.map(f64::exp),
        beyond_trained_context: beyond,
    }
}

/// Refuses before the start when weights and activations of the ranks of a process exceed the limit.
fn check_memory(model: &Model, plans: &LayerPlans, options: &RunOptions) -> Result<(), Error> {
    let (config, layout) = (&model.config, plans.layout());
    let shared = options.engine.ranks_in_process(options.ranks) == options.ranks;
    let largest = || layout.ranks().map(|rank| layout.count(rank)).max().unwrap_or(0);
    let tokens = if shared { layout.len() } else { largest() };
    let (query, key) = (config.attention.query_width(), config.attention.key_width());
    // Per token: the residual, Q, K, V, the state, and the cosines and sines of RoPE.
    // Between processes two more blocks visit: the one in use and the next.
    let blocks = if shared { 1 } else { 3 };
    let per_token = config.hidden_size + 2 * query + 2 * blocks * key + config.attention.head_dim();
    let activations = tokens.saturating_mul(4 * per_token as u64);
    options.check_memory(model.weight_bytes().saturating_add(activations))
}
