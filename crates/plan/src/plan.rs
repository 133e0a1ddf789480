//! A plan: problem, layouts and kind of schedule, as a small value.

use crate::gather;
use crate::layout::{Layout, LayoutError, LayoutKind, Run};
use crate::pass_q;
use crate::problem::{Problem, ProblemError};
use crate::reduce::{self, reduce_rounds};
use crate::ring::{self, Reaches, Traveller};
use crate::step::{BlockId, Cargo, QueriesId, Step};
use crate::tree::{self, tree_rounds};
use ringattn_core::{DType, Interval, Position, Rank, Slot};
use thiserror::Error;

/// Who moves what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// K,V blocks circulate, queries stay (Ring Attention, 2310.01889).
    RingPassKv,
    /// Queries circulate, K,V blocks stay, partial states go straight back (pass-Q, 2411.01783).
    RingPassQ,
    /// K,V blocks come straight from their owners, queries stay.
    Gather,
    /// K,V blocks stay, every rank holds all queries, partial states are all-reduced (Tree Attention,
    /// 2408.04093).
    Tree,
    /// K,V blocks stay, every rank holds all queries, partial states are reduced to rank 0, which alone has
    /// the answer.
    TreeReduce,
}

/// Who holds the queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueryPlacement {
    /// Each query is on one rank.
    Sharded,
    /// Every query is on every rank.
    Replicated,
}

/// Who has the answer of a query in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnswerPlacement {
    /// Every rank that holds the query.
    WithQueries,
    /// Rank 0. The states of the others end empty.
    Root,
}

impl Schedule {
    /// Where the schedule needs the queries.
    pub fn query_placement(self) -> QueryPlacement {
        match self {
            Self::RingPassKv | Self::RingPassQ | Self::Gather => QueryPlacement::Sharded,
            Self::Tree | Self::TreeReduce => QueryPlacement::Replicated,
        }
    }

    /// Where the schedule leaves the answers.
    pub fn answer_placement(self) -> AnswerPlacement {
        match self {
            Self::RingPassKv | Self::RingPassQ | Self::Gather | Self::Tree => {
                AnswerPlacement::WithQueries
            }
            Self::TreeReduce => AnswerPlacement::Root,
        }
    }
}

/// A validated problem with its layouts and schedule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    problem: Problem,
    /// Over all ranks; where queries are replicated over one, which stands for each.
    query_layout: Layout,
    key_layout: Layout,
    schedule: Schedule,
}

/// A plan that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The problem cannot be.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The queries cannot be laid out.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Queries and keys over different worlds.
    #[error("queries are laid out over {queries} ranks, keys over {keys}")]
    WorldSize {
        /// Ranks of the query layout.
        queries: u32,
        /// Ranks of the key layout.
        keys: u32,
    },
    /// Queries that are not where the schedule needs them.
    #[error("the {schedule} schedule needs {expected:?} queries, they are {actual:?}")]
    Placement {
        /// The schedule.
        schedule: Schedule,
        /// Where it needs them.
        expected: QueryPlacement,
        /// Where they are.
        actual: QueryPlacement,
    },
    /// A layout of another length than the problem.
    #[error("the {what} layout places {actual} tokens, the problem has {expected}")]
    Length {
        /// `query` or `key`.
        what: &'static str,
        /// Tokens of the problem.
        expected: u64,
        /// Tokens of the layout.
        actual: u64,
    },
}

impl Plan {
    /// A plan for tokens that are queries and keys at once.
    ///
    /// # Errors
    /// When the parts do not fit together.
    pub fn new(problem: Problem, layout: Layout, schedule: Schedule) -> Result<Self, PlanError> {
        Self::with_layouts(problem, layout.clone(), layout, schedule)
    }

    /// A plan whose queries and keys are different tokens.
    ///
    /// # Errors
    /// When the parts do not fit together.
    pub fn with_layouts(
        problem: Problem,
        query_layout: Layout,
        key_layout: Layout,
        schedule: Schedule,
    ) -> Result<Self, PlanError> {
        let (queries, keys) = (query_layout.world_size(), key_layout.world_size());
        if queries != keys {
            return Err(PlanError::WorldSize { queries, keys });
        }
        let layouts = (query_layout, key_layout);
        Self::validated(problem, layouts, (schedule, QueryPlacement::Sharded))
    }

    /// A plan whose queries are all on every rank.
    ///
    /// # Errors
    /// When the parts do not fit together.
    pub fn with_replicated_queries(
        problem: Problem,
        key_layout: Layout,
        schedule: Schedule,
    ) -> Result<Self, PlanError> {
        let query_layout = Layout::new(LayoutKind::Contiguous, None, problem.queries, 1)?;
        let layouts = (query_layout, key_layout);
        Self::validated(problem, layouts, (schedule, QueryPlacement::Replicated))
    }

    fn validated(
        problem: Problem,
        (query_layout, key_layout): (Layout, Layout),
        (schedule, actual): (Schedule, QueryPlacement),
    ) -> Result<Self, PlanError> {
        problem.validate()?;
        let expected = schedule.query_placement();
        if expected != actual {
            return Err(PlanError::Placement { schedule, expected, actual });
        }
        let lengths =
            [("query", problem.queries, &query_layout), ("key", problem.keys, &key_layout)];
        for (what, expected, layout) in lengths {
            if layout.len() != expected {
                return Err(PlanError::Length { what, expected, actual: layout.len() });
            }
        }
        Ok(Self { problem, query_layout, key_layout, schedule })
    }

    /// What is computed.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Where sharded queries live. Where they are replicated it is over one rank, which stands for
    /// each: ask [`Plan::query_positions`] and its kin, which know.
    pub fn query_layout(&self) -> &Layout {
        &self.query_layout
    }

