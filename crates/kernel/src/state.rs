//! The running state as the work units see it: each unit its own rows of one head, at the same time.
//!
//! Rows of different heads are interleaved in memory, so disjoint units cannot be cut out as slices;
//! this is the one place that vouches for their disjointness.

use ringattn_core::{Log2, Partial};
use std::marker::PhantomData;

/// The cells of a [`Partial`], shared by units that never touch the same `(head, row)`.
pub(crate) struct Cells<'a> {
    m: *mut Log2,
    z: *mut f32,
    y: *mut f32,
    rows: usize,
    heads: usize,
    head_dim: usize,
    borrow: PhantomData<&'a mut Partial>,
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
    pub(crate) fn new(state: &'a mut Partial) -> Self {
        let (shape, rows) = (state.shape(), state.rows());
        assert!(state.m.len() == rows * shape.query_heads() && state.z.len() == state.m.len());
        assert!(state.y.len() == rows * shape.query_width());
        Self {
            m: state.m.as_mut_ptr(),
            z: state.z.as_mut_ptr(),
            y: state.y.as_mut_ptr(),
            rows,
            heads: shape.query_heads(),
            head_dim: shape.head_dim(),
            borrow: PhantomData,
        }
    }

    /// The cell of `row` in `head`.
    ///
    /// # Safety
    /// No other cell of the same `(head, row)` may be alive.
    pub(crate) unsafe fn cell(&self, head: usize, row: usize) -> Cell<'_> {
        assert!(head < self.heads && row < self.rows);
        let (at, first) = (head * self.rows + row, (row * self.heads + head) * self.head_dim);
        // SAFETY: the assert above and those in `new` keep the offsets inside the three buffers;
        // the caller excludes a second reference to the cell, and cells do not overlap.
        unsafe {
            Cell {
                m: &mut *self.m.add(at),
                z: &mut *self.z.add(at),
                y: std::slice::from_raw_parts_mut(self.y.add(first), self.head_dim),
            }
        }
    }
}
