//! Opening what a user names, without hanging on a pipe. The only place that maps memory.
//!
//! Tensors are read where they are mapped, or by offset where only the head of a file is mapped. Files are
//! little-endian, and so must be the machine.

use super::InputError;
use memmap2::{Mmap, MmapOptions};
use ringattn::ReadAt;
use ringattn::core::{Source, try_filled};
use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(target_endian = "big")]
compile_error!("tensor files are little-endian and are read in place");

/// Bytes of a head: more than any header that is read.
const HEAD: u64 = 9 << 20;

/// How much of a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// All of it.
    Whole,
    /// The part that a header may fill; the rest is read by offset, so that a process of an MPI job has
    /// no more of a file in its memory, or its limits, than its rank's rows.
    Head,
}

/// A regular file, read-only in memory as far as it is mapped.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    file: File,
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
    /// Opens and maps the file at `path`; links are followed. A pipe or device is refused before it is
    /// opened.
    #[allow(unsafe_code, reason = "the only place that maps memory")]
    pub(crate) fn open(path: &Path, access: Access) -> Result<Self, InputError> {
        let io = |source: io::Error| InputError::Io { file: path.display().to_string(), source };
        let kind = std::fs::metadata(path).map_err(io)?.file_type();
        if !kind.is_file() {
            let actual = if kind.is_dir() { "a folder" } else { "a pipe, socket or device" };
            return Err(InputError::NotRegular { file: path.display().to_string(), actual });
        }
        let file = File::open(path).map_err(io)?;
        let opened = State::of(&file.metadata().map_err(io)?);
        let len = match access {
            Access::Whole => opened.len,
            Access::Head => opened.len.min(HEAD),
        };
        let map = if len == 0 {
            None
        } else {
            // SAFETY: the map is read-only, private to this process, and handed out as plain bytes,
            // for which every value is valid. As of any mapped file, the bytes must not be changed
            // meanwhile by others; `ensure_unchanged` finds out afterwards, and every offset is
            // checked against the length of the map, so that no foreign write leads elsewhere.
            Some(unsafe { MmapOptions::new().len(len as usize).map(&file) }.map_err(io)?)
        };
        Ok(Self { path: path.to_owned(), file, map, opened })
    }

    /// The path, for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The file's bytes, as many as are mapped.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> u64 {
        self.opened.len
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
    range: Range<u64>,
}

impl FileBytes {
    /// The last `len` bytes of the file, all of it when there are no more.
    pub(crate) fn tail(file: &Arc<MappedFile>, len: u64) -> Self {
        let end = file.len();
        Self { file: Arc::clone(file), range: end.saturating_sub(len)..end }
    }

    /// The bytes from `start` to `stop`, counted within these; `None` when there are not so many.
    pub(crate) fn part(&self, start: u64, stop: u64) -> Option<Self> {
        let inside = start <= stop && stop <= self.len();
        let at = |offset: u64| self.range.start + offset;
        inside.then(|| Self { file: Arc::clone(&self.file), range: at(start)..at(stop) })
    }

    /// Bytes there are.
    pub(crate) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Where they are mapped, if they are.
    pub(crate) fn mapped(&self) -> Option<&[u8]> {
        let at = |offset: u64| usize::try_from(offset).ok();
        self.file.bytes().get(at(self.range.start)?..at(self.range.end)?)
    }

    /// All of them.
    pub(crate) fn read(&self) -> Result<Cow<'_, [u8]>, InputError> {
        if let Some(bytes) = self.mapped() {
            return Ok(Cow::Borrowed(bytes));
        }
        let io = |source: io::Error| InputError::Io { file: self.file.name(), source };
        let len = usize::try_from(self.len()).unwrap_or(usize::MAX);
        let mut bytes = try_filled(len, 0).map_err(|error| io(io::Error::other(error)))?;
        self.read_at(&mut bytes, 0).map_err(io)?;
        Ok(Cow::Owned(bytes))
    }
}

impl ReadAt for FileBytes {
    fn len(&self) -> u64 {
        self.len()
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.file.read_exact_at(bytes, self.range.start.saturating_add(offset))
    }
}

/// Of a part that is mapped.
impl Source for FileBytes {
    fn bytes(&self) -> &[u8] {
        self.mapped().unwrap_or_default()
    }
}
