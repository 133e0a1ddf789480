//! Reading a cache: everything is checked before a row is used.

use super::manifest::{LIMIT, Manifest, SCHEMA, Shard, malformed};
use super::write::is_shard;
use super::{MANIFEST, StoreError, fingerprint, hex};
use crate::ModelError;
use crate::file::{MappedFile, display, read_text};
use crate::load::Model;
use ringattn_core::{DType, Position, Rank, Slot, try_reserved};
use ringattn_engine::Tensor;
use ringattn_engine::cpu::{CacheShape, KvCache};
use ringattn_plan::Layout;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use sha2::{Digest, Sha256};
use std::path::Path;

/// A cache on disk, checked and mapped. The files must not be changed while it is in use.
#[derive(Debug)]
pub struct StoredCache {
    manifest: Manifest,
    shape: CacheShape,
    layout: Layout,
    files: Vec<MappedFile>,
}

/// The manifest in the folder, its parts not yet compared with anything.
pub(super) fn read_manifest(folder: &Path) -> Result<Manifest, StoreError> {
    let path = folder.join(MANIFEST);
    let file = display(&path);
    if !path.exists() {
        let hint = "a folder that --save-cache wrote holds one";
        return Err(ModelError::MissingFile { file, hint }.into());
    }
    let text = read_text(&path, LIMIT)?;
    let manifest: Manifest = serde_json::from_str(&text)
        .map_err(|error| malformed(&file, "the manifest", "a cache's", &error.to_string()))?;
    if manifest.schema != SCHEMA {
        return Err(malformed(&file, "schema", SCHEMA, &manifest.schema));
    }
    Ok(manifest)
}

impl StoredCache {
    /// Opens the cache in `folder` and checks it: that it is this model's, and that every file has the
    /// length, the digest and the tensors that the manifest and the layout ask for.
    ///
    /// # Errors
    /// Names the file that is not what it should be.
    pub fn open(folder: &Path, model: &Model) -> Result<Self, StoreError> {
        let manifest = read_manifest(folder)?;
        let file = display(&folder.join(MANIFEST));
        let expected = fingerprint(model).map_err(ModelError::from)?;
        if manifest.model != expected {
            return Err(StoreError::OtherModel { file, expected, actual: manifest.model });
        }
        let (attention, layers) = (model.config.attention, model.config.layers);
        let shape = manifest.shape(&file, CacheShape { attention, layers, dtype: DType::F32 })?;
        let layout = manifest.layout(&file)?;
        let outside = |id: &&u32| **id as usize >= model.config.vocab_size;
        if let Some(id) = manifest.tokens.iter().chain(&manifest.pending).find(outside) {
            let expected = format!("ids below {}", model.config.vocab_size);
            return Err(malformed(&file, "tokens", &expected, &id.to_string()));
        }
        let mut stored = Self { manifest, shape, layout, files: Vec::new() };
        for rank in stored.layout.ranks() {
            let mapped = stored.open_shard(folder, rank)?;
            stored.files.push(mapped);
        }
        // Last, so that what is wrong is named where it can be.
        stored.manifest.check_seal(&file)?;
        Ok(stored)
    }

    /// The tokens whose keys and values are stored.
    pub fn tokens(&self) -> &[u32] {
        &self.manifest.tokens
    }

    /// Tokens behind them that are to be computed first.
    pub fn pending(&self) -> &[u32] {
        &self.manifest.pending
    }

    /// The type in which keys and values are stored.
    pub fn dtype(&self) -> DType {
        self.shape.dtype
    }

    /// The cache of `rank` in `layout`, which lays out the stored tokens, with room for `announced` more.
    ///
    /// # Errors
    /// When memory is lacking.
    pub fn restore(
        &self,
        layout: &Layout,
        rank: Rank,
        announced: u64,
    ) -> Result<KvCache, StoreError> {
        let mut cache = KvCache::new(self.shape, rank, layout.world_size())?;
        // At once: rows that were placed would have to move for more room.
        cache.reserve(layout.len().saturating_add(announced))?;
        for &segment in layout.segments() {
            cache.place(segment)?;
        }
        let places: Vec<_> =
            layout.positions(rank).map(|position| self.layout.owner(position)).collect();
        let row = self.shape.attention.key_width() * self.shape.dtype.size() as usize;
        for layer in 0..self.shape.layers {
            for (tensor, name) in [(Tensor::Key, "k"), (Tensor::Value, "v")] {
                let sources = self.tensor(layer, name)?;
                let mut bytes = try_reserved(places.len() * row)?;
                for place in &places {
                    match place.and_then(|(owner, slot)| self.row(&sources, (owner, slot), row)) {
                        Some(from) => bytes.extend_from_slice(from),
                        // Forgotten before it was stored: no query sees it any more.
                        None => bytes.resize(bytes.len() + row, 0),
                    }
                }
                cache.restore(layer, tensor, &bytes)?;
            }
        }
        if let Some(first) = self.forgotten_before() {
            cache.forget_before(first)?;
        }
        Ok(cache)
    }

