//! Quantised weights in panels: codes of 8 bits and, for each block of columns of a row, a scale and an
//! offset, `w = code * scale + offset`, rounded after each operation as the file formats define it.
//!
//! Codes are `[panels][cols][panel rows]`; factors `[panels][blocks][2][panel rows]`, scales before
//! offsets. A piece of a panel is widened where it is used and stays in cache, so that main memory gives
//! 1.25 bytes a weight in blocks of 32. Knows no file format.

use pulp::Simd;
use ringattn_core::{OutOfMemory, try_filled};
use std::ops::Range;

/// A row of a quantised matrix, to be filled in.
#[derive(Debug)]
pub struct QuantisedRow<'a> {
    /// `[cols]`.
    pub codes: &'a mut [i8],
    /// One for each block of columns.
    pub scales: &'a mut [f32],
    /// One for each block of columns.
    pub offsets: &'a mut [f32],
}

/// The packed panels of one matrix.
#[derive(Clone, Debug)]
pub(crate) struct QuantisedPanels {
    cols: usize,
    block: usize,
    panel: usize,
    codes: Vec<i8>,
    factors: Vec<f32>,
}

impl QuantisedPanels {
    /// Packs `rows` rows; `read` fills in row `i`. Rows behind the last are 0.
    pub(crate) fn pack(
        (rows, cols): (usize, usize),
        (block, panel): (usize, usize),
        mut read: impl FnMut(usize, QuantisedRow<'_>),
    ) -> Result<Self, OutOfMemory> {
        let (padded, blocks) = (rows.next_multiple_of(panel), cols.div_ceil(block.max(1)));
        let mut codes = try_filled(padded.saturating_mul(cols), 0_i8)?;
        let mut factors = try_filled(padded.saturating_mul(2 * blocks), 0.0_f32)?;
        let mut row_codes = try_filled(cols, 0_i8)?;
        let mut row_factors = try_filled(2 * blocks, 0.0_f32)?;
        for row in 0..rows {
            let (scales, offsets) = row_factors.split_at_mut(blocks);
            read(row, QuantisedRow { codes: &mut row_codes, scales, offsets });
            let (index, lane) = (row / panel, row % panel);
            let to = codes[index * panel * cols + lane..].iter_mut().step_by(panel);
            to.zip(&row_codes).for_each(|(to, &code)| *to = code);
            let to = &mut factors[index * panel * 2 * blocks + lane..];
            for (at, factor) in row_factors.iter().enumerate() {
                // Scales come first, then offsets; in a panel they take turns.
                let (kind, block) = (at / blocks, at % blocks);
                to[(2 * block + kind) * panel] = *factor;
            }
        }
        Ok(Self { cols, block: block.max(1), panel, codes, factors })
    }

    /// Bytes of codes and factors.
    pub(crate) fn byte_len(&self) -> u64 {
        (self.codes.len() + 4 * self.factors.len()) as u64
    }

    /// Widens columns `inner` of the panel that begins at row `first` into `to`, `[inner][panel]`.
    #[inline(always)]
    pub(crate) fn widen<S: Simd>(
        &self,
        simd: S,
        (first, inner): (usize, &Range<usize>),
        to: &mut [f32],
    ) {
        let panel = self.panel;
        let codes = &self.codes[first * self.cols..];
        let factors = &self.factors[first * 2 * self.cols.div_ceil(self.block)..];
        // In one long loop, so that it becomes one of vectors.
        let numbers = codes[inner.start * panel..inner.end * panel].iter();
        to.iter_mut().zip(numbers).for_each(|(to, &code)| *to = f32::from(code));
        let (mut column, mut rest) = (inner.start, to);
        while column < inner.end {
            let next = ((column / self.block + 1) * self.block).min(inner.end);
            let (to, behind) = std::mem::take(&mut rest).split_at_mut((next - column) * panel);
            let at = 2 * (column / self.block) * panel;
            let (scales, offsets) = factors[at..at + 2 * panel].split_at(panel);
            for vector in (0..panel).step_by(S::F32_LANES) {
                let (scale, _) = S::as_simd_f32s(&scales[vector..]);
                let (offset, _) = S::as_simd_f32s(&offsets[vector..]);
                for to in to.chunks_exact_mut(panel) {
                    let (to, _) = S::as_mut_simd_f32s(&mut to[vector..]);
                    to[0] = simd.add_f32s(simd.mul_f32s(to[0], scale[0]), offset[0]);
                }
            }
            (column, rest) = (next, behind);
        }
    }

    /// Row `row`, widened.
    pub(crate) fn row(&self, row: usize, out: &mut [f32]) {
        let (panel, lane) = (self.panel, row % self.panel);
        let first = row - lane;
        let codes = &self.codes[first * self.cols + lane..];
        let factors = &self.factors[first * 2 * self.cols.div_ceil(self.block) + lane..];
        for (column, value) in out.iter_mut().enumerate() {
            let block = 2 * (column / self.block) * panel;
            let (scale, offset) = (factors[block], factors[block + panel]);
            *value = f32::from(codes[column * panel]) * scale + offset;
        }
    }
}
