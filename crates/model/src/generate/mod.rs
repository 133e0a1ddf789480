//! Generation: a prompt into a sharded cache, then token after token.
//!
//! Every rank runs [`generate_rank`]. Rank 0 chooses the next token and tells the others, so that ranks
//! cannot diverge; a [`Listener`] hears it there and may end the text. A token is chosen from the logits
//! after the one before it and enters the cache when the next is needed, so the last one chosen is not
//! in the cache.

mod decoder;
mod error;
mod extension;
mod message;
mod sample;
mod visitors;

pub use decoder::{Counted, Decoder, DecoderJob, DensePlacement, Placement, Wanted};
pub use error::GenerateError;
pub use sample::{Sampling, SamplingError};
pub use visitors::{Visitors, visitors};

use crate::forward::logprob;
use crate::score::TokenScore;
use decoder::ROOT;
use message::Next;
use ringattn_comm::Communicator;
use ringattn_core::Position;
use ringattn_engine::NonFinite;
use ringattn_engine::cpu::{Isa, KvCache};
use ringattn_plan::{Layout, LayoutKind};
use sample::Sampler;
use std::time::{Duration, Instant};

/// What every rank is told beside the decoder's job.
#[derive(Clone, Copy, Debug)]
pub struct GenerateJob<'a> {
    /// Tokens that the cache holds already.
    pub cached: &'a [u32],
    /// Tokens to put behind them.
    pub prompt: &'a [u32],
    /// Tokens to generate at most.
    pub new_tokens: usize,
    /// Tokens of the prompt that are computed at once; `None`: all.
    pub prefill_chunk: Option<usize>,
    /// Which rank owns which token of a piece of the prompt.
    pub layout: (LayoutKind, Option<u64>),
    /// Tokens of a block of generated ones.
    pub cache_block: u64,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Tokens that end the text and are not part of it.
    pub end_tokens: &'a [u32],
}

/// Whether the text goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    Continue,
    /// The token just heard is the last.
    Stop,
}

/// Hears of the run on rank 0.
pub trait Listener: Sync {
    /// A token was chosen.
    fn token(&self, token: TokenScore) -> Flow;
}

/// Why the text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// As many tokens as were asked for.
    Length,
    /// A token that ends texts.
    EndToken(u32),
    /// The listener had enough.
    Stopped,
}

/// What one rank did.
#[derive(Debug)]
pub struct RankGeneration {
    /// Which rank holds which token of the cache in the end.
    pub layout: Layout,
    /// Bytes of the rank's shard of the cache in the end.
    pub cache_bytes: u64,
    /// Counts of the prompt's attention.
    pub prefill: Counted,
    /// Counts of the generated tokens'.
    pub decode: Counted,
    /// Tokens that were generated and have entered the cache: one step of decoding each.
    pub decode_steps: usize,
    /// Processor time of the dense layers.
    pub dense: Duration,
    /// From the start until the prompt was in the cache.
    pub prefill_time: Duration,
    /// From the start until the first token was chosen; `None` when none was.
    pub first_token_time: Option<Duration>,
    /// From the first token until the last was chosen; meaningful on rank 0.
    pub decode_time: Duration,
    /// The tokens in order; on rank 0, empty elsewhere.
    pub generated: Vec<TokenScore>,
    /// Why the text ended; meaningful on rank 0.
    pub finish: Finish,
}

