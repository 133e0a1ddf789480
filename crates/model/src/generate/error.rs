//! Why a rank could not go on.

use crate::forward::DensePassError;
use ringattn_comm::CommError;
use ringattn_core::{OutOfMemory, Position};
use ringattn_engine::EngineError;
use ringattn_engine::cpu::{CacheError, KernelError};
use ringattn_plan::{LayoutError, PlanError};
use thiserror::Error;

/// Why a rank could not extend its cache or choose a token.
#[derive(Debug, Error)]
pub enum GenerateError {
    /// Attention failed.
    #[error("layer {layer}: {source}")]
    Attention {
        /// The layer.
        layer: usize,
        /// Why.
        source: EngineError<KernelError>,
    },
    /// A message or a wait failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The dense part failed.
    #[error(transparent)]
    Dense(#[from] DensePassError),
    /// The kernel or its threads could not be made.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The cache could not take the tokens.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// A plan that cannot be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No memory for activations.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// A token that the model does not have.
    #[error("token {token} at position {position} is outside the vocabulary of {vocabulary}")]
    Vocabulary {
        /// Where.
        position: Position,
        /// The id.
        token: u32,
        /// Ids that there are.
        vocabulary: usize,
    },
    /// Logits that are not finite.
    #[error("the logits after token {position} are not finite")]
    NonFinite {
        /// The last token before them.
        position: Position,
    },
}

impl GenerateError {
    pub(super) fn from_layout(error: LayoutError) -> Self {
        Self::Plan(error.into())
    }
}
