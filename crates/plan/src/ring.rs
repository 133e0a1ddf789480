//! Ring pass-KV (Ring Attention, 2310.01889): blocks travel from rank to rank, queries stay.
//!
//! At step `s` rank `u` holds block `(u - s) mod p`, attends it, and hands it to `u + 1`. After
//! `p - 1` hops everybody has held every block. A block travels only as far as the last rank that sees
//! anything in it: with a causal mask over contiguous shards rank `u` receives `u` blocks.

use crate::closed_form::Shards;
use crate::plan::Plan;
use crate::step::{BlockId, Step, Transfer};
use ringattn_core::{Interval, Position, Rank};

/// How many hops the block of each rank makes: the distance to the last rank that sees anything in
/// it.
#[derive(Clone, Debug)]
pub(crate) struct Reaches(Vec<u32>);

impl Reaches {
    /// By arithmetic where there is a closed form; else looks at every pair of ranks once, `O(p^2)` for
    /// masks whose hull is exact.
    pub(crate) fn new(plan: &Plan) -> Self {
        if let Some(shards) = Shards::of(plan) {
            let ranks = plan.key_layout().ranks();
            // A distance around the ring is less than its size.
            return Self(ranks.map(|owner| shards.reach(owner.0.into()) as u32).collect());
        }
        let ring = Ring { size: plan.world_size() };
        let spans = Spans::new(plan);
        let reach = |owner: Rank| {
            let seen = |&distance: &u32| spans.sees(plan, ring.forth(owner, distance), owner);
            (1..ring.size).rev().find(seen).unwrap_or(0)
        };
        Self(plan.key_layout().ranks().map(reach).collect())
    }

    fn of(&self, owner: Rank) -> u32 {
        self.0[owner.index()]
    }
}

/// What each rank sees at most, and where the keys of each rank lie.
struct Spans {
    hulls: Vec<Interval<Position>>,
    keys: Vec<Interval<Position>>,
}

impl Spans {
    fn new(plan: &Plan) -> Self {
        let hull = |rank| plan.problem().mask.hull(plan.query_layout().span(rank));
        let keys = |rank| plan.key_layout().span(rank);
        Self {
            hulls: plan.query_layout().ranks().map(hull).collect(),
            keys: plan.key_layout().ranks().map(keys).collect(),
        }
    }

    /// Whether `rank` sees anything in the block of `owner`; most pairs that do not are told apart
    /// without looking at their tokens.
    fn sees(&self, plan: &Plan, rank: Rank, owner: Rank) -> bool {
        let apart = self.hulls[rank.index()].intersect(self.keys[owner.index()]).is_empty();
        !apart && plan.sees(rank, BlockId(owner))
    }
}

/// The rank's `p` steps.
pub(crate) fn steps<'a>(
    plan: &'a Plan,
    reaches: &'a Reaches,
    rank: Rank,
) -> impl Iterator<Item = Step> + 'a {
    let ring = Ring { size: plan.world_size() };
    (0..ring.size).map(move |index| {
        let here = BlockId(ring.back(rank, index));
        let next = BlockId(ring.back(rank, index + 1));
        let held = index <= reaches.of(here.0);
        let passes_on = index < reaches.of(here.0);
        let comes = index + 1 < ring.size && index < reaches.of(next.0);
        Step {
            index,
            attend: (held && plan.sees(rank, here)).then_some(here),
            send: passes_on.then(|| Transfer { block: here, peer: ring.forth(rank, 1) }),
            receive: comes.then(|| Transfer { block: next, peer: ring.back(rank, 1) }),
            drop: (held && index > 0).then_some(here),
        }
    })
}

#[derive(Clone, Copy)]
struct Ring {
    size: u32,
}

impl Ring {
    fn forth(self, rank: Rank, distance: u32) -> Rank {
        let sum = u64::from(rank.0) + u64::from(distance);
        Rank((sum % u64::from(self.size)) as u32)
    }

    fn back(self, rank: Rank, distance: u32) -> Rank {
        self.forth(rank, self.size - distance % self.size)
    }
}
