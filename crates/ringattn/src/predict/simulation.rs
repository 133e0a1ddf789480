//! Simulations of one layer, and the two charts made of them.

use super::report::{ChartsReport, SimulationReport, SpikePoint, ThroughputPoint, WaitReport};
use super::{PlanRequest, PredictError, Priced};
use crate::error::Error;
use ringattn_plan::{
    LayoutKind, Plan, RankTotals, SimulationError, SpikeResponse, Summary, finish, price,
    simulate_into, spike_response,
};

/// The smallest shard of the throughput chart, in tokens.
const LEAST_TOKENS: u64 = 64;

/// The lateness of the spike chart, in computing times of an average step.
const SPIKES: [f64; 7] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];

/// The first layer of every layout.
pub(super) fn simulations(
    request: &PlanRequest,
    priced: &[Priced],
) -> Result<Vec<SimulationReport>, Error> {
    let each = first_layers(priced).map(|(kind, plan)| {
        let mut summary = Summary::new(plan.world_size());
        simulate_into(plan, &request.conditions(), &mut |span| summary.add(&span))?;
        Ok(SimulationReport::new(kind, &summary))
    });
    Ok(each.collect::<Result<_, SimulationError>>().map_err(PredictError::from)?)
}

/// Both charts of every layout.
pub(super) fn charts(request: &PlanRequest, priced: &[Priced]) -> Result<ChartsReport, Error> {
    let mut throughput = Vec::new();
    for &(kind, block) in &request.layouts {
        throughput.extend(throughput_of(request, kind, block)?);
    }
    let mut latency_spike = Vec::new();
    for one in priced {
        latency_spike.extend(spikes_of(request, one).map_err(PredictError::from)?);
    }
    Ok(ChartsReport { throughput, latency_spike })
}

fn first_layers(priced: &[Priced]) -> impl Iterator<Item = (LayoutKind, &Plan)> {
    priced.iter().filter_map(|one| Some((one.kind, one.plans.first()?)))
}

/// Shards of 64 tokens, twice as many, and so on to those of the request.
fn throughput_of(
    request: &PlanRequest,
    kind: LayoutKind,
    block: Option<u64>,
) -> Result<Vec<ThroughputPoint>, Error> {
    let Some(group) = request.masks.first() else { return Ok(Vec::new()) };
    let ranks = u64::from(request.ranks);
    let largest = request.tokens / ranks;
    let doubled = std::iter::successors(Some(LEAST_TOKENS), |tokens| tokens.checked_mul(2));
    let sizes = doubled.take_while(|&tokens| tokens < largest).chain([largest]);
    let mut points = Vec::new();
    for block_tokens in sizes.filter(|&tokens| tokens > 0) {
        // Whole shards, so that sizes compare; at most the tokens of the request.
        let tokens = block_tokens * ranks;
        let plan = PlanRequest { tokens, ..request.clone() }.plan(kind, block, &group.mask)?;
        let cost = price(&plan).map_err(PredictError::from)?;
        let end = finish(&plan, &request.conditions()).map_err(PredictError::from)?;
        let flops_per_rank = cost.flops(cost.pairs()) / ranks as f64 / end.seconds();
        let share_of_peak = flops_per_rank / request.machine.machine.flops;
        let (layout, seconds) = (kind.to_string(), end.seconds());
        points.push(ThroughputPoint {
            layout,
            block_tokens,
            tokens,
            seconds,
            flops_per_rank,
            share_of_peak,
        });
    }
    Ok(points)
}

/// Late messages in the first layer.
fn spikes_of(request: &PlanRequest, priced: &Priced) -> Result<Vec<SpikePoint>, SimulationError> {
    let (Some(plan), Some((_, cost))) = (priced.plans.first(), priced.groups.first()) else {
        return Ok(Vec::new());
    };
    let conditions = request.conditions();
    let steps = f64::from(request.ranks) * f64::from(request.ranks);
    let step = cost.flops(cost.pairs()) / steps / conditions.machine.flops;
    let responses = spike_response(plan, &conditions, &SPIKES.map(|times| times * step))?;
    let point = |response: &SpikeResponse| SpikePoint {
        layout: priced.kind.to_string(),
        spike_s: response.spike,
        added_s: response.added,
    };
    Ok(responses.iter().map(point).collect())
}

impl SimulationReport {
    fn new(kind: LayoutKind, summary: &Summary) -> Self {
        let each = |of: fn(&RankTotals) -> f64| summary.totals.iter().map(of).collect();
        let waits = summary.waits().into_iter().map(|edge| WaitReport {
            rank: edge.rank.0,
            peer: edge.peer.0,
            cause: edge.cause.to_string(),
            seconds: edge.total.seconds(),
        });
        Self {
            layout: kind.to_string(),
            end_s: summary.end.seconds(),
            compute_s: each(|total| total.attend.seconds()),
            transfer_wait_s: each(|total| total.transfer_wait.seconds()),
            peer_wait_s: each(|total| total.peer_wait.seconds()),
            waits: waits.collect(),
        }
    }
}
