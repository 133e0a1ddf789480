//! Tags and the requests of non-blocking sends and receives (MPI 4.1, chapter 3). Knows no
//! transport.

use crate::CommError;
use std::fmt;

/// Tells apart the messages between two ranks; those with the same tag arrive in the order sent.
///
/// `0 <= tag < Tag::FIRST_RESERVED` are free to use. The rest, up to [`Tag::LIMIT`], belong to the
/// collective operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u32);

impl Tag {
    /// The largest tag: the `MPI_TAG_UB` that every MPI library must grant (MPI 4.1, 9.1.2).
    pub const LIMIT: Self = Self(32_767);
    /// The first tag of the collective operations, whose messages no counter counts.
    pub const FIRST_RESERVED: Self = Self(32_512);
    pub(crate) const BARRIER: Self = Self(32_512);
    pub(crate) const GATHER: Self = Self(32_513);
    pub(crate) const BROADCAST: Self = Self(32_514);
    pub(crate) const ALL_GATHER: Self = Self(32_515);

    /// Whether messages with this tag are point-to-point data, which [`crate::Counters`] count.
    pub fn is_counted(self) -> bool {
        self < Self::FIRST_RESERVED
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A send under way, which owns its buffer (MPI_Issend).
///
/// A request that is dropped is given up (MPI_Request_free): its message may still be received.
#[must_use = "a send is complete only after `wait`"]
pub trait SendRequest {
    /// Whether `wait` would return at once (MPI_Test): the receiver has posted its receive. Watches
    /// no deadline; to wait, use `wait`.
    ///
    /// # Errors
    /// As for `wait`.
    fn test(&mut self) -> Result<bool, CommError>;

    /// Waits until the receiver has matched the message (MPI_Wait).
    ///
    /// # Errors
    /// When the run was aborted, stopped or timed out, or the receiver has ended.
    fn wait(self) -> Result<(), CommError>;
}

/// A receive under way (MPI_Irecv).
///
/// A request that is dropped is cancelled (MPI_Cancel); a message that it had matched is lost.
#[must_use = "the message comes out of `wait`"]
pub trait ReceiveRequest<M> {
    /// Whether `wait` would return at once (MPI_Test). Watches no deadline; to wait, use `wait`.
    ///
    /// # Errors
    /// As for `wait`.
    fn test(&mut self) -> Result<bool, CommError>;

    /// Waits for the message and gives it out (MPI_Wait).
    ///
    /// # Errors
    /// When the run was aborted, stopped or timed out, when the sender has ended without sending,
    /// or when the message is of another kind or cannot be rebuilt.
    fn wait(self) -> Result<M, CommError>;
}
