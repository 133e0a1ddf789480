//! From tokens to printed text: whole characters as they come, up to the first stop string.
//!
//! What may be the beginning of a stop string is held back until it is known. Knows no model run.

use ringattn::model::{ModelError, TextStream, Tokenizer};

/// The text that is to be printed, token by token.
pub(super) struct Continuation<'t> {
    stream: Option<TextStream<'t>>,
    stops: Vec<String>,
    /// Text that is not to be printed yet.
    held: String,
    stopped: bool,
}

impl<'t> Continuation<'t> {
    /// A new text; without a tokenizer it stays empty.
    pub(super) fn new(tokenizer: Option<&'t Tokenizer>, stops: Vec<String>) -> Self {
        let stream = tokenizer.map(TextStream::new);
        Self { stream, stops, held: String::new(), stopped: false }
    }

    /// Whether a stop string has come.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopped
    }

    /// What can be printed after one more token.
    pub(super) fn push(&mut self, token: u32) -> Result<String, ModelError> {
        let Some(stream) = &mut self.stream else { return Ok(String::new()) };
        let text = stream.push(token)?;
        Ok(self.release(&text))
    }

    /// What is left to print when no more tokens come.
    pub(super) fn finish(mut self) -> Result<String, ModelError> {
        let Some(stream) = self.stream.take() else { return Ok(String::new()) };
        if self.stopped {
            return Ok(String::new());
        }
        let text = stream.finish()?;
        let mut rest = self.release(&text);
        if !self.stopped {
            rest.push_str(&self.held);
        }
        Ok(rest)
    }

    /// Adds `text` to what is held, and takes out what can be printed.
    fn release(&mut self, text: &str) -> String {
        if self.stopped {
            return String::new();
        }
        self.held.push_str(text);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.stopped = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let kept = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - kept);
        std::mem::replace(&mut self.held, rest)
    }
}

/// Bytes of the longest end of `text` that begins `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let starts = text.char_indices().map(|(at, _)| &text[at..]);
    starts.filter(|end| stop.starts_with(end)).map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let stops = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut text = Continuation::new(None, stops);
        let parts = pieces.iter().map(|piece| text.release(piece)).collect();
        (parts, text.has_stopped())
    }

    #[test]
    fn stop_strings_are_found_across_pieces_and_never_printed() {
        for (stops, pieces, expected, stopped) in [
            (&[][..], &["a", "b"][..], &["a", "b"][..], false),
            (&["END"], &["xE", "N", "Dy", "z"], &["x", "", "", ""], true),
            (&["END"], &["xE", "Na"], &["x", "ENa"], false),
            (&["aab"], &["aa", "ab"], &["", "a"], true),
            (&["b", "ab"], &["xab"], &["x"], true),
            (&["é!"], &["é", "é", "!"], &["", "é", ""], true),
        ] {
            assert_eq!(
                printed(stops, pieces),
                (expected.iter().map(|&s| s.to_owned()).collect(), stopped)
            );
        }
    }
}
