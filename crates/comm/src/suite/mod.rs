//! Test support: what every communicator must do, as checks that its tests run on each rank.
//!
//! Every rank of a world of any size calls [`all`], or the checks of [`checks`] one by one and in
//! the same order. Knows no implementation; failures of ranks, which end the world, are tested by
//! each implementation for itself.

mod block;
mod collective;
mod order;
mod point_to_point;

pub use block::Block;
pub use collective::barriers;
pub use point_to_point::{ring_shift, traffic_is_counted_exactly};

use crate::{CommError, Communicator};
use ringattn_core::Rank;
use std::fmt;
use thiserror::Error;

/// A communicator that does not do what it must.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SuiteError {
    /// An operation failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// Something differs from what it must be.
    #[error("rank {rank}: {what}: expected {expected}, got {actual}")]
    Differs {
        /// The rank that saw it.
        rank: Rank,
        /// What was looked at.
        what: &'static str,
        /// What it must be.
        expected: String,
        /// What it was.
        actual: String,
    },
}

/// One check: a name and what a rank does for it.
pub type Check<C> = (&'static str, fn(&C) -> Result<(), SuiteError>);

/// Every check, by name.
pub fn checks<C: Communicator>() -> Vec<Check<C>> {
    vec![
        ("ring shifts", point_to_point::full_ring),
        ("send to self", point_to_point::send_to_self),
        ("large message", point_to_point::large_message),
        ("messages without bytes", point_to_point::messages_without_bytes),
        ("sends are synchronous", point_to_point::sends_are_synchronous),
        ("traffic is counted exactly", point_to_point::traffic_is_counted_exactly),
        ("another kind is refused", point_to_point::another_kind_is_refused),
        ("no such peer or tag", point_to_point::no_such_peer_or_tag),
        ("many in flight stay in order", order::many_in_flight),
        ("tags do not mix", order::tags_do_not_mix),
        ("sources do not mix", order::sources_do_not_mix),
        ("waits in any order", order::waits_in_any_order),
        ("send before receive", order::send_before_receive),
        ("receive before send", order::receive_before_send),
        ("a dropped receive takes nothing", order::a_dropped_receive_takes_nothing),
        ("barriers", collective::barriers),
        ("gather", collective::gather),
        ("broadcast", collective::broadcast),
        ("all gather", collective::all_gather),
    ]
}

/// Every check, one after the other, with a barrier between.
///
/// # Errors
/// The first check that fails on this rank.
pub fn all<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    for (_, check) in checks::<C>() {
        check(comm)?;
        comm.barrier()?;
    }
    Ok(())
}

/// Fails when `actual` is not `expected`.
fn equal<C, T>(comm: &C, what: &'static str, actual: T, expected: T) -> Result<(), SuiteError>
where
    C: Communicator,
    T: PartialEq + fmt::Debug,
{
    if actual == expected {
        return Ok(());
    }
    let (expected, actual) = (format!("{expected:.200?}"), format!("{actual:.200?}"));
    Err(SuiteError::Differs { rank: comm.rank(), what, expected, actual })
}

/// The rank `distance` places further round the ring.
fn after<C: Communicator>(comm: &C, distance: u32) -> Rank {
    Rank((comm.rank().0 + distance) % comm.size())
}

/// The rank `distance <= size` places back round the ring.
fn before<C: Communicator>(comm: &C, distance: u32) -> Rank {
    after(comm, comm.size() - distance)
}
