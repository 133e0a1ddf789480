//! What is written: every file beside its target first, and all of them renamed together at the end.

pub(crate) mod report;
pub(crate) mod scores;
pub(crate) mod staging;
pub(crate) mod target;
pub(crate) mod tensors;

pub(crate) use staging::{Staged, Staging};
pub(crate) use target::Target;

use std::io;
use thiserror::Error;

/// Why a result cannot be written.
#[derive(Debug, Error)]
pub(crate) enum OutputError {
    /// A file or stdout could not be written.
    #[error("cannot write {file}: {source}")]
    Write { file: String, source: io::Error },
    /// The folder for a file is not there or closed.
    #[error("cannot write {file}: the folder {folder}: {source}")]
    Folder { file: String, folder: String, source: io::Error },
    /// Something else is in the place of the file.
    #[error("cannot write {file}: expected a regular file to replace or none, found {actual}")]
    Occupied { file: String, actual: &'static str },
    /// Something else is in the place of the folder.
    #[error("cannot write to {folder}: expected a folder, found {actual}")]
    NotFolder { folder: String, actual: &'static str },
    /// The target is also an input.
    #[error("cannot write {file}: it is an input of this run ({input}); name another file")]
    IsInput { file: String, input: String },
    /// A finite result that the element type cannot hold.
    #[error(
        "out is {value} at element {index}, beyond the largest {dtype}: store q in a wider type"
    )]
    Narrow { index: usize, value: f32, dtype: String },
}

impl OutputError {
    /// 9, or 10 for a number that does not fit.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Narrow { .. } => 10,
            _ => 9,
        }
    }
}