    /// Positions of the rank's queries, in the order of its query slots.
    pub fn query_positions(&self, rank: Rank) -> impl Iterator<Item = Position> + '_ {
        self.query_layout.positions(self.query_holder(rank))
    }

    /// Runs of consecutive positions of the rank's queries.
    pub(crate) fn query_runs(&self, rank: Rank) -> impl Iterator<Item = Run> + '_ {
        self.query_layout.runs(self.query_holder(rank))
    }

    /// The position of the rank's query in that slot; `None` beyond its queries.
    pub fn query_position(&self, rank: Rank, slot: Slot) -> Option<Position> {
        self.query_layout.position(self.query_holder(rank), slot)
    }

    /// Queries of the rank.
    pub fn query_count(&self, rank: Rank) -> u64 {
        self.query_layout.count(self.query_holder(rank))
    }

    /// The smallest interval that holds all query positions of the rank.
    pub fn query_span(&self, rank: Rank) -> Interval<Position> {
        self.query_layout.span(self.query_holder(rank))
    }

    /// The rank of the query layout that stands for `rank`.
    fn query_holder(&self, rank: Rank) -> Rank {
        match self.schedule.query_placement() {
            QueryPlacement::Sharded => rank,
            QueryPlacement::Replicated => Rank(0),
        }
    }

    /// Where the keys and values live.
    pub fn key_layout(&self) -> &Layout {
        &self.key_layout
    }

    /// Who moves what.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Ranks `p`.
    pub fn world_size(&self) -> u32 {
        self.key_layout.world_size()
    }

    /// Bytes of K and V in the block.
    pub fn block_bytes(&self, block: BlockId) -> u64 {
        self.key_layout.count(block.0) * self.problem.kv_bytes_per_token()
    }

    /// Whether the rank has the answers of its queries in the end.
    pub fn answers(&self, rank: Rank) -> bool {
        match self.schedule.answer_placement() {
            AnswerPlacement::WithQueries => true,
            AnswerPlacement::Root => rank == Rank(0),
        }
    }

    /// The queries that live on the rank.
    pub fn own_queries(&self, rank: Rank) -> QueriesId {
        QueriesId(self.query_holder(rank))
    }

    /// Bytes of the queries: `Hq d` f32 each, as which they are computed and travel.
    pub fn query_bytes(&self, queries: QueriesId) -> u64 {
        let row = self.problem.shape.query_width() as u64 * DType::F32.size();
        self.query_count(queries.0).saturating_mul(row)
    }

    /// Bytes of the queries' partial state: `Hq (d + 2)` f32 per query.
    pub fn state_bytes(&self, queries: QueriesId) -> u64 {
        let shape = self.problem.shape;
        let elements = shape.query_heads() as u64 * (shape.head_dim() as u64 + 2);
        self.query_count(queries.0).saturating_mul(elements * DType::F32.size())
    }

    /// Bytes of what travels.
    pub fn cargo_bytes(&self, cargo: Cargo) -> u64 {
        match cargo {
            Cargo::Block(block) => self.block_bytes(block),
            Cargo::Queries(queries) => self.query_bytes(queries),
            Cargo::State(queries, _) => self.state_bytes(queries),
        }
    }

    /// Works out what the steps of all ranks have in common.
    pub fn prepare(&self) -> Prepared<'_> {
        let common = match self.schedule {
            Schedule::RingPassKv => Common::Ring(Reaches::new(self, Traveller::Blocks)),
            Schedule::RingPassQ => Common::PassQ(Reaches::new(self, Traveller::Queries)),
            Schedule::Gather => Common::Gather,
            Schedule::Tree => Common::Tree,
            Schedule::TreeReduce => Common::TreeReduce,
        };
        Prepared { plan: self, common }
    }
}

/// A plan that is ready to be walked, by any number of ranks.
#[derive(Clone, Debug)]
pub struct Prepared<'a> {
    plan: &'a Plan,
    common: Common,
}

/// What the steps of all ranks have in common, by schedule.
#[derive(Clone, Debug)]
enum Common {
    /// How far each block travels.
    Ring(Reaches),
    /// How far the queries of each rank travel.
    PassQ(Reaches),
    Gather,
    Tree,
    TreeReduce,
}

impl<'a> Prepared<'a> {
    /// The plan.
    pub fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// Steps of each rank.
    pub fn step_count(&self) -> u32 {
        match self.common {
            Common::Ring(_) | Common::Gather => self.plan.world_size(),
            Common::PassQ(_) => pass_q::step_count(self.plan.world_size()),
            Common::Tree => 1 + tree_rounds(self.plan.world_size()),
            Common::TreeReduce => 1 + reduce_rounds(self.plan.world_size()),
        }
    }

    /// Bytes that the busiest rank receives.
    pub fn most_received_bytes(&self) -> u64 {
        let received = |rank| self.steps(rank).flat_map(|step| step.receive.iter());
        let bytes =
            |rank| received(rank).map(|transfer| self.plan.cargo_bytes(transfer.cargo)).sum();
        self.plan.key_layout.ranks().map(bytes).max().unwrap_or(0)
    }

    /// The rank's steps, made as they are asked for.
    pub fn steps(&self, rank: Rank) -> Box<dyn Iterator<Item = Step> + '_> {
        match &self.common {
            Common::Ring(reaches) => Box::new(ring::steps(self.plan, reaches, rank)),
            Common::PassQ(reaches) => Box::new(pass_q::steps(self.plan, reaches, rank)),
            Common::Gather => Box::new(gather::steps(self.plan, rank)),
            Common::Tree => Box::new(tree::steps(self.plan, rank)),
            Common::TreeReduce => Box::new(reduce::steps(self.plan, rank)),
        }
    }
}
