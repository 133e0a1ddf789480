//! Ring pass-KV (Ring Attention, 2310.01889): blocks travel from rank to rank, queries stay.
//!
//! At step `s` rank `u` holds block `(u - s) mod p`, attends it, and hands it to `u + 1`. After
//! `p - 1` hops everybody has held every block. A block travels only as far as the last rank that sees
//! anything in it: with a causal mask over contiguous shards rank `u` receives `u` blocks.

use crate::plan::Plan;
use crate::step::{BlockId, Step, Transfer};
use ringattn_core::Rank;

/// The rank's `p` steps.
pub(crate) fn steps(plan: &Plan, rank: Rank) -> impl Iterator<Item = Step> + '_ {
    let ring = Ring { size: plan.world_size() };
    let mut reach = reach(plan, ring, ring.back(rank, 0));
    (0..ring.size).map(move |index| {
        let here = BlockId(ring.back(rank, index));
        let next = BlockId(ring.back(rank, index + 1));
        let held = index <= reach;
        let passes_on = index < reach;
        reach = if index + 1 < ring.size { self::reach(plan, ring, next.0) } else { 0 };
        Step {
            index,
            attend: (held && plan.sees(rank, here)).then_some(here),
            send: passes_on.then(|| Transfer { block: here, peer: ring.forth(rank, 1) }),
            receive: (index < reach).then(|| Transfer { block: next, peer: ring.back(rank, 1) }),
            drop: (held && index > 0).then_some(here),
        }
    })
}

/// Hops that the block of `owner` makes: the distance to the last rank that sees anything in it.
fn reach(plan: &Plan, ring: Ring, owner: Rank) -> u32 {
    (1..ring.size)
        .rev()
        .find(|&distance| plan.sees(ring.forth(owner, distance), BlockId(owner)))
        .unwrap_or(0)
}

#[derive(Clone, Copy)]
struct Ring {
    size: u32,
}

impl Ring {
    fn forth(self, rank: Rank, distance: u32) -> Rank {
        let sum = u64::from(rank.0) + u64::from(distance);
        Rank((sum % u64::from(self.size)) as u32)
    }

    fn back(self, rank: Rank, distance: u32) -> Rank {
        self.forth(rank, self.size - distance % self.size)
    }
}
