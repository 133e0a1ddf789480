//! Files under temporary names that become the results all together, or vanish.
//!
//! A temporary is in the folder of its target, so that the rename is atomic. The list of temporaries
//! is shared with the watch over signals, which removes them when the process has to end; a rename
//! and a removal exclude one another.

use super::{OutputError, Target};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The temporaries of this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Staging(Arc<Mutex<Vec<Temporary>>>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Temporary {
    File(PathBuf),
    Folder(PathBuf),
}

impl Temporary {
    fn remove(&self) {
        // Best effort: what cannot be removed cannot be helped.
        let _ = match self {
            Self::File(path) => fs::remove_file(path),
            Self::Folder(path) => fs::remove_dir(path),
        };
    }
}

impl Staging {
    /// Opens a temporary for `target`.
    pub(crate) fn create(&self, target: Target) -> Result<Staged, OutputError> {
        const TRIES: u32 = 1000;
        let mut open = self.lock();
        for number in 0..TRIES {
            let name = format!(".ringattn-{}-{number}.tmp", process::id());
            let temporary = target.folder.join(name);
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    open.push(Temporary::File(temporary.clone()));
                    let file = BufWriter::with_capacity(1 << 20, file);
                    return Ok(Staged { file, temporary, target });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
                Err(source) => {
                    let folder = target.folder.display().to_string();
                    return Err(OutputError::Folder { file: target.name, folder, source });
                }
            }
        }
        let source = io::ErrorKind::AlreadyExists.into();
        Err(OutputError::Write { file: target.name, source })
    }

    /// Makes the folder at `path` if it is not there; it goes again with the temporaries.
    pub(crate) fn folder(&self, path: &Path) -> Result<(), OutputError> {
        let mut open = self.lock();
        match fs::create_dir(path) {
            Ok(()) => open.push(Temporary::Folder(path.to_owned())),
            Err(_) if path.is_dir() => (),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let actual = match fs::metadata(path) {
                    Ok(found) if found.is_file() => "a file",
                    Ok(_) => "a pipe, socket or device",
                    Err(_) => "a link that leads nowhere",
                };
                return Err(OutputError::NotFolder { folder: path.display().to_string(), actual });
            }
            Err(source) => {
                return Err(OutputError::Write { file: path.display().to_string(), source });
            }
        }
        Ok(())
    }

    /// Puts each of `files`, which are durable, in its place.
    pub(crate) fn commit(&self, files: Vec<Staged>) -> Result<(), OutputError> {
        let mut open = self.lock();
        for staged in &files {
            fs::rename(&staged.temporary, &staged.target.path)
                .map_err(|source| staged.failed(source))?;
            open.retain(|temporary| *temporary != Temporary::File(staged.temporary.clone()));
            // Not every file system can make a folder durable.
            let _ = File::open(&staged.target.folder).and_then(|folder| folder.sync_all());
        }
        open.clear();
        Ok(())
    }

    /// Removes what is not committed.
    pub(crate) fn discard_all(&self) {
        let mut open = self.lock();
        open.drain(..).rev().for_each(|temporary| temporary.remove());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Temporary>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A result that is being written. Dropped without a commit, it vanishes at the end of the command.
#[derive(Debug)]
pub(crate) struct Staged {
    file: BufWriter<File>,
    temporary: PathBuf,
    target: Target,
}

impl Staged {
    /// Where the result will be.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Lets `write` write to it.
    pub(crate) fn write(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), OutputError> {
        write(&mut self.file).map_err(|source| self.failed(source))
    }

    /// Leaves nothing in buffers, neither here nor in the system.
    pub(crate) fn make_durable(&mut self) -> Result<(), OutputError> {
        let durable = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        durable.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> OutputError {
        OutputError::Write { file: self.target.name.clone(), source }
    }
}
