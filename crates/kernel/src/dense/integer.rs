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
        // Half as many as can be stored: 8 or 128.
        let middle = if WORDS == WORDS_OF_4_BITS { 8 } else { 128 };
        let shift = (middle + i32::from(self.panels.codes().lowest())) as f32;
        for first in self.call.out.clone().step_by(panel) {
            let width = (self.call.out.end - first).min(panel);
            let mut tile = [0.0_f32; MAX_PANEL];
            let to = D::Simd::as_mut_simd_f32s(&mut tile).0;
            let blocks = self.panels.panel::<D::Simd, VECTORS, WORDS>(first);
            let mut sums = [dot.simd().splat_f32s(0.0); VECTORS];
            for (block, x) in blocks.iter().zip(self.call.x.fixed()) {
                let dots = block_dots(dot, block, (x, middle));
                add(dot, (dots, x), (factors(dot.simd(), block), shift), &mut sums);
            }
            to[..VECTORS].copy_from_slice(&sums);
            let write = self.call.write;
            let y = self.call.row(first..first + width);
            match write {
                Write::Replace => y.copy_from_slice(&tile[..width]),
                Write::Add => y.iter_mut().zip(&tile).for_each(|(y, sum)| *y += sum),
            }
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
