//! Tree decoding to a root (Tree Attention, 2408.04093, with MPI_Reduce): K,V stay, partial states are
//! merged on the way to rank 0, which alone has the whole in the end.
//!
//! The rounds of the butterfly (`tree.rs`) without what does not lead to rank 0. With `c` the largest power of
//! two up to `p`: if `p > c`, the ranks from `c` on give their state to the rank `c` below; in round `k` of
//! `log2 c` the ranks that are odd multiples of `2^k` give theirs to the rank `2^k` below. That makes
//! `ceil(log2 p)` rounds and `p - 1` messages, one from each rank but rank 0, of `Hq (d + 2)` elements per
//! query. Rank 0 merges the same states in the same order as in the butterfly, so it gets the same bits; the
//! others are left with the empty state.

use crate::plan::Plan;
use crate::step::{Handover, Step};
use crate::tree::{Butterfly, Exchange, meet};
use ringattn_core::Rank;

/// Rounds of messages until rank 0 has the whole state of `p` ranks.
pub fn reduce_rounds(p: u32) -> u32 {
    let core = Butterfly::new(p);
    core.folds() + core.bits()
}

/// The rank's steps: its own block, then a step per round.
pub(crate) fn steps(plan: &Plan, rank: Rank) -> impl Iterator<Item = Step> + '_ {
    let core = Butterfly::new(plan.world_size());
    meet(plan, rank, (reduce_rounds(plan.world_size()), move |round| exchanges(core, rank, round)))
}

/// To whom the rank gives its state in a round, and from whom it receives one.
fn exchanges(core: Butterfly, rank: Rank, round: u32) -> (Exchange, Exchange) {
    let Some(bit) = round.checked_sub(core.folds()) else { return core.fold_in(rank) };
    let distance = 1 << bit;
    let given = |peer| Some((Rank(peer), Handover::Given));
    match (rank.0 < core.size() && rank.0.is_multiple_of(distance), rank.0 & distance == 0) {
        (false, _) => (None, None),
        (true, true) => (None, given(rank.0 + distance)),
        (true, false) => (given(rank.0 - distance), None),
    }
}
