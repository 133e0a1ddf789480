//! Tree decoding (Tree Attention, 2408.04093): K,V stay, partial states meet in a butterfly.
//!
//! Every rank holds all queries, attends its own shard in step 0, and then exchanges its state
//! `(m, z, y)`, `Hq (d + 2)` elements per query, until everybody has the whole. With `c` the largest
//! power of two up to `p`: if `p > c`, the ranks from `c` on give their state to the rank `c` below;
//! in round `k` the first `c` ranks exchange with the rank whose number differs in bit `k`; if `p > c`,
//! the whole goes back to the ranks from `c` on. Rounds: `log2 p` for powers of two, else
//! `floor(log2 p) + 2`. In a merge the lower rank's state comes first, so every rank sums in the same
//! order and all get the same bits. Empty shards take part with the empty state.

use crate::plan::Plan;
use crate::step::{Attend, BlockId, Cargo, Handover, Step, Transfer, Transfers};
use ringattn_core::Rank;

/// Rounds of messages until each of `p` ranks has the whole state.
pub fn tree_rounds(p: u32) -> u32 {
    let tree = Tree::new(p);
    tree.bits + 2 * tree.folds()
}

/// The rank's steps: its own block, then a step per round.
pub(crate) fn steps(plan: &Plan, rank: Rank) -> impl Iterator<Item = Step> + '_ {
    let tree = Tree::new(plan.world_size());
    let (queries, own) = (plan.own_queries(rank), BlockId(rank));
    (0..=tree_rounds(plan.world_size())).map(move |index| match index.checked_sub(1) {
        None => {
            let attend = plan.sees(rank, own).then_some(Attend { queries, block: own });
            Step { attend, ..Step::idle(index) }
        }
        Some(round) => {
            let (send, receive) = tree.round(rank, round);
            let state = |exchange: Exchange| {
                let cargo = |handover| Cargo::State(queries, handover);
                Transfers::new(None, exchange.map(|(peer, h)| Transfer { cargo: cargo(h), peer }))
            };
            Step { send: state(send), receive: state(receive), ..Step::idle(index) }
        }
    })
}

/// The other rank, and what the sender keeps.
type Exchange = Option<(Rank, Handover)>;

/// The butterfly over the first `2^bits` ranks, and the ranks beyond them.
#[derive(Clone, Copy)]
struct Tree {
    size: u32,
    bits: u32,
}

impl Tree {
    fn new(size: u32) -> Self {
        Self { size, bits: size.checked_ilog2().unwrap_or(0) }
    }

    /// Ranks of the butterfly.
    fn core(self) -> u32 {
        1 << self.bits
    }

    /// 1 when there are ranks beyond the butterfly, which take one round in and one out.
    fn folds(self) -> u32 {
        u32::from(self.size > self.core())
    }

    /// To whom the rank sends its state in a round, and from whom it receives one.
    fn round(self, rank: Rank, round: u32) -> (Exchange, Exchange) {
        let state = |peer, handover| Some((peer, handover));
        let bit = round.checked_sub(self.folds()).filter(|&bit| bit < self.bits);
        let (inside, beyond) = (rank.0 < self.core(), Rank(rank.0.wrapping_add(self.core())));
        let below = Rank(rank.0.wrapping_sub(self.core()));
        match (bit, inside) {
            (Some(bit), true) => {
                let peer = Rank(rank.0 ^ (1 << bit));
                (state(peer, Handover::Copied), state(peer, Handover::Copied))
            }
            (Some(_), false) => (None, None),
            // The first and the last round of a tree that folds.
            (None, true) if beyond.0 >= self.size => (None, None),
            (None, true) if round == 0 => (None, state(beyond, Handover::Given)),
            (None, true) => (state(beyond, Handover::Copied), None),
            (None, false) if round == 0 => (state(below, Handover::Given), None),
            (None, false) => (None, state(below, Handover::Copied)),
        }
    }
}
