//! The plans by which new tokens attend a cache and themselves, one for each different window.
//!
//! New token `i` behind `P` cached ones sees positions `[max(0, P + i + 1 - W), P + i + 1)`. Three schedules
//! can do it, and the one whose busiest rank receives the fewest bytes over all layers is taken. With `T`
//! new tokens, `Tq = ceil(T / p)` on the busiest rank, `w` bytes a number of the cache, and no window:
//!
//! ```text
//! tree          r T Hq (d + 2) 4                              r = ceil(log2 p) messages
//! ring pass-Q   ((T - Tq) Hq d + (p - 1) Tq Hq (d + 2)) 4
//! ring pass-KV  (T + P - n) 2 Hk d w                          n tokens in the smallest shard
//! ```
//!
//! The plans count them, windows and uneven shards included. For 32-bit K,V and shards alike the last two
//! cross at `T / (T + P) = Hk d / (Hq (d + 1))`, which is the rule of 2411.01783, `1 / g`, for states that carry
//! `m` and `z`; with 16-bit K,V beside f32 queries it is half of that.
//!
//! Bytes are not all: the tree needs every new token on every rank, so beyond [`REPLICATED`] tokens, where
//! dense layers cost more than their weights' reading, it is not taken; up to [`FEW`] tokens pass-Q is not,
//! where every rank would read all weights for a row or two, and messages are so short that their number
//! counts, about `log2 p` of the tree against `2 p`. One new token and generated ones always take the tree:
//! decoding neither gathers the cache nor walks the ring. Which tree it is, to all ranks or to rank 0, is the
//! caller's to say; its busiest rank receives the same.

use super::decoder::Placement;
use crate::config::ModelConfig;
use ringattn_core::{DType, Interval, Mask, Position, QueryIntervals, Window};
use ringattn_plan::{
    Layout, LayoutError, LayoutKind, Plan, PlanError, Prepared, Problem, QueryPlacement, Schedule,
    Segment,
};

/// The most new tokens that are put on every rank.
const REPLICATED: u64 = 64;
/// The most new tokens whose queries do not travel.
const FEW: u64 = 16;

/// New tokens behind a cache.
#[derive(Clone, Debug)]
pub(super) struct Extension {
    plans: Vec<Plan>,
    of_layer: Vec<usize>,
    schedule: Schedule,
}

