//! The product of a single row with quantised weights, by dot products of bytes.
//!
//! With `u` what is stored, `c` the middle of its range and `X` the row in fixed point, a block gives
//! `sum of w x = scale * unit * sum of (u - c) X + (scale * (c + lowest) + offset) * sum of x`. The sums of
//! `u X` are exact, digit by digit; about the middle, the two terms do not cancel. Every instruction set
//! gives the same bits.

use super::fixed::{DIGITS, FixedBlock, RADIX};
use super::{Call, MAX_PANEL, Write};
use crate::dot::{ByteDot, Integers, WithByteDot};
use crate::isa::VECTORS;
use crate::quantised::{
    BLOCK, Codes, QUAD, QuantisedPanels, WORDS_OF_4_BITS, WORDS_OF_8_BITS, factors,
};
use pulp::Simd;

/// The most panels that are taken at once: each is a stream of its own from memory, of which a single one
/// is too slow for codes of 8 bits (8 to 20 %). Codes of 4 bits are half as long and take longer to unpack:
/// several panels at once were no faster.
const PANELS: usize = 4;

/// `y = x W^T` of one row, its sizes checked.
pub(super) struct Integer<'a> {
    pub(super) panels: &'a QuantisedPanels,
    pub(super) call: Call<'a>,
}

impl WithByteDot for Integer<'_> {
    #[inline(always)]
    fn with_dot<D: ByteDot>(self, dot: D) {
        match self.panels.codes() {
            Codes::Nibbles { .. } => self.run::<D, WORDS_OF_4_BITS>(dot),
            Codes::Bytes => self.run::<D, WORDS_OF_8_BITS>(dot),
        }
    }
}

impl Integer<'_> {
    #[inline(always)]
    fn run<D: ByteDot, const WORDS: usize>(mut self, dot: D) {
        let panel = VECTORS * D::Simd::F32_LANES;
        let most = if WORDS == WORDS_OF_4_BITS { 1 } else { PANELS };
        let mut first = self.call.out.start;
        while first < self.call.out.end {
            let panels = (self.call.out.end - first).div_ceil(panel).min(most);
            match panels {
                PANELS => self.group::<D, PANELS, WORDS>(dot, first),
                3 => self.group::<D, 3, WORDS>(dot, first),
                2 => self.group::<D, 2, WORDS>(dot, first),
                _ => self.group::<D, 1, WORDS>(dot, first),
            }
            first += panels * panel;
        }
    }

    /// `G` panels from row `first` on.
    #[inline(always)]
    fn group<D: ByteDot, const G: usize, const WORDS: usize>(&mut self, dot: D, first: usize) {
        let panel = VECTORS * D::Simd::F32_LANES;
        // Half as many as can be stored: 8 or 128.
        let middle = if WORDS == WORDS_OF_4_BITS { 8 } else { 128 };
        let shift = (middle + i32::from(self.panels.codes().lowest())) as f32;
        let panels: [_; G] = std::array::from_fn(|index| {
            self.panels.panel::<D::Simd, VECTORS, WORDS>(first + index * panel)
        });
        let mut sums = [[dot.simd().splat_f32s(0.0); VECTORS]; G];
        for (index, x) in self.call.x.fixed().iter().enumerate() {
            for (sums, blocks) in sums.iter_mut().zip(panels) {
                let block = &blocks[index];
                let dots = block_dots(dot, block, (x, middle));
                add(dot, (dots, x), (factors(dot.simd(), block), shift), sums);
            }
        }
        let mut tile = [0.0_f32; PANELS * MAX_PANEL];
        let (to, _) = D::Simd::as_mut_simd_f32s(&mut tile);
        to[..G * VECTORS].copy_from_slice(sums.as_flattened());
        let width = (self.call.out.end - first).min(G * panel);
        let write = self.call.write;
        let y = self.call.row(first..first + width);
        match write {
            Write::Replace => y.copy_from_slice(&tile[..width]),
            Write::Add => y.iter_mut().zip(&tile).for_each(|(y, sum)| *y += sum),
        }
    }
}

/// Of each digit, `sum over a block of (u - middle) digit`.
#[inline(always)]
fn block_dots<D: ByteDot, const WORDS: usize>(
    dot: D,
    block: &[[<D::Simd as Simd>::u32s; VECTORS]; WORDS],
    (x, middle): (&FixedBlock, i32),
) -> [[Integers<D>; VECTORS]; DIGITS] {
    let simd = dot.simd();
    let mut dots = [[simd.splat_i32s(0); VECTORS]; DIGITS];
    // Codes that share a byte.
    let planes = BLOCK / QUAD / (WORDS - 1);
    let mask = simd.splat_u32s(0x0f0f_0f0f);
    for (index, words) in block[..WORDS - 1].iter().enumerate() {
        for (vector, &word) in words.iter().enumerate() {
            for plane in 0..planes {
                let quad = plane * (WORDS - 1) + index;
                let shifted = simd.wrapping_dyn_shr_u32s(word, simd.splat_u32s(4 * plane as u32));
                for (dots, digits) in dots.iter_mut().zip(&x.digits) {
                    dots[vector] = match planes {
                        1 => dot.dot(dots[vector], word, digits[quad]),
                        _ => {
                            let codes = simd.and_u32s(shifted, mask);
                            dot.dot_nibbles(dots[vector], codes, digits[quad])
                        }
                    };
                }
            }
        }
    }
    for (dots, sum) in dots.iter_mut().zip(x.sums) {
        let middle = simd.splat_u32s((-middle * sum) as u32);
        for sum in dots {
            let settled = if planes == 1 { *sum } else { dot.settle(*sum) };
            let above = simd.add_u32s(simd.transmute_u32s_i32s(settled), middle);
            *sum = simd.transmute_i32s_u32s(above);
        }
    }
    dots
}

/// Adds a block to the sums.
#[inline(always)]
fn add<D: ByteDot>(
    dot: D,
    (dots, x): ([[Integers<D>; VECTORS]; DIGITS], &FixedBlock),
    (factors, shift): ([[<D::Simd as Simd>::f32s; 2]; VECTORS], f32),
    sums: &mut [<D::Simd as Simd>::f32s; VECTORS],
) {
    let simd = dot.simd();
    let (unit, total) = (simd.splat_f32s(x.unit), simd.splat_f32s(x.total));
    for (vector, (sum, [scale, offset])) in sums.iter_mut().zip(factors).enumerate() {
        let mut integer = dot.floats(dots[0][vector]);
        for dots in &dots[1..] {
            let digit = dot.floats(dots[vector]);
            integer = simd.mul_add_e_f32s(integer, simd.splat_f32s(RADIX), digit);
        }
        let offset = simd.mul_add_e_f32s(scale, simd.splat_f32s(shift), offset);
        *sum = simd.mul_add_e_f32s(simd.mul_f32s(integer, unit), scale, *sum);
        *sum = simd.mul_add_e_f32s(offset, total, *sum);
    }
}
