//! The work grid: which rank computes which (query, key) pair in which step, small enough to count.

use super::quantity::{count, of, percent};
use ringattn_core::{Position, Rank};
use ringattn_plan::{Attend, BlockId, Plan};
use serde::Serialize;

/// The pairs of a small plan.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkGrid {
    /// Tokens `L`.
    pub(crate) tokens: u64,
    /// The rank that owns each position.
    pub(crate) owner: Vec<u32>,
    /// For each query, in order of positions, and each key the step in which the query's owner
    /// computes the pair; none where the mask hides the key.
    pub(crate) steps: Vec<Vec<Option<u32>>>,
    /// Pairs by rank and step.
    pub(crate) pairs: Vec<Vec<u64>>,
    /// Pairs by rank.
    pub(crate) totals: Vec<u64>,
    /// The share of rank time that is spent computing when all ranks keep step, in words.
    pub(crate) utilization: String,
    /// The same as a number, 0 to 1.
    pub(crate) utilization_value: f64,
    /// The balance in a sentence.
    pub(crate) words: String,
}

impl WorkGrid {
    /// The grid of a plan; `O(L^2)`, meant for some dozens of tokens.
    pub(crate) fn new(plan: &Plan) -> Self {
        let ranks: Vec<_> = plan.query_layout().ranks().collect();
        let steps = step_of(plan);
        let owner_of = |position| plan.query_layout().owner(Position(position));
        let owner: Vec<_> = (0..plan.problem().queries)
            .map(|query| owner_of(query).map_or(0, |(rank, _)| rank.0))
            .collect();
        let row = |query: u64| -> Vec<Option<u32>> {
            let seen = plan.problem().mask.visible(Position(query));
            let key_owner = |key| plan.key_layout().owner(key).map(|(rank, _)| rank.index());
            let step = |key| steps[owner[query as usize] as usize][key_owner(key)?];
            (0..plan.problem().keys)
                .map(Position)
                .map(|key| if seen.contains(key) { step(key) } else { None })
                .collect()
        };
        let grid: Vec<_> = (0..plan.problem().queries).map(row).collect();
        let mut pairs = vec![vec![0; ranks.len()]; ranks.len()];
        for (query, row) in grid.iter().enumerate() {
            for &step in row.iter().flatten() {
                pairs[owner[query] as usize][step as usize] += 1;
            }
        }
        Self::of_pairs(plan.problem().keys, owner, grid, pairs)
    }

    fn of_pairs(
        tokens: u64,
        owner: Vec<u32>,
        steps: Vec<Vec<Option<u32>>>,
        pairs: Vec<Vec<u64>>,
    ) -> Self {
        let totals: Vec<u64> = pairs.iter().map(|of_rank| of_rank.iter().sum()).collect();
        // In lockstep every step lasts as long as its busiest rank.
        let slowest = |step: usize| pairs.iter().map(|of_rank| of_rank[step]).max().unwrap_or(0);
        let lockstep: u64 = (0..pairs.len()).map(slowest).sum();
        let (work, room) = (totals.iter().sum::<u64>(), lockstep * pairs.len() as u64);
        let (least, most) = (totals.iter().min(), totals.iter().max());
        let (least, most) = (least.copied().unwrap_or(0), most.copied().unwrap_or(0));
        let words = if least == most {
            format!("Every rank computes {}.", of(most, "pair"))
        } else {
            format!("The ranks compute {} to {} each.", count(least), of(most, "pair"))
        };
        Self {
            tokens,
            owner,
            steps,
            pairs,
            totals,
            utilization: percent(work as f64, room as f64),
            utilization_value: if room == 0 { 1.0 } else { work as f64 / room as f64 },
            words,
        }
    }
}

/// The step in which each rank attends each block.
fn step_of(plan: &Plan) -> Vec<Vec<Option<u32>>> {
    let prepared = plan.prepare();
    let of_rank = |rank: Rank| {
        let mut steps = vec![None; plan.world_size() as usize];
        for step in prepared.steps(rank) {
            if let Some(Attend { block: BlockId(block), .. }) = step.attend {
                steps[block.index()] = Some(step.index);
            }
        }
        steps
    };
    plan.key_layout().ranks().map(of_rank).collect()
}
