//! A cache on disk: one safetensors file per rank, and a manifest with their digests.
//!
//! A file holds `layer.N.k` and `layer.N.v`, `[slots, Hk, d]`, in the order of the rank's slots. The
//! manifest says which tokens these are, how they were laid out, for which model and with which SHA-256
//! of each file. Files are named by their digest and the manifest is renamed into place last, so a cache
//! that is written over an older one is the old or the new one at any time. Whoever loads it may have
//! another number of ranks and another layout: rows are dealt out anew. Every rank must see the folder.

mod manifest;
mod read;
mod write;

pub use read::StoredCache;
pub use write::{CacheContents, check_target, save_rank};

use crate::ModelError;
use crate::load::Model;
use crate::weights::{LayerWeights, Weights};
use ringattn_comm::CommError;
use ringattn_core::OutOfMemory;
use ringattn_engine::cpu::CacheError;
use ringattn_engine::cpu::dense::{DenseError, PackedMatrix};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use thiserror::Error;

/// The manifest's name in the folder.
const MANIFEST: &str = "manifest.json";

/// Why a cache cannot be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file that cannot be read or is not what it should be.
    #[error(transparent)]
    File(#[from] ModelError),
    /// A file whose bytes are not those that were written.
    #[error("{file}: SHA-256 is {actual}, the manifest says {expected}")]
    Digest {
        /// The file.
        file: String,
        /// By the manifest.
        expected: String,
        /// Computed.
        actual: String,
    },
    /// A file of another length than was written: cut short, or another file.
    #[error("{file}: {actual} bytes, the manifest says {expected}")]
    Length {
        /// The file.
        file: String,
        /// By the manifest.
        expected: u64,
        /// Bytes there are.
        actual: u64,
    },
    /// The keys and values of another model.
    #[error(
        "{file}: the cache was made with another model (fingerprint {actual}, here {expected})"
    )]
    OtherModel {
        /// The manifest.
        file: String,
        /// This model's fingerprint.
        expected: String,
        /// The cache's.
        actual: String,
    },
    /// A folder with something in it that is no cache.
    #[error("{folder}: expected an empty folder, or one that holds a cache, found {actual}")]
    Occupied {
        /// The folder.
        folder: String,
        /// What is in it.
        actual: String,
    },
    /// A file that cannot be written.
    #[error("{file}: cannot be written: {source}")]
    Write {
        /// The file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The cache cannot take the rows, or lacks some.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// No memory for the rows.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// A rank was lost while the cache was written.
    #[error(transparent)]
    Comm(#[from] CommError),
}

/// SHA-256 in hexadecimal.
fn hex(hasher: Sha256) -> String {
    hasher.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What tells models apart whose keys and values differ: the configuration, all norms, and the first,
/// the middle and the last row of every matrix, widened, so that neither packing nor the instruction
/// set matters.
fn fingerprint(model: &Model) -> Result<String, DenseError> {
    let mut hasher = Sha256::new();
    hasher.update(format!("{:?}", model.config));
    let Weights { embedding, layers, final_norm, head } = &model.weights;
    add_rows(&mut hasher, embedding)?;
    for layer in layers {
        add_layer(&mut hasher, layer)?;
    }
    hasher.update(bytemuck::cast_slice(final_norm));
    head.iter().try_for_each(|head| add_rows(&mut hasher, head))?;
    Ok(hex(hasher))
}

fn add_layer(hasher: &mut Sha256, layer: &LayerWeights) -> Result<(), DenseError> {
    let LayerWeights { q, k, v, o, gate, up, down, .. } = layer;
    for linear in [q, k, v, o, gate, up, down] {
        add_rows(hasher, &linear.weight)?;
        hasher.update(bytemuck::cast_slice(linear.bias.as_deref().unwrap_or_default()));
    }
    let norms = [Some(&layer.attention_norm), layer.q_norm.as_ref(), layer.k_norm.as_ref()];
    for norm in norms.into_iter().flatten().chain([&layer.feed_forward_norm]) {
        hasher.update(bytemuck::cast_slice(norm));
    }
    Ok(())
}

fn add_rows(hasher: &mut Sha256, matrix: &PackedMatrix) -> Result<(), DenseError> {
    let mut row = vec![0.0; matrix.cols()];
    for index in [0, matrix.rows() / 2, matrix.rows().saturating_sub(1)] {
        matrix.row(index, &mut row)?;
        hasher.update(bytemuck::cast_slice(&row));
    }
    Ok(())
}
