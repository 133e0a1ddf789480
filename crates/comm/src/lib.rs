//! Ranks and the messages between them, in the words of the MPI standard.
//!
//! [`Communicator`] is what the engine is written against; [`local`] is its implementation with
//! ranks as threads of one process, `mpi` (behind the feature of that name) the one with ranks as
//! processes of an MPI job. The crate moves values that implement
//! [`ringattn_core::Message`] and knows nothing of what they mean: no attention, no plan, no
//! tensor, no file.
//!
//! Three promises hold for every implementation:
//!
//! 1. A send completes when the receiver has matched it (synchronous mode, MPI_Issend), so a fast
//!    rank cannot run ahead of a slow one and the memory in flight stays bounded.
//! 2. No wait is endless. Every rank counts its units of work and communication. A wait ends when
//!    the rank at the end of its chain of waits (the awaited rank, or the one that this one waits
//!    for, and so on) has not counted for the timeout. A long step is no failure, a rank that itself
//!    waits is never blamed, and ranks that wait in a circle are a deadlock.
//! 3. The first failure of any rank ends every wait of every rank, and every rank names the same
//!    cause.
//!
//! ```
//! use ringattn_comm::{CommError, Communicator, ReceiveRequest, SendRequest, Tag, local};
//! use ringattn_comm::suite::Block;
//! use ringattn_core::Rank;
//!
//! let sums = local::run(4, local::DEFAULT_TIMEOUT, |comm| {
//!     let (rank, size) = (comm.rank().0, comm.size());
//!     let (next, previous) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
//!     let receive = comm.immediate_receive::<Block>(previous, Tag(0))?;
//!     let send = comm.immediate_send(Block::new(vec![rank as u8]), next, Tag(0))?;
//!     let block = receive.wait()?;
//!     send.wait()?;
//!     Ok::<_, CommError>(block.bytes()[0])
//! });
//! assert_eq!(sums.unwrap(), [3, 0, 1, 2]);
//! ```

#![cfg_attr(not(feature = "mpi"), forbid(unsafe_code))]
#![deny(unsafe_code)]

mod checksum;
mod collective;
mod communicator;
mod counters;
mod deadline;
mod error;
mod launcher;
pub mod local;
#[cfg(feature = "mpi")]
pub mod mpi;
mod point_to_point;
mod request;
mod stop;
pub mod suite;
mod world;

pub use checksum::Checksum;
pub use communicator::Communicator;
pub use counters::{Counters, Wait};
pub use error::{CommError, Operation, RunError};
pub use launcher::{Environment, Launcher, environment};
pub use point_to_point::{ReceiveRequest, SendRequest, Tag};
pub use request::MatchedSend;
pub use stop::StopSignal;
pub use world::Watch;
