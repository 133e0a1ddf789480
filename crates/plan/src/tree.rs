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
    let core = Butterfly::new(p);
    core.bits() + 2 * core.folds()
}

/// The rank's steps: its own block, then a step per round.
pub(crate) fn steps(plan: &Plan, rank: Rank) -> impl Iterator<Item = Step> + '_ {
    let core = Butterfly::new(plan.world_size());
    meet(plan, rank, (tree_rounds(plan.world_size()), move |round| core.round(rank, round)))
}

/// The rank's steps where it attends its own block and then exchanges states in so many rounds, in each
/// of which it sends to one rank and receives from one, if any.
pub(crate) fn meet(
    plan: &Plan,
    rank: Rank,
    (rounds, exchanges): (u32, impl Fn(u32) -> (Exchange, Exchange)),
) -> impl Iterator<Item = Step> {
    let (queries, own) = (plan.own_queries(rank), BlockId(rank));
    (0..=rounds).map(move |index| match index.checked_sub(1) {
        None => {
            let attend = plan.sees(rank, own).then_some(Attend { queries, block: own });
            Step { attend, ..Step::idle(index) }
        }
        Some(round) => {
            let (send, receive) = exchanges(round);
            let state = |exchange: Exchange| {
                let cargo = |handover| Cargo::State(queries, handover);
                Transfers::new(None, exchange.map(|(peer, h)| Transfer { cargo: cargo(h), peer }))
            };
            Step { send: state(send), receive: state(receive), ..Step::idle(index) }
        }
    })
}

/// The other rank, and what the sender keeps.
pub(crate) type Exchange = Option<(Rank, Handover)>;

/// The butterfly over the first `2^bits` of `p` ranks, and the ranks beyond them.
#[derive(Clone, Copy)]
pub(crate) struct Butterfly {
    p: u32,
    bits: u32,
}

impl Butterfly {
    pub(crate) fn new(p: u32) -> Self {
        Self { p, bits: p.checked_ilog2().unwrap_or(0) }
    }

    /// Rounds inside the butterfly.
    pub(crate) fn bits(self) -> u32 {
        self.bits
    }

    /// Ranks of the butterfly.
    pub(crate) fn size(self) -> u32 {
        1 << self.bits
    }

    /// 1 when there are ranks beyond the butterfly, which take a round in, and one out if they are to have
    /// the whole.
    pub(crate) fn folds(self) -> u32 {
        u32::from(self.p > self.size())
    }

    /// The first round of a tree that folds: the ranks beyond give their state to those below.
    pub(crate) fn fold_in(self, rank: Rank) -> (Exchange, Exchange) {
        self.across(rank).map_or((None, None), |peer| match rank < peer {
            true => (None, Some((peer, Handover::Given))),
            false => (Some((peer, Handover::Given)), None),
        })
    }

    /// The last round of a tree that folds: the whole goes back to the ranks beyond.
    fn fold_out(self, rank: Rank) -> (Exchange, Exchange) {
        self.across(rank).map_or((None, None), |peer| match rank < peer {
            true => (Some((peer, Handover::Copied)), None),
            false => (None, Some((peer, Handover::Copied))),
        })
    }

    /// The rank beyond the butterfly that belongs to one inside, and the other way round.
    fn across(self, rank: Rank) -> Option<Rank> {
        let beyond = || rank.0.checked_add(self.size()).filter(|&beyond| beyond < self.p);
        rank.0.checked_sub(self.size()).or_else(beyond).map(Rank)
    }

    /// To whom the rank sends its state in a round, and from whom it receives one.
    fn round(self, rank: Rank, round: u32) -> (Exchange, Exchange) {
        match round.checked_sub(self.folds()) {
            None => self.fold_in(rank),
            Some(bit) if bit >= self.bits => self.fold_out(rank),
            Some(_) if rank.0 >= self.size() => (None, None),
            Some(bit) => {
                let exchange = Some((Rank(rank.0 ^ (1 << bit)), Handover::Copied));
                (exchange, exchange)
            }
        }
    }
}
