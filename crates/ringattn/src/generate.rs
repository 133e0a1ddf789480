//! A continuation of a document over a sharded cache.

mod shard;

use crate::agreement::{Terms, agree, digest};
use crate::engines::Engine;
use crate::error::Error;
use crate::launch::{Collected, Task, collect, launch};
use crate::options::RunOptions;
use crate::recording::RankRecording;
use crate::report::{Headline, RankRecord, Report};
use ringattn_comm::Communicator;
use ringattn_core::{DType, Interval, Mask, Position, QueryIntervals};
use ringattn_engine::Recorder;
use ringattn_model::{
    CacheContents, Decoder, DecoderJob, DensePlacement, Finish, GenerateError, GenerateJob,
    Listener, Model, RankGeneration, Sampling, StoreError, StoredCache, TokenScore, Visitors,
    check_target, generate_rank, save_rank, visitors,
};
use ringattn_plan::{
    AnswerPlacement, Expectation, Layout, Plan, Problem, reduce_rounds, tree_rounds,
};
use serde::Serialize;
use shard::{GeneratedShard, Story};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thiserror::Error as ThisError;

/// What to generate from, and how.
#[derive(Clone, Debug)]
pub struct GenerateInput {
    /// Tokens to put behind those of the loaded cache.
    pub prompt: Vec<u32>,
    /// Tokens to generate at most.
    pub new_tokens: usize,
    /// Tokens of the prompt that are computed at once; `None`: all.
    pub prefill_chunk: Option<usize>,
    /// Tokens of a block of generated ones in the cache, at least 1.
    pub cache_block: u64,
    /// The type in which keys and values are kept; `None`: that of the loaded cache, or f32.
    pub cache_dtype: Option<DType>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Tokens that end the text and are not part of it.
    pub end_tokens: Vec<u32>,
    /// A cache to go on with.
    pub load_cache: Option<PathBuf>,
    /// Where the cache goes in the end.
    pub save_cache: Option<PathBuf>,
}

/// Tokens that one rank takes at a time of those that are generated, unless said otherwise.
pub const DEFAULT_CACHE_BLOCK: u64 = 16;

impl GenerateInput {
    /// The most likely continuation of `prompt`, everything else at its default.
    pub fn new(prompt: Vec<u32>, new_tokens: usize) -> Self {
        Self {
            prompt,
            new_tokens,
            prefill_chunk: None,
            cache_block: DEFAULT_CACHE_BLOCK,
            cache_dtype: None,
            sampling: Sampling::default(),
            end_tokens: Vec::new(),
            load_cache: None,
            save_cache: None,
        }
    }
}

/// The continuation.
#[derive(Clone, Debug)]
pub struct GenerateOutput {
    /// The tokens in order, each with the log-probability that the model gives it.
    pub tokens: Vec<TokenScore>,
    /// Why the text ended.
    pub finish: Finish,
}

/// What `generate` adds to the report. Counts of decoding are measured.
#[derive(Clone, Debug, Serialize)]
pub struct GenerateResult {
    /// Tokens of the loaded cache.
    pub cached_tokens: usize,
    /// Tokens of the prompt behind them, those that the loaded cache had left to do included.
    pub prompt_tokens: usize,
    /// Tokens generated.
    pub generated_tokens: usize,
    /// Their ids.
    pub token_ids: Vec<u32>,
    /// `length`, `end_token` or `stopped`.
    pub finish: &'static str,
    /// Seconds until the prompt was in the cache.
    pub prefill_s: f64,
    /// Prompt tokens per second of it.
    pub prefill_tokens_per_s: f64,
    /// Seconds until the first token was chosen; `None` when none was.
    pub time_to_first_token_s: Option<f64>,
    /// Seconds from the first token to the last.
    pub decode_s: f64,
    /// Tokens per second after the first; `None` when there are none.
    pub decode_tokens_per_s: Option<f64>,
    /// Bytes of keys and values of all layers in the end, by rank.
    pub cache_bytes_per_rank: Vec<u64>,
    /// How the tokens were decoded.
    pub decode: DecodeReport,
    /// Whether the text is longer than what the model was trained on.
    pub beyond_trained_context: bool,
}

