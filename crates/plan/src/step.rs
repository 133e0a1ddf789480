//! One step of a rank: what it attends, sends and receives.

use ringattn_core::Rank;
use std::fmt;

/// The K,V block that holds the shard of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub Rank);

/// One hop of a block between this rank and a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// What travels.
    pub block: BlockId,
    /// The other rank.
    pub peer: Rank,
}

/// What one rank does in one step, in this order: send and receive are started, the block is attended
/// while they run, both are waited for, and what nobody needs any more is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Number of the step, from 0.
    pub index: u32,
    /// The block that the rank's queries attend.
    pub attend: Option<BlockId>,
    /// A block that the rank holds goes to the peer.
    pub send: Option<Transfer>,
    /// A block comes from the peer and is held from the next step on.
    pub receive: Option<Transfer>,
    /// A visiting block that is not needed here after this step.
    pub drop: Option<BlockId>,
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
