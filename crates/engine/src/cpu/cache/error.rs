//! Why a cache refuses: what was asked for beside what there is.

use crate::Tensor;
use ringattn_core::{DType, OutOfMemory, Position, Rank};
use ringattn_plan::LayoutError;
use thiserror::Error;

/// Why a cache cannot do what it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CacheError {
    /// A segment that cannot be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// No memory for more rows.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// A layer that does not exist.
    #[error("layer {layer} of a cache of {layers} layers")]
    Layer {
        /// What was asked for.
        layer: usize,
        /// Layers there are.
        layers: usize,
    },
    /// A layer that holds, or is given, another number of elements than its tokens need.
    #[error("layer {layer} of rank {rank}: {tensor} of {actual} elements, expected {expected}")]
    Elements {
        /// The rank.
        rank: Rank,
        /// The layer.
        layer: usize,
        /// Keys or values.
        tensor: Tensor,
        /// What the layout asks for.
        expected: usize,
        /// What there is.
        actual: usize,
    },
    /// A sequence that is to be cut so short that it needs what has been forgotten.
    #[error(
        "a sequence cut to {len} tokens needs those from position {needed} on, and those before \
         position {forgotten} have been forgotten"
    )]
    Forgotten {
        /// Tokens that were to stay.
        len: u64,
        /// The first position that its next query sees.
        needed: Position,
        /// The first position that is surely held on every rank.
        forgotten: Position,
    },
    /// A NaN or an infinity, or a number too large for the cache's type.
    #[error(
        "layer {layer}: {tensor} at token {position} holds a NaN, an infinity or a number too large \
         for {dtype}"
    )]
    NonFinite {
        /// The rank.
        rank: Rank,
        /// The layer.
        layer: usize,
        /// Keys or values.
        tensor: Tensor,
        /// The cache's type.
        dtype: DType,
        /// The token.
        position: Position,
    },
}