/// The steps of decoding: one per generated token but the last.
#[derive(Clone, Debug, Serialize)]
pub struct DecodeReport {
    /// `tree-reduce` where rank 0 computes the dense layers, else `tree`.
    pub schedule: String,
    /// Where the dense layers were computed: `root`, on rank 0 with all threads of the process, or
    /// `repeated` by every rank.
    pub dense: &'static str,
    /// Steps.
    pub steps: usize,
    /// Rounds of messages per layer: `ceil(log2 p)`; of `tree` that to all ranks, `floor(log2 p) + 2` where
    /// `p` is no power of two.
    pub rounds_per_layer: u32,
    /// The same for all layers.
    pub rounds_per_token: u64,
    /// Bytes of a message: `Hq (d + 2)` f32.
    pub state_bytes: u64,
    /// Messages that each rank received per step, all layers.
    pub messages_per_token: Vec<f64>,
    /// Bytes of states that each rank sent per step, all layers.
    pub sent_bytes_per_token: Vec<f64>,
    /// Bytes that each rank received per step, all layers.
    pub received_bytes_per_token: Vec<f64>,
    /// Bytes of keys and values that any rank received: 0.
    pub received_kv_bytes: u64,
}

/// Why a rank could not generate.
#[derive(Debug, ThisError)]
pub enum RankGenerateError {
    /// The model, its cache or a peer failed.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// The cache could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Continues a document over the ranks of `options`; `listener` hears each token when it is chosen, on
/// rank 0. `None` in a process of an MPI job that is not rank 0, where the result is.
///
/// # Errors
/// When there is nothing to continue, a token is outside the vocabulary, the cache cannot be read or
/// written, or a rank, memory or the numbers fail.
pub fn generate(
    model: &Model,
    input: &GenerateInput,
    options: &RunOptions,
    listener: &dyn Listener,
) -> Result<Option<(GenerateOutput, Report<GenerateResult>)>, Error> {
    let stored = options.engine.together(&options.stop, || {
        let stored = input.load_cache.as_deref().map(|folder| StoredCache::open(folder, model));
        let stored = stored.transpose()?;
        if let Some(folder) = &input.save_cache {
            check_target(folder)?;
        }
        Ok::<_, Error>(stored)
    })?;
    let world = options
        .engine
        .together(&options.stop, || World::new(model, input, options, stored.as_ref()))?;
    agree(options, || world.terms())?;
    options.meter.start(world.prompt.len() as u64 * model.config.layers as u64);
    let start = Instant::now();
    let shards = launch(options, &Generating { world: &world, listener, epoch: start })?;
    let wall = start.elapsed();
    let mut ranks = Vec::with_capacity(options.ranks as usize);
    let collected = collect(options, shards, |_, shard: GeneratedShard| {
        ranks.push(shard);
        Ok(())
    })?;
    let story = ranks.first_mut().and_then(|first| first.story.take());
    match (collected, story) {
        (Collected::Here, Some(story)) => Ok(Some(report(&world, ranks, story, wall)?)),
        _ => Ok(None),
    }
}

/// What all ranks share.
struct World<'a> {
    model: &'a Model,
    input: &'a GenerateInput,
    options: &'a RunOptions,
    stored: Option<&'a StoredCache>,
    /// The layout of the stored tokens.
    layout: Layout,
    /// What the stored cache left to do, and the prompt.
    prompt: Vec<u32>,
    dtype: DType,
    dense: DensePlacement,
}

