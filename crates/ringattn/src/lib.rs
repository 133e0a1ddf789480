//! Exact attention over a sequence that no single device holds.
//!
//! The sequence is sharded over the ranks of a ring; K,V blocks circulate and are folded into an
//! online softmax. The result equals dense attention, and every run proves its memory and traffic
//! against the plan. [`attend`] computes one attention over given tensors, [`score`] the
//! log-probabilities of a document under a model, [`generate`] continues one; all return a [`Report`].
//! [`bench::bench`] says how fast the machine is, [`predict::predict`] what a run will cost before it is
//! started.
//!
//! This crate is the public interface; the crates below it are re-exported as [`core`], [`plan`],
//! [`comm`], [`engine`] and [`model`].

#![forbid(unsafe_code)]

pub use ringattn_comm as comm;
pub use ringattn_core as core;
pub use ringattn_engine as engine;
pub use ringattn_model as model;
pub use ringattn_plan as plan;

pub mod bench;
pub mod predict;
pub mod view;

mod agreement;
mod attend;
mod clock;
mod engines;
mod error;
#[cfg(feature = "fault-injection")]
pub mod fault;
mod generate;
mod host;
#[cfg_attr(not(feature = "mpi"), path = "job/absent.rs")]
mod job;
mod launch;
mod options;
mod recording;
mod report;
mod score;
mod tensor;
mod trace;

pub use agreement::AgreementError;
pub use attend::{AttendInput, AttendOutput, AttendResult, Positions, attend};
pub use engines::Engine;
pub use error::{AttendError, Error, ErrorKind};
pub use generate::{
    DEFAULT_CACHE_BLOCK, DecodeReport, GenerateInput, GenerateOutput, GenerateResult,
    RankGenerateError, generate,
};
pub use job::Job;
pub use launch::CollectError;
pub use options::{Meter, RunOptions, StuckHook};
pub use recording::Recording;
pub use report::{Balance, LawReport, Overlap, RankReport, Report};
pub use score::{ScoreOutput, ScoreResult, open_model, score};
pub use tensor::{ReadAt, Tensor, TensorError};
pub use trace::Trace;
