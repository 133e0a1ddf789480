//! A number that tells a model's files from another's: CRC-32 and length of each, hashed in order. It
//! finds mistakes; it is no protection against somebody who wants two models to look alike.

use super::tensor_files;
use crate::ModelError;
use crate::file::io;
use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// Of `config.json` and the tensors of a folder.
pub(super) fn of_folder(folder: &Path) -> Result<u64, ModelError> {
    let mut files = vec![folder.join("config.json")];
    files.extend(tensor_files(folder)?);
    of_files(&files)
}

/// Of these files, whatever their names.
pub(super) fn of_files(files: &[PathBuf]) -> Result<u64, ModelError> {
    let mut digest = DefaultHasher::new();
    let mut piece = vec![0; PIECE];
    for path in files {
        let failed = |source| io(path, source);
        let mut file = File::open(path).map_err(failed)?;
        let (mut sum, mut len) = (crc32fast::Hasher::new(), 0_u64);
        loop {
            let read = file.read(&mut piece).map_err(failed)?;
            if read == 0 {
                break;
            }
            sum.update(&piece[..read]);
            len += read as u64;
        }
        (sum.finalize(), len).hash(&mut digest);
    }
    Ok(digest.finish())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn any_byte_and_any_length_counts_and_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let digest = |name: &str, config: &[u8], tensors: &[u8]| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("config.json"), config).unwrap();
            std::fs::write(path.join("model.safetensors"), tensors).unwrap();
            std::fs::write(path.join("notes.txt"), name).unwrap();
            of_folder(&path).unwrap()
        };
        let first = digest("a", b"{}", &[1; 3_000_000]);
        assert_eq!(digest("b", b"{}", &[1; 3_000_000]), first);
        assert_ne!(digest("c", b"{ }", &[1; 3_000_000]), first);
        assert_ne!(digest("d", b"{}", &[1; 3_000_001]), first);
        let mut changed = vec![1; 3_000_000];
        changed[2_999_999] = 2;
        assert_ne!(digest("e", b"{}", &changed), first);
    }
}
