//! Files without names that become the results all together, or vanish, however the process ends.
//!
//! A temporary is in the folder of its target, so that the rename is atomic. Where the file system
//! knows files without names (O_TMPFILE of Linux), it gets one only for the moment before the rename, and a
//! process that is killed leaves nothing; elsewhere it has a temporary name from the start. The list of
//! temporaries that have names is shared with the watch over signals, which removes them when the
//! process has to end; a rename and a removal exclude one another.

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
        let (file, temporary) = match nameless::open(&target.folder) {
            Some(file) => (file, None),
            None => {
                let create =
                    |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
                let (file, temporary) = self.named(&target, create)?;
                (file, Some(temporary))
            }
        };
        Ok(Staged { file: BufWriter::with_capacity(1 << 20, file), temporary, target })
    }

    /// Lets `make` make something with a temporary name beside `target`, and remembers the name.
    fn named<T>(
        &self,
        target: &Target,
        make: impl Fn(&Path) -> io::Result<T>,
    ) -> Result<(T, PathBuf), OutputError> {
        const TRIES: u32 = 1000;
        let mut open = self.lock();
        for number in 0..TRIES {
            let name = format!(".ringattn-{}-{number}.tmp", process::id());
            let temporary = target.folder.join(name);
            match make(&temporary) {
                Ok(made) => {
                    open.push(Temporary::File(temporary.clone()));
                    return Ok((made, temporary));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
                Err(source) => {
                    let (file, folder) = (target.name.clone(), target.folder.display().to_string());
                    return Err(OutputError::Folder { file, folder, source });
                }
            }
        }
        let source = io::ErrorKind::AlreadyExists.into();
        Err(OutputError::Write { file: target.name.clone(), source })
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
    pub(crate) fn commit(&self, mut files: Vec<Staged>) -> Result<(), OutputError> {
        // All have names before any takes its place.
        for staged in files.iter_mut().filter(|staged| staged.temporary.is_none()) {
            let file = staged.file.get_ref();
            let link = |path: &Path| nameless::name(file, path);
            staged.temporary = Some(self.named(&staged.target, link)?.1);
        }
        let mut open = self.lock();
        for staged in &files {
            let Some(temporary) = &staged.temporary else { continue };
            fs::rename(temporary, &staged.target.path).map_err(|source| staged.failed(source))?;
            open.retain(|other| *other != Temporary::File(temporary.clone()));
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
    /// Its name, if it has one yet.
    temporary: Option<PathBuf>,
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

/// Files that have no name until they get one.
#[cfg(target_os = "linux")]
mod nameless {
    use rustix::fs::{AtFlags, CWD, OFlags, linkat};
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;

    /// A file in the folder; `None` where the file system has none without a name.
    pub(super) fn open(folder: &Path) -> Option<File> {
        let flags = OFlags::TMPFILE.bits().cast_signed();
        OpenOptions::new().write(true).custom_flags(flags).open(folder).ok()
    }

    /// Gives the file a name that nothing has.
    pub(super) fn name(file: &File, path: &Path) -> io::Result<()> {
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod nameless {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    pub(super) fn open(_: &Path) -> Option<File> {
        None
    }

    pub(super) fn name(_: &File, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