    /// The position behind the last one that was forgotten; `None` when all was kept. No query behind the
    /// stored tokens sees anything before it, or it would not have been forgotten.
    fn forgotten_before(&self) -> Option<Position> {
        let behind_last = |(shard, rank): (&Shard, Rank)| {
            let last = self.layout.position(rank, Slot(shard.kept_from.checked_sub(1)?))?;
            Some(Position(last.0 + 1))
        };
        self.manifest.shards.iter().zip(self.layout.ranks()).filter_map(behind_last).max()
    }

    /// Every rank's bytes of a tensor.
    fn tensor(&self, layer: usize, name: &str) -> Result<Vec<&[u8]>, StoreError> {
        let name = format!("layer.{layer}.{name}");
        let bytes = |file: &'_ MappedFile| -> Result<(usize, usize), StoreError> {
            let wrong = |actual: String| malformed(&file.name, &name, "a tensor", &actual);
            let tensors =
                SafeTensors::deserialize(file.bytes()).map_err(|e| wrong(e.to_string()))?;
            let view = tensors.tensor(&name).map_err(|e| wrong(e.to_string()))?;
            let start = view.data().as_ptr() as usize - file.bytes().as_ptr() as usize;
            Ok((start, view.data().len()))
        };
        self.files
            .iter()
            .map(|file| bytes(file).map(|(start, len)| &file.bytes()[start..start + len]))
            .collect()
    }

    /// The bytes of a row, if it was kept.
    fn row<'t>(
        &self,
        sources: &[&'t [u8]],
        (owner, slot): (Rank, Slot),
        row: usize,
    ) -> Option<&'t [u8]> {
        let kept_from = self.manifest.shards[owner.index()].kept_from;
        let start = usize::try_from(slot.0.checked_sub(kept_from)?).ok()? * row;
        sources[owner.index()].get(start..start + row)
    }

    /// Opens and checks the file of a rank.
    fn open_shard(&self, folder: &Path, rank: Rank) -> Result<MappedFile, StoreError> {
        let shard = &self.manifest.shards[rank.index()];
        if !is_shard(&shard.file) {
            let file = display(&folder.join(MANIFEST));
            return Err(malformed(&file, "shards", "names of cache files", &shard.file));
        }
        let path = folder.join(&shard.file);
        let name = display(&path);
        if !path.exists() {
            let hint = "the manifest names it as a part of the cache";
            return Err(ModelError::MissingFile { file: name, hint }.into());
        }
        let actual = std::fs::metadata(&path).map_err(|source| crate::file::io(&path, source))?;
        if actual.len() != shard.bytes {
            let (expected, actual) = (shard.bytes, actual.len());
            return Err(StoreError::Length { file: name, expected, actual });
        }
        let mapped = MappedFile::open(&path)?;
        let mut hasher = Sha256::new();
        hasher.update(mapped.bytes());
        let actual = hex(hasher);
        if actual != shard.sha256 {
            return Err(StoreError::Digest { file: name, expected: shard.sha256.clone(), actual });
        }
        self.check_tensors(&mapped, rank)?;
        Ok(mapped)
    }

    /// Whether a file holds the tensors of the rank's slots and nothing else.
    fn check_tensors(&self, file: &MappedFile, rank: Rank) -> Result<(), StoreError> {
        let wrong = |place: &str, expected: &str, actual: String| {
            malformed(&file.name, place, expected, &actual)
        };
        let tensors = SafeTensors::deserialize(file.bytes())
            .map_err(|error| wrong("the header", "safetensors", error.to_string()))?;
        let (kept, count) = (self.manifest.shards[rank.index()].kept_from, self.layout.count(rank));
        let slots = count
            .checked_sub(kept)
            .ok_or_else(|| wrong("kept_from", &format!("at most {count}"), kept.to_string()))?;
        let dims =
            [slots as usize, self.shape.attention.key_heads(), self.shape.attention.head_dim()];
        let dtype = match self.shape.dtype {
            DType::F32 => Dtype::F32,
            DType::Bf16 => Dtype::BF16,
            DType::F16 => Dtype::F16,
        };
        if tensors.len() != 2 * self.shape.layers {
            let expected = format!("{} tensors", 2 * self.shape.layers);
            return Err(wrong("the header", &expected, tensors.len().to_string()));
        }
        for layer in 0..self.shape.layers {
            for name in [format!("layer.{layer}.k"), format!("layer.{layer}.v")] {
                let view = tensors
                    .tensor(&name)
                    .map_err(|error| wrong(&name, "a tensor", error.to_string()))?;
                if view.shape() != dims || view.dtype() != dtype {
                    let expected = format!("{dtype:?} {dims:?}");
                    let actual = format!("{:?} {:?}", view.dtype(), view.shape());
                    return Err(wrong(&name, &expected, actual));
                }
            }
        }
        Ok(())
    }
}
