//! What is to be computed, regardless of who computes it.

use ringattn_core::{AttentionShape, DType, Interval, Mask, Position};
use thiserror::Error;

/// One attention: `queries` query tokens over `keys` key tokens under a mask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Heads and head dimension; a batch is folded into the heads.
    pub shape: AttentionShape,
    /// Query tokens.
    pub queries: u64,
    /// Key tokens.
    pub keys: u64,
    /// Which keys each query sees, in positions of the two sequences.
    pub mask: Mask,
    /// The type in which K and V are kept and sent.
    pub kv_dtype: DType,
}

/// A problem that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProblemError {
    /// Document boundaries beyond the sequence.
    #[error("cu_seqlens ends at {actual}, beyond the {keys} tokens there are")]
    DocumentsBeyondEnd {
        /// The last boundary.
        actual: u64,
        /// Tokens there are.
        keys: u64,
    },
    /// Another number of intervals than queries.
    #[error("{actual} intervals for {queries} queries")]
    IntervalCount {
        /// Intervals given.
        actual: u64,
        /// Queries there are.
        queries: u64,
    },
    /// K and V of more than 2^64 bytes.
    #[error("K and V of {keys} tokens with {width} elements each exceed 2^64 bytes")]
    TooLarge {
        /// Key tokens.
        keys: u64,
        /// Elements of a token in K.
        width: u64,
    },
}

impl Problem {
    /// Bytes of K and V of one token.
    pub fn kv_bytes_per_token(&self) -> u64 {
        2 * self.shape.key_width() as u64 * self.kv_dtype.size()
    }

    /// Bytes of K and V of the whole sequence.
    pub fn kv_bytes(&self) -> u64 {
        self.keys * self.kv_bytes_per_token()
    }

    /// Whether the parts fit together.
    ///
    /// # Errors
    /// Names the part that does not.
    pub fn validate(&self) -> Result<(), ProblemError> {
        let width = self.shape.key_width() as u64;
        width
            .checked_mul(2 * self.kv_dtype.size())
            .and_then(|per_token| per_token.checked_mul(self.keys))
            .ok_or(ProblemError::TooLarge { keys: self.keys, width })?;
        self.validate_mask(&self.mask)
    }

    fn validate_mask(&self, mask: &Mask) -> Result<(), ProblemError> {
        match mask {
            Mask::Documents(documents) => {
                let actual = documents.cu_seqlens().last().copied().unwrap_or(0);
                if actual > self.keys {
                    return Err(ProblemError::DocumentsBeyondEnd { actual, keys: self.keys });
                }
                Ok(())
            }
            Mask::Intervals(intervals) if intervals.len() as u64 != self.queries => {
                let actual = intervals.len() as u64;
                Err(ProblemError::IntervalCount { actual, queries: self.queries })
            }
            Mask::Intersection(masks) => masks.iter().try_for_each(|m| self.validate_mask(m)),
            Mask::Full | Mask::Causal | Mask::Window(_) | Mask::Intervals(_) => Ok(()),
        }
    }

    /// All (query, key) pairs that the mask shows, counted without any layout.
    pub fn pairs(&self) -> u128 {
        let all = Interval::from_len(self.keys);
        Interval::<Position>::from_len(self.queries)
            .iter()
            .map(|query| u128::from(self.mask.visible(query).intersect(all).len()))
            .sum()
    }
}
