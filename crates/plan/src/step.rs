//! One step of a rank: what it attends, sends and receives.

use ringattn_core::Rank;
use std::fmt;

/// The K,V block that holds the shard of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub Rank);

/// What a sender of its partial state keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handover {
    /// The state: both ranks go on with it, and never meet again in one sum.
    Copied,
    /// Nothing: it is left with the empty state, and whatever is merged into that is taken over as
    /// it is.
    Given,
}

/// What travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cargo {
    /// A K,V block; a rank that sends it goes on holding it.
    Block(BlockId),
    /// The partial state `(m, z, y)` of all query rows of the sender, as it is when the step begins.
    /// The receiver merges it at the end of the step, with the lower rank's state as first operand.
    State(Handover),
}

/// One hop between this rank and another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// What travels.
    pub cargo: Cargo,
    /// The other rank.
    pub peer: Rank,
}

/// What one rank does in one step, in this order: send and receive are started, the block is attended
/// while they run, both are waited for, a state that came is merged, and what nobody needs any more is
/// dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Number of the step, from 0.
    pub index: u32,
    /// The block that the rank's queries attend.
    pub attend: Option<BlockId>,
    /// A block that the rank holds, or its state, goes to the peer.
    pub send: Option<Transfer>,
    /// A block comes from the peer and is held from the next step on, or a state, which is merged.
    pub receive: Option<Transfer>,
    /// A visiting block that is not needed here after this step.
    pub drop: Option<BlockId>,
}

impl Step {
    /// A step in which nothing happens.
    pub fn idle(index: u32) -> Self {
        Self { index, attend: None, send: None, receive: None, drop: None }
    }
}

impl Cargo {
    /// The block, if it is one.
    pub fn block(self) -> Option<BlockId> {
        match self {
            Self::Block(block) => Some(block),
            Self::State(_) => None,
        }
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Cargo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(block) => write!(f, "block {block}"),
            Self::State(_) => f.write_str("a state"),
        }
    }
}
