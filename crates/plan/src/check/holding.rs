//! What one rank holds and moves while it walks its steps. Knows no other rank and no order of messages.

use super::CheckError;
use crate::plan::Plan;
use crate::step::{Attend, BlockId, Cargo, Handover, Operand, QueriesId, Step};
use ringattn_core::Rank;
use std::collections::BTreeSet;

/// What one rank holds and moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankProof {
    /// Most blocks held at once, the own shard among them.
    pub peak_blocks: u64,
    /// Most bytes of K and V held at once.
    pub peak_kv_bytes: u64,
    /// Most visiting queries held at once, in shards.
    pub peak_queries: u64,
    /// Most states of visiting queries held at once, in shards, those under way home among them.
    pub peak_states: u64,
    /// Bytes of blocks, queries and states sent.
    pub sent_bytes: u64,
    /// Bytes of blocks, queries and states received.
    pub received_bytes: u64,
    /// Of these, bytes of K and V.
    pub received_kv_bytes: u64,
    /// Blocks, queries and states received.
    pub hops: u64,
}

/// Walks the rank's steps: it must hold what it uses, and own the states that it merges.
pub(super) fn check(plan: &Plan, rank: Rank, steps: &[Step]) -> Result<RankProof, CheckError> {
    let own = plan.own_queries(rank);
    let mut held = BTreeSet::from([Operand::Block(BlockId(rank)), Operand::Queries(own)]);
    let mut states = BTreeSet::new();
    let mut proof = RankProof::default();
    for step in steps {
        let attended = step.attend.map(|Attend { queries, block }| {
            states.insert(queries);
            [Operand::Queries(queries), Operand::Block(block)]
        });
        let sent = step.send.iter().filter_map(|transfer| transfer.cargo.operand());
        if let Some(operand) =
            attended.into_iter().flatten().chain(sent).find(|o| !held.contains(o))
        {
            return Err(CheckError::NotHeld { rank, step: step.index, operand });
        }
        for transfer in step.receive.iter() {
            proof.received_bytes += plan.cargo_bytes(transfer.cargo);
            proof.hops += 1;
            match transfer.cargo {
                Cargo::Block(block) => proof.received_kv_bytes += plan.block_bytes(block),
                Cargo::State(queries, _) if queries != own => {
                    return Err(CheckError::Foreign { rank, step: step.index, queries });
                }
                Cargo::Queries(_) | Cargo::State(..) => {}
            }
            held.extend(transfer.cargo.operand());
        }
        proof.count_peaks(plan, own, (&held, &states));
        for transfer in step.send.iter() {
            proof.sent_bytes += plan.cargo_bytes(transfer.cargo);
            if let Cargo::State(queries, Handover::Given) = transfer.cargo {
                states.remove(&queries);
            }
        }
        if let Some(operand) = step.drop {
            held.remove(&operand);
        }
    }
    Ok(proof)
}

impl RankProof {
    fn count_peaks(
        &mut self,
        plan: &Plan,
        own: QueriesId,
        (held, states): (&BTreeSet<Operand>, &BTreeSet<QueriesId>),
    ) {
        let blocks = || held.iter().filter_map(|operand| operand.block());
        let queries = held.len() - blocks().count() - 1;
        let visiting = states.iter().filter(|&&queries| queries != own).count();
        self.peak_blocks = self.peak_blocks.max(blocks().count() as u64);
        self.peak_kv_bytes = self.peak_kv_bytes.max(blocks().map(|b| plan.block_bytes(b)).sum());
        self.peak_queries = self.peak_queries.max(queries as u64);
        self.peak_states = self.peak_states.max(visiting as u64);
    }
}
