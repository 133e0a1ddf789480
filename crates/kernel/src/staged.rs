//! Rows of `x` of a dense layer, laid out for the micro-kernel, and the cutting of the inner dimension.
//!
//! The inner dimension is cut into equal pieces, and each piece of all rows lies together. A single row
//! is kept in fixed point as well, for quantised weights. Knows no weights.

use crate::dense::fixed::FixedBlock;
use crate::dense::{DenseError, size};
use crate::isa::ROWS_OF_32;
use crate::quantised::BLOCK;
use ringattn_core::{try_filled, try_reserved};
use std::ops::Range;

/// Inner elements of a piece at most: a panel of them stays in the first cache, and a sum of so many
/// terms loses little.
pub(crate) const DEPTH: usize = 192;
/// Floats from one staged row to the next; the extra line keeps rows off each other's cache sets.
pub(crate) const LINE: usize = DEPTH + 16;

/// Rows of `x`, `[n, in]`, laid out as the micro-kernels read them: `[pieces, n, LINE]`. One staging
/// serves all matrices that multiply the same rows; the memory is reused by the next one.
#[derive(Debug, Default)]
pub struct StagedRows {
    data: Vec<f32>,
    rows: usize,
    cols: usize,
    fixed: Vec<FixedBlock>,
}

impl StagedRows {
    /// Stages `x` `[n, cols]`, whatever was staged before.
    ///
    /// # Errors
    /// When `x` is no whole number of rows, or memory is lacking.
    pub fn stage(&mut self, x: &[f32], cols: usize) -> Result<&Self, DenseError> {
        let rows = x.len() / cols.max(1);
        size("x", rows * cols, x.len())?;
        (self.rows, self.cols) = (rows, cols);
        let len = pieces(cols).len() * self.padded() * LINE;
        if len > self.data.len() {
            self.data = try_filled(len, 0.0)?;
        }
        let padded = self.padded();
        for (inner, piece) in pieces(cols).zip(self.data.chunks_exact_mut((padded * LINE).max(1))) {
            let (staged, rest) = piece.split_at_mut(rows * LINE);
            for (from, to) in x.chunks_exact(cols).zip(staged.chunks_exact_mut(LINE)) {
                to[..inner.len()].copy_from_slice(&from[inner.clone()]);
            }
            rest.fill(0.0);
        }
        self.fixed.clear();
        if rows == 1 {
            let blocks = cols.div_ceil(BLOCK);
            if self.fixed.capacity() < blocks {
                self.fixed = try_reserved(blocks)?;
            }
            self.fixed.extend(x.chunks(BLOCK).map(FixedBlock::new));
        }
        Ok(self)
    }

    /// The row in fixed point, where there is a single one.
    pub(crate) fn fixed(&self) -> &[FixedBlock] {
        &self.fixed
    }

    /// Rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    /// Rows of a piece: those behind the last are 0.
    pub(crate) fn padded(&self) -> usize {
        self.rows.next_multiple_of(ROWS_OF_32)
    }

    /// The `count` rows from `row` on of a piece, rows of LINE floats.
    #[inline(always)]
    pub(crate) fn piece(&self, index: usize, row: usize, count: usize) -> &[f32] {
        let first = index * self.padded() + row;
        &self.data[first * LINE..(first + count) * LINE]
    }
}

/// The equal pieces of the inner dimension.
#[inline(always)]
pub(crate) fn pieces(cols: usize) -> impl ExactSizeIterator<Item = Range<usize>> {
    let piece = cols.div_ceil(cols.div_ceil(DEPTH).max(1)).max(1);
    (0..cols).step_by(piece).map(move |from| from..(from + piece).min(cols))
}
