//! The life of one rank, how it ended, and what follows for the run. Knows no thread and no message.

use super::LocalCommunicator;
use super::world::{Cause, World};
use crate::{CommError, RunError};
use ringattn_core::Rank;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// How one rank ended.
pub(super) enum Outcome<T, E> {
    Done(T),
    Failed(E),
    Panicked,
}

/// The life of one rank's thread.
pub(super) fn run_rank<T, E, F>(world: &Arc<World>, rank: Rank, rank_main: &F) -> Outcome<T, E>
where
    E: fmt::Display,
    F: Fn(LocalCommunicator) -> Result<T, E>,
{
    let body = || {
        let result = rank_main(LocalCommunicator::new(Arc::clone(world), rank));
        result.map_err(|error| (error.to_string(), error))
    };
    // Unwind safe: after a panic the run is ended and gives out no value of any rank; what the
    // ranks share lies behind locks whose contents are valid after every statement.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => {
            world.leave(rank);
            Outcome::Done(value)
        }
        Ok(Err((reason, error))) => {
            world.abort(Cause::Returned { culprit: rank, reason });
            Outcome::Failed(error)
        }
        Err(payload) => {
            world.abort(Cause::Panicked { culprit: rank, message: panic_message(&*payload) });
            Outcome::Panicked
        }
    }
}

/// What was given to `panic!`.
fn panic_message(payload: &(dyn Any + Send)) -> String {
    if let Some(message) = payload.downcast_ref::<&str>() {
        (*message).to_owned()
    } else if let Some(message) = payload.downcast_ref::<String>() {
        message.clone()
    } else {
        "a value that is no text".to_owned()
    }
}

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
