//! What a run counted, where it happened, and the law that compares it with the plan.

use ringattn_plan::Expectation;
use std::ops::AddAssign;
use std::time::Duration;

/// Counts and times of one rank, over one attention or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// What the plan counts too, measured.
    pub counts: Expectation,
    /// Processor time spent on attention.
    pub compute: Duration,
    /// Time between the send of a block and its arrival here, summed.
    pub transfer: Duration,
    /// Waiting for blocks that had been sent and were under way.
    pub transfer_wait: Duration,
    /// Waiting for peers that had not sent yet.
    pub peer_wait: Duration,
}

impl AddAssign for Measured {
    fn add_assign(&mut self, other: Self) {
        self.counts += other.counts;
        self.compute += other.compute;
        self.transfer += other.transfer;
        self.transfer_wait += other.transfer_wait;
        self.peer_wait += other.peer_wait;
    }
}

/// A count that differs from the plan's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Law {
    /// Which count.
    pub what: &'static str,
    /// By the plan.
    pub expected: u64,
    /// Measured.
    pub actual: u64,
}

impl Law {
    /// The first count in which the two differ.
    pub fn broken(expected: &Expectation, actual: &Expectation) -> Option<Self> {
        let pairs = [
            ("resident_kv_bytes", expected.resident_kv_bytes, actual.resident_kv_bytes),
            ("peak_kv_bytes", expected.peak_kv_bytes, actual.peak_kv_bytes),
            ("peak_query_bytes", expected.peak_query_bytes, actual.peak_query_bytes),
            ("peak_state_bytes", expected.peak_state_bytes, actual.peak_state_bytes),
            ("sent_bytes", expected.sent_bytes, actual.sent_bytes),
            ("received_bytes", expected.received_bytes, actual.received_bytes),
            ("received_kv_bytes", expected.received_kv_bytes, actual.received_kv_bytes),
            ("hops", expected.hops, actual.hops),
            ("pairs", expected.pairs, actual.pairs),
        ];
        pairs
            .into_iter()
            .find(|(_, expected, actual)| expected != actual)
            .map(|(what, expected, actual)| Self { what, expected, actual })
    }
}
