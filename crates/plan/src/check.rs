//! Proofs about a plan, by walking it.
//!
//! Proved: the layouts own every position once; every visible (query, key) pair is attended exactly
//! once; a rank attends and sends only what it holds, and merges only states of its own queries; every
//! receive has its send, in order; the ranks never wait in a cycle, even over channels that hold one
//! message. The walk also counts the peaks of what is held and the bytes moved. It takes `O(p^2 L / p)`
//! time: meant for tests and `p <= 1024`.

mod holding;
mod network;

use crate::layout::Layout;
use crate::plan::{AnswerPlacement, Plan, QueryPlacement};
use crate::step::{BlockId, Cargo, Operand, QueriesId, Step};
pub use holding::RankProof;
use network::{Holding, Network};
use ringattn_core::{Position, Rank};
use std::collections::BTreeMap;
use thiserror::Error;

/// The longest sequence that is walked.
const MAX_TOKENS: u64 = 1 << 28;
/// The most ranks that are walked.
const MAX_RANKS: u32 = 1024;

/// What [`check`] found, per rank in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// (query, key) pairs attended by all ranks, per query head.
    pub pairs: u128,
    /// The counts of each rank.
    pub ranks: Vec<RankProof>,
}

/// Why a plan is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CheckError {
    /// More than a walk can prove in sensible time and memory.
    #[error("a plan of {tokens} tokens over {ranks} ranks is too large to be walked")]
    TooLarge {
        /// Query or key tokens, the more.
        tokens: u64,
        /// Ranks.
        ranks: u32,
    },
    /// A position with no owner, or several.
    #[error("the {layout} layout gives position {position} to {owners} ranks")]
    Ownership {
        /// `query` or `key`.
        layout: &'static str,
        /// The position.
        position: Position,
        /// How many ranks claim it.
        owners: u64,
    },
    /// A slot and its position that do not lead to each other.
    #[error("the {layout} layout does not lead back from position {position} to rank {rank}")]
    RoundTrip {
        /// `query` or `key`.
        layout: &'static str,
        /// The rank.
        rank: Rank,
        /// The position of one of its slots.
        position: Position,
    },
    /// A block that the state of a rank holds another number of times than it must in the end.
    #[error("the state of rank {rank} holds block {block} {actual} times, expected {expected}")]
    Attended {
        /// The rank.
        rank: Rank,
        /// The block.
        block: BlockId,
        /// 1 when the rank sees something in it and has the answer, else 0.
        expected: u64,
        /// Times it was attended and merged.
        actual: u64,
    },
    /// A rank that has the same answers as rank 0, but sums what the queries see in another order.
    #[error("rank {rank} forms its sums in another order than rank 0")]
    Order {
        /// The rank.
        rank: Rank,
    },
    /// Pairs attended in all differ from the pairs that the mask shows.
    #[error("{actual} pairs are attended, the mask shows {expected}")]
    Pairs {
        /// By the mask alone.
        expected: u128,
        /// By the steps.
        actual: u128,
    },
    /// A rank uses an operand that it does not hold.
    #[error("rank {rank} uses {operand} in step {step} without holding it")]
    NotHeld {
        /// The rank.
        rank: Rank,
        /// The step.
        step: u32,
        /// The operand.
        operand: Operand,
    },
    /// A rank is to merge a state of queries that are not its own.
    #[error("rank {rank} merges a state of the queries of rank {queries} in step {step}")]
    Foreign {
        /// The rank.
        rank: Rank,
        /// The step.
        step: u32,
        /// Whose queries they are.
        queries: QueriesId,
    },
    /// Something else arrives than is expected.
    #[error("rank {rank} expects {expected} in step {step}, {actual} arrives")]
    WrongPayload {
        /// The receiver.
        rank: Rank,
        /// Its step.
        step: u32,
        /// What it expects.
        expected: Cargo,
        /// What arrives.
        actual: Cargo,
    },
    /// Ranks that wait for each other, or for a send that never comes.
    #[error("rank {rank} waits for ever in step {step}")]
    Deadlock {
        /// The first rank that waits.
        rank: Rank,
        /// Its step.
        step: u32,
    },
    /// Something sent and never received.
    #[error("{cargo} from rank {from} to rank {to} is never received")]
    Unreceived {
        /// The sender.
        from: Rank,
        /// The addressee.
        to: Rank,
        /// What was sent.
        cargo: Cargo,
    },
}

