//! Quantised weights in panels: codes of 4 or 8 bits and, for each [`BLOCK`] columns of a row, a scale and
//! an offset, `w = code * scale + offset`, rounded once.
//!
//! Scales have 11 significant bits, so that the product is exact and one rounding is what the formats
//! define. A panel is read from front to back: `[blocks][words of codes, then one of factors][panel
//! rows]`. A word of codes of 8 bits holds four columns; one of 4 bits four columns and, above them in
//! each byte, those 16 later. A word of factors holds the scale and, above it, the offset, as f16: 0.625
//! and 1.125 bytes a weight. Knows no file format.

use crate::decode::stored::halves;
use crate::lines::Lines;
use half::f16;
use pulp::Simd;
use ringattn_core::{OutOfMemory, try_filled};
use std::ops::Range;

/// Columns that share a scale and an offset.
pub const BLOCK: usize = 32;
/// Columns whose codes lie side by side in a word.
pub(crate) const QUAD: usize = 4;
/// Words of a row's codes of 4 bits in a block, and a word of its factors.
pub(crate) const WORDS_OF_4_BITS: usize = BLOCK / 8 + 1;
/// Words of a row's codes of 8 bits in a block, and a word of its factors.
pub(crate) const WORDS_OF_8_BITS: usize = BLOCK / 4 + 1;
/// The bits of 2^23 as a float, whose last place is 1.
const ONES: u32 = 0x4b00_0000;

/// Which numbers codes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codes {
    /// Four bits: 16 numbers from `lowest` on.
    Nibbles {
        /// The least of them.
        lowest: i8,
    },
    /// -128 to 127.
    Bytes,
}

impl Codes {
    /// What a code is more than what is stored.
    pub(crate) fn lowest(self) -> i16 {
        match self {
            Self::Nibbles { lowest } => i16::from(lowest),
            Self::Bytes => i16::from(i8::MIN),
        }
    }

    /// Words of a row in a block.
    pub(crate) fn words(self) -> usize {
        match self {
            Self::Nibbles { .. } => WORDS_OF_4_BITS,
            Self::Bytes => WORDS_OF_8_BITS,
        }
    }

    /// Where a column's code lies in its block: which word, how many bits up, and its bits.
    fn place(self, column: usize) -> (usize, u32, u32) {
        let (quad, byte) = (column % BLOCK / QUAD, (column % QUAD) as u32);
        match self {
            Self::Nibbles { .. } => (quad % 4, 8 * byte + 4 * (quad / 4) as u32, 0xf),
            Self::Bytes => (quad, 8 * byte, 0xff),
        }
    }
}

/// A row of a quantised matrix, to be filled in.
#[derive(Debug)]
pub struct QuantisedRow<'a> {
    /// `[cols]`; of codes of 4 bits, the numbers, not the bits.
    pub codes: &'a mut [i8],
    /// One for each block of columns.
    pub scales: &'a mut [f16],
    /// One for each block of columns.
    pub offsets: &'a mut [f16],
}

/// The packed panels of one matrix.
#[derive(Clone, Debug)]
pub(crate) struct QuantisedPanels {
    blocks: usize,
    codes: Codes,
    panel: usize,
    words: Lines<u32>,
}

