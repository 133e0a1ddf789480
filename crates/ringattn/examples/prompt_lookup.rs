//! Speculative decoding over a sharded cache: drafts looked up in the text, verified in one extension.
//!
//! `cargo run --release --example prompt_lookup -- MODEL IDS.json RANKS NEW`. The draft is what followed the
//! last occurrence of the last tokens (prompt lookup); a model that drafts would stand in its place.
//! Every rank drafts the same, rank 0 has the logits and tells how far the draft holds, and all take the
//! rest back. A verification of up to 8 tokens gives the bits of single steps (where at most 8 query heads
//! share a key head), so the text is that of plain greedy decoding.

#![allow(clippy::print_stdout, reason = "an example shows what it found")]

use ringattn::comm::{Communicator, local};
use ringattn::core::{DType, Message, MessageError, Payload, Rank};
use ringattn::engine::cpu::{Affinity, Device};
use ringattn::engine::{NonFinite, Overlap};
use ringattn::model::{
    Decoder, DecoderJob, DensePlacement, Flow, GenerateError, Listener, Model, Placement,
    TokenScore, Wanted,
};
use ringattn::plan::LayoutKind;
use ringattn::{GenerateInput, RunOptions, generate};
use std::error::Error;
use std::path::Path;

/// Tokens that have to occur before for a draft.
const NGRAM: usize = 2;
/// Tokens of the longest draft: one is verified with it.
const DRAFT: usize = 7;
/// Tokens of a block of the cache.
const BLOCK: u64 = 16;

/// The new tokens of a step, on their way from rank 0 to all.
#[derive(Clone)]
struct Accepted(Vec<u32>);

impl Message for Accepted {
    const KIND: &'static str = "accepted tokens";

    fn byte_len(&self) -> u64 {
        0
    }

    fn header(&self) -> Vec<u64> {
        self.0.iter().map(|&token| u64::from(token)).collect()
    }

    fn payload(&self) -> Payload {
        Payload::default()
    }

    fn from_payload(header: &[u64], _: Vec<u8>) -> Result<Self, MessageError> {
        Ok(Self(header.iter().map(|&token| token as u32).collect()))
    }
}

/// What was drafted and how much of it held, step by step.
pub(crate) struct Speculated {
    pub(crate) tokens: Vec<u32>,
    pub(crate) steps: Vec<(usize, usize)>,
}

/// What followed the last occurrence of the last tokens; nothing when there is none.
fn draft(text: &[u32], most: usize) -> &[u32] {
    let (before, last) = text.split_at(text.len().saturating_sub(NGRAM));
    let found = (NGRAM..=before.len()).rev().find(|&end| &text[end - NGRAM..end] == last);
    found.map_or(&[], |start| &text[start..text.len().min(start + most)])
}

/// The most likely token after each position, from logits `[rows, vocabulary]`.
fn most_likely(logits: &[f32], vocabulary: usize) -> Vec<u32> {
    let best =
        |row: &[f32]| (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
    logits.chunks_exact(vocabulary).map(|row| best(row) as u32).collect()
}

/// One rank's part: `new` tokens behind `prompt`.
fn speculate_rank<C: Communicator>(
    mut decoder: Decoder<'_, C>,
    (prompt, new): (&[u32], usize),
    vocabulary: usize,
    comm: &C,
) -> Result<Speculated, GenerateError> {
    let mut text = prompt.to_vec();
    let mut steps = Vec::new();
    decoder.reserve((prompt.len() + new + DRAFT) as u64)?;
    let striped = Placement::Prompt(LayoutKind::Striped, None);
    let mut logits = decoder.extend(prompt, striped, Wanted::Last)?;
    let mut drafted = Vec::new();
    loop {
        // Row `i` speaks of what follows the draft's first `i` tokens, as long as these held.
        let accepted = logits.map(|logits| {
            let likely = most_likely(&logits, vocabulary);
            let held =
                drafted.iter().zip(&likely).take_while(|(draft, token)| draft == token).count();
            Accepted(likely[..=held].to_vec())
        });
        let Accepted(tokens) = comm.broadcast(accepted, Rank(0))?;
        steps.push((drafted.len(), tokens.len() - 1));
        text.extend(&tokens);
        if text.len() >= prompt.len() + new {
            break;
        }
        // The last token is in the text but not in the cache; behind it everything was rejected.
        decoder.truncate(text.len() as u64 - 1)?;
        drafted = draft(&text, DRAFT).to_vec();
        let verified = [&text[text.len() - 1..], &drafted].concat();
        logits = decoder.extend(&verified, Placement::Generated(BLOCK), Wanted::All)?;
    }
    Ok(Speculated { tokens: text[prompt.len()..][..new].to_vec(), steps })
}

/// `new` tokens behind `prompt`, on ranks that are threads of one core each.
pub(crate) fn speculate(
    model: &Model,
    (prompt, new): (&[u32], usize),
    ranks: u32,
) -> Result<Speculated, Box<dyn Error>> {
    let mut all = local::run(ranks, local::DEFAULT_TIMEOUT, |comm| {
        let job = DecoderJob {
            model,
            device: Device { isa: model.isa(), threads: 1, affinity: Affinity::Free },
            dense: DensePlacement::Root { threads: ranks as usize },
            non_finite: NonFinite::Refuse,
            overlap: Overlap::On,
            recorder: None,
            layer_done: &|_| (),
        };
        let decoder = Decoder::new(job, DType::F32, &comm)?;
        speculate_rank(decoder, (prompt, new), model.config.vocab_size, &comm)
    })?;
    Ok(all.swap_remove(0))
}

/// Hears nothing.
struct Silent;

impl Listener for Silent {
    fn token(&self, _: TokenScore) -> Flow {
        Flow::Continue
    }
}

/// The same by plain greedy decoding: one step a token.
pub(crate) fn greedy(
    model: &Model,
    (prompt, new): (&[u32], usize),
    ranks: u32,
) -> Result<Vec<u32>, Box<dyn Error>> {
    let input = GenerateInput { cache_block: BLOCK, ..GenerateInput::new(prompt.to_vec(), new) };
    let options = RunOptions { threads: Some(1), ..RunOptions::new(ranks) };
    let (output, _) = generate(model, &input, &options, &Silent)?.ok_or("no result")?;
    Ok(output.tokens.iter().map(|score| score.token).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, ids, ranks, new] = arguments.as_slice() else {
        return Err("usage: prompt_lookup MODEL IDS.json RANKS NEW".into());
    };
    let model = Model::open(Path::new(model))?;
    let prompt: Vec<u32> = serde_json::from_str(&std::fs::read_to_string(ids)?)?;
    let (ranks, new) = (ranks.parse()?, new.parse()?);
    let speculated = speculate(&model, (&prompt, new), ranks)?;
    for (step, (drafted, held)) in speculated.steps.iter().enumerate() {
        println!("step {step}: {held} of {drafted} drafted tokens held, {} tokens more", held + 1);
    }
    let same = speculated.tokens == greedy(&model, (&prompt, new), ranks)?;
    println!("{new} tokens in {} steps; the text of plain greedy: {same}", speculated.steps.len());
    Ok(())
}
