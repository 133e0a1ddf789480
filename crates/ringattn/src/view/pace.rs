//! At what speed a plan is simulated for the predicted chart, and where that speed comes from.

use super::chart::Chart;
use super::error::ViewError;
use super::quantity::{nanoseconds, rate};
use ringattn_plan::{Activity, Conditions, Machine, Nanos, Plan, Timeline, simulate};
use serde::Deserialize;

/// A machine, and what is said about it.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    machine: Machine,
    source: String,
}

/// A machine as a plan names it.
#[derive(Debug, Deserialize)]
pub(crate) struct MachineEntry {
    name: Option<String>,
    flops: f64,
    bandwidth: f64,
    latency: f64,
}

/// Work and traffic of a whole run, and the time that they took, all ranks together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effort {
    pub(crate) flops: f64,
    pub(crate) compute_s: f64,
    pub(crate) bytes: f64,
    pub(crate) transfer_s: f64,
}

impl Pace {
    /// One core and a ten-gigabit link: slow enough that a few tokens show both.
    pub(crate) fn teaching() -> Self {
        let machine = Machine { flops: 1e10, bandwidth: 1.25e9, latency: 1e-6, memory: u64::MAX };
        Self { machine, source: "on a machine of one slow core and a 10-gigabit link".to_owned() }
    }

    /// The machine of a plan.
    pub(crate) fn of_plan(entry: &MachineEntry) -> Self {
        let MachineEntry { flops, bandwidth, latency, .. } = *entry;
        let machine = Machine { flops, bandwidth, latency, memory: u64::MAX };
        let name = entry.name.as_deref().map(super::error::shortened);
        Self { machine, source: format!("on {}", name.as_deref().unwrap_or("the plan's machine")) }
    }

    /// The mean speed of a run; none when it computed nothing that was timed.
    pub(crate) fn of_run(effort: &Effort) -> Option<Self> {
        // Where nothing was sent, no hop asks for the speed of a link.
        const UNUSED: f64 = 1e15;
        let measured = effort.bytes > 0.0 && effort.transfer_s > 0.0;
        let bandwidth = if measured { effort.bytes / effort.transfer_s } else { UNUSED };
        let flops = effort.flops / effort.compute_s;
        let machine = Machine { flops, bandwidth, latency: 0.0, memory: u64::MAX };
        machine.validate().ok()?;
        Some(Self { machine, source: "at the mean speed of the run itself".to_owned() })
    }

    /// The plan's one layer at this speed.
    pub(crate) fn chart(&self, plan: &Plan) -> Result<Chart, ViewError> {
        let timeline = simulate(plan, &Conditions::of(self.machine))?;
        let Machine { flops, bandwidth, latency, .. } = self.machine;
        let title = format!(
            "One layer {}: {} per rank, {} per link, {} latency",
            self.source,
            rate(flops, "FLOP/s"),
            rate(bandwidth, "B/s"),
            nanoseconds(Nanos::from_seconds(latency).0),
        );
        Ok(Chart::new("predicted", title, &timeline))
    }
}

impl Effort {
    /// Of the spans of a trace.
    pub(crate) fn of_timeline(timeline: &Timeline) -> Self {
        let mut effort = Self::default();
        for span in &timeline.spans {
            let seconds = span.duration().seconds();
            match span.activity {
                Activity::Attend { flops, .. } => {
                    effort.flops += flops as f64;
                    effort.compute_s += seconds;
                }
                Activity::Receive(message) => {
                    effort.bytes += message.bytes as f64;
                    effort.transfer_s += seconds;
                }
                Activity::Merge { .. } | Activity::Send(_) | Activity::Wait { .. } => (),
            }
        }
        effort
    }
}
