//! Runs a plan: the only place where kernels and communicators meet.
//!
//! [`run`] holds the one loop over steps, generic over the [`Backend`] that computes and the
//! communicator that moves blocks and states. [`cpu`] is the backend for the machine's own cores.

#![forbid(unsafe_code)]

pub mod cpu;

mod backend;
mod error;
mod finite;
mod measured;
mod record;
mod run;
mod states;

pub use backend::{Accumulator, Backend, MergeOrder, Tensor};
pub use error::EngineError;
pub use finite::NonFinite;
pub use measured::{Law, Measured};
pub use record::{Recorder, Trace};
pub use run::{Job, Overlap, RankPlan, run};
