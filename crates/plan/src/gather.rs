//! Gather: every rank fetches the blocks that its queries see straight from their owners.
//!
//! In step `s` rank `u` attends block `(u - s) mod p` while its owner's neighbour, rank
//! `(u - s - 1) mod p`, sends its own block for the next step. Bytes received are those of the ring, but
//! nothing is passed on: a query that lives on one rank costs that rank `p - 1` blocks, and the others
//! nothing but their own send. Meant for comparison with the ring and the tree.

use crate::plan::Plan;
use crate::ring::Ring;
use crate::step::{Attend, BlockId, Cargo, Operand, Step, Transfer, Transfers};
use ringattn_core::Rank;

/// The rank's `p` steps.
pub(crate) fn steps(plan: &Plan, rank: Rank) -> impl Iterator<Item = Step> + '_ {
    let ring = Ring { size: plan.world_size() };
    (0..ring.size).map(move |index| {
        let here = BlockId(ring.back(rank, index));
        let (source, target) = (ring.back(rank, index + 1), ring.forth(rank, index + 1));
        let more = index + 1 < ring.size;
        let transfer = |block, peer| Transfer { cargo: Cargo::Block(block), peer };
        let sees = plan.sees(rank, here);
        let sent = more && plan.sees(target, BlockId(rank));
        let comes = more && plan.sees(rank, BlockId(source));
        Step {
            index,
            attend: sees.then_some(Attend { queries: plan.own_queries(rank), block: here }),
            send: Transfers::new(sent.then(|| transfer(BlockId(rank), target)), None),
            receive: Transfers::new(comes.then(|| transfer(BlockId(source), source)), None),
            drop: (sees && index > 0).then_some(Operand::Block(here)),
        }
    })
}