impl Extension {
    /// `new` lays out the new tokens, counted from 0; `all` the cached and the new ones. `tree` is the
    /// schedule of tokens that are on every rank.
    pub(super) fn new(
        (config, dtype): (&ModelConfig, DType),
        layouts: (&Layout, &Layout),
        (placement, tree): (Placement, Schedule),
    ) -> Result<Self, PlanError> {
        let (new, all) = layouts;
        let mut windows: Vec<Option<u64>> = Vec::new();
        let mut of_layer = Vec::with_capacity(config.sliding_window.len());
        for &window in &config.sliding_window {
            let known = windows.iter().position(|&known| known == window);
            of_layer.push(known.unwrap_or(windows.len()));
            if known.is_none() {
                windows.push(window);
            }
        }
        let (shape, queries, keys) = (config.attention, new.len(), all.len());
        let problem = |&window| {
            let mask = mask(window, keys - queries, queries);
            Problem { shape, queries, keys, mask, kv_dtype: dtype }
        };
        let problems: Vec<_> = windows.iter().map(problem).collect();
        let (schedule, plans) = choose((&problems, &of_layer), layouts, (placement, tree))?;
        Ok(Self { plans, of_layer, schedule })
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

/// The segment of `len` tokens of a prompt behind those of `all`, from the least loaded rank on.
pub(super) fn prompt_segment(
    all: &Layout,
    len: u64,
    (kind, block): (LayoutKind, Option<u64>),
) -> Result<Option<Segment>, LayoutError> {
    let named = Layout::new(kind, block, len, all.world_size())?;
    let positions = Interval::new(Position(all.len()), Position(all.len() + len));
    let first_rank = all.least_loaded();
    let segment = named.segments().first().copied();
    Ok(segment.map(|segment| Segment { positions, first_rank, ..segment }))
}

/// The layout of the last `len` tokens alone, counted from 0. Queries lie with their keys, where they are
/// sharded: a segment of their own, dealt alike.
pub(super) fn newest(all: &Layout, len: u64) -> Result<Layout, LayoutError> {
    let mut new = Layout::empty(all.world_size())?;
    if let Some(&last) = all.segments().last() {
        new.append(Segment { positions: Interval::from_len(len), ..last })?;
    }
    Ok(new)
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

/// Of the schedules that come into question the one whose busiest rank receives the fewest bytes,
/// with its plans, one for each problem; `of_layer` says which problem a layer has.
fn choose(
    (problems, of_layer): (&[Problem], &[usize]),
    layouts: (&Layout, &Layout),
    (placement, tree): (Placement, Schedule),
) -> Result<(Schedule, Vec<Plan>), PlanError> {
    let tokens = layouts.0.len();
    let plans = |schedule| -> Result<Vec<_>, _> {
        problems.iter().map(|problem| plan(problem, layouts, schedule)).collect()
    };
    if tokens == 1 || matches!(placement, Placement::Generated(_)) {
        return Ok((tree, plans(tree)?));
    }
    let mut best = (Schedule::RingPassKv, plans(Schedule::RingPassKv)?);
    let mut fewest = received_bytes(&best.1, of_layer);
    let others = [(Schedule::RingPassQ, tokens > FEW), (tree, tokens <= REPLICATED)];
    for (schedule, _) in others.into_iter().filter(|&(_, sensible)| sensible) {
        let plans = plans(schedule)?;
        let bytes = received_bytes(&plans, of_layer);
        // The tree reads the weights once: of schedules alike it is taken.
        if bytes < fewest || (bytes == fewest && schedule == tree) {
            (best, fewest) = ((schedule, plans), bytes);
        }
    }
    Ok(best)
}

/// Bytes that the busiest rank of each layer receives, over all layers.
fn received_bytes(plans: &[Plan], of_layer: &[usize]) -> u128 {
    let bytes: Vec<_> =
        plans.iter().map(|plan| u128::from(plan.prepare().most_received_bytes())).collect();
    of_layer.iter().map(|&plan| bytes[plan]).sum()
}

fn plan(
    problem: &Problem,
    (new, all): (&Layout, &Layout),
    schedule: Schedule,
) -> Result<Plan, PlanError> {
    match schedule.query_placement() {
        QueryPlacement::Replicated => {
            Plan::with_replicated_queries(problem.clone(), all.clone(), schedule)
        }
        QueryPlacement::Sharded => {
            Plan::with_layouts(problem.clone(), new.clone(), all.clone(), schedule)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringattn_core::AttentionShape;

    const PROMPT: Placement = Placement::Prompt(LayoutKind::Striped, None);

    /// `queries` of `keys` tokens, dealt out one by one, in 32 bits.
    fn layouts((queries, keys): (u64, u64), ranks: u32) -> (Layout, Layout) {
        let layout = |len| Layout::new(LayoutKind::Striped, None, len, ranks).unwrap();
        (layout(queries), layout(keys))
    }

    fn problem(shape: AttentionShape, queries: u64, keys: u64) -> Problem {
        let mask = mask(None, keys - queries, queries);
        Problem { shape, queries, keys, mask, kv_dtype: DType::F32 }
    }

    fn chosen(shape: AttentionShape, (queries, keys): (u64, u64), ranks: u32) -> Schedule {
        let (new, all) = layouts((queries, keys), ranks);
        let problems = [problem(shape, queries, keys)];
        let chosen =
            |tree| choose((&problems, &[0, 0, 0]), (&new, &all), (PROMPT, tree)).unwrap().0;
        let (to_all, to_root) = (chosen(Schedule::Tree), chosen(Schedule::TreeReduce));
        let replaced = if to_root == Schedule::TreeReduce { Schedule::Tree } else { to_root };
        assert_eq!(to_all, replaced, "{queries} of {keys}, {ranks}");
        to_all
    }

    #[test]
    fn fewer_bytes_decide() {
        let shape = AttentionShape::new(9, 3, 64).unwrap();
        // A token of the tree and of pass-Q's states has 594 numbers a message, of queries 576, of keys
        // and values 384.
        for (queries, keys, ranks, expected) in [
            (1, 1, 4, Schedule::Tree),
            (1, 100, 4, Schedule::Tree),
            (2, 5, 4, Schedule::RingPassKv),
            (2, 100, 4, Schedule::Tree),
            (7, 100, 1, Schedule::Tree),
            (7, 28, 2, Schedule::Tree),
            (7, 21, 2, Schedule::Tree),
            (7, 20, 2, Schedule::RingPassKv),
            (16, 100_000, 4, Schedule::Tree),
            (17, 100_000, 4, Schedule::RingPassQ),
            (64, 100_000, 4, Schedule::RingPassQ),
            (64, 100_000, 1, Schedule::Tree),
            (64, 100_000, 1000, Schedule::Tree),
            (65, 100_000, 1000, Schedule::RingPassQ),
            (65, 100_000, 1, Schedule::RingPassKv),
            (65, 150, 2, Schedule::RingPassKv),
            (5_000, 100_000, 8, Schedule::RingPassQ),
            (50_000, 100_000, 8, Schedule::RingPassKv),
        ] {
            let actual = chosen(shape, (queries, keys), ranks);
            assert_eq!(actual, expected, "{queries} of {keys}, {ranks}");
        }
    }

    #[test]
    fn bytes_follow_the_formulas() {
        let shape = AttentionShape::new(6, 2, 8).unwrap();
        for ranks in 1..=9 {
            for (queries, keys) in [(2, 100), (23, 100), (100, 1001), (7, 7)] {
                let (new, all) = layouts((queries, keys), ranks);
                let bytes = |schedule| {
                    let problem = problem(shape, queries, keys);
                    received_bytes(&[plan(&problem, (&new, &all), schedule).unwrap()], &[0])
                };
                let (p, own) = (u64::from(ranks), queries.div_ceil(u64::from(ranks)));
                let messages = u64::from(ranks.ilog2() + u32::from(!ranks.is_power_of_two()));
                let tree = u128::from(messages * queries * 6 * 10 * 4);
                assert_eq!(bytes(Schedule::Tree), tree);
                assert_eq!(bytes(Schedule::TreeReduce), tree);
                // Where some cached tokens are on every rank, all of them are seen.
                if keys > 10 {
                    let pass_q = ((queries - own) * 6 * 8 + (p - 1) * own * 6 * 10) * 4;
                    assert_eq!(bytes(Schedule::RingPassQ), u128::from(pass_q));
                    let pass_kv = (keys - keys / p) * 2 * 2 * 8 * 4;
                    // A rank without queries receives nothing for itself, but all on the way of others.
                    assert!(bytes(Schedule::RingPassKv) <= u128::from(pass_kv));
                    if queries >= p {
                        assert_eq!(bytes(Schedule::RingPassKv), u128::from(pass_kv));
                    }
                }
            }
        }
    }

    /// 2411.01783: pass-Q moves fewer bytes where `T / (T + P) < 1 / g`. States of `d + 2` numbers instead of
    /// `d` move that by `d / (d + 1)`, and uneven shards by a token or two.
    #[test]
    fn the_choice_refines_the_published_rule() {
        for (query_heads, key_heads, head_dim) in
            [(8, 8, 64), (32, 8, 128), (9, 3, 64), (14, 2, 64)]
        {
            let shape = AttentionShape::new(query_heads, key_heads, head_dim).unwrap();
            let keys = 20_000;
            let rule = keys as f64 * key_heads as f64 / query_heads as f64;
            let exact = rule * head_dim as f64 / (head_dim as f64 + 1.0);
            for ranks in [2, 4, 8] {
                for part in [0.1, 0.5, 0.99, 1.01, 1.5] {
                    let queries = (exact * part) as u64;
                    if queries >= keys {
                        continue;
                    }
                    let expected =
                        if part < 1.0 { Schedule::RingPassQ } else { Schedule::RingPassKv };
                    let actual = chosen(shape, (queries, keys), ranks);
                    assert_eq!(actual, expected, "{queries} of {keys}, {ranks} ranks, {shape:?}");
                }
                assert!((exact / rule - 1.0).abs() < 0.02);
            }
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
