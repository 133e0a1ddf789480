//! A plan: problem, layouts and kind of schedule, as a small value.

use crate::layout::Layout;
use crate::problem::{Problem, ProblemError};
use crate::ring::{self, Reaches};
use crate::step::{BlockId, Step};
use ringattn_core::Rank;
use thiserror::Error;

/// Who moves what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// K,V blocks circulate, queries stay (Ring Attention, 2310.01889).
    RingPassKv,
}

/// A validated problem with its layouts and schedule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    problem: Problem,
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
    /// Queries and keys over different worlds.
    #[error("queries are laid out over {queries} ranks, keys over {keys}")]
    WorldSize {
        /// Ranks of the query layout.
        queries: u32,
        /// Ranks of the key layout.
        keys: u32,
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
        problem.validate()?;
        let (queries, keys) = (query_layout.world_size(), key_layout.world_size());
        if queries != keys {
            return Err(PlanError::WorldSize { queries, keys });
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

    /// Where the queries live.
    pub fn query_layout(&self) -> &Layout {
        &self.query_layout
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

    /// Works out what the steps of all ranks have in common.
    pub fn prepare(&self) -> Prepared<'_> {
        match self.schedule {
            Schedule::RingPassKv => Prepared { plan: self, reaches: Reaches::new(self) },
        }
    }
}

/// A plan that is ready to be walked, by any number of ranks.
#[derive(Clone, Debug)]
pub struct Prepared<'a> {
    plan: &'a Plan,
    reaches: Reaches,
}

impl<'a> Prepared<'a> {
    /// The plan.
    pub fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// The rank's steps, made as they are asked for.
    pub fn steps(&self, rank: Rank) -> impl Iterator<Item = Step> + '_ {
        match self.plan.schedule {
            Schedule::RingPassKv => ring::steps(self.plan, &self.reaches, rank),
        }
    }
}
