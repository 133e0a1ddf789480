//! Why a run ended without a result. Texts leave out the rank, which whoever starts ranks names.

use crate::backend::Tensor;
use ringattn_comm::CommError;
use ringattn_core::{DType, Position, Rank};
use thiserror::Error;

/// Why a rank could not finish; `E` is the backend's own error.
#[derive(Debug, Error)]
pub enum EngineError<E: std::error::Error> {
    /// A message or a wait failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The device failed.
    #[error("step {step}: {source}")]
    Backend {
        /// The rank.
        rank: Rank,
        /// Its step; the number of steps when it happened while finishing.
        step: u32,
        /// What the device says.
        source: E,
    },
    /// A NaN or an infinity that a query sees, or in a query that sees something.
    #[error("{tensor} holds {} at token {position}", bad(*dtype))]
    NonFiniteInput {
        /// Which input.
        tensor: Tensor,
        /// Who holds it.
        rank: Rank,
        /// The type in which the tensor is kept; a finite number may be too large for it.
        dtype: DType,
        /// The token.
        position: Position,
    },
    /// Finite inputs whose logits or sums exceed f32.
    #[error("attention overflows f32 at query token {position}")]
    Overflow {
        /// Who computed it.
        rank: Rank,
        /// The query token.
        position: Position,
    },
    /// The plan uses a block or queries that the rank does not hold: the plan is wrong.
    #[error("step {step}: the plan uses what is not held")]
    NotHeld {
        /// The rank.
        rank: Rank,
        /// Its step.
        step: u32,
    },
    /// A measured count differs from the plan's.
    #[error("{what} is {actual}, the plan says {expected}", what = law.what,
            actual = law.actual, expected = law.expected)]
    Law {
        /// The rank.
        rank: Rank,
        /// What differs.
        law: crate::measured::Law,
    },
}

/// What is wrong with a number that is not finite in `dtype`.
fn bad(dtype: DType) -> String {
    match dtype {
        DType::F32 => "a NaN or an infinity".to_owned(),
        DType::Bf16 | DType::F16 => {
            format!("a NaN, an infinity or a number too large for {dtype}")
        }
    }
}
