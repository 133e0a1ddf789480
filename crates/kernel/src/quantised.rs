//! Quantised weights in panels: codes of 8 bits and, for each block of columns of a row, a scale and an
//! offset, `w = code * scale + offset`, rounded once.
//!
//! The formats' scales have 11 significant bits, so that the product is exact and one rounding is what
//! they define; with a scale of more than 16 instruction sets could differ. Four columns' codes of a row share a word, whose bytes become floats without a conversion:
//! a byte below the exponent of 2^23 is that number more than 2^23. Words are `[panels][cols / 4][panel
//! rows]`; factors `[panels][blocks][2][panel rows]`, scales before offsets: 1.25 bytes a weight in blocks
//! of 32. Knows no file format.

use crate::lines::Lines;
use pulp::Simd;
use ringattn_core::{OutOfMemory, try_filled};
use std::ops::Range;

/// Columns whose codes share a word.
pub(crate) const COLUMNS: usize = 4;
/// What a stored byte is more than its code.
const BIAS: i16 = 128;
/// The bits of 2^23 as a float, whose last place is 1.
const ONES: u32 = 0x4b00_0000;

/// A row of a quantised matrix, to be filled in.
#[derive(Debug)]
pub struct QuantisedRow<'a> {
    /// `[cols]`.
    pub codes: &'a mut [i8],
    /// One for each block of columns, of at most 16 significant bits.
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
    words: Lines<u32>,
    factors: Lines<f32>,
}

impl QuantisedPanels {
    /// Packs `rows` rows; `read` fills in row `i`. Rows behind the last are 0.
    pub(crate) fn pack(
        (rows, cols): (usize, usize),
        (block, panel): (usize, usize),
        mut read: impl FnMut(usize, QuantisedRow<'_>),
    ) -> Result<Self, OutOfMemory> {
        let (padded, block) = (rows.next_multiple_of(panel), block.max(1));
        let (quads, blocks) = (cols.div_ceil(COLUMNS), cols.div_ceil(block));
        let mut words = Lines::zeroed(padded.saturating_mul(quads))?;
        let mut factors = Lines::zeroed(padded.saturating_mul(2 * blocks))?;
        let mut row_codes = try_filled(cols, 0_i8)?;
        let mut row_factors = try_filled(2 * blocks, 0.0_f32)?;
        for row in 0..rows {
            let (scales, offsets) = row_factors.split_at_mut(blocks);
            read(row, QuantisedRow { codes: &mut row_codes, scales, offsets });
            let (index, lane) = (row / panel, row % panel);
            let to = words[index * panel * quads + lane..].iter_mut().step_by(panel);
            for (to, codes) in to.zip(row_codes.chunks(COLUMNS)) {
                let mut bytes = [0; COLUMNS];
                let biased = codes.iter().map(|&code| (i16::from(code) + BIAS) as u8);
                bytes.iter_mut().zip(biased).for_each(|(to, byte)| *to = byte);
                *to = u32::from_le_bytes(bytes);
            }
            let to = &mut factors[index * panel * 2 * blocks + lane..];
            for (at, factor) in row_factors.iter().enumerate() {
                // Scales come first, then offsets; in a panel they take turns.
                let (kind, block) = (at / blocks, at % blocks);
                to[(2 * block + kind) * panel] = *factor;
            }
        }
        Ok(Self { cols, block, panel, words, factors })
    }

    /// Columns that share factors.
    pub(crate) fn block(&self) -> usize {
        self.block
    }

    /// Bytes of words and factors.
    pub(crate) fn byte_len(&self) -> u64 {
        (size_of_val(&*self.words) + size_of_val(&*self.factors)) as u64
    }

    /// The panel that begins at row `first`.
    #[inline(always)]
    pub(crate) fn panel(&self, first: usize) -> QuantisedPanel<'_> {
        let (quads, blocks) = (self.cols.div_ceil(COLUMNS), self.cols.div_ceil(self.block));
        let (words, factors) = (first * quads, first * 2 * blocks);
        QuantisedPanel {
            block: self.block,
            words: &self.words[words..words + quads * self.panel],
            factors: &self.factors[factors..factors + 2 * blocks * self.panel],
        }
    }

