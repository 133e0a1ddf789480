//! The manifest: plain data, and the checks that its parts fit together.

use super::{StoreError, hex};
use crate::ModelError;
use ringattn_core::{DType, Interval, Position, Rank};
use ringattn_engine::cpu::CacheShape;
use ringattn_plan::{BlockOrder, Layout, Segment};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The manifest's format.
pub(super) const SCHEMA: &str = "ringattn.cache/1";
/// Bytes of the longest manifest that is read: about 2^27 token ids.
pub(super) const LIMIT: u64 = 1 << 30;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) schema: String,
    /// Fingerprint of the model.
    pub(super) model: String,
    pub(super) dtype: String,
    pub(super) layers: usize,
    pub(super) key_heads: usize,
    pub(super) head_dim: usize,
    /// Tokens whose keys and values are stored, in order.
    pub(super) tokens: Vec<u32>,
    /// Tokens behind them that were chosen but not computed.
    pub(super) pending: Vec<u32>,
    pub(super) segments: Vec<StoredSegment>,
    /// One entry per rank.
    pub(super) shards: Vec<Shard>,
    /// SHA-256 of this manifest, written with an empty text here.
    #[serde(default)]
    pub(super) sha256: String,
}

/// A [`Segment`] of the layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredSegment {
    start: u64,
    end: u64,
    block: u64,
    reflected: bool,
    first_rank: u32,
}

/// The file of one rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shard {
    /// Its name in the folder.
    pub(super) file: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// Slots before this one were forgotten and are not stored.
    pub(super) kept_from: u64,
}

impl Manifest {
    /// The same manifest with its digest.
    pub(super) fn sealed(mut self) -> Self {
        self.sha256 = self.digest();
        self
    }

    fn digest(&self) -> String {
        let unsealed = Self { sha256: String::new(), ..self.clone() };
        let mut hasher = Sha256::new();
        // Plain data of known types: it is always written, and always in the same way.
        hasher.update(serde_json::to_vec(&unsealed).unwrap_or_default());
        hex(hasher)
    }

    /// Refuses a manifest that is not as it was written.
    pub(super) fn check_seal(&self, file: &str) -> Result<(), StoreError> {
        let expected = self.digest();
        if expected == self.sha256 {
            return Ok(());
        }
        let (file, actual) = (file.to_owned(), self.sha256.clone());
        Err(StoreError::Digest { file, expected: actual, actual: expected })
    }

    /// What is stored of each token; the query heads are the model's.
    pub(super) fn shape(&self, file: &str, model: CacheShape) -> Result<CacheShape, StoreError> {
        let dtype = match self.dtype.as_str() {
            "f32" => DType::F32,
            "bf16" => DType::Bf16,
            "f16" => DType::F16,
            other => return Err(malformed(file, "dtype", "f32, bf16 or f16", other)),
        };
        for (place, expected, actual) in [
            ("layers", model.layers, self.layers),
            ("key_heads", model.attention.key_heads(), self.key_heads),
            ("head_dim", model.attention.head_dim(), self.head_dim),
        ] {
            if expected != actual {
                let expected = format!("{expected}, the model's");
                return Err(malformed(file, place, &expected, &actual.to_string()));
            }
        }
        Ok(CacheShape { dtype, ..model })
    }

    /// The layout in which the files were written.
    pub(super) fn layout(&self, file: &str) -> Result<Layout, StoreError> {
        let wrong = |actual: String| malformed(file, "segments", "a layout", &actual);
        let ranks = u32::try_from(self.shards.len()).unwrap_or(u32::MAX);
        let mut layout = Layout::empty(ranks).map_err(|error| wrong(error.to_string()))?;
        for stored in &self.segments {
            let order = if stored.reflected { BlockOrder::Reflected } else { BlockOrder::Cyclic };
            let positions = Interval::new(Position(stored.start), Position(stored.end));
            let (block, first_rank) = (stored.block, Rank(stored.first_rank));
            let segment = Segment { positions, block, order, first_rank };
            layout.append_open(segment).map_err(|error| wrong(error.to_string()))?;
        }
        if layout.len() != self.tokens.len() as u64 {
            let expected = format!("segments of {} tokens", self.tokens.len());
            return Err(malformed(file, "segments", &expected, &layout.len().to_string()));
        }
        Ok(layout)
    }
}

/// The segments of a layout.
pub(super) fn segments(layout: &Layout) -> Vec<StoredSegment> {
    let stored = |segment: &Segment| StoredSegment {
        start: segment.positions.start().0,
        end: segment.positions.end().0,
        block: segment.block,
        reflected: segment.order == BlockOrder::Reflected,
        first_rank: segment.first_rank.0,
    };
    layout.segments().iter().map(stored).collect()
}

/// A file that is not what it should be.
pub(super) fn malformed(file: &str, place: &str, expected: &str, actual: &str) -> StoreError {
    let actual = crate::error::shorten(actual);
    let (file, place, expected) = (file.to_owned(), place.to_owned(), expected.to_owned());
    StoreError::File(ModelError::Malformed { file, place, expected, actual })
}
