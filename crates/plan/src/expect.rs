//! What a run of the plan will count: memory, traffic and work of a rank, exactly.
//!
//! The engine measures the same quantities where they happen; the two must agree (the law).

use crate::plan::{Plan, Prepared};
use crate::step::{Attend, BlockId, Cargo, Handover, Operand, QueriesId, Step};
use ringattn_core::Rank;
use std::collections::BTreeSet;
use std::ops::AddAssign;

/// The exact counts of one rank, for one attention or summed over several (layers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// Bytes of K and V of the rank's own shard.
    pub resident_kv_bytes: u64,
    /// Most bytes of K and V held at once: the own shard, the block in use, the one arriving.
    pub peak_kv_bytes: u64,
    /// Most bytes of other ranks' queries held at once, those in use and those arriving; of several
    /// attentions the highest.
    pub peak_query_bytes: u64,
    /// Most bytes of partial states in one step beside the one in which the rank's own queries grow: those of
    /// visitors, those that leave and those that come; of several attentions the highest.
    pub peak_state_bytes: u64,
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
        // Visitors are gone before the next attention begins.
        self.peak_query_bytes = self.peak_query_bytes.max(other.peak_query_bytes);
        self.peak_state_bytes = self.peak_state_bytes.max(other.peak_state_bytes);
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
    let (mut visiting, mut visitors) = (0, Visitors::new(plan, rank));
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
        let (queries, states) = visitors.step(&step);
        result.peak_query_bytes = result.peak_query_bytes.max(queries);
        result.peak_state_bytes = result.peak_state_bytes.max(states);
    }
    result
}

/// Queries and states that a rank holds for others.
struct Visitors<'a> {
    plan: &'a Plan,
    own: QueriesId,
    queries: BTreeSet<QueriesId>,
    /// Whose states have begun here and are not gone home.
    states: BTreeSet<QueriesId>,
}

impl<'a> Visitors<'a> {
    fn new(plan: &'a Plan, rank: Rank) -> Self {
        let own = plan.own_queries(rank);
        Self { plan, own, queries: BTreeSet::new(), states: BTreeSet::new() }
    }

    /// Goes through a step; bytes of queries and of states in it.
    fn step(&mut self, step: &Step) -> (u64, u64) {
        let (plan, own) = (self.plan, self.own);
        let attended = step.attend.map(|attend| attend.queries).filter(|&queries| queries != own);
        self.states.extend(attended);
        let mut states: u64 = self.states.iter().map(|&queries| plan.state_bytes(queries)).sum();
        for transfer in step.send.iter() {
            if let Cargo::State(queries, handover) = transfer.cargo {
                // A visitor's state goes as it lies, any other is copied for its way.
                let goes = handover == Handover::Given && self.states.remove(&queries);
                states += if goes { 0 } else { plan.state_bytes(queries) };
            }
        }
        for transfer in step.receive.iter() {
            match transfer.cargo {
                Cargo::Queries(queries) => drop(self.queries.insert(queries)),
                Cargo::State(queries, _) => states += plan.state_bytes(queries),
                Cargo::Block(_) => {}
            }
        }
        let bytes = self.queries.iter().map(|&queries| plan.query_bytes(queries)).sum();
        if let Some(Operand::Queries(queries)) = step.drop {
            self.queries.remove(&queries);
        }
        (bytes, states)
    }
}
