//! Opening what a user names, without hanging on a pipe or reading more than a sound file holds.
//!
//! Knows no format. This is the only place of the crate that maps memory.

use crate::ModelError;
use memmap2::Mmap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A whole file, read-only in memory.
#[derive(Debug)]
pub(crate) struct MappedFile {
    /// The path, for messages.
    pub(crate) name: String,
    map: Mmap,
}

impl MappedFile {
    /// Maps the regular file at `path`.
    ///
    /// # Errors
    /// When it is not a regular file or cannot be mapped.
    #[allow(unsafe_code)]
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        let file = open_regular(path)?;
        // SAFETY: the map is read-only and private to this process, and is handed out as plain
        // bytes for which every value is valid. As for any mapped file, the bytes must not be
        // changed by others while the model is in use; every offset was checked against the length
        // of the map, so that a foreign write can change numbers but not reach other memory.
        let map = unsafe { Mmap::map(&file) }.map_err(|source| io(path, source))?;
        Ok(Self { name: display(path), map })
    }

    /// The file's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }
}

/// The path as text for messages.
pub(crate) fn display(path: &Path) -> String {
    path.display().to_string()
}

pub(crate) fn io(path: &Path, source: std::io::Error) -> ModelError {
    ModelError::Io { file: display(path), source }
}

/// Opens a regular file; links are followed. A pipe or device is refused before it is opened.
pub(crate) fn open_regular(path: &Path) -> Result<File, ModelError> {
    let kind = std::fs::metadata(path).map_err(|source| io(path, source))?.file_type();
    if !kind.is_file() {
        return Err(ModelError::WrongKind {
            file: display(path),
            expected: "a regular file",
            actual: if kind.is_dir() { "a folder" } else { "a pipe, socket or device" },
        });
    }
    File::open(path).map_err(|source| io(path, source))
}

/// The whole of a UTF-8 file of at most `limit` bytes; the size is checked before it is read.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String, ModelError> {
    let file = open_regular(path)?;
    let too_large = |actual| ModelError::TooLarge {
        file: display(path),
        place: "the size in bytes".to_owned(),
        limit,
        actual,
    };
    let size = file.metadata().map_err(|source| io(path, source))?.len();
    if size > limit {
        return Err(too_large(size));
    }
    let mut text = String::new();
    // A file that grows meanwhile is cut one byte behind the limit, which is then noticed.
    file.take(limit + 1).read_to_string(&mut text).map_err(|source| io(path, source))?;
    if text.len() as u64 > limit {
        return Err(too_large(text.len() as u64));
    }
    Ok(text)
}
