//! Why a command ended without a result: the text, the exit code, and what to do.

use crate::input::InputError;
use crate::output::OutputError;
use crate::signals::Signal;
use ringattn::ErrorKind;
use ringattn::core::Rank;
use std::io;
use thiserror::Error;

/// Everything that ends a command.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The command line asks for something that cannot be.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// An input cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A result cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The run itself failed.
    #[error(transparent)]
    Run(#[from] ringattn::Error),
    /// A signal came.
    #[error("stopped by {reason}")]
    Stopped { signal: Signal, reason: String },
    /// This process could not become a rank of the job that a launcher has started.
    #[cfg(feature = "mpi")]
    #[error("cannot join the MPI job: {0}")]
    Join(#[from] ringattn::comm::mpi::StartError),
    /// The system gave no thread or no signal handler.
    #[error("cannot start {what}: {source}")]
    System { what: &'static str, source: io::Error },
    /// The system gave no socket.
    #[error("cannot serve at port {port} of this machine: {source}")]
    Listen { port: u16, source: io::Error },
}

/// A command line that is sound by itself but cannot be done, or tensors that do not fit together.
#[derive(Debug, Error)]
pub(crate) enum UsageError {
    #[error("{message}")]
    Arguments { message: String, help: String },
    #[cfg(not(feature = "mpi"))]
    #[error(
        "this build has no MPI engine, which --engine mpi, or a launcher such as mpirun, asks for: \
         build with --features mpi, or choose --engine local"
    )]
    NoMpi,
    #[error("--stop: expected a text that is not empty")]
    EmptyStop,
    #[error("--chat: expected a question, by --prompt or --file")]
    NoQuestion,
    #[error("--chat: {model} has no chat template")]
    NoChatTemplate { model: String },
    #[error(
        "--no-checksum: the local engine moves nothing between processes; leave the option out"
    )]
    NoMessages,
    #[error("--ranks {ranks}: the MPI job has {size}; leave the option out")]
    WorldSize { ranks: u32, size: u32 },
    #[error(
        "attend takes one safetensors file or three npy files (Q K V), got {count} ({first}, ...)"
    )]
    InputCount { count: usize, first: String },
    #[error("{option} -: expected the name of a {expected}, `-` for stdout is not supported here")]
    Dash { option: &'static str, expected: &'static str },
    #[error("{first} and {second} name the same file {file}")]
    SameOutput { first: &'static str, second: &'static str, file: String },
    #[error(
        "{file}: tensor {tensor} has shape {shape}, expected [heads, tokens, d] or \
         [batch, heads, tokens, d]"
    )]
    Dimensions { file: String, tensor: &'static str, shape: String },
    #[error("{tensor} has shape {actual}, q has {expected}: all or none need a batch of one size")]
    Batch { tensor: &'static str, expected: String, actual: String },
    #[error("k is {k}, v is {v}: store both in one type, or choose one with --kv-dtype")]
    KvDType { k: String, v: String },
    #[error("{file}: tensor {present} is there, but {missing} is not: give both or none")]
    OnePositions { file: String, present: &'static str, missing: &'static str },
    #[error("{file}: tensor {tensor} has shape {shape}, expected one position per token, [tokens]")]
    PositionsShape { file: String, tensor: &'static str, shape: String },
    #[error(
        "q has {queries} tokens and k {keys}: that needs tensors q_positions and k_positions, \
             which npy files cannot carry; use one safetensors file"
    )]
    NpyLengths { queries: u64, keys: u64 },
}

impl Failure {
    /// The process's exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Input(error) => error.exit_code(),
            Self::Output(error) => error.exit_code(),
            Self::Run(error) => match error.kind() {
                ErrorKind::Usage => 2,
                ErrorKind::Input => 3,
                ErrorKind::Disagreement => 7,
                ErrorKind::PeerLost => 4,
                ErrorKind::Timeout => 5,
                ErrorKind::Integrity => 6,
                ErrorKind::Memory => 8,
                ErrorKind::Output => 9,
                ErrorKind::NonFinite => 10,
                ErrorKind::Stopped => Signal::of_reason(error.stop_reason()).exit_code(),
            },
            #[cfg(feature = "mpi")]
            Self::Join(error) => match error {
                ringattn::comm::mpi::StartError::Protocol { .. } => 7,
                ringattn::comm::mpi::StartError::Late { .. } => 5,
                ringattn::comm::mpi::StartError::Thread { .. } => 8,
                _ => 4,
            },
            Self::Stopped { signal, .. } => signal.exit_code(),
            Self::System { .. } => 8,
            Self::Listen { .. } => 9,
        }
    }

    /// The rank to blame, where there is one.
    pub(crate) fn culprit(&self) -> Option<Rank> {
        match self {
            Self::Run(error) => error.culprit(),
            _ => None,
        }
    }

    /// What the user can do, where the text itself does not say it.
    pub(crate) fn hint(&self) -> Option<String> {
        if let Self::Usage(UsageError::Arguments { help, .. }) = self {
            return Some(help.clone());
        }
        let hint = match self.exit_code() {
            4 => "a rank was lost and nothing was written; run it again",
            5 => "if the rank is slow and not stuck, give it more time with --timeout",
            6 => {
                "damaged data, or a fault of the machine or of this program: if it happens again, please report it"
            }
            8 => "give it more memory (--memory-limit, ulimit), fewer tokens, ranks or threads",
            10 => "mend the numbers, or let them reach the rows that see them: --allow-nonfinite",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
