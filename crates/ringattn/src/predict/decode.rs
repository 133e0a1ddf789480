//! One decoding step: a new token behind the request's tokens, by every schedule that can do it.
//!
//! The trees have the query on every rank and move states, to rank 0 (what `generate` runs between threads) or
//! to all (what it runs between processes); ring and gather have it on the rank that holds its key and move
//! the cache there. Counts come from the plans' own steps, times from simulating one
//! layer of each mask, as many times as there are layers: the next layer's query needs this one's answer.
//! Knows nothing of dense layers.

use super::{LayerMask, PlanRequest, PredictError};
use crate::error::Error;
use ringattn_core::{Interval, Mask, Position, QueryIntervals};
use ringattn_plan::{
    BlockOrder, Expectation, Layout, LayoutKind, Plan, Prepared, Problem, QueryPlacement, Schedule,
    Segment, add_layers, expect, finish,
};
use serde::Serialize;

/// What is compared.
const SCHEDULES: [Schedule; 4] =
    [Schedule::TreeReduce, Schedule::Tree, Schedule::RingPassKv, Schedule::Gather];

/// Tokens of a block of generated ones, as `generate` deals them out unless told otherwise.
const GENERATED_BLOCK: u64 = 16;

/// What a new token costs by one schedule, attention alone, all layers.
#[derive(Clone, Debug, Serialize)]
pub struct DecodePlanReport {
    /// The schedule's name.
    pub schedule: String,
    /// Steps of a layer in which anything is sent, the most of any layer.
    pub rounds_per_layer: u32,
    /// Most messages that a rank receives.
    pub hops: u64,
    /// Most bytes that a rank receives.
    pub received_bytes: u64,
    /// Bytes that all ranks receive together.
    pub moved_bytes: u128,
    /// Seconds until the last rank ends, simulated.
    pub simulated_s: f64,
}

/// A step of each schedule behind a cache in this layout.
pub(super) fn decoding(
    request: &PlanRequest,
    (kind, block): (LayoutKind, Option<u64>),
) -> Result<Vec<DecodePlanReport>, Error> {
    let keys = grown(request, kind, block)?;
    SCHEDULES.into_iter().map(|schedule| step(request, &keys, schedule)).collect()
}

/// The request's tokens, and one generated token behind them.
fn grown(request: &PlanRequest, kind: LayoutKind, block: Option<u64>) -> Result<Layout, Error> {
    let mut layout = Layout::new(kind, block, request.tokens, request.ranks)?;
    let end = Position(request.tokens);
    let (positions, first_rank) = (Interval::new(end, end), layout.least_loaded());
    let order = BlockOrder::Cyclic;
    layout.append_open(Segment { positions, block: GENERATED_BLOCK, order, first_rank })?;
    layout.grow(1)?;
    Ok(layout)
}

fn plan(
    request: &PlanRequest,
    (keys, mask): (&Layout, &Mask),
    schedule: Schedule,
) -> Result<Plan, Error> {
    let position = Position(request.tokens);
    let seen = mask.visible(position).intersect(Interval::from_len(keys.len()));
    let problem = Problem {
        shape: request.shape,
        queries: 1,
        keys: keys.len(),
        mask: Mask::Intervals(QueryIntervals::new([seen])),
        kv_dtype: request.kv_dtype,
    };
    Ok(match schedule.query_placement() {
        QueryPlacement::Replicated => {
            Plan::with_replicated_queries(problem, keys.clone(), schedule)?
        }
        QueryPlacement::Sharded => {
            let (first_rank, _) = keys.owner(position).unwrap_or_default();
            let (positions, order) = (Interval::from_len(1), BlockOrder::Cyclic);
            let mut query = Layout::empty(request.ranks)?;
            query.append(Segment { positions, block: 1, order, first_rank })?;
            Plan::with_layouts(problem, query, keys.clone(), schedule)?
        }
    })
}

/// All layers by one schedule.
fn step(
    request: &PlanRequest,
    keys: &Layout,
    schedule: Schedule,
) -> Result<DecodePlanReport, Error> {
    let mut ranks = vec![Expectation::default(); request.ranks as usize];
    let (mut rounds_per_layer, mut simulated_s) = (0, 0.0);
    for LayerMask { mask, layers } in &request.masks {
        let plan = plan(request, (keys, mask), schedule)?;
        let end = finish(&plan, &request.conditions()).map_err(PredictError::from)?;
        simulated_s += end.seconds() * *layers as f64;
        let prepared = plan.prepare();
        rounds_per_layer = rounds_per_layer.max(rounds(&prepared));
        for (sum, rank) in ranks.iter_mut().zip(keys.ranks()) {
            let counts = expect(&prepared, rank);
            add_layers(&mut sum.received_bytes, counts.received_bytes, *layers)
                .and_then(|()| add_layers(&mut sum.hops, counts.hops, *layers))
                .map_err(PredictError::from)?;
        }
    }
    let most = |count: fn(&Expectation) -> u64| ranks.iter().map(count).max().unwrap_or(0);
    Ok(DecodePlanReport {
        schedule: schedule.to_string(),
        rounds_per_layer,
        hops: most(|rank| rank.hops),
        received_bytes: most(|rank| rank.received_bytes),
        moved_bytes: ranks.iter().map(|rank| u128::from(rank.received_bytes)).sum(),
        simulated_s,
    })
}

/// Steps in which any rank sends.
fn rounds(prepared: &Prepared<'_>) -> u32 {
    let mut sends = vec![false; prepared.step_count() as usize];
    for rank in prepared.plan().key_layout().ranks() {
        for step in prepared.steps(rank).filter(|step| !step.send.is_empty()) {
            sends[step.index as usize] = true;
        }
    }
    sends.into_iter().map(u32::from).sum()
}
