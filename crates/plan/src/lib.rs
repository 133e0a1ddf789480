//! Where each token lives, and who sends what to whom: plain data that other crates execute.
//!
//! A [`Problem`] says what is to be computed, a [`Layout`] which rank owns which position, a [`Plan`]
//! adds the schedule. The same value is executed by the engine, proved by [`check`], counted by
//! [`expect`], printed by `Display`. No tensor, no clock, no transport, no thread.

#![forbid(unsafe_code)]

mod check;
mod expect;
mod grid;
mod layout;
mod plan;
mod problem;
mod ring;
mod segment;
mod step;
mod timeline;
mod visibility;

pub use check::{CheckError, Proof, RankProof, check, check_steps};
pub use expect::{Expectation, expect};
pub use layout::{Layout, LayoutError, LayoutKind, Run};
pub use plan::{Plan, PlanError, Prepared, Schedule};
pub use problem::{Problem, ProblemError};
pub use segment::{BlockOrder, Segment};
pub use step::{BlockId, Step, Transfer};
pub use timeline::{
    Activity, Nanos, Payload, RankTotals, Span, Timeline, TimelineError, Track, Transmission,
    WaitCause, WaitEdge,
};
