//! The same counts by walking the plan's steps, where no closed form exists.

use super::{Cost, CostError, MAX_ENUMERATED_RANKS, MAX_ENUMERATED_ROWS, RankCost, StepCost};
use crate::expect::expect;
use crate::plan::Plan;

/// Walks all steps of all ranks.
///
/// # Errors
/// When that is too much.
pub(super) fn price(plan: &Plan) -> Result<Cost, CostError> {
    let (tokens, ranks) = (plan.problem().keys, plan.world_size());
    let rows = tokens.saturating_mul(u64::from(ranks));
    if ranks > MAX_ENUMERATED_RANKS || rows > MAX_ENUMERATED_ROWS {
        let (mask, layout) = (plan.problem().mask.to_string(), plan.key_layout().to_string());
        return Err(CostError::NoClosedForm { mask, layout, tokens, ranks });
    }
    let prepared = plan.prepare();
    let mut steps = vec![StepCost::default(); prepared.step_count() as usize];
    let mut rank_costs = Vec::with_capacity(ranks as usize);
    for rank in plan.key_layout().ranks() {
        let counts = expect(&prepared, rank);
        rank_costs.push(RankCost {
            queries: plan.query_count(rank),
            pairs: u128::from(counts.pairs),
            resident_kv_bytes: counts.resident_kv_bytes,
            peak_kv_bytes: counts.peak_kv_bytes,
            sent_bytes: counts.sent_bytes,
            received_bytes: counts.received_bytes,
            hops: counts.hops,
        });
        for step in prepared.steps(rank) {
            let most = &mut steps[step.index as usize];
            let pairs = step.attend.map_or(0, |attend| plan.pairs(attend.queries.0, attend.block));
            // What a rank sends in one step shares its bandwidth.
            let bytes = step.send.iter().map(|transfer| plan.cargo_bytes(transfer.cargo)).sum();
            most.pairs = most.pairs.max(u128::from(pairs));
            most.hop_bytes = most.hop_bytes.max(bytes);
        }
    }
    Ok(Cost { shape: plan.problem().shape, ranks: rank_costs, steps })
}
