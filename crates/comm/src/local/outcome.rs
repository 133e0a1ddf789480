//! What follows for a local run from how its ranks ended. Knows no thread and no message.

use crate::world::{Cause, Outcome};
use crate::{CommError, RunError};
use ringattn_core::Rank;

/// The results of all `size` ranks, of which fewer may have been started, or the first failure.
pub(super) fn conclude<T, E>(
    cause: Option<Cause>,
    outcomes: Vec<Outcome<T, E>>,
    size: u32,
) -> Result<Vec<T>, RunError<E>> {
    let mut values = Vec::with_capacity(outcomes.len());
    let mut errors = Vec::new();
    for (rank, outcome) in (0..).map(Rank).zip(outcomes) {
        match outcome {
            Outcome::Done(value) => values.push(value),
            Outcome::Failed(error) => errors.push((rank, error)),
            Outcome::Panicked => {}
        }
    }
    let (culprit, reason) = match cause {
        None => return Ok(values),
        // A stop that came after the last rank had its result took nothing away.
        Some(Cause::World(CommError::Stopped { .. })) if values.len() == size as usize => {
            return Ok(values);
        }
        Some(Cause::World(error)) => return Err(RunError::World(error)),
        Some(Cause::Panicked { culprit, message }) => {
            return Err(RunError::Panicked { culprit, message });
        }
        Some(Cause::Called { culprit, reason } | Cause::Returned { culprit, reason }) => {
            (culprit, reason)
        }
        Some(Cause::NotStarted { culprit }) => (culprit, "could not be started".to_owned()),
    };
    match errors.into_iter().find(|(rank, _)| *rank == culprit) {
        Some((culprit, error)) => Err(RunError::Rank { culprit, error }),
        None => Err(RunError::World(CommError::Aborted { culprit, reason })),
    }
}
