//! Counts as seconds on a machine.
//!
//! In lockstep a step lasts as long as the busiest rank's computing or as the largest hop, whichever is
//! longer: `max(4 pairs d Hq / F, latency + bytes / B)`, summed over the steps. A transfer runs beside
//! the computing of its step; what sticks out is exposed. Ranks that do not wait for each other after
//! every step can only be faster; [`simulate`](crate::simulate) follows them one by one.

use super::Cost;
use thiserror::Error;

/// What a rank's machine does, sustained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// FLOP/s of a rank in attention.
    pub flops: f64,
    /// Bytes per second that a rank sends while it receives as many.
    pub bandwidth: f64,
    /// Seconds from a message's start to its first byte.
    pub latency: f64,
    /// Bytes of memory of a rank.
    pub memory: u64,
}

/// A machine that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum MachineError {
    /// A speed that is not positive and finite.
    #[error("{what} is {actual}, expected a finite number above 0")]
    Speed {
        /// `flops` or `bandwidth`.
        what: &'static str,
        /// The number.
        actual: f64,
    },
    /// A latency that is negative or not finite.
    #[error("latency is {actual} s, expected a finite number of at least 0")]
    Latency {
        /// The number.
        actual: f64,
    },
}

/// Seconds in lockstep, of one attention or the sum of several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// All steps.
    pub total: f64,
    /// The busiest rank's computing of each step, summed.
    pub compute: f64,
    /// The largest hop of each step, summed.
    pub transfer: f64,
    /// What of the transfers is not hidden behind computing.
    pub exposed: f64,
    /// The longest hop.
    pub hop: f64,
    /// Computing of a step that has a hop, on average; 0 without hops.
    pub compute_per_hop: f64,
}

impl Machine {
    /// Whether the numbers can be.
    ///
    /// # Errors
    /// Names the one that cannot.
    pub fn validate(&self) -> Result<(), MachineError> {
        for (what, actual) in [("flops", self.flops), ("bandwidth", self.bandwidth)] {
            if !(actual.is_finite() && actual > 0.0) {
                return Err(MachineError::Speed { what, actual });
            }
        }
        let actual = self.latency;
        let sound = actual.is_finite() && actual >= 0.0;
        if sound { Ok(()) } else { Err(MachineError::Latency { actual }) }
    }

    /// Seconds of a hop of so many bytes; 0 where nothing moves.
    pub fn hop_seconds(&self, bytes: u64) -> f64 {
        if bytes == 0 { 0.0 } else { self.latency + bytes as f64 / self.bandwidth }
    }
}

impl Timing {
    /// Of one attention with these counts.
    pub fn new(cost: &Cost, machine: &Machine) -> Self {
        let mut timing = Self {
            total: 0.0,
            compute: 0.0,
            transfer: 0.0,
            exposed: 0.0,
            hop: 0.0,
            compute_per_hop: 0.0,
        };
        let (mut beside, mut hops) = (0.0, 0_u32);
        for step in &cost.steps {
            let compute = cost.flops(step.pairs) / machine.flops;
            let hop = machine.hop_seconds(step.hop_bytes);
            timing.total += compute.max(hop);
            timing.compute += compute;
            timing.transfer += hop;
            timing.exposed += (hop - compute).max(0.0);
            timing.hop = timing.hop.max(hop);
            if step.hop_bytes > 0 {
                (beside, hops) = (beside + compute, hops + 1);
            }
        }
        if hops > 0 {
            timing.compute_per_hop = beside / f64::from(hops);
        }
        timing
    }

    /// Of several attentions, one after the other: each with how often it is run.
    pub fn sum(timings: &[(u64, Self)]) -> Self {
        let total = |of: fn(&Self) -> f64| {
            timings.iter().map(|(times, timing)| *times as f64 * of(timing)).sum::<f64>()
        };
        let layers = timings.iter().map(|(times, _)| *times as f64).sum::<f64>();
        let most = |of: fn(&Self) -> f64| timings.iter().map(|(_, t)| of(t)).fold(0.0, f64::max);
        Self {
            total: total(|timing| timing.total),
            compute: total(|timing| timing.compute),
            transfer: total(|timing| timing.transfer),
            exposed: total(|timing| timing.exposed),
            hop: most(|timing| timing.hop),
            compute_per_hop: total(|timing| timing.compute_per_hop) / layers.max(1.0),
        }
    }

    /// `1 - exposed / transfer`; 1 when nothing is transferred.
    pub fn hidden_fraction(&self) -> f64 {
        if self.transfer > 0.0 { 1.0 - self.exposed / self.transfer } else { 1.0 }
    }
}
