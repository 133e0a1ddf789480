//! What a device must offer so that the loop can run on it.

use ringattn_core::{Interval, Message, Progress, Slot};
use ringattn_plan::Handover;
use std::fmt;
use std::time::Duration;

/// The three inputs of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tensor {
    /// Queries.
    Query,
    /// Keys.
    Key,
    /// Values.
    Value,
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Query => "q",
            Self::Key => "k",
            Self::Value => "v",
        })
    }
}

/// Which state is the first operand of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeOrder {
    /// The one that is here.
    OwnFirst,
    /// The one that came.
    ArrivedFirst,
}

/// The state that a block is folded into.
pub enum Accumulator<'a, 's, B: Backend + ?Sized> {
    /// That of the rank's own queries.
    Own(&'a mut B::State<'s>),
    /// That of visiting queries.
    Visiting(&'a mut B::Partial),
}

/// A device with its kernel. Knows intervals of slots, no plan and no peer.
pub trait Backend {
    /// Query rows, of this rank or visiting; a clone is a second handle to the same data.
    type Queries: Message + Clone;
    /// A K,V block; a clone is a second handle to the same data.
    type Block: Message + Clone;
    /// The `(m, z, y)` of the rank's own query rows. May borrow the place where the result shall be.
    type State<'s>;
    /// A state on its way to another rank, or kept for the queries of one.
    type Partial: Message + Clone;
    /// `out` and `lse` of all query rows.
    type Output<'s>;
    /// Work that was begun and reads a block.
    type Token;
    /// What can go wrong on the device.
    type Error: std::error::Error + Send + 'static;

    /// Begins to fold a block into `state` for the given queries; `intervals[row]` are the slots of
    /// the block that query row `row` sees.
    /// May return before the work is done.
    ///
    /// # Errors
    /// When the work cannot be done, or was interrupted through `progress`.
    fn absorb(
        &self,
        operands: (&Self::Queries, &Self::Block),
        intervals: &[Interval<Slot>],
        state: Accumulator<'_, '_, Self>,
        progress: &dyn Progress,
    ) -> Result<Self::Token, Self::Error>;

    /// Waits until the work no longer reads its block.
    ///
    /// # Errors
    /// When the work failed.
    fn wait(&self, token: Self::Token) -> Result<(), Self::Error>;

    /// The empty state of visiting queries.
    ///
    /// # Errors
    /// When memory is lacking.
    fn empty(&self, queries: &Self::Queries) -> Result<Self::Partial, Self::Error>;

    /// The state as it can travel; given away, it leaves the empty state behind.
    ///
    /// # Errors
    /// When the device fails or memory is lacking.
    fn part_with(
        &self,
        state: &mut Self::State<'_>,
        handover: Handover,
    ) -> Result<Self::Partial, Self::Error>;

    /// Merges a state that came into `state`, with the operands in this order.
    ///
    /// # Errors
    /// When the two are states of different rows or shapes, or the device fails.
    fn merge(
        &self,
        state: &mut Self::State<'_>,
        arrived: Self::Partial,
        order: MergeOrder,
    ) -> Result<(), Self::Error>;

    /// `out = y / z` and `lse`.
    ///
    /// # Errors
    /// When the device fails.
    fn finish<'s>(&self, state: Self::State<'s>) -> Result<Self::Output<'s>, Self::Error>;

    /// Rows of the queries or of the block that hold a NaN or an infinity, in order.
    fn non_finite_inputs(
        &self,
        tensor: Tensor,
        queries: &Self::Queries,
        block: &Self::Block,
    ) -> Vec<Slot>;

    /// Query rows whose `out` or `lse` is not finite, in order; rows that saw nothing among them.
    fn non_finite_results(&self, output: &Self::Output<'_>) -> Vec<Slot>;

    /// Processor time that the device has spent computing since it was made.
    fn compute_time(&self) -> Duration;
}
