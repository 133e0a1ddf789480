//! Everything that can end a command, and the kind by which a program decides what to do.

use crate::agreement::AgreementError;
use crate::bench::BenchError;
use crate::generate::RankGenerateError;
use crate::launch::CollectError;
use crate::predict::PredictError;
use crate::tensor::TensorError;
use ringattn_comm::{CommError, RunError};
use ringattn_core::{MaskError, OutOfMemory, Rank, ShapeError};
use ringattn_engine::EngineError;
use ringattn_engine::cpu::CacheError;
use ringattn_engine::cpu::dense::DenseError;
use ringattn_engine::cpu::{KernelError, TeamError};
use ringattn_model::{
    DensePassError, GenerateError, ModelError, SamplingError, ScoreError, StoreError,
};
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
    /// No token to go on from.
    #[error(
        "there is nothing to continue: neither the prompt nor the loaded cache has a token whose \
         successor is unknown; give at least one token"
    )]
    NothingToContinue,
    /// An option of sampling outside its range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// A cache that cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
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
    /// The ranks are not about to do the same.
    #[error(transparent)]
    Agreement(#[from] RunError<AgreementError>),
    /// What the ranks found could not be brought together.
    #[error(transparent)]
    Collect(#[from] RunError<CollectError>),
    /// Another rank failed before the run.
    #[error(transparent)]
    Peer(CommError),
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
    /// Generation failed on a rank.
    #[error(transparent)]
    Generate(#[from] RunError<RankGenerateError>),
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
    /// The ranks could not compare their clocks.
    #[error(transparent)]
    Clock(#[from] CommError),
    /// The rank's shards could not be read.
    #[error(transparent)]
    Tensor(#[from] TensorError),
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
    /// Start all ranks alike.
    Disagreement,
    /// A rank was lost.
    PeerLost,
    /// A rank stood still.
    Timeout,
    /// A count or a checksum was wrong.
    Integrity,
    /// Give it more memory, or more ranks.
    Memory,
    /// A result could not be written.
    Output,
    /// NaN, infinity or overflow in the numbers.
    NonFinite,
    /// The run was stopped from outside.
    Stopped,
}

impl Error {
    /// The rank to blame, where there is one.
    pub fn culprit(&self) -> Option<Rank> {
        match self {
            Self::Agreement(error) => error.culprit(),
            Self::Collect(error) => error.culprit(),
            Self::Attend(error) => error.culprit(),
            Self::Score(error) => error.culprit(),
            Self::Peer(error) => error.culprit(),
            _ => None,
        }
    }

    /// Who or what stopped the run, and which ranks do not answer; `None` where that is not told.
    pub fn stop_reason(&self) -> Option<&str> {
        fn of<E>(error: &RunError<E>) -> Option<&CommError> {
            match error {
                RunError::World(error) => Some(error),
                _ => None,
            }
        }
        let error = match self {
            Self::Agreement(error) => of(error),
            Self::Collect(error) => of(error),
            Self::Attend(error) => of(error),
            Self::Score(error) => of(error),
            Self::Peer(error) => Some(error),
            _ => None,
        };
        match error {
            Some(CommError::Stopped { reason }) => Some(reason),
            _ => None,
        }
    }

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
            | Self::Sampling(_) => ErrorKind::Usage,
            Self::Tensor(error) => tensor_kind(error),
            Self::NoTokens | Self::NothingToContinue | Self::Vocabulary { .. } => ErrorKind::Input,
            Self::Store(error) => store_kind(error),
            Self::Model(error) => model_kind(error),
            Self::MemoryLimit { .. } | Self::OutOfMemory(_) => ErrorKind::Memory,
            Self::Output(error) => kernel_kind(error),
            Self::Bench(error) => bench_kind(error),
            Self::Agreement(error) => run_kind(error, agreement_kind),
            Self::Collect(error) => run_kind(error, collect_kind),
            Self::Peer(error) => comm_kind(error),
            Self::Comm(error) => run_kind(error, comm_kind),
            Self::Attend(error) => run_kind(error, attend_kind),
            Self::Score(error) => run_kind(error, score_kind),
            Self::Generate(error) => run_kind(error, generate_kind),
        }
    }
}

fn tensor_kind(error: &TensorError) -> ErrorKind {
    match error {
        TensorError::Size { .. } => ErrorKind::Usage,
        TensorError::Read { .. } => ErrorKind::Input,
        TensorError::OutOfMemory(_) => ErrorKind::Memory,
    }
}

fn agreement_kind(error: &AgreementError) -> ErrorKind {
    match error {
        AgreementError::Differs { .. } => ErrorKind::Disagreement,
        AgreementError::Comm(error) => comm_kind(error),
    }
}

fn collect_kind(error: &CollectError) -> ErrorKind {
    match error {
        CollectError::Comm(error) => comm_kind(error),
        CollectError::OutOfMemory(_) => ErrorKind::Memory,
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
        AttendError::Clock(error) => comm_kind(error),
        AttendError::Tensor(error) => tensor_kind(error),
        AttendError::OutOfMemory(_) => ErrorKind::Memory,
    }
}

fn score_kind(error: &ScoreError) -> ErrorKind {
    match error {
        ScoreError::Attention { source, .. } => engine_kind(source),
        ScoreError::Dense(error) => dense_pass_kind(error),
        ScoreError::OutOfMemory(_) => ErrorKind::Memory,
        ScoreError::Kernel(error) => kernel_kind(error),
        ScoreError::Clock(error) => comm_kind(error),
        ScoreError::Vocabulary { .. } => ErrorKind::Input,
        ScoreError::NonFinite { .. } => ErrorKind::NonFinite,
    }
}

fn generate_kind(error: &RankGenerateError) -> ErrorKind {
    let error = match error {
        RankGenerateError::Store(error) => return store_kind(error),
        RankGenerateError::Generate(error) => error,
    };
    match error {
        GenerateError::Attention { source, .. } => engine_kind(source),
        GenerateError::Comm(error) => comm_kind(error),
        GenerateError::Dense(error) => dense_pass_kind(error),
        GenerateError::Kernel(error) => kernel_kind(error),
        GenerateError::Cache(error) => cache_kind(error),
        GenerateError::Plan(_) => ErrorKind::Usage,
        GenerateError::OutOfMemory(_) => ErrorKind::Memory,
        GenerateError::Vocabulary { .. } => ErrorKind::Input,
        GenerateError::NonFinite { .. } => ErrorKind::NonFinite,
    }
}

fn dense_pass_kind(error: &DensePassError) -> ErrorKind {
    match error {
        DensePassError::Interrupted(_) => ErrorKind::Stopped,
        DensePassError::OutOfMemory(_) => ErrorKind::Memory,
        DensePassError::Dense(_) => ErrorKind::Integrity,
    }
}

fn cache_kind(error: &CacheError) -> ErrorKind {
    match error {
        CacheError::OutOfMemory(_) => ErrorKind::Memory,
        CacheError::NonFinite { .. } => ErrorKind::NonFinite,
        CacheError::Layout(_) | CacheError::Forgotten { .. } => ErrorKind::Usage,
        CacheError::Layer { .. } | CacheError::Elements { .. } => ErrorKind::Integrity,
    }
}

fn store_kind(error: &StoreError) -> ErrorKind {
    match error {
        StoreError::File(error) => model_kind(error),
        StoreError::Digest { .. } | StoreError::Length { .. } => ErrorKind::Integrity,
        StoreError::Occupied { .. } | StoreError::Write { .. } => ErrorKind::Output,
        StoreError::Cache(error) => cache_kind(error),
        StoreError::OutOfMemory(_) => ErrorKind::Memory,
        StoreError::Comm(error) => comm_kind(error),
        // A cache of another model, and whatever else is wrong with an input.
        _ => ErrorKind::Input,
    }
}

fn bench_kind(error: &BenchError) -> ErrorKind {
    match error {
        BenchError::NoRow { .. } | BenchError::Stored { .. } => ErrorKind::Usage,
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
        CommError::Kind { .. } | CommError::Message { .. } | CommError::Damaged { .. } => {
            ErrorKind::Integrity
        }
        CommError::Memory { .. } => ErrorKind::Memory,
        _ => ErrorKind::PeerLost,
    }
}
