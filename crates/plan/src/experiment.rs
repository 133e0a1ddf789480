//! What a late message does to a plan: the same simulation with and without it.
//!
//! In a ring every rank needs every block, so a message that is late by more than the computing beside
//! it holds up the rank that waits, and through it those behind; how much of it shows at the end
//! differs by layout. Works for any plan: it knows no layout and no schedule.

use crate::plan::Plan;
use crate::simulate::{Conditions, SimulationError, Spike, simulate_into};
use crate::timeline::Nanos;
use ringattn_core::Rank;

/// A spike and what it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpikeResponse {
    /// Seconds by which one message is late.
    pub spike: f64,
    /// Seconds by which the run ends later.
    pub added: f64,
}

/// When the last rank ends.
///
/// # Errors
/// As for [`simulate`](crate::simulate()).
pub fn finish(plan: &Plan, conditions: &Conditions) -> Result<Nanos, SimulationError> {
    let mut end = Nanos(0);
    simulate_into(plan, conditions, &mut |span| end = end.max(span.end))?;
    Ok(end)
}

/// How much later the plan ends when the message in the middle of all that the last rank receives is
/// late by each of `spikes` seconds; empty when it receives nothing.
///
/// # Errors
/// As for [`simulate`](crate::simulate()).
pub fn spike_response(
    plan: &Plan,
    conditions: &Conditions,
    spikes: &[f64],
) -> Result<Vec<SpikeResponse>, SimulationError> {
    let Some((rank, step)) = middle_message(plan) else { return Ok(Vec::new()) };
    let without = finish(plan, conditions)?;
    let response = |&seconds: &f64| {
        let mut late = conditions.clone();
        late.spikes.push(Spike { rank, step, seconds });
        let added = finish(plan, &late)?.since(without).seconds();
        Ok(SpikeResponse { spike: seconds, added })
    };
    spikes.iter().map(response).collect()
}

/// The sender and the step of the middle one of the messages to the last rank.
fn middle_message(plan: &Plan) -> Option<(Rank, u32)> {
    let last = plan.key_layout().ranks().next_back()?;
    let prepared = plan.prepare();
    let received = prepared
        .steps(last)
        .flat_map(|step| step.receive.iter().map(move |transfer| (transfer.peer, step.index)));
    let received: Vec<_> = received.collect();
    received.get(received.len() / 2).copied()
}
