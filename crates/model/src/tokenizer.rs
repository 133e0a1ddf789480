//! Text to token ids and back, as the model's own tokenizer does it.
//!
//! From `tokenizer.json`, or rebuilt from GGUF metadata (module below). A document is encoded whole:
//! a truncation or padding that the file asks for is switched off. Knows no model.

pub(crate) mod gguf;
mod sentencepiece;
mod stream;

pub use stream::TextStream;

use crate::ModelError;
use crate::error::shorten;
use crate::file::{display, read_text};
use crate::json::parse;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// Bytes of the largest `tokenizer.json` that is read.
const LIMIT: u64 = 256 << 20;

/// A tokenizer.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    file: String,
    inner: tokenizers::Tokenizer,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// When the file is not there or does not describe a tokenizer.
    pub fn from_file(path: &Path) -> Result<Self, ModelError> {
        if !path.exists() {
            return Err(ModelError::MissingFile {
                file: display(path),
                hint: "this folder can score token ids but no text",
            });
        }
        let text = read_text(path, LIMIT)?;
        check(&text, path)?;
        let inner = text.parse().map_err(|error| failed(&display(path), &error))?;
        Self::new(&display(path), inner)
    }

    /// Wraps `inner`, described in `file`.
    fn new(file: &str, mut inner: tokenizers::Tokenizer) -> Result<Self, ModelError> {
        inner.with_truncation(None).map_err(|error| failed(file, &error))?;
        inner.with_padding(None);
        Ok(Self { file: file.to_owned(), inner })
    }

    /// The ids of `text`, with those special tokens around it that the model's files ask for.
    ///
    /// # Errors
    /// When the tokenizer cannot represent the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        let encoding =
            self.inner.encode_fast(text, true).map_err(|error| failed(&self.file, &error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The ids of a text that holds its special tokens already, as a chat template writes them.
    ///
    /// # Errors
    /// When the tokenizer cannot represent the text.
    pub fn encode_written(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        let encoding =
            self.inner.encode_fast(text, false).map_err(|error| failed(&self.file, &error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of `ids` without that of special tokens.
    ///
    /// # Errors
    /// For an id outside the vocabulary.
    pub fn decode_plain(&self, ids: &[u32]) -> Result<String, ModelError> {
        self.check_ids(ids)?;
        self.inner.decode(ids, true).map_err(|error| failed(&self.file, &error))
    }

    /// The text of `ids`, special tokens included.
    ///
    /// # Errors
    /// For an id outside the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String, ModelError> {
        self.check_ids(ids)?;
        self.inner.decode(ids, false).map_err(|error| failed(&self.file, &error))
    }

    fn check_ids(&self, ids: &[u32]) -> Result<(), ModelError> {
        match ids.iter().find(|id| self.inner.id_to_token(**id).is_none()) {
            Some(&id) => Err(ModelError::Token { id, vocabulary: self.vocabulary() }),
            None => Ok(()),
        }
    }

    /// Tokens of the vocabulary, special ones included.
    pub fn vocabulary(&self) -> usize {
        self.inner.get_vocab_size(true)
    }
}

/// Refuses what makes the library panic: text that is no JSON, and a template that names a special
/// token which it does not list.
fn check(text: &str, path: &Path) -> Result<(), ModelError> {
    #[derive(Deserialize)]
    struct Outline {
        normalizer: Option<Value>,
        post_processor: Option<Value>,
    }
    let outline: Outline = parse(text, path)?;
    if outline.normalizer.as_ref().is_some_and(is_precompiled) {
        let reason = "a normalizer of type Precompiled, which none of these families has";
        return Err(ModelError::Tokenizer { file: display(path), reason: reason.to_owned() });
    }
    match outline.post_processor.as_ref().and_then(unlisted_token) {
        None => Ok(()),
        Some(name) => Err(ModelError::Tokenizer {
            file: display(path),
            reason: format!("the template's token {} is not listed", shorten(&name.to_string())),
        }),
    }
}

/// Whether the normalizer, or one in its sequence, is a compiled character map, on which the library
/// panics when it is damaged.
fn is_precompiled(normalizer: &Value) -> bool {
    let parts = normalizer["normalizers"].as_array();
    normalizer["type"] == "Precompiled" || parts.is_some_and(|p| p.iter().any(is_precompiled))
}

/// The first special token of a template, or of a sequence of them, that has no entry.
fn unlisted_token(processor: &Value) -> Option<&Value> {
    let listed = &processor["special_tokens"];
    let items = |key: &str| processor[key].as_array().into_iter().flatten();
    let names = items("single").chain(items("pair")).map(|piece| &piece["SpecialToken"]["id"]);
    names
        .filter(|name| name.as_str().is_some_and(|name| listed.get(name).is_none()))
        .chain(items("processors").filter_map(unlisted_token))
        .next()
}

fn failed(file: &str, error: &tokenizers::Error) -> ModelError {
    ModelError::Tokenizer { file: file.to_owned(), reason: shorten(&error.to_string()) }
}