/// Puts the prompt into the cache and generates; the cache then holds all tokens but the last generated.
///
/// # Errors
/// As for [`Decoder::extend`], and when logits are not finite.
pub fn generate_rank<C: Communicator>(
    job: &GenerateJob<'_>,
    mut decoder: Decoder<'_, C>,
    comm: &C,
    (non_finite, listener): (NonFinite, &dyn Listener),
) -> Result<(RankGeneration, KvCache), GenerateError> {
    let start = Instant::now();
    decoder.reserve((job.prompt.len() + job.new_tokens) as u64)?;
    let mut logits = prefill(job, &mut decoder)?;
    let (prefill_time, prefill) = (start.elapsed(), decoder.take_counted());
    let mut chooser = Chooser::new(job, decoder.isa(), (non_finite, listener));
    let (mut steps, mut first_token_time) = (0, None);
    loop {
        let next = match comm.rank() == ROOT {
            true => Some(chooser.next(logits.as_deref(), decoder.cache().layout().len())?),
            false => None,
        };
        let next = comm.broadcast(next, ROOT)?;
        if comm.rank() == ROOT && !chooser.generated.is_empty() {
            first_token_time.get_or_insert_with(|| start.elapsed());
        }
        let Next::Token(token) = next else { break };
        logits = decoder.extend(&[token], Placement::Generated(job.cache_block), Wanted::Last)?;
        steps += 1;
    }
    let decode_time = start.elapsed().saturating_sub(first_token_time.unwrap_or_default());
    let decode = decoder.take_counted();
    let dense = decoder.dense_time();
    let cache = decoder.into_cache();
    let done = RankGeneration {
        layout: cache.layout().clone(),
        cache_bytes: cache.resident_bytes(),
        prefill,
        decode,
        decode_steps: steps,
        dense,
        prefill_time,
        first_token_time,
        decode_time,
        generated: chooser.generated,
        finish: chooser.finish,
    };
    Ok((done, cache))
}

/// Puts the prompt into the cache, piece by piece; the logits after it, on rank 0.
fn prefill<C: Communicator>(
    job: &GenerateJob<'_>,
    decoder: &mut Decoder<'_, C>,
) -> Result<Option<Vec<f32>>, GenerateError> {
    let piece = job.prefill_chunk.unwrap_or(job.prompt.len()).max(1);
    let pieces = job.prompt.len().div_ceil(piece);
    let (kind, block) = job.layout;
    let mut logits = None;
    for (index, tokens) in job.prompt.chunks(piece).enumerate() {
        let last = index + 1 == pieces && job.new_tokens > 0;
        let wanted = if last { Wanted::Last } else { Wanted::Nothing };
        logits = decoder.extend(tokens, Placement::Prompt(kind, block), wanted)?;
    }
    Ok(logits)
}

/// Rank 0's choice of tokens.
struct Chooser<'a> {
    job: &'a GenerateJob<'a>,
    isa: Isa,
    non_finite: NonFinite,
    listener: &'a dyn Listener,
    sampler: Sampler,
    generated: Vec<TokenScore>,
    finish: Finish,
}

impl<'a> Chooser<'a> {
    fn new(
        job: &'a GenerateJob<'a>,
        isa: Isa,
        (non_finite, listener): (NonFinite, &'a dyn Listener),
    ) -> Self {
        let text = [job.cached, job.prompt].concat();
        let sampler = Sampler::new(job.sampling, &text);
        let (generated, finish) = (Vec::new(), Finish::Length);
        Self { job, isa, non_finite, listener, sampler, generated, finish }
    }

    /// What to go on with after `logits`, those of the last of `len` tokens in the cache.
    fn next(&mut self, logits: Option<&[f32]>, len: u64) -> Result<Next, GenerateError> {
        let Some(logits) = logits.filter(|_| self.generated.len() < self.job.new_tokens) else {
            return Ok(Next::End);
        };
        let bad = logits.iter().any(|logit| !logit.is_finite());
        if bad && self.non_finite != NonFinite::Allow {
            let position = Position(len.saturating_sub(1));
            return Err(GenerateError::NonFinite { position });
        }
        let token = self.sampler.next(logits);
        if self.job.end_tokens.contains(&token) {
            self.finish = Finish::EndToken(token);
            return Ok(Next::End);
        }
        let (position, logprob) = (Position(len), logprob(self.isa, logits, token));
        let score = TokenScore { position, token, logprob };
        self.generated.push(score);
        if self.listener.token(score) == Flow::Stop {
            self.finish = Finish::Stopped;
            return Ok(Next::End);
        }
        let more = self.generated.len() < self.job.new_tokens;
        Ok(if more { Next::Token(token) } else { Next::End })
    }
}
