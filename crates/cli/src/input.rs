//! What is read: tensors, token ids, text. Every size in a file is checked against the file before
//! anything is allocated for it. Knows no options and no attention.

pub(crate) mod mapped;
pub(crate) mod npy;
pub(crate) mod safetensors;
pub(crate) mod tensors;
pub(crate) mod text;
pub(crate) mod tokens;

use ringattn::view::ViewError;
use std::io;
use thiserror::Error;

/// Why an input cannot be used.
#[derive(Debug, Error)]
pub(crate) enum InputError {
    /// The operating system refused.
    #[error("{file}: {source}")]
    Io { file: String, source: io::Error },
    /// There is something at the path, but of another kind.
    #[error("{file}: expected a regular file, found {actual}")]
    NotRegular { file: String, actual: &'static str },
    /// The file was written to while it was in use.
    #[error("{file}: the file was changed during the run, so the result would be of no file")]
    Changed { file: String },
    /// Bytes that are not what the format says.
    #[error("{file}: {place}: expected {expected}, found {actual}")]
    Malformed { file: String, place: String, expected: String, actual: String },
    /// A tensor that is needed.
    #[error("{file}: tensor {tensor} is missing, found {found}")]
    MissingTensor { file: String, tensor: &'static str, found: String },
    /// A tensor of an element type that is not read.
    #[error("{file}: {tensor}: expected {expected}, found type {actual}")]
    ElementType { file: String, tensor: String, expected: &'static str, actual: String },
    /// An array in another order than C.
    #[error("{file}: expected C order, found Fortran order; save numpy.ascontiguousarray of it")]
    FortranOrder { file: String },
    /// A position below 0 or beyond 63 bits.
    #[error(
        "{file}: tensor {tensor}: expected positions from 0 to 2^63 - 1, entry {index} is {actual}"
    )]
    Position { file: String, tensor: &'static str, index: usize, actual: i128 },
    /// A text in another encoding.
    #[error("{file}: expected UTF-8 text, byte {offset} is not")]
    NotUtf8 { file: String, offset: usize },
    /// A file of more bytes than are read of its kind.
    #[error("{file}: {actual} bytes are more than the {limit} that are read of such a file")]
    TooLong { file: String, limit: u64, actual: u64 },
    /// A plan, report or trace that cannot be drawn.
    #[error("{file}: {source}")]
    View { file: String, source: ViewError },
    /// Token ids that are none.
    #[error("{file}: expected a JSON array of token ids, or an object with `tokens`: {reason}")]
    Tokens { file: String, reason: String },
}

impl InputError {
    /// 8 when memory was lacking, else 3.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::OutOfMemory => 8,
            Self::View { source: ViewError::OutOfMemory(_), .. } => 8,
            _ => 3,
        }
    }
}

/// `text` in one line of at most 60 characters.
fn shorten(text: &str) -> String {
    const LIMIT: usize = 60;
    let mut short: String = text.chars().take(LIMIT).flat_map(char::escape_debug).collect();
    if text.chars().nth(LIMIT).is_some() {
        short.push_str("...");
    }
    short
}
