//! The shards of one block-cyclic layout as progressions of runs, and how far each block travels.
//!
//! With block `b`, `p` ranks and `L` tokens a rank holds a run of `b` in each of `floor(L / pb)` full
//! cycles and a part of the last one. A cyclic rank is one progression of stride `pb` and one shorter
//! run; a reflected one is two of stride `2pb` (even and odd cycles) and one shorter run. The queries
//! that see something of a run `[s, e)` are those in `[s - right, e + left)`, an interval: hence the
//! ranks that see it, and the farthest of them around the ring, in constant time.

mod band;
mod progression;

use crate::plan::Plan;
use crate::segment::BlockOrder;
use band::Band;
use progression::{Progression, pairs_below};

/// The longest sequence for which no sum exceeds 128 bits.
pub(crate) const MAX_TOKENS: u64 = 1 << 48;

/// A layout of one segment with the mask over it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shards {
    len: u64,
    world_size: u64,
    block: u64,
    order: BlockOrder,
    band: Band,
}

/// The runs of one shard; what is not needed is empty.
type Runs = [Progression; 3];

impl Shards {
    /// The shards of the plan's tokens.
    ///
    /// `None` unless queries and keys are the same tokens, in one segment that begins at rank 0, and
    /// the mask is a band.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let layout = plan.key_layout();
        let (len, world_size) = (layout.len(), u64::from(layout.world_size()));
        let [segment] = layout.segments() else { return None };
        let simple =
            plan.query_layout() == layout && segment.first_rank.0 == 0 && len <= MAX_TOKENS;
        let band = Band::of(&plan.problem().mask).filter(|_| simple)?;
        Some(Self { len, world_size, block: segment.block, order: segment.order, band })
    }

    /// Tokens of a cycle in which every rank has one block.
    fn cycle_len(&self) -> u64 {
        self.block * self.world_size
    }

    /// Distance of the runs of one progression.
    fn stride(&self) -> i128 {
        let cycles = if self.order == BlockOrder::Reflected { 2 } else { 1 };
        cycles * i128::from(self.cycle_len())
    }

    /// Whether the ranks stand in the opposite order in the cycle.
    fn mirrored(&self, cycle: u64) -> bool {
        self.order == BlockOrder::Reflected && !cycle.is_multiple_of(2)
    }

    /// The place of a rank in a cycle, and the rank at a place: its own inverse.
    fn place(&self, rank: u64, cycle: u64) -> u64 {
        if self.mirrored(cycle) { self.world_size - 1 - rank } else { rank }
    }

    fn runs(&self, rank: u64) -> Runs {
        let (b, cycle_len) = (self.block, self.cycle_len());
        let (cycles, rest) = (self.len / cycle_len, self.len % cycle_len);
        let first_place = self.place(rank, cycles) * b;
        let last = rest.saturating_sub(first_place).min(b);
        // A whole run of the last cycle belongs to its progression.
        let cycles_here = cycles + u64::from(last == b);
        let progression = |first_cycle: u64, count: u64| Progression {
            start: i128::from(first_cycle * cycle_len + self.place(rank, first_cycle) * b),
            count: i128::from(count),
            len: i128::from(b),
        };
        let start = i128::from(cycles * cycle_len) + i128::from(first_place);
        let shorter = if last == b { 0 } else { last };
        let shorter = Progression { start, count: 1, len: i128::from(shorter) };
        match self.order {
            BlockOrder::Cyclic => [progression(0, cycles_here), Progression::default(), shorter],
            BlockOrder::Reflected => {
                let odd = cycles_here / 2;
                [progression(0, cycles_here - odd), progression(1, odd), shorter]
            }
        }
    }

    /// All positions, in runs of the stride.
    fn everything(&self) -> Runs {
        let (len, stride) = (i128::from(self.len), self.stride());
        let (count, rest) = (len / stride, len % stride);
        let whole = Progression { start: 0, count, len: stride };
        [whole, Progression { start: len - rest, count: 1, len: rest }, Progression::default()]
    }

    fn count(&self, queries: &Runs, keys: &Runs) -> u128 {
        if self.band.is_empty() {
            return 0;
        }
        let stride = self.stride();
        let below = |distance| -> i128 {
            let pairs = |q| keys.iter().map(move |k| pairs_below(q, k, stride, distance));
            queries.iter().flat_map(pairs).sum()
        };
        (below(self.band.left + 1) - below(-self.band.right)).unsigned_abs()
    }

    /// (query, key) pairs of a rank with a block.
    pub(crate) fn pairs(&self, rank: u64, block: u64) -> u128 {
        self.count(&self.runs(rank), &self.runs(block))
    }

    /// (query, key) pairs of a rank with all blocks.
    pub(crate) fn pairs_of_rank(&self, rank: u64) -> u128 {
        self.count(&self.runs(rank), &self.everything())
    }

    /// How many hops the rank's own block makes: the distance to the last rank that sees anything in
    /// it.
    pub(crate) fn reach(&self, owner: u64) -> u64 {
        if self.band.is_empty() {
            return 0;
        }
        let runs = self.runs(owner);
        let some = runs.iter().filter(|runs| !runs.is_empty());
        some.map(|runs| self.reach_of_runs(owner, runs)).max().unwrap_or(0)
    }

    /// How many hops the rank's queries make where blocks stay: the distance to the last rank in whose
    /// block they see anything. A query sees key `k` where, with the band mirrored, a query at `k` sees
    /// a key in its place.
    pub(crate) fn query_reach(&self, owner: u64) -> u64 {
        Self { band: self.band.mirrored(), ..*self }.reach(owner)
    }

    /// The intervals of queries that see a run differ only where the sequence's ends cut them. Those
    /// cut at its begin contain each other, the last the others; those cut at its end likewise, the
    /// first; those not cut hold the same ranks. So four runs stand for all.
    fn reach_of_runs(&self, owner: u64, runs: &Progression) -> u64 {
        let (stride, len) = (self.stride(), i128::from(self.len));
        let Band { left, right } = self.band;
        let last_cut_at_begin = (right - 1 - runs.start).div_euclid(stride);
        let last_uncut_at_end = (len - left - runs.len - runs.start).div_euclid(stride);
        let candidates = [last_cut_at_begin, last_uncut_at_end].map(|at| [at, at + 1]);
        let reaches = candidates.into_iter().flatten().map(|at| {
            let start = runs.start + at.clamp(0, runs.count - 1) * stride;
            let from = (start - right).clamp(0, len) as u64;
            let to = (start + runs.len + left).clamp(0, len) as u64;
            if from < to { self.farthest(owner, from, to) } else { 0 }
        });
        reaches.max().unwrap_or(0)
    }

    /// The farthest distance around the ring from `owner` to a rank with a position in `[from, to)`.
    fn farthest(&self, owner: u64, from: u64, to: u64) -> u64 {
        let p = self.world_size;
        let (first, last) = (from / self.block, (to - 1) / self.block);
        let (first_cycle, last_cycle) = (first / p, last / p);
        if last_cycle > first_cycle + 1 {
            return p - 1; // the cycle between holds every rank
        }
        let mut reach = 0;
        for cycle in first_cycle..=last_cycle {
            let low = if cycle == first_cycle { first % p } else { 0 };
            let high = if cycle == last_cycle { last % p } else { p - 1 };
            let (a, b) = (self.place(low, cycle), self.place(high, cycle));
            reach = reach.max(distance(p, owner, a.min(b), a.max(b)));
        }
        reach
    }

    /// Ranks at which the shape of a shard changes: shards between two of them, the latter left out,
    /// have runs of the same lengths in the same cycles.
    pub(crate) fn kinds(&self) -> Vec<u64> {
        let cycles = self.len / self.cycle_len();
        let rest = self.len % self.cycle_len();
        let whole = rest / self.block;
        let mut starts = vec![0];
        if rest > 0 {
            let edges = [whole, whole + 1].map(|place| place.min(self.world_size));
            let mirrored = self.mirrored(cycles);
            let rank = |place: u64| if mirrored { self.world_size - place } else { place };
            starts.extend(edges.map(|place| rank(place) % self.world_size));
        }
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// Whether the pairs of rank and block depend only on the kinds of their shards, on their
    /// distance around the ring and on which of the two comes first.
    pub(crate) fn is_translatable(&self) -> bool {
        self.order == BlockOrder::Cyclic || self.band.is_triangular(self.len)
    }
}

/// The farthest distance around a ring of `p` from `owner` to a rank in `[low, high]`.
fn distance(p: u64, owner: u64, low: u64, high: u64) -> u64 {
    if low < owner {
        // Those before the owner come last on the way around.
        p - owner + high.min(owner - 1)
    } else {
        high - owner
    }
}
