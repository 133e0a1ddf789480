//! The running state: as callers lend it, and as the work units see it, each unit its own rows of one
//! head at the same time.
//!
//! Rows of different heads are interleaved in memory, so disjoint units cannot be cut out as slices;
//! [`Cells`] vouches for their disjointness within one state, [`OutputRows`] for that of states.

use crate::KernelError;
use crate::output::OutputRows;
use crate::problem::length;
use crate::rows::Arrangement;
use ringattn_core::{Log2, Partial};
use std::marker::PhantomData;

/// The states `(m, z, y)` of some query rows, wherever their `y` lies.
#[derive(Debug)]
pub struct StateMut<'a> {
    /// Running maxima, `[Hq, rows]`.
    pub m: &'a mut [Log2],
    /// Sums of weights, `[Hq, rows]`.
    pub z: &'a mut [f32],
    /// Weighted sums of values, in place of the rows' outputs.
    pub y: OutputRows<'a>,
}

impl StateMut<'_> {
    /// Checks that this is a state of `rows` query rows of so many heads and so large a dimension.
    pub(crate) fn check(&self, rows: usize, expected: (usize, usize)) -> Result<(), KernelError> {
        let actual = self.y.shape();
        if actual != expected {
            return Err(KernelError::Heads { tensor: "state y", expected, actual });
        }
        let cells = rows.saturating_mul(expected.0);
        length("state rows", rows, self.y.len())?;
        length("state m", cells, self.m.len())?;
        length("state z", cells, self.z.len())?;
        self.y.check("state y")
    }
}

impl<'a> From<&'a mut Partial> for StateMut<'a> {
    fn from(state: &'a mut Partial) -> Self {
        let (shape, rows) = (state.shape(), state.rows());
        let arrangement = Arrangement::token_major(shape.query_heads(), rows, shape.head_dim());
        let y = OutputRows::unchecked(&mut state.y, arrangement);
        Self { m: &mut state.m, z: &mut state.z, y }
    }
}

/// The cells of a state, shared by units that never touch the same `(head, row)`.
pub(crate) struct Cells<'a> {
    m: *mut Log2,
    z: *mut f32,
    y: OutputRows<'a>,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: the pointers come from one exclusive borrow that lives as long as the value, and `cell`
// obliges its callers never to hold the same cell twice; the pointees are plain numbers.
unsafe impl Send for Cells<'_> {}
// SAFETY: as above.
unsafe impl Sync for Cells<'_> {}

/// The state of one row of one head.
pub(crate) struct Cell<'a> {
    pub(crate) m: &'a mut Log2,
    pub(crate) z: &'a mut f32,
    pub(crate) y: &'a mut [f32],
}

impl<'a> Cells<'a> {
    pub(crate) fn new(state: StateMut<'a>) -> Self {
        let StateMut { m, z, y } = state;
        assert!(m.len() == y.len() * y.shape().0 && z.len() == m.len());
        Self { m: m.as_mut_ptr(), z: z.as_mut_ptr(), y, borrow: PhantomData }
    }

    /// Asks for a cell that is used soon, when there is one.
    #[inline(always)]
    pub(crate) fn prefetch(&self, head: usize, row: usize) {
        self.y.prefetch(head, row);
    }

    /// The cell of `row` in `head`.
    ///
    /// # Safety
    /// No other cell of the same `(head, row)` may be alive.
    pub(crate) unsafe fn cell(&self, head: usize, row: usize) -> Cell<'_> {
        let (at, y) = (head * self.y.len() + row, self.y.pointer(head, row));
        // SAFETY: `pointer` has made sure that `head` and `row` exist, so that by the assert in `new`
        // `at` lies inside `m` and `z`, and `d` elements lie behind `y`; the caller excludes a second
        // reference to the cell, cells do not overlap, and no one else has the state's rows.
        unsafe {
            Cell {
                m: &mut *self.m.add(at),
                z: &mut *self.z.add(at),
                y: std::slice::from_raw_parts_mut(y, self.y.shape().1),
            }
        }
    }
}