impl<'a> World<'a> {
    fn new(
        model: &'a Model,
        input: &'a GenerateInput,
        options: &'a RunOptions,
        stored: Option<&'a StoredCache>,
    ) -> Result<Self, Error> {
        options.check_ranks()?;
        input.sampling.validate()?;
        if model.isa() != options.isa {
            return Err(Error::Mismatch {
                what: "the instruction set that the weights are packed for",
                expected: options.isa.to_string(),
                actual: model.isa().to_string(),
            });
        }
        let pending = stored.map_or(&[][..], StoredCache::pending);
        let prompt = [pending, &input.prompt].concat();
        let vocabulary = model.config.vocab_size;
        if prompt.is_empty() {
            return Err(Error::NothingToContinue);
        }
        if let Some(index) = prompt.iter().position(|&token| token as usize >= vocabulary) {
            return Err(Error::Vocabulary { index, token: prompt[index], vocabulary });
        }
        let dtype = match (stored.map(StoredCache::dtype), input.cache_dtype) {
            (Some(stored), Some(wanted)) if stored != wanted => {
                return Err(Error::Mismatch {
                    what: "the type of the loaded cache",
                    expected: wanted.to_string(),
                    actual: stored.to_string(),
                });
            }
            (stored, wanted) => stored.or(wanted).unwrap_or(DType::F32),
        };
        let layout = options.layout(stored.map_or(0, |stored| stored.tokens().len() as u64))?;
        let dense = match options.engine {
            Engine::Local => DensePlacement::Root { threads: options.process_threads() },
            Engine::Mpi(_) => DensePlacement::Repeated,
        };
        let world = Self { model, input, options, stored, layout, prompt, dtype, dense };
        world.check_memory()?;
        Ok(world)
    }

    /// What the ranks of a job must have in common.
    fn terms(&self) -> Result<Terms, Error> {
        let Self { model, input, options, .. } = *self;
        let mut terms = Terms::new("generate", options);
        terms.add("a model with the digest", format_args!("{:016x}", model.digest()?));
        terms.add(
            "a cache of tokens with the digest",
            format_args!("{:016x}", digest(&self.cached())),
        );
        terms.add("a prompt with the digest", format_args!("{:016x}", digest(&self.prompt)));
        terms.add("the type of the cache", self.dtype);
        terms.add("the layout", format_args!("{} {:?}", options.layout, options.block));
        terms.add("the block of the cache", input.cache_block);
        terms.add("the pieces of the prompt", format_args!("{:?}", input.prefill_chunk));
        terms.add("the number of new tokens", input.new_tokens);
        terms.add("the sampling", format_args!("{:?}", input.sampling));
        let saves = if input.save_cache.is_some() { "saved" } else { "not saved" };
        terms.add("a cache that is", saves);
        Ok(terms)
    }

    fn cached(&self) -> &[u32] {
        self.stored.map_or(&[], StoredCache::tokens)
    }

    /// All tokens that there may be in the end.
    fn tokens(&self) -> u64 {
        let (cached, new) = (self.cached().len(), self.input.new_tokens);
        (cached as u64).saturating_add(self.prompt.len() as u64).saturating_add(new as u64)
    }

    /// Refuses before the start when weights, cache, activations and visitors of all ranks exceed the limit.
    fn check_memory(&self) -> Result<(), Error> {
        if self.options.memory_limit.is_none() {
            return Ok(());
        }
        let config = &self.model.config;
        let (query, key) = (config.attention.query_width(), config.attention.key_width());
        let per_token = 2 * key as u64 * config.layers as u64 * self.dtype.size();
        let cache = self.tokens().saturating_mul(per_token);
        let piece = self.input.prefill_chunk.unwrap_or(self.prompt.len()).min(self.prompt.len());
        let row = config.hidden_size + 2 * query + 2 * key + config.attention.head_dim();
        let activations = (piece as u64).saturating_mul(4 * row as u64);
        let parts = [self.model.weight_bytes(), cache, activations, self.visiting_bytes()?];
        self.options.check_memory(parts.into_iter().fold(0, u64::saturating_add))
    }

