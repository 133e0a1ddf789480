//! Text of ids that come one after another.
//!
//! A character may take several tokens, and a token's text may depend on the one before. So the text
//! of a window of ids is compared with that of its front, and what does not yet end in whole characters
//! is held back. Knows no model.

use super::Tokenizer;
use crate::ModelError;

/// What a decoder puts for bytes that are no whole character.
const INCOMPLETE: char = '\u{FFFD}';

/// Turns ids into text as they come.
#[derive(Clone, Debug)]
pub struct TextStream<'t> {
    tokenizer: &'t Tokenizer,
    /// Ids whose text may still matter.
    window: Vec<u32>,
    /// How many of them have been given out as text.
    told: usize,
}

impl<'t> TextStream<'t> {
    /// A stream of a new text.
    pub fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, window: Vec::new(), told: 0 }
    }

    /// The text that `id` completes; empty when a character is not complete yet.
    ///
    /// # Errors
    /// For an id outside the vocabulary.
    pub fn push(&mut self, id: u32) -> Result<String, ModelError> {
        self.window.push(id);
        let text = self.fresh()?;
        if text.is_empty() || text.ends_with(INCOMPLETE) {
            return Ok(String::new());
        }
        self.window.drain(..self.told);
        self.told = self.window.len();
        Ok(text)
    }

    /// What is left when no more ids come; bytes that are no whole character are replaced.
    ///
    /// # Errors
    /// For an id outside the vocabulary.
    pub fn finish(self) -> Result<String, ModelError> {
        self.fresh()
    }

    /// The text behind what was told.
    fn fresh(&self) -> Result<String, ModelError> {
        let told = self.tokenizer.decode_plain(&self.window[..self.told])?;
        let all = self.tokenizer.decode_plain(&self.window)?;
        Ok(all.get(told.len()..).unwrap_or_default().to_owned())
    }
}
