//! Opening what a user names, without hanging on a pipe. The only place that maps memory.
//!
//! Tensors are read where they are mapped. Files are little-endian, and so must be the machine.

use super::InputError;
use memmap2::Mmap;
use ringattn::core::Source;
use std::fs::{File, Metadata};
use std::io;
use std::ops::{Deref, Range};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(target_endian = "big")]
compile_error!("tensor files are little-endian and are read in place");

/// A whole regular file, read-only in memory.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    /// None of an empty file, which cannot be mapped.
    map: Option<Mmap>,
    opened: State,
}

/// What changes when a file is written to.
#[derive(Debug, PartialEq, Eq)]
struct State {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
}

impl State {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl MappedFile {
    /// Maps the file at `path`; links are followed. A pipe or device is refused before it is opened.
    #[allow(unsafe_code, reason = "the only place that maps memory")]
    pub(crate) fn open(path: &Path) -> Result<Self, InputError> {
        let io = |source: io::Error| InputError::Io { file: path.display().to_string(), source };
        let kind = std::fs::metadata(path).map_err(io)?.file_type();
        if !kind.is_file() {
            let actual = if kind.is_dir() { "a folder" } else { "a pipe, socket or device" };
            return Err(InputError::NotRegular { file: path.display().to_string(), actual });
        }
        let file = File::open(path).map_err(io)?;
        let opened = State::of(&file.metadata().map_err(io)?);
        let map = if opened.len == 0 {
            None
        } else {
            // SAFETY: the map is read-only, private to this process, and handed out as plain bytes,
            // for which every value is valid. As of any mapped file, the bytes must not be changed
            // meanwhile by others; `ensure_unchanged` finds out afterwards, and every offset is
            // checked against the length of the map, so that no foreign write leads elsewhere.
            Some(unsafe { Mmap::map(&file) }.map_err(io)?)
        };
        Ok(Self { path: path.to_owned(), map, opened })
    }

    /// The path, for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The file's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    /// An error when the file at the path is no longer the one that was opened.
    pub(crate) fn ensure_unchanged(&self) -> Result<(), InputError> {
        let now = std::fs::metadata(&self.path).map(|metadata| State::of(&metadata));
        match now {
            Ok(now) if now == self.opened => Ok(()),
            _ => Err(InputError::Changed { file: self.name() }),
        }
    }
}

/// A part of a mapped file, which stays mapped as long as any part of it is in use.
#[derive(Clone, Debug)]
pub(crate) struct FileBytes {
    file: Arc<MappedFile>,
    range: Range<usize>,
}

impl FileBytes {
    /// The last `len` bytes of the file, all of it when there are no more.
    pub(crate) fn tail(file: &Arc<MappedFile>, len: usize) -> Self {
        let end = file.bytes().len();
        Self { file: Arc::clone(file), range: end.saturating_sub(len)..end }
    }

    /// The bytes from `start` to `stop`, counted within these; `None` when there are not so many.
    pub(crate) fn part(&self, start: u64, stop: u64) -> Option<Self> {
        let inside = start <= stop && stop <= self.range.len() as u64;
        let at = |offset: u64| self.range.start + offset as usize;
        inside.then(|| Self { file: Arc::clone(&self.file), range: at(start)..at(stop) })
    }
}

impl Deref for FileBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.file.bytes()[self.range.clone()]
    }
}

impl Source for FileBytes {
    fn bytes(&self) -> &[u8] {
        self
    }
}
