//! What can go wrong between ranks, and how a run of many ranks ends. Knows no transport.

use crate::Tag;
use ringattn_core::{MessageError, Rank};
use std::fmt;
use std::io;
use std::time::Duration;
use thiserror::Error;

/// What a rank was waiting to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// To have its message matched.
    Send,
    /// To be given a message.
    Receive,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send to",
            Self::Receive => "receive from",
        })
    }
}

/// Why an operation of a communicator failed.
///
/// The first four end the run: every rank gets the same value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommError {
    /// A rank failed or called `abort`.
    #[error("rank {culprit} ended the run: {reason}")]
    Aborted {
        /// The rank that failed.
        culprit: Rank,
        /// Its own words.
        reason: String,
    },
    /// The run was stopped from outside, see [`crate::StopSignal`].
    #[error("stopped: {reason}")]
    Stopped {
        /// Who or what stopped it.
        reason: String,
    },
    /// A rank that others wait for does not move.
    #[error("rank {culprit} made no progress for {timeout:?} while rank {waiting} waited for it")]
    TimedOut {
        /// The rank whose wait ended.
        waiting: Rank,
        /// The rank at the end of the chain of waits.
        culprit: Rank,
        /// How long a rank may stand still.
        timeout: Duration,
    },
    /// Ranks wait for one another in a circle.
    #[error("deadlock: {} wait for one another", Listed(ranks))]
    Deadlock {
        /// The circle; each waits for the next, the last for the first.
        ranks: Vec<Rank>,
    },
    /// The awaited peer has returned from its work and will never answer.
    #[error("rank {peer} has ended, but rank {rank} still has to {operation} it (tag {tag})")]
    PeerEnded {
        /// The rank that waits.
        rank: Rank,
        /// The rank that has ended.
        peer: Rank,
        /// What the wait is for.
        operation: Operation,
        /// The message's tag.
        tag: Tag,
    },
    /// The message is not what the receiver asked for.
    #[error("rank {rank} expected a {expected} message from rank {from} (tag {tag}), got {actual}")]
    Kind {
        /// The receiver.
        rank: Rank,
        /// The sender.
        from: Rank,
        /// The message's tag.
        tag: Tag,
        /// The kind asked for.
        expected: &'static str,
        /// The kind that arrived.
        actual: String,
    },
    /// The message's bytes do not form a message of its kind.
    #[error("rank {rank}: bad message from rank {from} (tag {tag}): {source}")]
    Message {
        /// The receiver.
        rank: Rank,
        /// The sender.
        from: Rank,
        /// The message's tag.
        tag: Tag,
        /// What is wrong with it.
        source: MessageError,
    },
    /// A message is not the one that was sent.
    #[error(
        "message {sequence} from rank {from} to rank {to} (tag {tag}) was damaged on its way: \
         {what} {expected:#x} sent, {actual:#x} received"
    )]
    Damaged {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
        /// The message's tag.
        tag: Tag,
        /// Its number among the messages of this source, destination and tag.
        sequence: u64,
        /// What differs.
        what: &'static str,
        /// Its value at the sender.
        expected: u64,
        /// Its value at the receiver.
        actual: u64,
    },
    /// There is no memory for an arriving message.
    #[error("rank {rank} has no memory for a message of {bytes} bytes from rank {from}")]
    Memory {
        /// The receiver.
        rank: Rank,
        /// The sender.
        from: Rank,
        /// The bytes that it could not have.
        bytes: u64,
    },
    /// The transport failed.
    #[error("rank {rank}: {reason}")]
    Transport {
        /// The rank that noticed.
        rank: Rank,
        /// The transport's words.
        reason: String,
    },
    /// The peer is outside the world.
    #[error("rank {rank} named rank {peer}, but the ranks are 0 to {}", size - 1)]
    NoSuchRank {
        /// The rank that asked.
        rank: Rank,
        /// The rank that does not exist.
        peer: Rank,
        /// Ranks in the world.
        size: u32,
    },
    /// The tag is larger than MPI grants.
    #[error("tag {tag} is above the largest, {}", Tag::LIMIT)]
    NoSuchTag {
        /// The tag.
        tag: Tag,
    },
    /// The root of a broadcast gave no message.
    #[error("rank {root} is the root of a broadcast but has no message")]
    NothingToBroadcast {
        /// The root.
        root: Rank,
    },
}

impl CommError {
    /// The rank to blame, where there is one.
    pub fn culprit(&self) -> Option<Rank> {
        match self {
            Self::Aborted { culprit, .. } | Self::TimedOut { culprit, .. } => Some(*culprit),
            Self::Deadlock { ranks } => ranks.iter().min().copied(),
            Self::PeerEnded { peer, .. } => Some(*peer),
            Self::Kind { from, .. } | Self::Message { from, .. } => Some(*from),
            Self::Damaged { from, .. } => Some(*from),
            Self::Memory { rank, .. } | Self::Transport { rank, .. } => Some(*rank),
            Self::NoSuchRank { rank, .. } => Some(*rank),
            Self::NothingToBroadcast { root } => Some(*root),
            Self::Stopped { .. } | Self::NoSuchTag { .. } => None,
        }
    }
}

/// How a run of all ranks failed; `E` is the ranks' own error.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The engine cannot run so many ranks.
    #[error("the local engine runs 1 to {limit} ranks, not {requested}")]
    Ranks {
        /// Ranks asked for.
        requested: u32,
        /// The most it runs.
        limit: u32,
    },
    /// The system gave no thread to a rank.
    #[error("rank {rank} could not be started: {source}")]
    Start {
        /// The rank.
        rank: Rank,
        /// The system's words.
        source: io::Error,
    },
    /// A rank returned an error, the first of the run.
    #[error("rank {culprit}: {error}")]
    Rank {
        /// The rank.
        culprit: Rank,
        /// Its error.
        error: E,
    },
    /// A rank panicked, before any other failure.
    #[error("rank {culprit} panicked: {message}")]
    Panicked {
        /// The rank.
        culprit: Rank,
        /// The panic's message.
        message: String,
    },
    /// The world ended without a rank's own error: a time-out, a deadlock, a stop, or an abort by a
    /// rank that then returned a result.
    #[error(transparent)]
    World(CommError),
}

impl<E> RunError<E> {
    /// The rank to blame, where there is one.
    pub fn culprit(&self) -> Option<Rank> {
        match self {
            Self::Ranks { .. } => None,
            Self::Start { rank, .. } => Some(*rank),
            Self::Rank { culprit, .. } | Self::Panicked { culprit, .. } => Some(*culprit),
            Self::World(error) => error.culprit(),
        }
    }
}

/// "ranks 1, 2, 5".
struct Listed<'a>(&'a [Rank]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "rank" } else { "ranks" })?;
        for (index, rank) in self.0.iter().enumerate() {
            write!(f, "{} {rank}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
