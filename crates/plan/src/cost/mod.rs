//! The price of a plan: exact counts by closed forms, in `O(p)` work whatever the length.
//!
//! Counts are those of [`expect`](crate::expect()), and of every step the most that any rank computes and
//! the largest block that moves. Closed forms exist for masks that are a band around the diagonal
//! (full, causal, windows, their intersections) over one segment of any layout. Other masks and grown
//! layouts, and windows over a reflected layout, whose steps have no closed form, are enumerated up to
//! [`MAX_ENUMERATED_RANKS`] and refused beyond. Counts know no machine; [`Machine`] turns them into
//! seconds.

mod enumerate;
mod machines;
mod recommend;
mod sizing;
mod steps;
mod time;
mod traffic;

pub use machines::{MACHINES, NamedMachine};
pub use recommend::{Candidate, Reason, Recommendation, recommend};
pub use sizing::{
    LongestContext, SmallestBlock, longest_context, smallest_block, working_bytes_per_token,
};
pub use time::{Machine, MachineError, Timing};

use crate::closed_form::{self, Shards};
use crate::plan::{Plan, QueryPlacement, Schedule};
use crate::step::BlockId;
use ringattn_core::{AttentionShape, Rank};
use thiserror::Error;
use traffic::Journey;

/// The most ranks that are priced.
pub const MAX_PRICED_RANKS: u32 = 1 << 16;
/// The longest sequence that is priced.
pub const MAX_PRICED_TOKENS: u64 = closed_form::MAX_TOKENS;
/// The most ranks of a plan whose steps are visited one by one.
pub const MAX_ENUMERATED_RANKS: u32 = 1024;
/// The most rows of intervals that an enumeration looks at, tokens times ranks.
pub const MAX_ENUMERATED_ROWS: u64 = 1 << 32;

/// The exact counts of a plan, for one attention (one layer).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Heads and head dimension.
    pub shape: AttentionShape,
    /// Entry `u`: rank `u`.
    pub ranks: Vec<RankCost>,
    /// The steps in order.
    pub steps: Vec<StepCost>,
}

/// The counts of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankCost {
    /// Query tokens.
    pub queries: u64,
    /// (query, key) pairs, per query head.
    pub pairs: u128,
    /// Bytes of K and V of the own shard.
    pub resident_kv_bytes: u64,
    /// Most bytes of K and V held at once.
    pub peak_kv_bytes: u64,
    /// Bytes of blocks, queries and states sent.
    pub sent_bytes: u64,
    /// Bytes of blocks, queries and states received.
    pub received_bytes: u64,
    /// Messages received.
    pub hops: u64,
}

/// The most of a step over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCost {
    /// (query, key) pairs that the busiest rank computes, per query head.
    pub pairs: u128,
    /// The most bytes that a rank sends.
    pub hop_bytes: u64,
}

/// Why a plan has no price.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CostError {
    /// Sizes beyond what is counted exactly.
    #[error("{what} is {actual}, more than the {limit} that are priced")]
    TooLarge {
        /// Tokens or ranks.
        what: &'static str,
        /// The largest.
        limit: u64,
        /// What was asked for.
        actual: u64,
    },
    /// A sum over no attention.
    #[error("there is no layer to price")]
    NoLayer,
    /// Layers that move more than can be counted.
    #[error("{layers} layers of {bytes} bytes each exceed 2^64 bytes")]
    Layers {
        /// Bytes that a rank moves in one.
        bytes: u64,
        /// How many there are.
        layers: u64,
    },
    /// Queries and keys that lie in different places.
    #[error("queries and keys are laid out differently: {queries} and {keys}")]
    Layouts {
        /// The layout of the queries.
        queries: String,
        /// The layout of the keys.
        keys: String,
    },
    /// No closed form, and too much to enumerate.
    #[error(
        "mask {mask} over the layout {layout} has no closed form: it is enumerated up to \
         {MAX_ENUMERATED_RANKS} ranks and {MAX_ENUMERATED_ROWS} tokens times ranks, \
         got {tokens} tokens on {ranks} ranks"
    )]
    NoClosedForm {
        /// The mask.
        mask: String,
        /// The layout.
        layout: String,
        /// Tokens of the sequence.
        tokens: u64,
        /// Ranks there are.
        ranks: u32,
    },
}

/// Prices a plan whose queries and keys are the same tokens, or whose queries are on every rank.
///
/// # Errors
/// For sizes beyond the limits, for queries and keys that lie in different places, and where there is
/// no closed form and too much to enumerate.
pub fn price(plan: &Plan) -> Result<Cost, CostError> {
    check_size(plan)?;
    match plan.schedule() {
        Schedule::RingPassKv => price_ring(plan),
        Schedule::RingPassQ | Schedule::Gather | Schedule::Tree | Schedule::TreeReduce => {
            enumerate::price(plan)
        }
    }
}

fn check_size(plan: &Plan) -> Result<(), CostError> {
    let (tokens, ranks) = (plan.problem().keys, plan.world_size());
    for (what, limit, actual) in [
        ("the number of tokens", MAX_PRICED_TOKENS, tokens),
        ("the number of ranks", u64::from(MAX_PRICED_RANKS), u64::from(ranks)),
    ] {
        if actual > limit {
            return Err(CostError::TooLarge { what, limit, actual });
        }
    }
    let sharded = plan.schedule().query_placement() == QueryPlacement::Sharded;
    if sharded && plan.query_layout() != plan.key_layout() {
        let (queries, keys) = (plan.query_layout().to_string(), plan.key_layout().to_string());
        return Err(CostError::Layouts { queries, keys });
    }
    // A rank holds and receives each block at most once: no more than K and V of all tokens, whose
    // bytes fit 64 bits since the plan was made.
    Ok(())
}

