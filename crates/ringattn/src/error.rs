//! Everything that can end a command, and the kind by which a program decides what to do.

use crate::bench::BenchError;
use crate::predict::PredictError;
use crate::tensor::TensorError;
use ringattn_comm::{CommError, RunError};
use ringattn_core::{MaskError, OutOfMemory, ShapeError};
use ringattn_engine::EngineError;
use ringattn_engine::cpu::dense::DenseError;
use ringattn_engine::cpu::{KernelError, TeamError};
use ringattn_model::{DensePassError, ModelError, ScoreError};
use ringattn_plan::{LayoutError, PlanError};
use std::io;
use thiserror::Error;

/// Why there is no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Heads that do not form grouped-query attention.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Tensors that do not fit together.
    #[error("{what} is {actual}, expected {expected}")]
    Mismatch {
        /// What does not fit.
        what: &'static str,
        /// What the other tensors ask for.
        expected: String,
        /// What there is.
        actual: String,
    },
    /// A mask that cannot be.
    #[error(transparent)]
    Mask(#[from] MaskError),
    /// A layout that cannot be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A plan that cannot be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Key positions that decrease.
    #[error(
        "k_positions must not decrease: entry {index} is {actual}, the one before it {previous}"
    )]
    KeyPositions {
        /// Index of the offending entry.
        index: usize,
        /// The entry before.
        previous: u64,
        /// The entry.
        actual: u64,
    },
    /// A softmax scale that f32 cannot hold.
    #[error("softmax_scale {scale:e} is outside the range of f32 (about 1.2e-38 to 3.4e38, or 0)")]
    Scale {
        /// What was asked for.
        scale: f64,
    },
    /// A position too large to count with.
    #[error("position {position} is beyond the largest, {limit}")]
    Position {
        /// The position.
        position: u64,
        /// The largest there can be.
        limit: u64,
    },
    /// No token to score.
    #[error("the document has no tokens: there is nothing to score")]
    NoTokens,
    /// A token outside the vocabulary.
    #[error("token {token} at index {index} is outside the model's vocabulary of {vocabulary}")]
    Vocabulary {
        /// Index in the document.
        index: usize,
        /// The id.
        token: u32,
        /// Ids that there are.
        vocabulary: usize,
    },
    /// A model that cannot be loaded.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// More memory is predicted than is allowed.
    #[error("the run would need about {predicted} bytes, the memory limit is {limit}")]
    MemoryLimit {
        /// Predicted bytes.
        predicted: u64,
        /// The limit.
        limit: u64,
    },
    /// Memory that could not be had.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The output could not be shared out among the ranks.
    #[error(transparent)]
    Output(#[from] KernelError),
    /// Bytes that do not hold the tensor they are said to hold.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The machine could not be measured.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// There is no prediction.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// Attention failed on a rank.
    #[error(transparent)]
    Attend(#[from] RunError<AttendError>),
    /// The ranks of a measurement failed.
    #[error(transparent)]
    Comm(#[from] RunError<CommError>),
    /// Scoring failed on a rank.
    #[error(transparent)]
    Score(#[from] RunError<ScoreError>),
}

/// Why a rank could not attend.
#[derive(Debug, Error)]
pub enum AttendError {
    /// Attention failed.
    #[error(transparent)]
    Engine(#[from] EngineError<KernelError>),
    /// The kernel or its threads could not be made.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// No memory for the rank's shards.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Ask for something else: options or shapes that do not fit.
    Usage,
    /// Mend an input.
    Input,
    /// A rank was lost.
    PeerLost,
    /// A rank stood still.
    Timeout,
    /// A count or a checksum was wrong.
    Integrity,
    /// Give it more memory, or more ranks.
    Memory,
    /// NaN, infinity or overflow in the numbers.
    NonFinite,
    /// The run was stopped from outside.
    Stopped,
}

impl Error {
    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Shape(_)
            | Self::Mismatch { .. }
            | Self::Mask(_)
            | Self::Layout(_)
            | Self::Plan(_)
            | Self::KeyPositions { .. }
            | Self::Position { .. }
            | Self::Scale { .. }
            | Self::Predict(_)
            | Self::Tensor(_) => ErrorKind::Usage,
            Self::NoTokens | Self::Vocabulary { .. } => ErrorKind::Input,
            Self::Model(error) => model_kind(error),
            Self::MemoryLimit { .. } | Self::OutOfMemory(_) => ErrorKind::Memory,
            Self::Output(error) => kernel_kind(error),
            Self::Bench(error) => bench_kind(error),
            Self::Comm(error) => run_kind(error, comm_kind),
            Self::Attend(error) => run_kind(error, attend_kind),
            Self::Score(error) => run_kind(error, score_kind),
        }
    }
}

fn model_kind(error: &ModelError) -> ErrorKind {
    match error {
        ModelError::Memory { .. } | ModelError::Pack(_) => ErrorKind::Memory,
        ModelError::Io { source, .. } if source.kind() == io::ErrorKind::OutOfMemory => {
            ErrorKind::Memory
        }
        _ => ErrorKind::Input,
    }
}

fn run_kind<E>(error: &RunError<E>, of_rank: impl Fn(&E) -> ErrorKind) -> ErrorKind {
    match error {
        RunError::Ranks { .. } => ErrorKind::Usage,
        RunError::Start { .. } => ErrorKind::Memory,
        RunError::Rank { error, .. } => of_rank(error),
        RunError::World(error) => comm_kind(error),
        // A panic takes the rank away, like a machine that dies.
        _ => ErrorKind::PeerLost,
    }
}

fn attend_kind(error: &AttendError) -> ErrorKind {
    match error {
        AttendError::Engine(error) => engine_kind(error),
        AttendError::Kernel(error) => kernel_kind(error),
        AttendError::OutOfMemory(_) => ErrorKind::Memory,
    }
}

fn score_kind(error: &ScoreError) -> ErrorKind {
    match error {
        ScoreError::Attention { source, .. } => engine_kind(source),
        ScoreError::Dense(DensePassError::Interrupted(_)) => ErrorKind::Stopped,
        ScoreError::Dense(DensePassError::OutOfMemory(_)) | ScoreError::OutOfMemory(_) => {
            ErrorKind::Memory
        }
        ScoreError::Kernel(error) => kernel_kind(error),
        ScoreError::Vocabulary { .. } => ErrorKind::Input,
        ScoreError::NonFinite { .. } => ErrorKind::NonFinite,
        ScoreError::Dense(DensePassError::Dense(_)) => ErrorKind::Integrity,
    }
}

fn bench_kind(error: &BenchError) -> ErrorKind {
    match error {
        BenchError::NoRow { .. } => ErrorKind::Usage,
        BenchError::Kernel(error) => kernel_kind(error),
        BenchError::Dense(DenseError::OutOfMemory(_)) | BenchError::OutOfMemory(_) => {
            ErrorKind::Memory
        }
        BenchError::Dense(_) => ErrorKind::Integrity,
        BenchError::Stopped(_) => ErrorKind::Stopped,
    }
}

fn engine_kind(error: &EngineError<KernelError>) -> ErrorKind {
    match error {
        EngineError::Comm(error) => comm_kind(error),
        EngineError::Backend { source, .. } => kernel_kind(source),
        EngineError::NonFiniteInput { .. } | EngineError::Overflow { .. } => ErrorKind::NonFinite,
        EngineError::NotHeld { .. } | EngineError::Law { .. } => ErrorKind::Integrity,
    }
}

fn kernel_kind(error: &KernelError) -> ErrorKind {
    match error {
        KernelError::Memory { .. } | KernelError::Team(TeamError::Start { .. }) => {
            ErrorKind::Memory
        }
        KernelError::Interrupted => ErrorKind::Stopped,
        _ => ErrorKind::Usage,
    }
}

fn comm_kind(error: &CommError) -> ErrorKind {
    match error {
        CommError::Stopped { .. } => ErrorKind::Stopped,
        CommError::TimedOut { .. } | CommError::Deadlock { .. } => ErrorKind::Timeout,
        CommError::Kind { .. } | CommError::Message { .. } => ErrorKind::Integrity,
        _ => ErrorKind::PeerLost,
    }
}
