//! What the kernel is asked: shapes, queries, a block, intervals; and what it refuses.
//!
//! Validation happens here, before any arithmetic. All tensors are token-major.

use ringattn_core::{AttentionShape, ElementsView, Interval, Partial, Slot};
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

/// Query rows, `[rows, Hq, d]`.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// The elements.
    pub data: &'a [f32],
    /// Tokens.
    pub rows: usize,
}

/// A block of keys and values, each `[rows, Hk, d]`.
#[derive(Clone, Copy, Debug)]
pub struct KeysValues<'a> {
    /// The keys.
    pub keys: ElementsView<'a>,
    /// The values.
    pub values: ElementsView<'a>,
    /// Tokens.
    pub rows: usize,
}

/// One call's work: which queries meet which block, and what each sees of it.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// The query rows.
    pub queries: Queries<'a>,
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
    /// A state that belongs to another shape.
    #[error("the state has {actual:?}, the problem {expected:?}")]
    StateShape {
        /// The problem's shape.
        expected: AttentionShape,
        /// The state's shape.
        actual: AttentionShape,
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

impl From<ringattn_core::Interrupted> for KernelError {
    fn from(_: ringattn_core::Interrupted) -> Self {
        Self::Interrupted
    }
}

/// Checks that `work` and `state` fit `problem`.
pub(crate) fn validate(
    problem: &Problem,
    work: &Work<'_>,
    state: &Partial,
) -> Result<(), KernelError> {
    let shape = problem.shape;
    if shape.head_dim() > MAX_HEAD_DIM {
        return Err(KernelError::HeadDim { head_dim: shape.head_dim() });
    }
    if !problem.softmax_scale.is_finite() {
        return Err(KernelError::Scale);
    }
    if state.shape() != shape {
        return Err(KernelError::StateShape { expected: shape, actual: state.shape() });
    }
    let (rows, keys) = (work.queries.rows, work.block.rows);
    let key_elements = keys.saturating_mul(shape.key_width());
    let query_elements = rows.saturating_mul(shape.query_width());
    let cells = rows.saturating_mul(shape.query_heads());
    length("queries", query_elements, work.queries.data.len())?;
    length("keys", key_elements, work.block.keys.len())?;
    length("values", key_elements, work.block.values.len())?;
    length("intervals", rows, work.intervals.len())?;
    length("state rows", rows, state.rows())?;
    length("state m", cells, state.m.len())?;
    length("state z", cells, state.z.len())?;
    length("state y", query_elements, state.y.len())?;
    match work.intervals.iter().position(|seen| !seen.is_empty() && seen.end().0 > keys as u64) {
        None => Ok(()),
        Some(row) => Err(KernelError::Interval { row, interval: work.intervals[row], rows: keys }),
    }
}

fn length(tensor: &'static str, expected: usize, actual: usize) -> Result<(), KernelError> {
    if expected == actual { Ok(()) } else { Err(KernelError::Length { tensor, expected, actual }) }
}