fn price_ring(plan: &Plan) -> Result<Cost, CostError> {
    let shards = Shards::of(plan)
        .filter(|shards| shards.is_translatable() || plan.world_size() <= MAX_ENUMERATED_RANKS);
    let Some(shards) = shards else { return enumerate::price(plan) };
    let per_token = plan.problem().kv_bytes_per_token();
    let counts: Vec<_> =
        plan.key_layout().ranks().map(|rank| plan.key_layout().count(rank)).collect();
    let journey = |(owner, &tokens): (usize, &u64)| Journey {
        bytes: tokens * per_token,
        reach: shards.reach(owner as u64),
    };
    let journeys: Vec<_> = counts.iter().enumerate().map(journey).collect();
    let rank = |(rank, &queries): (usize, &u64)| RankCost {
        queries,
        pairs: shards.pairs_of_rank(rank as u64),
        ..RankCost::default()
    };
    let mut ranks: Vec<_> = counts.iter().enumerate().map(rank).collect();
    traffic::count(&journeys, &mut ranks);
    let hops = traffic::largest_hop(&journeys);
    let steps = steps::most_pairs(&shards, plan.world_size())
        .zip(hops)
        .map(|(pairs, hop_bytes)| StepCost { pairs, hop_bytes })
        .collect();
    Ok(Cost { shape: plan.problem().shape, ranks, steps })
}

/// Counts the pairs of a rank with a block, in constant time where there is a closed form.
pub fn pair_counter(plan: &Plan) -> impl Fn(Rank, BlockId) -> u128 + '_ {
    let shards = Shards::of(plan);
    move |rank, block| match &shards {
        Some(shards) => shards.pairs(rank.0.into(), block.0.0.into()),
        None => plan.pairs(rank, block).into(),
    }
}

impl Cost {
    /// The counts of several attentions over the same ranks, one after the other: each with how often
    /// it is run. Everything is added but the sizes of shards and hops, of which the largest counts.
    ///
    /// # Errors
    /// When bytes exceed 2^64.
    pub fn sum(costs: &[(u64, &Self)]) -> Result<Self, CostError> {
        let Some(((_, first), _)) = costs.split_first() else { return Err(CostError::NoLayer) };
        let (ranks, steps) = (first.ranks.len(), first.steps.len());
        let mut sum = Self {
            shape: first.shape,
            ranks: vec![RankCost::default(); ranks],
            steps: vec![StepCost::default(); steps],
        };
        for &(times, cost) in costs {
            for (sum, rank) in sum.ranks.iter_mut().zip(&cost.ranks) {
                sum.add(times, rank)?;
            }
            for (sum, step) in sum.steps.iter_mut().zip(&cost.steps) {
                sum.pairs += u128::from(times) * step.pairs;
                sum.hop_bytes = sum.hop_bytes.max(step.hop_bytes);
            }
        }
        Ok(sum)
    }

    /// (query, key) pairs of all ranks, per query head.
    pub fn pairs(&self) -> u128 {
        self.ranks.iter().map(|rank| rank.pairs).sum()
    }

    /// Pairs of the busiest rank of each step, summed: what ranks that wait for each other after every
    /// step spend, per query head.
    pub fn makespan_pairs(&self) -> u128 {
        self.steps.iter().map(|step| step.pairs).sum()
    }

    /// The pairs of the busiest rank over the mean; 1 without any.
    pub fn max_over_mean(&self) -> f64 {
        let most = self.ranks.iter().map(|rank| rank.pairs).max().unwrap_or(0);
        ratio(most * self.ranks.len() as u128, self.pairs())
    }

    /// The share of `p` ranks' time in lockstep that is spent computing, `pairs / (p makespan)`: 1
    /// when all compute all the time.
    pub fn utilisation(&self) -> f64 {
        ratio(self.pairs(), self.makespan_pairs() * self.ranks.len() as u128)
    }

    /// The most of a rank's count.
    pub fn most<T: Ord + Default>(&self, count: impl Fn(&RankCost) -> T) -> T {
        self.ranks.iter().map(count).max().unwrap_or_default()
    }

    /// Floating-point operations of so many pairs in all query heads: `4 d Hq` each, two products of
    /// two operations per element.
    pub fn flops(&self, pairs: u128) -> f64 {
        pairs as f64 * 4.0 * self.shape.query_width() as f64
    }
}

impl RankCost {
    fn add(&mut self, times: u64, other: &Self) -> Result<(), CostError> {
        self.queries = other.queries;
        self.pairs += u128::from(times) * other.pairs;
        self.resident_kv_bytes = self.resident_kv_bytes.max(other.resident_kv_bytes);
        self.peak_kv_bytes = self.peak_kv_bytes.max(other.peak_kv_bytes);
        for (sum, bytes) in [
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.received_bytes, other.received_bytes),
            (&mut self.hops, other.hops),
        ] {
            add_layers(sum, bytes, times)?;
        }
        Ok(())
    }
}

/// Adds what one layer counts, as many times as there are such layers.
///
/// # Errors
/// When the sum is too large to count.
pub fn add_layers(sum: &mut u64, bytes: u64, layers: u64) -> Result<(), CostError> {
    let added = bytes.checked_mul(layers).and_then(|bytes| sum.checked_add(bytes));
    *sum = added.ok_or(CostError::Layers { bytes, layers })?;
    Ok(())
}

/// `a / b`, and 1 where there is nothing.
fn ratio(a: u128, b: u128) -> f64 {
    if b == 0 { 1.0 } else { a as f64 / b as f64 }
}
