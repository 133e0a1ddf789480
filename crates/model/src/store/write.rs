//! Writing a cache: every rank its file, rank 0 the manifest.

use super::manifest::{Manifest, SCHEMA, Shard, segments};
use super::read::read_manifest;
use super::{MANIFEST, StoreError, fingerprint, hex};
use crate::ModelError;
use crate::file::{MappedFile, display};
use crate::load::Model;
use ringattn_comm::Communicator;
use ringattn_core::{DType, Message, MessageError, Payload, Rank};
use ringattn_engine::cpu::KvCache;
use safetensors::tensor::{Dtype, TensorView};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// What a cache holds beside keys and values.
#[derive(Clone, Copy, Debug)]
pub struct CacheContents<'a> {
    /// The tokens in the cache, in order.
    pub tokens: &'a [u32],
    /// Tokens behind them, to be computed when the text goes on.
    pub pending: &'a [u32],
}

/// Makes sure that a cache can be written to `folder`: it is made if it is not there, and holds nothing
/// or a cache.
///
/// # Errors
/// When there is something else.
pub fn check_target(folder: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Write { file: display(folder), source };
    match fs::create_dir(folder) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
        Err(source) => return Err(failed(source)),
    }
    let occupied = |actual| StoreError::Occupied { folder: display(folder), actual };
    if !folder.is_dir() {
        return Err(occupied("a file".to_owned()));
    }
    if folder.join(MANIFEST).exists() {
        return read_manifest(folder).map(drop);
    }
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        // What a save left that failed is no obstacle.
        if !is_shard(&name) {
            return Err(occupied(name));
        }
    }
    Ok(())
}

/// Writes this rank's file and, on rank 0, the manifest. Every rank must call it, with the same contents.
///
/// # Errors
/// When a file cannot be written, or a rank is lost. The cache that was there before is then still there.
pub fn save_rank<C: Communicator>(
    folder: &Path,
    model: &Model,
    (cache, contents): (&KvCache, CacheContents<'_>),
    comm: &C,
) -> Result<(), StoreError> {
    let shard = write_shard(folder, cache)?;
    let root = Rank(0);
    let Some(shards) = comm.gather(ShardMessage(shard), root)? else {
        // Until the manifest is there the cache is not.
        return Ok(comm.barrier()?);
    };
    let shape = cache.shape();
    let manifest = Manifest {
        schema: SCHEMA.to_owned(),
        model: fingerprint(model).map_err(ModelError::from)?,
        dtype: shape.dtype.to_string(),
        layers: shape.layers,
        key_heads: shape.attention.key_heads(),
        head_dim: shape.attention.head_dim(),
        tokens: contents.tokens.to_vec(),
        pending: contents.pending.to_vec(),
        segments: segments(cache.layout()),
        shards: shards.into_iter().map(|message| message.0).collect(),
        sha256: String::new(),
    }
    .sealed();
    write_manifest(folder, &manifest)?;
    let named: BTreeSet<_> = manifest.shards.iter().map(|shard| shard.file.as_str()).collect();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| is_shard(name) && !named.contains(name)) {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(comm.barrier()?)
}

/// Whether a name is one that [`write_shard`] gives: no path that leads elsewhere.
pub(super) fn is_shard(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    name.starts_with("shard-") && name.ends_with(".safetensors") && name.chars().all(plain)
}

fn write_shard(folder: &Path, cache: &KvCache) -> Result<Shard, StoreError> {
    let (rank, shape) = (cache.rank(), cache.shape());
    let temporary = folder.join(format!(".shard-{rank}-{}.tmp", std::process::id()));
    let failed = |source| StoreError::Write { file: display(&temporary), source };
    // The library would make a file that nobody else can read.
    File::create(&temporary).map_err(failed)?;
    let dtype = match shape.dtype {
        DType::F32 => Dtype::F32,
        DType::Bf16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
    };
    let slots = cache.layout().count(rank) - cache.kept_from().0;
    let dims = vec![slots as usize, shape.attention.key_heads(), shape.attention.head_dim()];
    let mut tensors = Vec::new();
    for layer in 0..shape.layers {
        let (keys, values) = cache.rows(layer)?;
        for (name, rows) in [("k", keys), ("v", values)] {
            let view = TensorView::new(dtype, dims.clone(), rows.bytes())
                .map_err(|error| failed(io::Error::other(error)))?;
            tensors.push((format!("layer.{layer}.{name}"), view));
        }
    }
    let written = safetensors::serialize_to_file(tensors, None, &temporary)
        .map_err(|error| failed(io::Error::other(error)))
        .and_then(|()| finish_shard(folder, &temporary, cache));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Makes the file durable and gives it the name of its content.
fn finish_shard(folder: &Path, temporary: &Path, cache: &KvCache) -> Result<Shard, StoreError> {
    let failed = |source| StoreError::Write { file: display(temporary), source };
    File::open(temporary).and_then(|file| file.sync_all()).map_err(failed)?;
    let mapped = MappedFile::open(temporary)?;
    let mut hasher = Sha256::new();
    hasher.update(mapped.bytes());
    let (sha256, bytes) = (hex(hasher), mapped.bytes().len() as u64);
    let file = format!("shard-{}-{}.safetensors", cache.rank(), &sha256[..16]);
    fs::rename(temporary, folder.join(&file)).map_err(failed)?;
    Ok(Shard { file, bytes, sha256, kept_from: cache.kept_from().0 })
}

fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<(), StoreError> {
    let temporary = folder.join(format!(".manifest-{}.tmp", std::process::id()));
    let failed = |source| StoreError::Write { file: display(&folder.join(MANIFEST)), source };
    let written = serde_json::to_vec(manifest)
        .map_err(io::Error::from)
        .and_then(|text| fs::write(&temporary, text))
        .and_then(|()| File::open(&temporary)?.sync_all())
        .and_then(|()| fs::rename(&temporary, folder.join(MANIFEST)));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    // Not every file system can make a folder durable.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    written.map_err(failed)
}

/// A rank's entry on its way to rank 0, as the JSON of the manifest.
struct ShardMessage(Shard);

impl ShardMessage {
    fn json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).unwrap_or_default()
    }
}

impl Message for ShardMessage {
    const KIND: &'static str = "cache shard";

    fn byte_len(&self) -> u64 {
        self.json().len() as u64
    }

    fn header(&self) -> Vec<u64> {
        Vec::new()
    }

    fn payload(&self) -> Payload {
        self.json().into()
    }

    fn from_payload(_: &[u64], payload: Vec<u8>) -> Result<Self, MessageError> {
        let actual = payload.len() as u64;
        let broken = MessageError::Payload { kind: Self::KIND, expected: 0, actual };
        serde_json::from_slice(&payload).map(Self).map_err(|_| broken)
    }
}