    /// Most bytes of what ranks hold of each other in the process that needs most.
    fn visiting_bytes(&self) -> Result<u64, Error> {
        let options = self.options;
        let piece = self.input.prefill_chunk.unwrap_or(self.prompt.len()).max(1);
        let pieces = self.prompt.chunks(piece).map(|tokens| tokens.len() as u64);
        let decoded = (self.input.new_tokens > 1).then_some(1);
        let (config, dealt) = (&self.model.config, (options.layout, options.block));
        let layout = self.layout.clone();
        let how = (dealt, self.dense);
        let ranks = visitors(config, self.dtype, layout, how, pieces.chain(decoded))?;
        if options.engine.ranks_in_process(options.ranks) == options.ranks {
            // Between threads keys, values and queries are handed over as they lie.
            let states = ranks.iter().map(|rank| rank.state_bytes);
            return Ok(states.fold(0, u64::saturating_add));
        }
        Ok(ranks.iter().map(Visitors::bytes).max().unwrap_or(0))
    }

    /// One rank's part.
    fn rank<C: Communicator>(
        &self,
        comm: &C,
        (listener, recorder): (&dyn Listener, Option<&Recorder>),
    ) -> Result<RankGeneration, RankGenerateError> {
        let (options, input) = (self.options, self.input);
        let job = DecoderJob {
            model: self.model,
            device: options.device(),
            dense: self.dense,
            non_finite: options.non_finite,
            overlap: options.overlap,
            recorder,
            layer_done: &|tokens| options.meter.add(tokens),
        };
        let decoder = match self.stored {
            None => Decoder::new(job, self.dtype, comm)?,
            Some(stored) => {
                let announced = (self.prompt.len() + input.new_tokens) as u64;
                let cache = stored.restore(&self.layout, comm.rank(), announced)?;
                Decoder::with_cache(job, cache, comm)?
            }
        };
        let job = GenerateJob {
            cached: self.cached(),
            prompt: &self.prompt,
            new_tokens: input.new_tokens,
            prefill_chunk: input.prefill_chunk,
            layout: (options.layout, options.block),
            cache_block: input.cache_block,
            sampling: input.sampling,
            end_tokens: &input.end_tokens,
        };
        let (done, cache) = generate_rank(&job, decoder, comm, (options.non_finite, listener))?;
        if let Some(folder) = &input.save_cache {
            let text = self.text(&done, comm);
            let (tokens, pending) = text.split_at(done.layout.len() as usize);
            let contents = CacheContents { tokens, pending };
            save_rank(folder, self.model, (&cache, contents), comm)?;
        }
        Ok(done)
    }

    /// All tokens, those generated included; elsewhere than on rank 0 those in the cache suffice.
    fn text<C: Communicator>(&self, done: &RankGeneration, comm: &C) -> Vec<u32> {
        let generated = done.generated.iter().map(|score| score.token);
        let mut text = [self.cached(), &self.prompt].concat();
        text.extend(generated);
        if comm.rank().0 != 0 {
            text.resize(done.layout.len() as usize, 0);
        }
        text
    }
}

/// The task of a rank.
struct Generating<'a> {
    world: &'a World<'a>,
    listener: &'a dyn Listener,
    epoch: Instant,
}

impl Task for Generating<'_> {
    type Shard = GeneratedShard;
    type Error = RankGenerateError;

    fn run<C: Communicator>(&self, comm: &C) -> Result<GeneratedShard, RankGenerateError> {
        let recording = RankRecording::begin(self.world.options, comm, self.epoch)
            .map_err(GenerateError::from)?;
        let done = self.world.rank(comm, (self.listener, recording.recorder()))?;
        let counts = (done.prefill.measured, done.prefill.expected);
        let mut record = RankRecord::new(comm, counts, done.dense);
        record.spans = recording.into_spans();
        Ok(GeneratedShard::new(done, record))
    }
}

