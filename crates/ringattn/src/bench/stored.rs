//! How keys and values, or weights, are stored: plain numbers or quantised codes.

use super::BenchError;
use ringattn_core::DType;
use ringattn_engine::cpu::dense::Codes;
use std::fmt;

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Numbers.
    Plain(DType),
    /// Codes, of which 32 share a scale and an offset: weights only.
    Quantised(Codes),
}

impl Stored {
    /// The type of plain numbers.
    ///
    /// # Errors
    /// For codes.
    pub(super) fn plain(self) -> Result<DType, BenchError> {
        match self {
            Self::Plain(dtype) => Ok(dtype),
            Self::Quantised(_) => Err(BenchError::Stored { actual: self }),
        }
    }
}

impl From<DType> for Stored {
    fn from(dtype: DType) -> Self {
        Self::Plain(dtype)
    }
}

/// `f32`, or `q4` for codes of four bits.
impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(dtype) => write!(f, "{dtype}"),
            Self::Quantised(Codes::Nibbles { .. }) => f.write_str("q4"),
            Self::Quantised(Codes::Bytes) => f.write_str("q8"),
        }
    }
}
