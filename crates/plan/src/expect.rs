//! What a run of the plan will count: memory, traffic and work of a rank, exactly.
//!
//! The engine measures the same quantities where they happen; the two must agree (the law).

use crate::plan::Prepared;
use crate::step::{Attend, BlockId};
use ringattn_core::Rank;
use std::ops::AddAssign;

/// The exact counts of one rank, for one attention or summed over several (layers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// Bytes of K and V of the rank's own shard.
    pub resident_kv_bytes: u64,
    /// Most bytes of K and V held at once: the own shard, the block in use, the one arriving.
    pub peak_kv_bytes: u64,
    /// Bytes of blocks, queries and states sent.
    pub sent_bytes: u64,
    /// Bytes of blocks, queries and states received.
    pub received_bytes: u64,
    /// Of these, bytes of K and V: 0 where blocks stay.
    pub received_kv_bytes: u64,
    /// Blocks, queries and states received.
    pub hops: u64,
    /// (query, key) pairs computed, per query head.
    pub pairs: u64,
}

impl AddAssign for Expectation {
    fn add_assign(&mut self, other: Self) {
        self.resident_kv_bytes += other.resident_kv_bytes;
        self.peak_kv_bytes += other.peak_kv_bytes;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.received_kv_bytes += other.received_kv_bytes;
        self.hops += other.hops;
        self.pairs += other.pairs;
    }
}

/// The rank's counts, by walking its steps.
pub fn expect(prepared: &Prepared<'_>, rank: Rank) -> Expectation {
    let plan = prepared.plan();
    let own = plan.block_bytes(BlockId(rank));
    let mut result =
        Expectation { resident_kv_bytes: own, peak_kv_bytes: own, ..Expectation::default() };
    let mut visiting = 0;
    for step in prepared.steps(rank) {
        if let Some(Attend { queries, block }) = step.attend {
            result.pairs += plan.pairs(queries.0, block);
        }
        for transfer in step.send.iter() {
            result.sent_bytes += plan.cargo_bytes(transfer.cargo);
        }
        let mut arriving = 0;
        for transfer in step.receive.iter() {
            result.received_bytes += plan.cargo_bytes(transfer.cargo);
            arriving += transfer.cargo.block().map_or(0, |block| plan.block_bytes(block));
            result.hops += 1;
        }
        result.received_kv_bytes += arriving;
        result.peak_kv_bytes = result.peak_kv_bytes.max(own + visiting + arriving);
        visiting = arriving;
    }
    result
}