/// Proves the plan's own steps.
///
/// # Errors
/// The first property that does not hold.
pub fn check(plan: &Plan) -> Result<Proof, CheckError> {
    let (tokens, ranks) = (plan.problem().keys.max(plan.problem().queries), plan.world_size());
    if tokens > MAX_TOKENS || ranks > MAX_RANKS {
        return Err(CheckError::TooLarge { tokens, ranks });
    }
    let prepared = plan.prepare();
    let steps: Vec<Vec<Step>> =
        plan.key_layout().ranks().map(|rank| prepared.steps(rank).collect()).collect();
    check_steps(plan, &steps)
}

/// Proves given steps, entry `u` those of rank `u`, against the plan's problem and layouts.
///
/// # Errors
/// The first property that does not hold.
pub fn check_steps(plan: &Plan, steps: &[Vec<Step>]) -> Result<Proof, CheckError> {
    check_layout("query", plan.query_layout())?;
    check_layout("key", plan.key_layout())?;
    let mut states = Network::new(steps).run()?;
    let own = |(rank, states): (Rank, &mut BTreeMap<_, _>)| {
        states.remove(&plan.own_queries(rank)).unwrap_or_default()
    };
    let states: Vec<_> = plan.key_layout().ranks().zip(&mut states).map(own).collect();
    let pairs = check_coverage(plan, &states)?;
    let ranks = plan
        .key_layout()
        .ranks()
        .zip(steps)
        .map(|(rank, steps)| holding::check(plan, rank, steps))
        .collect::<Result<_, _>>()?;
    Ok(Proof { pairs, ranks })
}

fn check_layout(name: &'static str, layout: &Layout) -> Result<(), CheckError> {
    let mut owners = vec![0_u64; usize::try_from(layout.len()).unwrap_or(usize::MAX)];
    for rank in layout.ranks() {
        let mut before = None;
        for (slot, position) in layout.positions(rank).enumerate() {
            let back = layout.owner(position).map(|(owner, slot)| (owner, slot.0));
            let forth = layout.position(rank, ringattn_core::Slot(slot as u64));
            if back != Some((rank, slot as u64))
                || forth != Some(position)
                || before >= Some(position)
            {
                return Err(CheckError::RoundTrip { layout: name, rank, position });
            }
            before = Some(position);
            if let Some(count) = owners.get_mut(position.0 as usize) {
                *count += 1;
            }
        }
    }
    match owners.iter().zip(0..).find(|&(&owners, _)| owners != 1) {
        None => Ok(()),
        Some((&owners, position)) => {
            Err(CheckError::Ownership { layout: name, position: Position(position), owners })
        }
    }
}

/// The state of every rank that is to have the answer must hold what its queries see, wherever it was
/// attended, and the states of the others nothing. Of queries that are on every rank, pairs count where they
/// were attended if every rank has the answer.
fn check_coverage(plan: &Plan, states: &[Holding]) -> Result<u128, CheckError> {
    let schedule = plan.schedule();
    let repeated = schedule.query_placement() == QueryPlacement::Replicated
        && schedule.answer_placement() == AnswerPlacement::WithQueries;
    let mut pairs = 0;
    for (rank, state) in plan.key_layout().ranks().zip(states) {
        let mut held = BTreeMap::new();
        for &(attending, block) in &state.folded {
            *held.entry(block).or_insert(0) += 1;
            if attending == rank || !repeated {
                pairs += u128::from(plan.pairs(rank, block));
            }
        }
        for block in plan.key_layout().ranks().map(BlockId) {
            let expected = u64::from(plan.answers(rank) && plan.sees(rank, block));
            let actual = held.get(&block).copied().unwrap_or(0);
            if actual != expected {
                return Err(CheckError::Attended { rank, block, expected, actual });
            }
        }
        if repeated && states.first().is_some_and(|first| first.order != state.order) {
            return Err(CheckError::Order { rank });
        }
    }
    let expected = plan.problem().pairs();
    if pairs != expected {
        return Err(CheckError::Pairs { expected, actual: pairs });
    }
    Ok(pairs)
}
