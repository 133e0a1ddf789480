//! Where a result shall be: checked before anything is computed.

use super::OutputError;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that is to be written or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The path as the user gave it, for messages.
    pub(crate) name: String,
    /// Its existing folder, without links.
    pub(crate) folder: PathBuf,
    /// Folder and file name.
    pub(crate) path: PathBuf,
}

impl Target {
    /// The file at `path`, whose folder exists. Links are followed, so that what they lead to is
    /// replaced. Refused when it is one of the `inputs`.
    pub(crate) fn new(path: &Path, inputs: &[&Path]) -> Result<Self, OutputError> {
        let name = path.display().to_string();
        let occupied = |actual| OutputError::Occupied { file: name.clone(), actual };
        let write = |source| OutputError::Write { file: name.clone(), source };
        let existing = match fs::metadata(path) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(write(source)),
        };
        let mut path = path.to_owned();
        if let Some(metadata) = existing {
            if let Some(actual) = not_replaceable(&metadata) {
                return Err(occupied(actual));
            }
            if let Some(input) = inputs.iter().find(|input| holds(input, &metadata)) {
                let input = input.display().to_string();
                return Err(OutputError::IsInput { file: name, input });
            }
            path = path.canonicalize().map_err(write)?;
        } else if path.is_symlink() {
            return Err(occupied("a link that leads nowhere"));
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let folder_name = folder.display().to_string();
        let folder = folder.canonicalize().map_err(|source| OutputError::Folder {
            file: name.clone(),
            folder: folder_name,
            source,
        })?;
        let file = path.file_name().ok_or_else(|| occupied("a folder"))?;
        let path = folder.join(file);
        Ok(Self { name, folder, path })
    }
}

/// What keeps the file from being replaced.
fn not_replaceable(metadata: &Metadata) -> Option<&'static str> {
    if metadata.is_dir() {
        Some("a folder")
    } else if !metadata.is_file() {
        Some("a pipe, socket or device")
    } else if metadata.permissions().readonly() {
        Some("a file that is read-only")
    } else {
        None
    }
}

/// Whether `input` is the file of `metadata`, or a model's folder in which it is one of the model's.
fn holds(input: &Path, metadata: &Metadata) -> bool {
    let same = |other: Metadata| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
    match fs::metadata(input) {
        Ok(found) if found.is_dir() => fs::read_dir(input).is_ok_and(|entries| {
            let paths = entries.flatten().map(|entry| entry.path());
            paths.filter(|path| is_of_model(path)).any(|path| fs::metadata(path).is_ok_and(same))
        }),
        Ok(found) => same(found),
        Err(_) => false,
    }
}

/// Whether a model is read from files of this name.
fn is_of_model(path: &Path) -> bool {
    const NAMES: [&str; 3] = ["config.json", "tokenizer.json", "model.safetensors.index.json"];
    path.extension().is_some_and(|extension| extension == "safetensors")
        || path.file_name().is_some_and(|name| NAMES.iter().any(|known| name == *known))
}
