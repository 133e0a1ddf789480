//! One stretch of the sequence, dealt out to the ranks block by block.
//!
//! Block-cyclic with block `b` and optional reflection. Relative position `r` lies in block
//! `k = r / b`, cycle `c = k / p`, place `k % p`; the owner of a place is the place itself, counted
//! from the first rank, or mirrored in odd cycles when reflected. All cycles but the last are full, so
//! every rank holds exactly `b` slots of each earlier cycle: everything else follows by arithmetic.

use ringattn_core::{Interval, Position, Rank};

/// In which order the ranks take the blocks of one cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockOrder {
    /// Every cycle in the order of the ranks.
    Cyclic,
    /// Odd cycles in the opposite order, which balances causal masks (zigzag).
    Reflected,
}

/// Positions `[start, end)`, dealt in blocks of `block` tokens beginning at `first_rank`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The positions that this segment places.
    pub positions: Interval<Position>,
    /// Tokens of a block, at least 1.
    pub block: u64,
    /// The order of the ranks in odd cycles.
    pub order: BlockOrder,
    /// The rank that takes the first block.
    pub first_rank: Rank,
}

/// A segment with the world size it is dealt over; positions inside are relative to its start.
///
/// Invariant: `block * p` fits u64 (checked when a layout is made).
#[derive(Clone, Copy)]
pub(crate) struct Dealt {
    pub(crate) segment: Segment,
    pub(crate) world_size: u64,
}

impl Dealt {
    fn cycle_len(self) -> u64 {
        self.segment.block * self.world_size
    }

    fn mirrored(self, cycle: u64) -> bool {
        self.segment.order == BlockOrder::Reflected && !cycle.is_multiple_of(2)
    }

    /// The place of `rank` in a cycle; its own inverse up to the shift by the first rank.
    fn place(self, rank: Rank, cycle: u64) -> u64 {
        let p = self.world_size;
        let shifted = (u64::from(rank.0) + p - u64::from(self.segment.first_rank.0)) % p;
        if self.mirrored(cycle) { p - 1 - shifted } else { shifted }
    }

    /// The owner of relative position `r`, and its slot counted from the segment's first.
    pub(crate) fn owner(self, r: u64) -> (Rank, u64) {
        let b = self.segment.block;
        let (cycle, rest) = (r / self.cycle_len(), r % self.cycle_len());
        let place = rest / b;
        let shifted = if self.mirrored(cycle) { self.world_size - 1 - place } else { place };
        let rank = (shifted + u64::from(self.segment.first_rank.0)) % self.world_size;
        (Rank(rank as u32), cycle * b + rest % b)
    }

    /// The relative position of the rank's slot `slot`.
    pub(crate) fn position(self, rank: Rank, slot: u64) -> u64 {
        let b = self.segment.block;
        let (cycle, within) = (slot / b, slot % b);
        cycle * self.cycle_len() + self.place(rank, cycle) * b + within
    }

    /// How many of the rank's positions lie before relative position `r`.
    pub(crate) fn count_below(self, rank: Rank, r: u64) -> u64 {
        let b = self.segment.block;
        let (cycle, rest) = (r / self.cycle_len(), r % self.cycle_len());
        cycle * b + rest.saturating_sub(self.place(rank, cycle) * b).min(b)
    }

    /// How many positions the rank owns here.
    pub(crate) fn count(self, rank: Rank) -> u64 {
        self.count_below(rank, self.segment.positions.len())
    }
}
