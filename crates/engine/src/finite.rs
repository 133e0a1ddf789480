//! NaN and infinity in what queries see are errors that name tensor, rank and token.
//!
//! In a key or value that no query sees they are neither an error nor a leak: kernels skip them.

use crate::backend::{Backend, Tensor};
use crate::error::EngineError;
use crate::run::{Job, RankPlan};
use ringattn_core::{DType, Interval, Position, Slot};

/// What to do about a NaN or an infinity that a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonFinite {
    /// End with an error.
    Refuse,
    /// Let it reach the rows that see it, and no others.
    Allow,
    /// Queries, keys and values are known to be finite, as whoever keeps them has seen to it: only
    /// results are looked at. Spares a cache from being read once more in every step.
    CheckedInputs,
}

/// Refuses inputs of this rank that would poison a row.
pub(crate) fn check_inputs<B: Backend>(
    backend: &B,
    job: &Job<'_, B>,
) -> Result<(), EngineError<B::Error>> {
    let rank_plan = job.plan;
    let (plan, rank) = (rank_plan.plan(), rank_plan.rank());
    for tensor in [Tensor::Query, Tensor::Key, Tensor::Value] {
        let rows = backend.non_finite_inputs(tensor, job.queries, &job.block);
        if rows.is_empty() {
            continue;
        }
        let kv_dtype = plan.problem().kv_dtype;
        let key = |slot| plan.key_layout().position(rank, slot);
        let (position, dtype) = match tensor {
            Tensor::Query => {
                let slot = seeing(rank_plan, &rows);
                (slot.and_then(|slot| plan.query_position(rank, slot)), DType::F32)
            }
            Tensor::Key | Tensor::Value => (seen(rank_plan, &rows).and_then(key), kv_dtype),
        };
        if let Some(position) = position {
            return Err(EngineError::NonFiniteInput { tensor, rank, dtype, position });
        }
    }
    Ok(())
}

/// Refuses results that finite inputs drove out of f32. A rank that is not to have the answers has none:
/// what it gave away is looked at where it went.
pub(crate) fn check_results<B: Backend>(
    backend: &B,
    rank_plan: &RankPlan<'_>,
    output: &B::Output<'_>,
) -> Result<(), EngineError<B::Error>> {
    let rank = rank_plan.rank();
    if !rank_plan.plan().answers(rank) {
        return Ok(());
    }
    let row = seeing(rank_plan, &backend.non_finite_results(output));
    match row.and_then(|slot| rank_plan.plan().query_position(rank, slot)) {
        Some(position) => Err(EngineError::Overflow { rank, position }),
        None => Ok(()),
    }
}

/// The first of these query rows that sees any key.
fn seeing(rank_plan: &RankPlan<'_>, rows: &[Slot]) -> Option<Slot> {
    let plan = rank_plan.plan();
    let keys = Interval::from_len(plan.problem().keys);
    rows.iter().copied().find(|&slot| {
        let position = plan.query_position(rank_plan.rank(), slot);
        position.is_some_and(|q| !plan.problem().mask.visible(q).intersect(keys).is_empty())
    })
}

/// The first of these key rows that any query of any rank sees.
fn seen(rank_plan: &RankPlan<'_>, rows: &[Slot]) -> Option<Slot> {
    let plan = rank_plan.plan();
    let mut first = None;
    for query in Interval::<Position>::from_len(plan.problem().queries).iter() {
        let visible = plan.problem().mask.visible(query);
        let slots = plan.key_layout().slots(rank_plan.rank(), visible);
        let next = rows.partition_point(|&row| row < slots.start());
        let candidate = rows.get(next).copied().filter(|&row| slots.contains(row));
        first = match (first, candidate) {
            (Some(a), Some(b)) => Some(std::cmp::min(a, b)),
            (a, b) => a.or(b),
        };
    }
    first
}