fn report(
    world: &World<'_>,
    ranks: Vec<GeneratedShard>,
    story: Story,
    wall: Duration,
) -> Result<(GenerateOutput, Report<GenerateResult>), Error> {
    let result = result(world, &ranks, &story);
    let plan = last_plan(world, &story.layout)?;
    let (options, layers) = (world.options, world.model.config.layers);
    let mask = match world.model.config.sliding_window.first().copied().flatten() {
        None => "causal".to_owned(),
        Some(window) => format!("causal & window({},0)", window - 1),
    };
    let headline = Headline { command: "generate", options, plan: &plan, mask, layers };
    let records = ranks.into_iter().map(|rank| rank.record).collect();
    let mut report = Report::new(&headline, records, wall, result);
    report.unique_kv_bytes = report.result.cache_bytes_per_rank.iter().sum();
    Ok((GenerateOutput { tokens: story.generated, finish: story.finish }, report))
}

/// The plan of the last step, for the report's headline.
fn last_plan(world: &World<'_>, layout: &Layout) -> Result<Plan, Error> {
    let keys = layout.len();
    let whole = Interval::new(Position(0), Position(keys));
    let mask = Mask::Intervals(QueryIntervals::new([whole]));
    let (shape, kv_dtype) = (world.model.config.attention, world.dtype);
    let problem = Problem { shape, queries: 1, keys, mask, kv_dtype };
    Ok(Plan::with_replicated_queries(problem, layout.clone(), world.dense.tree())?)
}

fn result(world: &World<'_>, ranks: &[GeneratedShard], story: &Story) -> GenerateResult {
    let generated = &story.generated;
    let prefill_s = story.prefill_time.as_secs_f64();
    let decode_s = story.decode_time.as_secs_f64();
    let after_first = generated.len().saturating_sub(1);
    let all = world.cached().len() + world.prompt.len() + generated.len();
    let trained = world.model.config.trained_context;
    GenerateResult {
        cached_tokens: world.cached().len(),
        prompt_tokens: world.prompt.len(),
        generated_tokens: generated.len(),
        token_ids: generated.iter().map(|score| score.token).collect(),
        finish: match story.finish {
            Finish::Length => "length",
            Finish::EndToken(_) => "end_token",
            Finish::Stopped => "stopped",
        },
        prefill_s,
        prefill_tokens_per_s: world.prompt.len() as f64 / prefill_s,
        time_to_first_token_s: story.first_token_time.map(|time| time.as_secs_f64()),
        decode_s,
        decode_tokens_per_s: (after_first > 0).then(|| after_first as f64 / decode_s),
        cache_bytes_per_rank: ranks.iter().map(|rank| rank.cache_bytes).collect(),
        decode: decode_report(world, ranks, story.decode_steps),
        beyond_trained_context: trained.is_some_and(|trained| all as u64 > trained),
    }
}

fn decode_report(world: &World<'_>, ranks: &[GeneratedShard], steps: usize) -> DecodeReport {
    let shape = world.model.config.attention;
    let schedule = world.dense.tree();
    let rounds = match schedule.answer_placement() {
        AnswerPlacement::Root => reduce_rounds(world.options.ranks),
        AnswerPlacement::WithQueries => tree_rounds(world.options.ranks),
    };
    let per_token = |count: fn(&Expectation) -> u64| -> Vec<f64> {
        ranks.iter().map(|rank| count(rank.decoded()) as f64 / steps.max(1) as f64).collect()
    };
    DecodeReport {
        schedule: schedule.to_string(),
        dense: match world.dense {
            DensePlacement::Root { .. } => "root",
            DensePlacement::Repeated => "repeated",
        },
        steps,
        rounds_per_layer: rounds,
        rounds_per_token: u64::from(rounds) * world.model.config.layers as u64,
        state_bytes: (shape.query_heads() * (shape.head_dim() + 2) * 4) as u64,
        messages_per_token: per_token(|counts| counts.hops),
        sent_bytes_per_token: per_token(|counts| counts.sent_bytes),
        received_bytes_per_token: per_token(|counts| counts.received_bytes),
        received_kv_bytes: ranks.iter().map(|rank| rank.decoded().received_kv_bytes).sum(),
    }
}