impl QuantisedPanels {
    /// Packs `rows` rows of whole blocks; `read` fills in row `i`. Rows behind the last are 0.
    pub(crate) fn pack(
        (rows, blocks): (usize, usize),
        codes: Codes,
        panel: usize,
        mut read: impl FnMut(usize, QuantisedRow<'_>),
    ) -> Result<Self, OutOfMemory> {
        let record = codes.words() * panel;
        let len = rows.div_ceil(panel).saturating_mul(blocks).saturating_mul(record);
        let mut words = Lines::<u32>::zeroed(len)?;
        let mut row_codes = try_filled(blocks * BLOCK, 0_i8)?;
        let mut factors = try_filled(2 * blocks, f16::ZERO)?;
        for row in 0..rows {
            let (scales, offsets) = factors.split_at_mut(blocks);
            read(row, QuantisedRow { codes: &mut row_codes, scales, offsets });
            let (index, lane) = (row / panel, row % panel);
            let records = words[index * blocks * record..].chunks_exact_mut(record.max(1));
            let factors = factors[..blocks].iter().zip(&factors[blocks..]);
            for ((record, row_codes), (scale, offset)) in
                records.zip(row_codes.as_chunks::<BLOCK>().0).zip(factors)
            {
                for (column, &code) in row_codes.iter().enumerate() {
                    let (word, shift, mask) = codes.place(column);
                    let stored = (i16::from(code) - codes.lowest()) as u32 & mask;
                    record[word * panel + lane] |= stored << shift;
                }
                let factors = u32::from(scale.to_bits()) | u32::from(offset.to_bits()) << 16;
                record[(codes.words() - 1) * panel + lane] = factors;
            }
        }
        Ok(Self { blocks, codes, panel, words })
    }

    /// Which numbers the codes are.
    pub(crate) fn codes(&self) -> Codes {
        self.codes
    }

    /// Bytes of the words.
    pub(crate) fn byte_len(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }

    /// The blocks of the panel that begins at row `first`, of `WORDS` vectors of words, `NV` times.
    #[inline(always)]
    pub(crate) fn panel<S: Simd, const NV: usize, const WORDS: usize>(
        &self,
        first: usize,
    ) -> &[[[S::u32s; NV]; WORDS]] {
        let len = self.blocks * WORDS * self.panel;
        let from = first / self.panel * len;
        S::as_simd_u32s(&self.words[from..from + len]).0.as_chunks().0.as_chunks().0
    }

    /// Widens columns `inner` of the panel that begins at row `first` into `to`, `[inner][panel]`.
    #[inline(always)]
    pub(crate) fn widen<S: Simd, const NV: usize>(
        &self,
        simd: S,
        at: (usize, &Range<usize>),
        to: &mut [f32],
    ) {
        match self.codes {
            Codes::Nibbles { .. } => self.widen_blocks::<S, NV, WORDS_OF_4_BITS>(simd, at, to),
            Codes::Bytes => self.widen_blocks::<S, NV, WORDS_OF_8_BITS>(simd, at, to),
        }
    }

    #[inline(always)]
    fn widen_blocks<S: Simd, const NV: usize, const WORDS: usize>(
        &self,
        simd: S,
        (first, inner): (usize, &Range<usize>),
        to: &mut [f32],
    ) {
        let panel = self.panel::<S, NV, WORDS>(first);
        let mut rows = S::as_mut_simd_f32s(to).0.chunks_exact_mut(NV);
        let zero = simd.splat_f32s(f32::from_bits(ONES) - f32::from(self.codes.lowest()));
        let mut column = inner.start;
        while column < inner.end {
            let block = &panel[column / BLOCK];
            let factors = factors(simd, block);
            let next = ((column / BLOCK + 1) * BLOCK).min(inner.end);
            for (column, to) in (column..next).zip(&mut rows) {
                let (word, shift, mask) = self.codes.place(column);
                let (shift, mask) = (simd.splat_u32s(shift), simd.splat_u32s(mask));
                for ((to, &word), [scale, offset]) in to.iter_mut().zip(&block[word]).zip(factors) {
                    let stored = simd.and_u32s(simd.wrapping_dyn_shr_u32s(word, shift), mask);
                    // Below the exponent of 2^23 an integer is that number more than 2^23.
                    let above = simd.or_u32s(stored, simd.splat_u32s(ONES));
                    let code = simd.sub_f32s(simd.transmute_f32s_u32s(above), zero);
                    *to = simd.mul_add_e_f32s(code, scale, offset);
                }
            }
            column = next;
        }
    }

    /// Row `row`, widened.
    pub(crate) fn row(&self, row: usize, out: &mut [f32]) {
        let (lane, record) = (row % self.panel, self.codes.words() * self.panel);
        let records = &self.words[row / self.panel * self.blocks * record..];
        for (record, out) in records.chunks_exact(record).zip(out.chunks_mut(BLOCK)) {
            let word = |index: usize| record[index * self.panel + lane];
            let factors = word(self.codes.words() - 1);
            let [scale, offset] =
                [factors, factors >> 16].map(|bits| f16::from_bits(bits as u16).to_f32());
            for (column, value) in out.iter_mut().enumerate() {
                let (index, shift, mask) = self.codes.place(column);
                let stored = (word(index) >> shift & mask) as i16;
                *value = f32::from(stored + self.codes.lowest()) * scale + offset;
            }
        }
    }
}

/// The scales and offsets of a block, vector by vector.
#[inline(always)]
pub(crate) fn factors<S: Simd, const NV: usize, const WORDS: usize>(
    simd: S,
    block: &[[S::u32s; NV]; WORDS],
) -> [[S::f32s; 2]; NV] {
    let mut factors = [[simd.splat_f32s(0.0); 2]; NV];
    for (factors, &word) in factors.iter_mut().zip(&block[WORDS - 1]) {
        *factors = halves(simd, word);
    }
    factors
}
