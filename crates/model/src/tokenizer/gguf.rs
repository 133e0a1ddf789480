//! The tokenizer of a GGUF file, rebuilt from its metadata.
//!
//! `tokenizer.ggml.model` "llama" is SentencePiece BPE, in its own module. "gpt2" is byte-level BPE: the text is cut by the rule that
//! `tokenizer.ggml.pre` names, each piece is spelt in 256 printable characters, and pairs are merged
//! in the order of `tokenizer.ggml.merges`. Tokens of type control or user-defined are found in the
//! text first. A rule that is not known here is refused, for a wrong one gives wrong ids silently.

use super::{Tokenizer, failed, sentencepiece};
use crate::ModelError;
use crate::load::GgufHeader;
use serde_json::Value;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, SplitDelimiterBehavior};

/// Bytes of the longest token that is believed; finding merges takes quadratic time in it.
const LONGEST: usize = 512;

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";

/// How llama 3 cuts a text.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// How Qwen 2 and 3 cut a text: as llama 3, but each digit alone.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// ggml's token types that are found in the text before it is cut.
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

/// The rule by which a text is cut before merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Gpt2,
    Smollm,
    Llama3,
    Qwen2,
}

/// What llama.cpp puts in front of a document where the file does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Token,
    Nothing,
}

impl Rule {
    fn start(self) -> Start {
        match self {
            Self::Llama3 => Start::Token,
            Self::Gpt2 | Self::Smollm | Self::Qwen2 => Start::Nothing,
        }
    }
}

/// The tokens of a file and their types.
pub(super) struct Vocabulary<'a> {
    /// Token `i` as it is written in the file.
    pub(super) tokens: Vec<&'a str>,
    /// ggml's number of its type.
    pub(super) types: Vec<i32>,
}

/// Builds the tokenizer that `header` describes.
///
/// # Errors
/// For a kind or rule of tokenizer that is not known here, and for lists that do not fit together.
pub(crate) fn build(header: &GgufHeader<'_>) -> Result<Tokenizer, ModelError> {
    let model = text(header, MODEL)?;
    let vocabulary = Vocabulary::read(header)?;
    let (mut inner, start) = match model.as_str() {
        "gpt2" => {
            let rule = rule(header)?;
            (byte_level(header, &vocabulary, rule)?, rule.start())
        }
        "llama" => (sentencepiece::build(header, &vocabulary)?, Start::Token),
        _ => {
            let expected = "gpt2 (byte-level BPE) or llama (SentencePiece BPE)";
            return Err(header.refuse(MODEL, expected, &model));
        }
    };
    inner.add_special_tokens(&vocabulary.added(CONTROL));
    inner.add_tokens(&vocabulary.added(USER_DEFINED));
    if let Some(template) = template(header, &vocabulary.tokens, start)? {
        inner.with_post_processor(Some(template));
    }
    Tokenizer::new(header.file, inner)
}

impl<'a> Vocabulary<'a> {
    fn read(header: &GgufHeader<'a>) -> Result<Self, ModelError> {
        let tokens = required(header, TOKENS, header.texts(TOKENS)?)?;
        let types = required(header, TYPES, header.integers(TYPES)?)?;
        if types.len() != tokens.len() {
            let expected = format!("{} entries, one for each token", tokens.len());
            return Err(header.refuse(TYPES, &expected, &types.len().to_string()));
        }
        if let Some(token) = tokens.iter().find(|token| token.len() > LONGEST) {
            let expected = format!("tokens of at most {LONGEST} bytes");
            return Err(header.refuse(TOKENS, &expected, &format!("{} bytes", token.len())));
        }
        Ok(Self { tokens, types })
    }

    /// The id of each token.
    pub(super) fn ids(&self, header: &GgufHeader<'_>) -> Result<Vocab, ModelError> {
        let mut ids = Vocab::default();
        for (id, token) in (0_u32..).zip(&self.tokens) {
            if let Some(first) = ids.insert((*token).to_owned(), id) {
                let actual = format!("`{token}` as {first} and {id}");
                return Err(header.refuse(TOKENS, "each token once", &actual));
            }
        }
        Ok(ids)
    }

    /// The tokens of a type that is found in the text before anything else.
    fn added(&self, kind: i32) -> Vec<AddedToken> {
        let of_kind = self.tokens.iter().zip(&self.types).filter(|(_, other)| **other == kind);
        let added = |token: &str| AddedToken::from(token, kind == CONTROL).normalized(false);
        of_kind.map(|(token, _)| added(token)).collect()
    }
}

/// The byte-level tokenizer without special tokens.
fn byte_level(
    header: &GgufHeader<'_>,
    vocabulary: &Vocabulary<'_>,
    rule: Rule,
) -> Result<tokenizers::Tokenizer, ModelError> {
    let mut inner = tokenizers::Tokenizer::new(bpe(header, vocabulary, rule)?);
    inner.with_pre_tokenizer(Some(cutter(header, rule)?));
    inner.with_decoder(Some(ByteLevel::default()));
    if rule == Rule::Qwen2 {
        inner.with_normalizer(Some(NFC));
    }
    Ok(inner)
}

