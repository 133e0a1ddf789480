//! The shape of one attention: heads and head dimension.

use thiserror::Error;

/// Heads and head dimension of grouped-query attention (GQA, 2305.13245): query head `h` reads key
/// head `h / (Hq / Hk)`. A batch is folded into the heads, which leaves that rule unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    query_heads: usize,
    key_heads: usize,
    head_dim: usize,
}

/// Heads that do not form grouped-query attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// No heads or no dimension.
    #[error(
        "attention needs at least one head and one dimension, got {query_heads} query heads, \
         {key_heads} key heads, head dimension {head_dim}"
    )]
    Zero {
        /// Query heads.
        query_heads: usize,
        /// Key heads.
        key_heads: usize,
        /// Head dimension.
        head_dim: usize,
    },
    /// A token of Q, K or V beyond what memory can address.
    #[error("a token of {heads} heads of dimension {head_dim} is too large")]
    TooLarge {
        /// The more numerous heads.
        heads: usize,
        /// Head dimension.
        head_dim: usize,
    },
    /// Key heads that do not divide the query heads.
    #[error("{key_heads} key heads do not divide {query_heads} query heads")]
    Group {
        /// Query heads.
        query_heads: usize,
        /// Key heads.
        key_heads: usize,
    },
}

impl AttentionShape {
    /// `Hq` query heads over `Hk` key heads of dimension `d`.
    ///
    /// # Errors
    /// When one of them is 0, `Hk` does not divide `Hq`, or a token is too large to address.
    pub fn new(query_heads: usize, key_heads: usize, head_dim: usize) -> Result<Self, ShapeError> {
        if query_heads == 0 || key_heads == 0 || head_dim == 0 {
            return Err(ShapeError::Zero { query_heads, key_heads, head_dim });
        }
        if !query_heads.is_multiple_of(key_heads) {
            return Err(ShapeError::Group { query_heads, key_heads });
        }
        // Key heads divide the query heads, so that they are no more than these.
        if query_heads.checked_mul(head_dim).is_none_or(|width| width > isize::MAX as usize / 8) {
            return Err(ShapeError::TooLarge { heads: query_heads, head_dim });
        }
        Ok(Self { query_heads, key_heads, head_dim })
    }

    /// `Hq`.
    pub fn query_heads(self) -> usize {
        self.query_heads
    }

    /// `Hk`.
    pub fn key_heads(self) -> usize {
        self.key_heads
    }

    /// `d`.
    pub fn head_dim(self) -> usize {
        self.head_dim
    }

    /// `Hq / Hk`, the query heads that share a key head.
    pub fn group(self) -> usize {
        self.query_heads / self.key_heads
    }

    /// Elements of one token in Q, `Hq * d`.
    pub fn query_width(self) -> usize {
        self.query_heads * self.head_dim
    }

    /// Elements of one token in K or in V, `Hk * d`.
    pub fn key_width(self) -> usize {
        self.key_heads * self.head_dim
    }
}
