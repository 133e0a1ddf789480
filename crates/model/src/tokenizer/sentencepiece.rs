//! SentencePiece BPE, as GGUF files of Llama 1 and 2 and of Mistral describe it.
//!
//! Spaces become "▁" and one is put in front; then the two neighbours whose joint piece has the
//! highest score are joined, again and again. A character that no piece holds is spelt in byte
//! tokens `<0x00>`. The pairs that may be joined are all splits of a normal piece into two normal
//! pieces, in falling order of score, of equal ones the longer left half first, as transformers
//! orders them. Knows no special tokens.

use super::failed;
use super::gguf::{Vocabulary, flag};
use crate::ModelError;
use crate::load::GgufHeader;
use std::cmp::Ordering;
use tokenizers::DecoderWrapper;
use tokenizers::NormalizerWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::prepend::Prepend;
use tokenizers::normalizers::replace::Replace;
use tokenizers::normalizers::utils::Sequence as Normalizers;

const SCORES: &str = "tokenizer.ggml.scores";
const SPACE: &str = "\u{2581}";

/// ggml's token types of this model.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// The tokenizer without special tokens.
///
/// # Errors
/// When pieces, types and scores do not describe such a model.
pub(super) fn build(
    header: &GgufHeader<'_>,
    vocabulary: &Vocabulary<'_>,
) -> Result<tokenizers::Tokenizer, ModelError> {
    let Vocabulary { tokens, types } = vocabulary;
    let scores = match header.floats(SCORES)? {
        Some(scores) if scores.len() == tokens.len() => scores,
        other => {
            let expected = format!("{} entries, one for each token", tokens.len());
            let actual = other.map_or("none".to_owned(), |scores| scores.len().to_string());
            return Err(header.refuse(SCORES, &expected, &actual));
        }
    };
    let of_type = |kind| tokens.iter().zip(types).filter(move |(_, other)| **other == kind);
    // Such a piece matches in the text with its spaces replaced, which an added token cannot.
    if let Some((piece, _)) = of_type(USER_DEFINED).find(|(piece, _)| piece.contains(SPACE)) {
        let expected = "user-defined tokens without spaces";
        return Err(header.refuse("tokenizer.ggml.tokens", expected, piece));
    }
    let bytes = of_type(BYTE).count();
    if bytes != 0 && bytes != 256 {
        let expected = "a token for each of 256 bytes, or none";
        return Err(header.refuse("tokenizer.ggml.token_type", expected, &bytes.to_string()));
    }
    let mut builder = BPE::builder()
        .vocab_and_merges(vocabulary.ids(header)?, merges(vocabulary, &scores))
        .fuse_unk(true)
        .byte_fallback(bytes != 0);
    if let Some((unknown, _)) = of_type(UNKNOWN).next() {
        builder = builder.unk_token((*unknown).to_owned());
    }
    let model = builder.build().map_err(|error| failed(header.file, &error))?;
    let mut inner = tokenizers::Tokenizer::new(model);
    add_spaces(header, &mut inner)?;
    Ok(inner)
}

/// Spaces to "▁" and back.
fn add_spaces(
    header: &GgufHeader<'_>,
    inner: &mut tokenizers::Tokenizer,
) -> Result<(), ModelError> {
    let replace =
        |from: &str, to: &str| Replace::new(from, to).map_err(|error| failed(header.file, &error));
    let mut normalizers: Vec<NormalizerWrapper> = vec![replace(" ", SPACE)?.into()];
    let mut decoders: Vec<DecoderWrapper> =
        vec![replace(SPACE, " ")?.into(), ByteFallback::new().into(), Fuse::new().into()];
    if flag(header, "tokenizer.ggml.add_space_prefix")?.unwrap_or(true) {
        normalizers.insert(0, Prepend::new(SPACE.to_owned()).into());
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    inner.with_normalizer(Some(Normalizers::new(normalizers)));
    inner.with_decoder(Some(Decoders::new(decoders)));
    Ok(())
}

/// All pairs that may be joined, the first ones first.
fn merges(vocabulary: &Vocabulary<'_>, scores: &[f32]) -> Vec<(String, String)> {
    let pieces = vocabulary.tokens.iter().zip(&vocabulary.types).zip(scores);
    let normal = || pieces.clone().filter(|((_, kind), _)| **kind == NORMAL);
    let ids: Vocab =
        (0..).zip(normal()).map(|(id, ((piece, _), _))| ((*piece).to_owned(), id)).collect();
    let mut merges = Vec::new();
    for ((piece, _), score) in normal() {
        for (at, _) in piece.char_indices().skip(1) {
            let (left, right) = piece.split_at(at);
            if ids.contains_key(left) && ids.contains_key(right) {
                merges.push((*score, left.chars().count(), left, right));
            }
        }
    }
    let order = |a: &(f32, usize, &str, &str), b: &(f32, usize, &str, &str)| -> Ordering {
        b.0.total_cmp(&a.0).then(b.1.cmp(&a.1))
    };
    merges.sort_by(order);
    merges.into_iter().map(|(.., left, right)| (left.to_owned(), right.to_owned())).collect()
}
