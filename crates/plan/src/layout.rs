//! Which rank owns which position: a strictly increasing list of positions per rank, never stored.
//!
//! A layout is a list of [`Segment`]s that follow each other; one prefill is one segment. Every
//! length and every world size works: ragged and empty shards fall out of the arithmetic, nothing is
//! padded. A layout knows no mask and no schedule.

use crate::segment::{BlockOrder, Dealt, Segment};
use ringattn_core::{Interval, Position, Rank, Slot};
use std::fmt;
use thiserror::Error;

/// The members of the block-cyclic family that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayoutKind {
    /// One block per rank, `b = max(1, ceil(L / p))`.
    Contiguous,
    /// Blocks in turn, `b = 1` unless given (Striped Attention, 2311.09431).
    Striped,
    /// Blocks in turn and back, `b = max(1, ceil(L / 2p))` unless given.
    Zigzag,
}

/// A layout of a sequence over `p` ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    world_size: u32,
    segments: Vec<Segment>,
}

/// Consecutive slots of one rank that hold consecutive positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first slot.
    pub slot: Slot,
    /// The positions, `positions.len()` slots from `slot` on.
    pub positions: Interval<Position>,
}

/// A layout that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// No rank.
    #[error("a layout needs at least one rank")]
    NoRank,
    /// A block of no tokens.
    #[error("a block must hold at least one token")]
    NoBlock,
    /// A block size for a layout whose block follows from the length.
    #[error("the contiguous layout has no block size to choose, got {block}")]
    BlockNotApplicable {
        /// What was asked for.
        block: u64,
    },
    /// A first rank outside the world.
    #[error("first rank {first_rank} is outside a world of {world_size}")]
    FirstRank {
        /// What was asked for.
        first_rank: Rank,
        /// Ranks there are.
        world_size: u32,
    },
    /// A segment that does not begin where the sequence ends so far.
    #[error("a segment begins at position {actual}, the sequence ends at {expected}")]
    Gap {
        /// Where it should begin.
        expected: Position,
        /// Where it begins.
        actual: Position,
    },
    /// A layout without a segment that could grow.
    #[error("the layout has no segment to grow")]
    NoSegment,
    /// More tokens than positions can count.
    #[error("{len} tokens and {tokens} more exceed 64-bit positions")]
    TooLong {
        /// Tokens there are.
        len: u64,
        /// Tokens to come.
        tokens: u64,
    },
    /// A block times the world size beyond 64 bits.
    #[error("blocks of {block} tokens over {world_size} ranks exceed 64-bit positions")]
    TooLarge {
        /// Tokens of a block.
        block: u64,
        /// Ranks there are.
        world_size: u32,
    },
}

impl Layout {
    /// A named layout of `len` tokens over `world_size` ranks.
    ///
    /// # Errors
    /// No rank, a block of 0, a block for the contiguous layout, or sizes beyond 64 bits.
    pub fn new(
        kind: LayoutKind,
        block: Option<u64>,
        len: u64,
        world_size: u32,
    ) -> Result<Self, LayoutError> {
        let p = u64::from(world_size.max(1));
        let (block, order) = match (kind, block) {
            (LayoutKind::Contiguous, Some(block)) => {
                return Err(LayoutError::BlockNotApplicable { block });
            }
            (LayoutKind::Contiguous, None) => (len.div_ceil(p).max(1), BlockOrder::Cyclic),
            (LayoutKind::Striped, block) => (block.unwrap_or(1), BlockOrder::Cyclic),
            (LayoutKind::Zigzag, block) => {
                (block.unwrap_or(len.div_ceil(2 * p).max(1)), BlockOrder::Reflected)
            }
        };
        let mut layout = Self::empty(world_size)?;
        let positions = Interval::from_len(len);
        layout.append(Segment { positions, block, order, first_rank: Rank(0) })?;
        Ok(layout)
    }

    /// A layout of no tokens, to be grown by [`Layout::append`].
    ///
    /// # Errors
    /// When there is no rank.
    pub fn empty(world_size: u32) -> Result<Self, LayoutError> {
        if world_size == 0 {
            return Err(LayoutError::NoRank);
        }
        Ok(Self { world_size, segments: Vec::new() })
    }

    /// Places the tokens of `segment` behind those already placed, which stay where they are.
    ///
    /// # Errors
    /// When the segment leaves a gap or overlaps, or its numbers cannot be.
    pub fn append(&mut self, mut segment: Segment) -> Result<(), LayoutError> {
        // A block beyond the segment's end places nothing else than one that ends there.
        segment.block = segment.block.min(segment.positions.len().max(1));
        self.append_open(segment)
    }

    /// Places the tokens of `segment`, which may be none, and keeps its block as it is, so that
    /// [`Layout::grow`] can go on dealing.
    ///
    /// # Errors
    /// As for [`Layout::append`].
    pub fn append_open(&mut self, segment: Segment) -> Result<(), LayoutError> {
        let world_size = self.world_size;
        if segment.block == 0 {
            return Err(LayoutError::NoBlock);
        }
        if segment.first_rank.0 >= world_size {
            return Err(LayoutError::FirstRank { first_rank: segment.first_rank, world_size });
        }
        let expected = Position(self.len());
        if segment.positions.start() != expected {
            return Err(LayoutError::Gap { expected, actual: segment.positions.start() });
        }
        if segment.block.checked_mul(u64::from(world_size)).is_none() {
            return Err(LayoutError::TooLarge { block: segment.block, world_size });
        }
        self.segments.push(segment);
        Ok(())
    }

