//! The life of one rank and how it ended. Knows no thread and no message.

use super::{Cause, World};
use ringattn_core::Rank;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How one rank ended.
pub(crate) enum Outcome<T, E> {
    Done(T),
    Failed(E),
    Panicked,
}

/// The life of one rank, which is `rank_main`.
pub(crate) fn run_rank<T, E: fmt::Display>(
    world: &World,
    rank: Rank,
    rank_main: impl FnOnce() -> Result<T, E>,
) -> Outcome<T, E> {
    let body = || {
        let result = rank_main();
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
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    if let Some(message) = payload.downcast_ref::<&str>() {
        (*message).to_owned()
    } else if let Some(message) = payload.downcast_ref::<String>() {
        message.clone()
    } else {
        "a value that is no text".to_owned()
    }
}
