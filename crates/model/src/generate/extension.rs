//! The plans by which new tokens attend a cache and themselves, one for each different window.
//!
//! New token `i` behind `P` cached ones sees positions `[max(0, P + i + 1 - W), P + i + 1)`. Two
//! schedules can do it, and the one whose busiest rank receives fewer bytes is taken: the tree sends
//! the states of all new tokens, `T Hq (d + 2)` f32 a message, ring pass-KV `(p - 1) / p` of the keys
//! and values of `P + T` tokens. (For 16-bit K,V and one round that is the rule of 2411.01783 for pass-Q
//! against pass-KV, `T / (T + P)` against `1 / g`.) The tree needs every new token on every rank, so
//! beyond [`REPLICATED`] tokens, where dense layers cost more than their weights' reading, it is not
//! taken. One new token and generated ones always take the tree: decoding neither gathers the cache nor
//! walks the ring.

use super::decoder::Placement;
use crate::config::ModelConfig;
use ringattn_core::{DType, Interval, Mask, Position, QueryIntervals, Window};
use ringattn_plan::{Layout, Plan, PlanError, Prepared, Problem, Schedule};

/// The most new tokens that are put on every rank.
const REPLICATED: u64 = 64;

/// New tokens behind a cache.
#[derive(Clone, Debug)]
pub(super) struct Extension {
    plans: Vec<Plan>,
    of_layer: Vec<usize>,
    schedule: Schedule,
}

impl Extension {
    /// `new` lays out the new tokens, counted from 0; `all` the cached and the new ones.
    pub(super) fn new(
        (config, dtype): (&ModelConfig, DType),
        (new, all): (&Layout, &Layout),
        placement: Placement,
    ) -> Result<Self, PlanError> {
        let mut extension =
            Self { plans: Vec::new(), of_layer: Vec::new(), schedule: Schedule::Tree };
        let always_tree = new.len() == 1 || matches!(placement, Placement::Generated(_));
        let mut windows: Vec<Option<u64>> = Vec::new();
        for &window in &config.sliding_window {
            let known = windows.iter().position(|&w| w == window);
            extension.of_layer.push(known.unwrap_or(windows.len()));
            if known.is_some() {
                continue;
            }
            windows.push(window);
            let (shape, queries, keys) = (config.attention, new.len(), all.len());
            let mask = mask(window, keys - queries, queries);
            let problem = Problem { shape, queries, keys, mask, kv_dtype: dtype };
            if extension.plans.is_empty() && !always_tree {
                extension.schedule = schedule(&problem, all.world_size());
            }
            extension.plans.push(match extension.schedule {
                Schedule::Tree => {
                    Plan::with_replicated_queries(problem, all.clone(), Schedule::Tree)?
                }
                other => Plan::with_layouts(problem, new.clone(), all.clone(), other)?,
            });
        }
        Ok(extension)
    }

    /// By which schedule.
    pub(super) fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// The different plans, ready to be walked.
    pub(super) fn prepare(&self) -> Vec<Prepared<'_>> {
        self.plans.iter().map(Plan::prepare).collect()
    }

    /// The plan of a layer, by index into those of [`Extension::prepare`].
    pub(super) fn of_layer(&self, layer: usize) -> usize {
        self.of_layer[layer]
    }
}

/// What `queries` new tokens behind `cached` ones see.
fn mask(window: Option<u64>, cached: u64, queries: u64) -> Mask {
    if cached == 0 {
        return match window {
            None => Mask::Causal,
            Some(window) => {
                let left = i64::try_from(window).unwrap_or(i64::MAX) - 1;
                Mask::Causal.and(Mask::Window(Window { left, right: 0 }))
            }
        };
    }
    let sees = |query: u64| {
        let end = cached + query + 1;
        let start = window.map_or(0, |window| end.saturating_sub(window));
        Interval::new(Position(start), Position(end))
    };
    Mask::Intervals(QueryIntervals::new((0..queries).map(sees).collect::<Vec<_>>()))
}

/// The schedule whose busiest rank receives fewer bytes.
fn schedule(problem: &Problem, ranks: u32) -> Schedule {
    let (p, shape) = (u128::from(ranks), problem.shape);
    // The ranks of the butterfly receive one state a round, some of them one more from beyond it.
    let messages = u128::from(ranks.ilog2() + u32::from(!ranks.is_power_of_two()));
    let state = (shape.query_heads() * (shape.head_dim() + 2) * 4) as u128;
    let tree = messages * u128::from(problem.queries) * state;
    let ring = u128::from(problem.kv_bytes()) * (p - 1) / p;
    let replicable = problem.queries <= REPLICATED;
    if replicable && tree <= ring { Schedule::Tree } else { Schedule::RingPassKv }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringattn_core::AttentionShape;

    #[test]
    fn fewer_bytes_decide() {
        let shape = AttentionShape::new(9, 3, 64).unwrap();
        let chosen = |queries, keys, ranks| {
            let mask = mask(None, keys - queries, queries);
            schedule(&Problem { shape, queries, keys, mask, kv_dtype: DType::F32 }, ranks)
        };
        // 594 elements a token and message against 384 a token and (p - 1) / p.
        for (queries, keys, ranks, expected) in [
            (1, 1, 4, Schedule::RingPassKv),
            (1, 9, 4, Schedule::Tree),
            (1, 100, 4, Schedule::Tree),
            (1, 100, 1, Schedule::Tree),
            (7, 28, 2, Schedule::Tree),
            (7, 21, 2, Schedule::RingPassKv),
            (65, 100_000, 2, Schedule::RingPassKv),
            (64, 100_000, 1000, Schedule::Tree),
        ] {
            assert_eq!(chosen(queries, keys, ranks), expected, "{queries} of {keys}, {ranks}");
        }
    }

    #[test]
    fn new_tokens_see_what_scoring_would_show_them() {
        for window in [None, Some(1), Some(5)] {
            let whole = mask(window, 0, 20);
            let part = mask(window, 13, 7);
            for query in 0..7 {
                let expected =
                    whole.visible(Position(13 + query)).intersect(Interval::from_len(20));
                assert_eq!(part.visible(Position(query)), expected, "{window:?}");
            }
        }
    }
}