    /// Makes the last segment `tokens` longer: they are dealt on where it ended, and what is placed
    /// stays where it is.
    ///
    /// # Errors
    /// When there is no segment, or positions exceed 64 bits.
    pub fn grow(&mut self, tokens: u64) -> Result<(), LayoutError> {
        let segment = self.segments.last_mut().ok_or(LayoutError::NoSegment)?;
        let (start, end) = (segment.positions.start(), segment.positions.end());
        let end = end.0.checked_add(tokens).ok_or(LayoutError::TooLong { len: end.0, tokens })?;
        segment.positions = Interval::new(start, Position(end));
        Ok(())
    }

    /// Takes back the tokens from position `len` on; nothing changes when there are none. What stays
    /// keeps its rank and slot: a cut segment keeps its block, so that [`Layout::grow`] deals on as if
    /// the tokens that went had never been placed.
    pub fn truncate(&mut self, len: u64) {
        if len >= self.len() {
            return;
        }
        self.segments.retain(|segment| segment.positions.start().0 < len);
        if let Some(last) = self.segments.last_mut() {
            let (start, end) = (last.positions.start(), last.positions.end());
            last.positions = Interval::new(start, end.min(Position(len)));
        }
    }

    /// The rank with the fewest tokens, the lowest of several.
    pub fn least_loaded(&self) -> Rank {
        self.ranks().min_by_key(|&rank| self.count(rank)).unwrap_or_default()
    }

    /// Ranks `p`.
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// Tokens `L`.
    pub fn len(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.positions.end().0)
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The segments in order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The ranks in order.
    pub fn ranks(&self) -> impl DoubleEndedIterator<Item = Rank> + use<> {
        (0..self.world_size).map(Rank)
    }

    /// Tokens of the rank's shard.
    pub fn count(&self, rank: Rank) -> u64 {
        self.dealt().map(|dealt| dealt.count(rank)).sum()
    }

    /// Who owns `position`, and in which slot; `None` beyond the sequence.
    pub fn owner(&self, position: Position) -> Option<(Rank, Slot)> {
        let index = self.segments.partition_point(|s| s.positions.end() <= position);
        let here = self.dealt().nth(index)?;
        let (rank, slot) = here.owner(position.0 - here.segment.positions.start().0);
        let before: u64 = self.dealt().take(index).map(|dealt| dealt.count(rank)).sum();
        Some((rank, Slot(before + slot)))
    }

    /// The position in the rank's slot; `None` beyond its shard.
    pub fn position(&self, rank: Rank, slot: Slot) -> Option<Position> {
        let mut rest = slot.0;
        for dealt in self.dealt() {
            let count = dealt.count(rank);
            if rest < count {
                let start = dealt.segment.positions.start().0;
                return Some(Position(start + dealt.position(rank, rest)));
            }
            rest -= count;
        }
        None
    }

    /// How many of the rank's positions lie before `position`.
    pub fn count_below(&self, rank: Rank, position: Position) -> u64 {
        let mut count = 0;
        for dealt in self.dealt() {
            let positions = dealt.segment.positions;
            if position <= positions.start() {
                break;
            }
            let inside = position.0.min(positions.end().0) - positions.start().0;
            count += dealt.count_below(rank, inside);
        }
        count
    }

    /// The rank's slots whose positions lie in `positions`: an interval, as slots keep the order.
    pub fn slots(&self, rank: Rank, positions: Interval<Position>) -> Interval<Slot> {
        Interval::new(
            Slot(self.count_below(rank, positions.start())),
            Slot(self.count_below(rank, positions.end())),
        )
    }

    /// The smallest interval that holds all positions of the rank; empty for an empty shard.
    pub fn span(&self, rank: Rank) -> Interval<Position> {
        let count = self.count(rank);
        if count == 0 {
            return Interval::empty();
        }
        match (self.position(rank, Slot(0)), self.position(rank, Slot(count - 1))) {
            (Some(first), Some(last)) => Interval::new(first, Position(last.0 + 1)),
            _ => Interval::empty(),
        }
    }

    /// The rank's positions in order, as runs of consecutive ones.
    pub fn runs(&self, rank: Rank) -> impl Iterator<Item = Run> + '_ {
        let mut first_slot = 0;
        self.dealt().flat_map(move |dealt| {
            let (count, start) = (dealt.count(rank), dealt.segment.positions.start().0);
            let (slot, block) = (first_slot, dealt.segment.block);
            first_slot += count;
            (0..count.div_ceil(block)).map(move |run| {
                let within = run * block;
                let position = start + dealt.position(rank, within);
                let len = block.min(count - within);
                let positions = Interval::new(Position(position), Position(position + len));
                Run { slot: Slot(slot + within), positions }
            })
        })
    }

    /// The rank's positions in the order of its slots.
    pub fn positions(&self, rank: Rank) -> impl Iterator<Item = Position> + '_ {
        self.runs(rank).flat_map(|run| run.positions.iter())
    }

    fn dealt(&self) -> impl Iterator<Item = Dealt> + '_ {
        let world_size = u64::from(self.world_size);
        self.segments.iter().map(move |&segment| Dealt { segment, world_size })
    }
}

impl fmt::Display for LayoutKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Contiguous => "contiguous",
            Self::Striped => "striped",
            Self::Zigzag => "zigzag",
        })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments.iter().enumerate() {
            if index > 0 {
                f.write_str(", then ")?;
            }
            let one_cycle = segment.block * u64::from(self.world_size) >= segment.positions.len();
            match segment.order {
                BlockOrder::Reflected => write!(f, "zigzag in blocks of {}", segment.block)?,
                BlockOrder::Cyclic if one_cycle => f.write_str("contiguous")?,
                BlockOrder::Cyclic => write!(f, "striped in blocks of {}", segment.block)?,
            }
        }
        Ok(())
    }
}
