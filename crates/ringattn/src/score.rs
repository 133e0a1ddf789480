//! Log-probabilities of a document under a model.

use crate::error::Error;
use crate::launch::launch;
use crate::options::RunOptions;
use crate::report::{Headline, RankRecord, Report};
use ringattn_model::{LayerPlans, Model, ScoreJob, TokenScore, score_rank};
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

/// Scores `tokens` over the ranks of `options`.
///
/// # Errors
/// When there is no token, one is outside the vocabulary, or a rank, memory or the numbers fail.
pub fn score(
    model: &Model,
    tokens: &[u32],
    options: &RunOptions,
) -> Result<(ScoreOutput, Report<ScoreResult>), Error> {
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
    check_memory(model, tokens.len() as u64, options)?;
    // The layers, and the vocabulary head as one more.
    options.meter.start(tokens.len() as u64 * (plans.of_layer().len() as u64 + 1));
    let prepared = plans.prepare();
    let job = ScoreJob {
        model,
        tokens,
        plans: &plans,
        prepared: &prepared,
        device: options.device(),
        non_finite: options.non_finite,
    };
    let start = Instant::now();
    let ranks =
        launch(options, |comm| score_rank(&job, &comm, &|tokens| options.meter.add(tokens)))?;
    let wall = start.elapsed();
    let records: Vec<_> = ranks
        .iter()
        .map(|r| RankRecord { measured: r.measured, expected: r.expected, dense: r.dense })
        .collect();
    let mut scores: Vec<_> = ranks.into_iter().flat_map(|rank| rank.scores).collect();
    scores.sort_unstable_by_key(|score| score.position);
    let output = ScoreOutput { summary: summary(model, tokens, &scores), scores };
    let plan = first_plan(&plans);
    let mask = plan.problem().mask.to_string();
    let headline =
        Headline { command: "score", options, plan, mask, layers: plans.of_layer().len() };
    let report = Report::new(&headline, &records, wall, output.summary.clone());
    Ok((output, report))
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

/// Refuses before the start when weights and activations of all ranks exceed the limit.
fn check_memory(model: &Model, tokens: u64, options: &RunOptions) -> Result<(), Error> {
    let config = &model.config;
    let (query, key) = (config.attention.query_width(), config.attention.key_width());
    // Per token: the residual, Q, K, V, the state, and the cosines and sines of RoPE.
    let per_token = config.hidden_size + 2 * query + 2 * key + config.attention.head_dim();
    let activations = tokens.saturating_mul(4 * per_token as u64);
    options.check_memory(model.weight_bytes().saturating_add(activations))
}
