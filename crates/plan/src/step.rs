//! One step of a rank: what it attends, sends and receives.
//!
//! Attention takes two operands, queries and a K,V block, and either may travel. What comes of a pair of
//! them is kept in the state of its queries, wherever they are attended.

use ringattn_core::Rank;
use std::fmt;

/// The K,V block that holds the shard of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub Rank);

/// The queries of one rank. Where every query is on every rank, those of rank 0 stand for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueriesId(pub Rank);

/// What a rank holds in order to attend it, or to pass it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operand {
    /// A K,V block.
    Block(BlockId),
    /// Queries.
    Queries(QueriesId),
}

/// Queries and the block that they attend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attend {
    /// Whose state grows.
    pub queries: QueriesId,
    /// What is folded into it.
    pub block: BlockId,
}

/// What a sender of a partial state keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handover {
    /// The state: both ranks go on with it, and never meet again in one sum.
    Copied,
    /// Nothing: it is left with the empty state, and whatever is merged into that is taken over as
    /// it is. A visiting state that is given away is gone, and its memory with it.
    Given,
}

/// What travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cargo {
    /// A K,V block; a rank that sends it goes on holding it.
    Block(BlockId),
    /// Queries; a rank that sends them goes on holding them.
    Queries(QueriesId),
    /// The partial state `(m, z, y)` of these queries, as it is at the sender when the step begins. The
    /// receiver, to whom the queries belong, merges it at the end of the step, with the lower rank's
    /// state as first operand.
    State(QueriesId, Handover),
}

/// One hop between this rank and another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// What travels.
    pub cargo: Cargo,
    /// The other rank.
    pub peer: Rank,
}

/// What a rank sends in one step, or receives: at most an operand of later steps and a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Transfers([Option<Transfer>; 2]);

impl Transfers {
    /// None.
    pub const NONE: Self = Self([None; 2]);

    /// An operand, a state, or both.
    pub fn new(operand: Option<Transfer>, state: Option<Transfer>) -> Self {
        Self([operand, state])
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Transfer> + use<> {
        self.0.into_iter().flatten()
    }

    /// Each of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Transfer> {
        self.0.iter_mut().flatten()
    }
}

/// What one rank does in one step, in this order: sends and receives are started, the queries attend the
/// block while they run, all are waited for, a state that came is merged, and what nobody needs any more
/// is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Number of the step, from 0.
    pub index: u32,
    /// Which queries attend which block, both held here.
    pub attend: Option<Attend>,
    /// An operand that the rank holds, and a state, go to their peers.
    pub send: Transfers,
    /// An operand comes from a peer and is held from the next step on, and a state, which is merged.
    pub receive: Transfers,
    /// A visiting operand that is not needed here after this step.
    pub drop: Option<Operand>,
}

impl Step {
    /// A step in which nothing happens.
    pub fn idle(index: u32) -> Self {
        let (send, receive) = (Transfers::NONE, Transfers::NONE);
        Self { index, attend: None, send, receive, drop: None }
    }
}

impl Cargo {
    /// The operand, if it is one.
    pub fn operand(self) -> Option<Operand> {
        match self {
            Self::Block(block) => Some(Operand::Block(block)),
            Self::Queries(queries) => Some(Operand::Queries(queries)),
            Self::State(..) => None,
        }
    }

    /// The block, if it is one.
    pub fn block(self) -> Option<BlockId> {
        self.operand().and_then(Operand::block)
    }
}

impl Operand {
    /// The block, if it is one.
    pub fn block(self) -> Option<BlockId> {
        match self {
            Self::Block(block) => Some(block),
            Self::Queries(_) => None,
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
            Self::Block(block) => fmt::Display::fmt(&Operand::Block(*block), f),
            Self::Queries(queries) => fmt::Display::fmt(&Operand::Queries(*queries), f),
            Self::State(queries, _) => write!(f, "a state of the queries of rank {queries}"),
        }
    }
}

impl fmt::Display for QueriesId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(block) => write!(f, "block {block}"),
            Self::Queries(queries) => write!(f, "the queries of rank {queries}"),
        }
    }
}
