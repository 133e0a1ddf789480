//! What the kernel is asked: shapes, queries, a block, intervals; and what it refuses.
//!
//! Validation happens here, before any arithmetic.

use crate::rows::Rows;
use crate::state::StateMut;
use ringattn_core::{AttentionShape, Interval, Slot};
use thiserror::Error;

/// The largest head dimension that the kernel's tiles hold.
pub(crate) const MAX_HEAD_DIM: usize = 256;

/// What stays the same for all blocks of one attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Problem {
    /// Heads and head dimension.
    pub shape: AttentionShape,
    /// The factor of `q.k`, in natural units; any finite number.
    pub softmax_scale: f32,
}

/// A block of keys and values: as many rows of either, of `Hk` heads.
#[derive(Clone, Copy, Debug)]
pub struct KeysValues<'a> {
    /// The keys.
    pub keys: Rows<'a>,
    /// The values.
    pub values: Rows<'a>,
}

impl KeysValues<'_> {
    /// Tokens.
    pub fn rows(&self) -> usize {
        self.keys.len()
    }
}

/// One call's work: which queries meet which block, and what each sees of it.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// The query rows, of `Hq` heads.
    pub queries: Rows<'a>,
    /// The visiting block.
    pub block: KeysValues<'a>,
    /// For each query row the slots of the block that it sees.
    pub intervals: &'a [Interval<Slot>],
}

/// Why the kernel did not do, or not finish, its work.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KernelError {
    /// The processor lacks the instruction set.
    #[error("this processor has no {isa}; use one of the available sets, or scalar")]
    Isa {
        /// What was asked for.
        isa: crate::Isa,
    },
    /// The threads cannot be had.
    #[error(transparent)]
    Team(#[from] crate::TeamError),
    /// A head dimension beyond what the tiles hold.
    #[error("head dimension {head_dim} is beyond the kernel's {MAX_HEAD_DIM}")]
    HeadDim {
        /// What was asked for.
        head_dim: usize,
    },
    /// A softmax scale that is NaN or infinite.
    #[error("softmax_scale must be a finite number")]
    Scale,
    /// A tensor whose length does not fit its shape.
    #[error("{tensor}: {actual} elements, expected {expected}")]
    Length {
        /// Which tensor.
        tensor: &'static str,
        /// What the shape asks for.
        expected: usize,
        /// What was given.
        actual: usize,
    },
    /// A tensor whose heads or head dimension are not the problem's.
    #[error("{tensor}: {} heads of dimension {}, expected {} of {}",
            actual.0, actual.1, expected.0, expected.1)]
    Heads {
        /// Which tensor.
        tensor: &'static str,
        /// The problem's heads and head dimension.
        expected: (usize, usize),
        /// The tensor's.
        actual: (usize, usize),
    },
    /// A slot that is said to lie behind the tensor's end.
    #[error("{tensor}: slot {slot} is said to be token {token} of {tokens}")]
    Row {
        /// Which tensor.
        tensor: &'static str,
        /// The slot.
        slot: usize,
        /// Where it is said to lie.
        token: usize,
        /// Tokens of the tensor.
        tokens: usize,
    },
    /// An output row with two owners.
    #[error("output: token {token} is given out twice")]
    RowTwice {
        /// The token.
        token: usize,
    },
    /// A query row that claims to see slots behind the block's end.
    #[error("query row {row} sees slots {interval} of a block of {rows} rows")]
    Interval {
        /// The query row.
        row: usize,
        /// What it claims to see.
        interval: Interval<Slot>,
        /// The block's rows.
        rows: usize,
    },
    /// The working memory cannot be had.
    #[error("no memory for {bytes} bytes of kernel workspace")]
    Memory {
        /// How much was asked for.
        bytes: usize,
    },
    /// The work was told to stop; the state it was folding into is of no further use.
    #[error("interrupted")]
    Interrupted,
}

impl From<ringattn_core::OutOfMemory> for KernelError {
    fn from(error: ringattn_core::OutOfMemory) -> Self {
        Self::Memory { bytes: usize::try_from(error.bytes).unwrap_or(usize::MAX) }
    }
}

impl From<ringattn_core::Interrupted> for KernelError {
    fn from(_: ringattn_core::Interrupted) -> Self {
        Self::Interrupted
    }
}

/// Checks that `work` and `state` fit `problem`.
pub(crate) fn validate(
    problem: &Problem,
    work: &Work<'_>,
    state: &StateMut<'_>,
) -> Result<(), KernelError> {
    let shape = problem.shape;
    if shape.head_dim() > MAX_HEAD_DIM {
        return Err(KernelError::HeadDim { head_dim: shape.head_dim() });
    }
    if !problem.softmax_scale.is_finite() {
        return Err(KernelError::Scale);
    }
    let (rows, keys) = (work.queries.len(), work.block.keys.len());
    let (query_shape, key_shape) =
        ((shape.query_heads(), shape.head_dim()), (shape.key_heads(), shape.head_dim()));
    work.queries.check("queries", query_shape)?;
    work.block.keys.check("keys", key_shape)?;
    work.block.values.check("values", key_shape)?;
    length("rows of values", keys, work.block.values.len())?;
    length("intervals", rows, work.intervals.len())?;
    state.check(rows, query_shape)?;
    match work.intervals.iter().position(|seen| !seen.is_empty() && seen.end().0 > keys as u64) {
        None => Ok(()),
        Some(row) => Err(KernelError::Interval { row, interval: work.intervals[row], rows: keys }),
    }
}

pub(crate) fn length(
    tensor: &'static str,
    expected: usize,
    actual: usize,
) -> Result<(), KernelError> {
    if expected == actual { Ok(()) } else { Err(KernelError::Length { tensor, expected, actual }) }
}