/// The cutting rule, and the check of what is only ever set for other rules.
fn rule(header: &GgufHeader<'_>) -> Result<Rule, ModelError> {
    for key in ["tokenizer.ggml.add_space_prefix", "tokenizer.ggml.add_sep_token"] {
        if flag(header, key)? == Some(true) {
            return Err(header.refuse(key, "false for this tokenizer", "true"));
        }
    }
    match text(header, PRE)?.as_str() {
        "gpt-2" | "gpt2" => Ok(Rule::Gpt2),
        "smollm" => Ok(Rule::Smollm),
        "llama-bpe" | "llama3" | "llama-v3" => Ok(Rule::Llama3),
        "qwen2" | "deepseek-r1-qwen" => Ok(Rule::Qwen2),
        other => Err(header.refuse(PRE, "gpt-2, smollm, llama-bpe or qwen2", other)),
    }
}

fn bpe(
    header: &GgufHeader<'_>,
    vocabulary: &Vocabulary<'_>,
    rule: Rule,
) -> Result<BPE, ModelError> {
    let ids = vocabulary.ids(header)?;
    let mut merges = Vec::new();
    for merge in required(header, MERGES, header.texts(MERGES)?)? {
        match merge.split_once(' ') {
            Some((left, right)) => merges.push((left.to_owned(), right.to_owned())),
            None => return Err(header.refuse(MERGES, "two tokens and a space", merge)),
        }
    }
    BPE::builder()
        .vocab_and_merges(ids, merges)
        .ignore_merges(rule == Rule::Llama3)
        .build()
        .map_err(|error| failed(header.file, &error))
}

fn cutter(header: &GgufHeader<'_>, rule: Rule) -> Result<PreTokenizerWrapper, ModelError> {
    let split = |regex: &str| {
        let pattern = SplitPattern::Regex(regex.to_owned());
        Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
            .map_err(|error| failed(header.file, &error))
    };
    // Without a leading space; `ByteLevel` cuts by GPT-2's own rule only where it is told to.
    let spell = ByteLevel::new(false, true, false);
    let gpt2 = ByteLevel::new(false, true, true);
    let parts: Vec<PreTokenizerWrapper> = match rule {
        Rule::Gpt2 => vec![gpt2.into()],
        Rule::Smollm => vec![Digits::new(true).into(), gpt2.into()],
        Rule::Llama3 => vec![split(LLAMA3)?.into(), spell.into()],
        Rule::Qwen2 => vec![split(QWEN2)?.into(), spell.into()],
    };
    Ok(Sequence::new(parts).into())
}

/// What is put around a document.
fn template(
    header: &GgufHeader<'_>,
    tokens: &[&str],
    start: Start,
) -> Result<Option<TemplateProcessing>, ModelError> {
    let first = flag(header, "tokenizer.ggml.add_bos_token")?.unwrap_or(start == Start::Token);
    let last = flag(header, "tokenizer.ggml.add_eos_token")?.unwrap_or(false);
    let mut pieces = vec!["$A".to_owned()];
    let mut specials = Vec::new();
    let mut token = |key: &str| -> Result<String, ModelError> {
        let id = required(header, key, header.value(key)?)?;
        let token = id.as_u64().and_then(|id| tokens.get(usize::try_from(id).ok()?));
        let (Some(token), Some(number)) = (token, id.as_u64()) else {
            return Err(header.refuse(key, "the id of a token", &id.to_string()));
        };
        specials.push(((*token).to_owned(), number as u32));
        Ok((*token).to_owned())
    };
    if first {
        pieces.insert(0, token("tokenizer.ggml.bos_token_id")?);
    }
    if last {
        pieces.push(token("tokenizer.ggml.eos_token_id")?);
    }
    if specials.is_empty() {
        return Ok(None);
    }
    let refused = |reason: String| ModelError::Tokenizer { file: header.file.to_owned(), reason };
    TemplateProcessing::builder()
        .try_single(pieces)
        .map_err(|error| refused(error.to_string()))?
        .special_tokens(specials)
        .build()
        .map(Some)
        .map_err(|error| refused(error.to_string()))
}

fn text(header: &GgufHeader<'_>, key: &str) -> Result<String, ModelError> {
    match required(header, key, header.value(key)?)? {
        Value::String(text) => Ok(text),
        other => Err(header.refuse(key, "a text", &other.to_string())),
    }
}

pub(super) fn flag(header: &GgufHeader<'_>, key: &str) -> Result<Option<bool>, ModelError> {
    match header.value(key)? {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(flag)),
        Some(other) => Err(header.refuse(key, "true or false", &other.to_string())),
    }
}

fn required<T>(header: &GgufHeader<'_>, key: &str, value: Option<T>) -> Result<T, ModelError> {
    value.ok_or_else(|| ModelError::MissingField {
        file: header.file.to_owned(),
        field: key.to_owned(),
    })
}