    /// Widens columns `inner` of the panel that begins at row `first` into `to`, `[inner][panel]`.
    #[inline(always)]
    pub(crate) fn widen<S: Simd, const NV: usize>(
        &self,
        simd: S,
        (first, inner): (usize, &Range<usize>),
        to: &mut [f32],
    ) {
        let panel = self.panel(first);
        let (to, _) = S::as_mut_simd_f32s(to);
        let mut column = inner.start;
        let mut rows = to.chunks_exact_mut(NV);
        while column < inner.end {
            let next = ((column / self.block + 1) * self.block).min(inner.end);
            let factors = panel.factors::<S, NV>(column);
            for (column, to) in (column..next).zip(&mut rows) {
                let words = &panel.words::<S, NV>()[column / COLUMNS];
                for ((to, &word), factors) in to.iter_mut().zip(words).zip(factors) {
                    *to = widened(simd, byte(simd, word, column % COLUMNS), factors);
                }
            }
            column = next;
        }
    }

    /// Row `row`, widened.
    pub(crate) fn row(&self, row: usize, out: &mut [f32]) {
        let lane = row % self.panel;
        let panel = self.panel(row - lane);
        for (column, value) in out.iter_mut().enumerate() {
            let word = panel.words[column / COLUMNS * self.panel + lane];
            let byte = word.to_le_bytes()[column % COLUMNS];
            let at = column / self.block * 2 * self.panel + lane;
            let (scale, offset) = (panel.factors[at], panel.factors[at + self.panel]);
            *value = f32::from(i16::from(byte) - BIAS) * scale + offset;
        }
    }
}

/// One panel's words and factors.
#[derive(Clone, Copy)]
pub(crate) struct QuantisedPanel<'a> {
    block: usize,
    words: &'a [u32],
    factors: &'a [f32],
}

impl<'a> QuantisedPanel<'a> {
    /// The panel's words, of [`COLUMNS`] columns each.
    #[inline(always)]
    pub(crate) fn words<S: Simd, const NV: usize>(&self) -> &'a [[S::u32s; NV]] {
        S::as_simd_u32s(self.words).0.as_chunks().0
    }

    /// Scales and offsets of a column's block, vector by vector.
    #[inline(always)]
    pub(crate) fn factors<S: Simd, const NV: usize>(&self, column: usize) -> [[S::f32s; 2]; NV] {
        let at = 2 * (column / self.block);
        let rows: &[[S::f32s; NV]] = S::as_simd_f32s(self.factors).0.as_chunks().0;
        std::array::from_fn(|vector| [rows[at][vector], rows[at + 1][vector]])
    }
}

/// Byte `index` of each word.
#[inline(always)]
pub(crate) fn byte<S: Simd>(simd: S, words: S::u32s, index: usize) -> S::u32s {
    let mask = simd.splat_u32s(0xff);
    let shifted = |bits| simd.wrapping_dyn_shr_u32s(words, simd.splat_u32s(bits));
    match index {
        0 => simd.and_u32s(words, mask),
        1 => simd.and_u32s(shifted(8), mask),
        2 => simd.and_u32s(shifted(16), mask),
        _ => shifted(24),
    }
}

/// The weights that bytes stand for.
#[inline(always)]
pub(crate) fn widened<S: Simd>(simd: S, bytes: S::u32s, [scale, offset]: [S::f32s; 2]) -> S::f32s {
    let above = simd.transmute_f32s_u32s(simd.or_u32s(bytes, simd.splat_u32s(ONES)));
    let zero = f32::from_bits(ONES) + f32::from(BIAS);
    let code = simd.sub_f32s(above, simd.splat_f32s(zero));
    simd.mul_add_e_f32s(code, scale, offset)
}
