//! How the MPI communicator is to work.

use crate::Checksum;
use std::time::Duration;

/// A message to break, for tests.
#[cfg(feature = "fault-injection")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The receiver.
    pub to: ringattn_core::Rank,
    /// The message's tag.
    pub tag: crate::Tag,
    /// Its number among the messages to this rank with this tag.
    pub sequence: u64,
}

/// How the MPI communicator is to work; all ranks must choose the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether payloads carry a checksum.
    pub checksum: Checksum,
    /// Bytes of the pieces in which payloads travel, 1 to 2^30. A piece is a unit of progress, so it
    /// must pass the slowest link well within the timeout.
    pub piece: usize,
    /// How long MPI may take to start.
    pub start_timeout: Duration,
    /// A message whose payload is damaged after its checksum was taken.
    #[cfg(feature = "fault-injection")]
    pub fault: Option<Fault>,
}

/// The largest piece: MPI counts in `int`.
pub(super) const MAX_PIECE: usize = 1 << 30;

impl Default for Options {
    fn default() -> Self {
        Self {
            checksum: Checksum::Verified,
            piece: 4 << 20,
            start_timeout: Duration::from_secs(60),
            #[cfg(feature = "fault-injection")]
            fault: None,
        }
    }
}
