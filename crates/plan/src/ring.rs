//! Ring pass-KV (Ring Attention, 2310.01889): blocks travel from rank to rank, queries stay.
//!
//! At step `s` rank `u` holds block `(u - s) mod p`, attends it, and hands it to `u + 1`. After
//! `p - 1` hops everybody has held every block. A block travels only as far as the last rank that sees
//! anything in it: with a causal mask over contiguous shards rank `u` receives `u` blocks.

use crate::closed_form::Shards;
use crate::plan::Plan;
use crate::step::{Attend, BlockId, Cargo, Operand, Step, Transfer, Transfers};
use ringattn_core::{Interval, Position, Rank};

/// How many hops what each rank owns makes around the ring: the distance to the last rank that needs it.
#[derive(Clone, Debug)]
pub(crate) struct Reaches(Vec<u32>);

/// What travels around the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Traveller {
    /// Blocks, to ranks whose queries see something in them.
    Blocks,
    /// Queries, to ranks in whose block they see something.
    Queries,
}

impl Reaches {
    /// By arithmetic where there is a closed form; else looks at every pair of ranks once, `O(p^2)` for
    /// masks whose hull is exact.
    pub(crate) fn new(plan: &Plan, traveller: Traveller) -> Self {
        if let Some(shards) = Shards::of(plan) {
            let reach = |owner: Rank| match traveller {
                Traveller::Blocks => shards.reach(owner.0.into()),
                Traveller::Queries => shards.query_reach(owner.0.into()),
            };
            // A distance around the ring is less than its size.
            return Self(plan.key_layout().ranks().map(|owner| reach(owner) as u32).collect());
        }
        let ring = Ring { size: plan.world_size() };
        let spans = Spans::new(plan);
        let needs = |other: Rank, owner: Rank| match traveller {
            Traveller::Blocks => spans.sees(plan, other, owner),
            Traveller::Queries => spans.sees(plan, owner, other),
        };
        let reach = |owner: Rank| {
            let needed = |&distance: &u32| needs(ring.forth(owner, distance), owner);
            (1..ring.size).rev().find(needed).unwrap_or(0)
        };
        Self(plan.key_layout().ranks().map(reach).collect())
    }

    fn of(&self, owner: Rank) -> u32 {
        self.0[owner.index()]
    }

    /// What travels past `rank` in step `index`.
    pub(crate) fn passing(&self, ring: Ring, rank: Rank, index: u32) -> Passing {
        let (here, next) = (ring.back(rank, index), ring.back(rank, index + 1));
        let (reach, next_reach) = (self.of(here), self.of(next));
        // In the steps from `p - 1` on the ring leads back to the rank's own, which is here already.
        let comes = index + 1 < ring.size && index < next_reach;
        Passing {
            here,
            held: index <= reach,
            goes_to: (index < reach).then(|| ring.forth(rank, 1)),
            comes: comes.then(|| (next, ring.back(rank, 1))),
        }
    }
}

/// What travels past a rank in one step.
pub(crate) struct Passing {
    /// Whose is at the rank's place.
    pub(crate) here: Rank,
    /// Whether it came so far.
    pub(crate) held: bool,
    /// Who gets it next.
    pub(crate) goes_to: Option<Rank>,
    /// Whose comes for the next step, and from whom.
    pub(crate) comes: Option<(Rank, Rank)>,
}

/// What each rank sees at most, and where the keys of each rank lie.
struct Spans {
    hulls: Vec<Interval<Position>>,
    keys: Vec<Interval<Position>>,
}

impl Spans {
    fn new(plan: &Plan) -> Self {
        let hull = |rank| plan.problem().mask.hull(plan.query_span(rank));
        let keys = |rank| plan.key_layout().span(rank);
        let ranks = || plan.key_layout().ranks();
        Self { hulls: ranks().map(hull).collect(), keys: ranks().map(keys).collect() }
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
    let block = |owner, peer| Transfer { cargo: Cargo::Block(BlockId(owner)), peer };
    (0..ring.size).map(move |index| {
        let Passing { here, held, goes_to, comes } = reaches.passing(ring, rank, index);
        let attend = Attend { queries: plan.own_queries(rank), block: BlockId(here) };
        Step {
            index,
            attend: (held && plan.sees(rank, BlockId(here))).then_some(attend),
            send: Transfers::new(goes_to.map(|peer| block(here, peer)), None),
            receive: Transfers::new(comes.map(|(owner, peer)| block(owner, peer)), None),
            drop: (held && index > 0).then_some(Operand::Block(BlockId(here))),
        }
    })
}

/// Places on the ring.
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    pub(crate) size: u32,
}

impl Ring {
    /// The rank `distance` places on.
    pub(crate) fn forth(self, rank: Rank, distance: u32) -> Rank {
        let sum = u64::from(rank.0) + u64::from(distance);
        Rank((sum % u64::from(self.size)) as u32)
    }

    /// The rank `distance` places back.
    pub(crate) fn back(self, rank: Rank, distance: u32) -> Rank {
        self.forth(rank, self.size - distance % self.size)
    }
}
