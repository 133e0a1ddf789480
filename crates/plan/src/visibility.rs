//! What the queries of one rank see of one block, in slots.
//!
//! A query's interval of positions meets a block's increasing list of positions in one interval of
//! slots: this is where masks and layouts meet, and all that a kernel learns of either.

use crate::closed_form::Shards;
use crate::plan::Plan;
use crate::step::BlockId;
use ringattn_core::{Interval, Rank, Slot};

impl Plan {
    /// For each query slot of `rank` in order, the slots of `block` that it sees.
    pub fn intervals(
        &self,
        rank: Rank,
        block: BlockId,
    ) -> impl Iterator<Item = Interval<Slot>> + '_ {
        let mask = &self.problem().mask;
        self.query_layout()
            .positions(rank)
            .map(move |query| self.key_layout().slots(block.0, mask.visible(query)))
    }

    /// How many (query, key) pairs the rank computes with the block.
    pub fn pairs(&self, rank: Rank, block: BlockId) -> u64 {
        self.intervals(rank, block).map(Interval::len).sum()
    }

    /// Whether any query of the rank sees anything in the block.
    pub fn sees(&self, rank: Rank, block: BlockId) -> bool {
        if let Some(shards) = Shards::of(self) {
            return shards.pairs(rank.0.into(), block.0.0.into()) > 0;
        }
        let mask = &self.problem().mask;
        let holds = |keys| !self.key_layout().slots(block.0, keys).is_empty();
        // What a whole shard or run does not see, none of its queries does.
        holds(mask.hull(self.query_layout().span(rank)))
            && self.query_layout().runs(rank).any(|run| {
                holds(mask.hull(run.positions))
                    && run.positions.iter().any(|query| holds(mask.visible(query)))
            })
    }
}
