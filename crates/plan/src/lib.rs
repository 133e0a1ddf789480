//! Where each token lives, and who sends what to whom: plain data that other crates execute.
//!
//! A [`Problem`] says what is to be computed, a [`Layout`] which rank owns which position, a [`Plan`]
//! adds the schedule. The same value is executed by the engine, proved by [`check`], counted by
//! [`expect()`], priced by [`price`], run in computed time by [`simulate()`], printed by `Display`. A
//! [`Timeline`] holds what the ranks of a run did when, whether simulated or measured. No tensor, no
//! clock, no transport, no thread.

#![forbid(unsafe_code)]

mod check;
mod closed_form;
mod cost;
mod expect;
mod experiment;
mod gather;
mod grid;
mod layout;
mod pass_q;
mod plan;
mod problem;
mod reduce;
mod ring;
mod segment;
mod simulate;
mod step;
mod timeline;
mod tree;
mod visibility;

pub use check::{CheckError, Proof, RankProof, check, check_steps};
pub use cost::{
    Candidate, Cost, CostError, LongestContext, MACHINES, MAX_ENUMERATED_RANKS,
    MAX_ENUMERATED_ROWS, MAX_PRICED_RANKS, MAX_PRICED_TOKENS, Machine, MachineError, NamedMachine,
    RankCost, Reason, Recommendation, SmallestBlock, StepCost, Timing, add_layers, longest_context,
    pair_counter, price, recommend, smallest_block, working_bytes_per_token,
};
pub use expect::{Expectation, expect};
pub use experiment::{SpikeResponse, finish, spike_response};
pub use layout::{Layout, LayoutError, LayoutKind, Run};
pub use plan::{AnswerPlacement, Plan, PlanError, Prepared, QueryPlacement, Schedule};
pub use problem::{Problem, ProblemError};
pub use reduce::reduce_rounds;
pub use segment::{BlockOrder, Segment};
pub use simulate::{Conditions, SimulationError, Spike, simulate, simulate_into};
pub use step::{Attend, BlockId, Cargo, Handover, Operand, QueriesId, Step, Transfer, Transfers};
pub use timeline::{
    Activity, Nanos, RankTotals, Span, Summary, Timeline, TimelineError, Track, Transmission,
    WaitCause, WaitEdge,
};
pub use tree::tree_rounds;
