//! Ring pass-Q (Context Parallelism for Scalable Million-Token Inference, 2411.01783): queries travel from
//! rank to rank, K,V blocks stay, partial states go straight back.
//!
//! At step `s` rank `u` attends its own block with the queries of rank `(u - s) mod p`, from an empty
//! state, while these queries go on to `u + 1` and the state of the visitors before them goes home: what
//! was computed in step `s` reaches its owner in step `s + 1`. So a step sends at most queries and a state,
//! to different ranks, and there is one step more than ranks. The owner merges the state of rank
//! `u + s` in step `s + 1`, that is in the order around the ring, whenever it arrives.
//!
//! With `Tq` queries a rank, each receives `(p - 1) Tq Hq d` numbers of queries and `(p - 1) Tq Hq (d + 2)` of
//! states, whatever the length of the cache. Queries travel only as far as the last rank in whose block
//! they see anything, and a rank whose block they do not see returns no state.

use crate::plan::Plan;
use crate::ring::{Passing, Reaches, Ring};
use crate::step::{
    Attend, BlockId, Cargo, Handover, Operand, QueriesId, Step, Transfer, Transfers,
};
use ringattn_core::Rank;

/// Steps of each rank: one per shard of queries, and one for the last state's way home.
pub(crate) fn step_count(p: u32) -> u32 {
    p + u32::from(p > 1)
}

/// The rank's steps.
pub(crate) fn steps<'a>(
    plan: &'a Plan,
    reaches: &'a Reaches,
    rank: Rank,
) -> impl Iterator<Item = Step> + 'a {
    let ring = Ring { size: plan.world_size() };
    let own = BlockId(rank);
    let queries = |owner, peer| Transfer { cargo: Cargo::Queries(QueriesId(owner)), peer };
    let state = |owner, peer| {
        let cargo = Cargo::State(QueriesId(owner), Handover::Given);
        Transfer { cargo, peer }
    };
    (0..step_count(ring.size)).map(move |index| {
        let Passing { here, held, goes_to, comes } = reaches.passing(ring, rank, index);
        // Whose queries were attended here in the step before, and who attended the rank's.
        let before = index.checked_sub(1).filter(|&distance| distance > 0);
        let visitor = before.map(|distance| ring.back(rank, distance));
        let host = before.map(|distance| ring.forth(rank, distance));
        let visitor = visitor.filter(|&visitor| plan.sees(visitor, own));
        let host = host.filter(|&host| plan.sees(rank, BlockId(host)));
        let attend = Attend { queries: QueriesId(here), block: own };
        Step {
            index,
            attend: (held && plan.sees(here, own)).then_some(attend),
            send: Transfers::new(
                goes_to.map(|peer| queries(here, peer)),
                visitor.map(|visitor| state(visitor, visitor)),
            ),
            receive: Transfers::new(
                comes.map(|(owner, peer)| queries(owner, peer)),
                host.map(|host| state(rank, host)),
            ),
            drop: (held && index > 0).then_some(Operand::Queries(QueriesId(here))),
        }
    })
}
