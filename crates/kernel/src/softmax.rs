//! The row pass: logits become weights, the running maximum and sum follow.
//!
//! `m' = max s` where that exceeds `m + LAG`, else `m' = m`; `p = 2^(s - m')`,
//! `z' = z 2^(m - m') + sum p` (the lazy rescaling of FlashAttention-4). Works on tame rows only, so
//! that no logit is NaN or infinite. Knows nothing of keys and values.

use crate::geometry::Span;
use pulp::Simd;
use std::f32::consts::LN_2;

/// `2^x = 1 + x (C[0] + x (C[1] + ...))` on `[-1/2, 1/2]`: minimax in relative error (2e-9) with
/// the constant held at 1; 0.94 ulp at most in f32.
const COEFFICIENTS: [f32; 6] =
    [LN_2, 0.240_226_48, 0.055_503_324, 0.009_618_437, 0.001_339_887_5, 0.000_153_533_62];

/// `1.5 * 2^23`: added to a small number it leaves the nearest integer in the low bits.
const ROUND: f32 = 12_582_912.0;

/// How far, in powers of two, a stored maximum may lie below the true one before sums are rescaled.
/// Weights reach `2^24` then, and values of tame rows times weights `2^64`: sums of `2^40` of those
/// stay within f32, whose relative precision does not depend on the scale.
const LAG: f32 = 24.0;

/// `2^x` for `x <= 64` or NaN, by lane. Below -127 the result is exactly 0, also for `-inf`.
#[inline(always)]
pub(crate) fn exp2<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    // At -127 the polynomial is exactly 1, whose exponent bits the integer sum below cancels.
    let lowest = simd.splat_f32s(-127.0);
    // NaN must pass: x86 returns the second operand when either is NaN and NEON the NaN, while
    // Rust's own maximum, which stands for one lane, would return the number.
    let x = if S::IS_SCALAR {
        simd.select_f32s(simd.less_than_f32s(x, lowest), lowest, x)
    } else {
        simd.max_f32s(lowest, x)
    };
    let rounded = simd.add_f32s(x, simd.splat_f32s(ROUND));
    let fraction = simd.sub_f32s(x, simd.sub_f32s(rounded, simd.splat_f32s(ROUND)));
    let mut power = simd.splat_f32s(COEFFICIENTS[5]);
    power = simd.mul_add_e_f32s(power, fraction, simd.splat_f32s(COEFFICIENTS[4]));
    power = simd.mul_add_e_f32s(power, fraction, simd.splat_f32s(COEFFICIENTS[3]));
    power = simd.mul_add_e_f32s(power, fraction, simd.splat_f32s(COEFFICIENTS[2]));
    power = simd.mul_add_e_f32s(power, fraction, simd.splat_f32s(COEFFICIENTS[1]));
    power = simd.mul_add_e_f32s(power, fraction, simd.splat_f32s(COEFFICIENTS[0]));
    power = simd.mul_add_e_f32s(power, fraction, simd.splat_f32s(1.0));
    let bits = simd.transmute_u32s_f32s(rounded);
    let exponent = simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(23));
    simd.transmute_f32s_u32s(simd.add_u32s(simd.transmute_u32s_f32s(power), exponent))
}

/// A factor in two parts, so that a product is rounded once although the factor is no f32.
#[derive(Clone, Copy)]
pub(crate) struct Factor {
    high: f32,
    low: f32,
}

impl Factor {
    pub(crate) fn new(factor: f64) -> Self {
        let high = factor as f32;
        Self { high, low: (factor - f64::from(high)) as f32 }
    }

    /// `to = from * factor`. A factor beyond f32 makes NaN or infinity of everything.
    #[inline(always)]
    pub(crate) fn multiply<S: Simd>(self, simd: S, from: &[f32], to: &mut [f32]) {
        let (high, low) = (simd.splat_f32s(self.high), simd.splat_f32s(self.low));
        let (vectors, tail) = S::as_simd_f32s(from);
        let (products, rest) = S::as_mut_simd_f32s(to);
        for (product, &x) in products.iter_mut().zip(vectors) {
            *product = simd.mul_add_e_f32s(x, high, simd.mul_f32s(x, low));
        }
        for (product, &x) in rest.iter_mut().zip(tail) {
            *product = x.mul_add(self.high, x * self.low);
        }
    }
}

/// The largest logit that a row sees; `-inf` when it sees none.
///
/// `row` is the row of S in vectors, `hull` what the row's group sees, `seen` what the row itself
/// sees. Logits of the hull's other keys become `-inf`.
#[inline(always)]
pub(crate) fn largest<S: Simd>(simd: S, row: &mut [S::f32s], (hull, seen): (Span, Span)) -> f32 {
    let lanes = S::F32_LANES;
    let hidden = simd.splat_f32s(f32::NEG_INFINITY);
    let row = &mut row[hull.start / lanes..hull.end.div_ceil(lanes)];
    if seen.is_empty() {
        row.fill(hidden);
        return f32::NEG_INFINITY;
    }
    let origin = hull.start / lanes;
    let (first, last) = (seen.start / lanes - origin, seen.end.div_ceil(lanes) - origin);
    row[..first].fill(hidden);
    row[last..].fill(hidden);
    let row = &mut row[first..last];
    hide_edges(simd, row, seen, f32::NEG_INFINITY);
    // Four chains: one would wait for each comparison.
    let mut tops = [row[0]; 4];
    let (quads, rest) = row.as_chunks::<4>();
    for quad in quads {
        for (top, &logits) in tops.iter_mut().zip(quad) {
            *top = simd.max_f32s(*top, logits);
        }
    }
    for &logits in rest {
        tops[0] = simd.max_f32s(tops[0], logits);
    }
    let (left, right) = (simd.max_f32s(tops[0], tops[1]), simd.max_f32s(tops[2], tops[3]));
    simd.reduce_max_f32s(simd.max_f32s(left, right))
}

/// Raises the maximum `m` to `top`, and shrinks `z` with it, when it lags by more than [`LAG`].
/// Returns the factor by which the row of Y has to shrink as well.
#[inline(always)]
pub(crate) fn raise<S: Simd>(simd: S, top: f32, m: &mut f32, z: &mut S::f32s) -> Option<S::f32s> {
    if top > *m + LAG {
        let factor = exp2(simd, simd.splat_f32s(*m - top));
        *z = simd.mul_f32s(*z, factor);
        *m = top;
        Some(factor)
    } else {
        None
    }
}

/// Turns logits into weights `2^(s - m)` and adds them to `z`.
#[inline(always)]
pub(crate) fn weigh<S: Simd>(simd: S, row: &mut [S::f32s], m: f32, z: &mut S::f32s) {
    let shift = simd.splat_f32s(m);
    let mut sum = *z;
    for logits in row {
        let weight = exp2(simd, simd.sub_f32s(*logits, shift));
        *logits = weight;
        sum = simd.add_f32s(sum, weight);
    }
    *z = sum;
}

/// Writes `filler` over the unseen lanes of the first and the last vector.
#[inline(always)]
pub(crate) fn hide_edges<S: Simd>(simd: S, row: &mut [S::f32s], seen: Span, filler: f32) {
    let lanes = S::F32_LANES;
    let hidden = simd.splat_f32s(filler);
    let (start, end) = (seen.start % lanes, seen.end % lanes);
    if start != 0
        && let Some(edge) = row.first_mut()
    {
        let mask = simd.mask_between_m32s(start as u32, lanes as u32).mask();
        *edge = simd.select_f32s(mask, *edge, hidden);
    }
    if end != 0
        && let Some(edge) = row.last_mut()
    {
        let mask = simd.mask_between_m32s(0, end as u32).mask();
        *edge = simd.select_f32s(mask, *edge, hidden);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use pulp::WithSimd;

    struct Exp2(f32);

    impl WithSimd for Exp2 {
        type Output = f32;
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> f32 {
            let powers = exp2(simd, simd.splat_f32s(self.0));
            let (lanes, _) =
                pulp::bytemuck::cast_slice::<_, f32>(std::slice::from_ref(&powers)).split_at(1);
            lanes[0]
        }
    }

    struct Raise {
        top: f32,
        m: f32,
    }

    impl WithSimd for Raise {
        /// The new maximum, a lane of `z` that was 1, and whether Y shrinks.
        type Output = (f32, f32, bool);
        #[inline(always)]
        fn with_simd<S: Simd>(mut self, simd: S) -> Self::Output {
            let mut z = simd.splat_f32s(1.0);
            let factor = raise(simd, self.top, &mut self.m, &mut z);
            (self.m, simd.reduce_max_f32s(z), factor.is_some())
        }
    }

    #[test]
    fn maxima_lag_by_so_much_and_no_more() {
        for isa in Isa::available() {
            for (m, top, expected) in [
                (3.0, 2.0, (3.0, 1.0, false)),
                (3.0, 27.0, (3.0, 1.0, false)),
                (3.0, 28.0, (28.0, 2_f32.powi(-25), true)),
                (f32::NEG_INFINITY, -1e30, (-1e30, 0.0, true)),
                (-1e30, 1e30, (1e30, 0.0, true)),
            ] {
                assert_eq!(isa.run(Raise { top, m }), Some(expected), "{isa} {m} {top}");
            }
        }
    }

    #[test]
    fn powers_are_within_an_ulp_and_reach_zero() {
        for isa in Isa::available() {
            let power = |x| isa.run(Exp2(x)).unwrap();
            for step in -24_000..126_000 {
                let x = -(step as f32) * 1e-3;
                let exact = f64::from(x).exp2();
                // 0.94 ulp with fused, some more with separate multiplications and additions.
                let error = (f64::from(power(x)) / exact - 1.0).abs();
                assert!(error < 1.5 * f64::from(f32::EPSILON), "{isa} {x} {error:e}");
            }
            assert_eq!(power(0.0), 1.0);
            for zero in [-127.0, -128.5, -1e30, f32::MIN, f32::NEG_INFINITY] {
                assert_eq!(power(zero).to_bits(), 0, "{isa} {zero}");
            }
            assert!(power(-126.5) < 2.0 * f32::MIN_POSITIVE);
            assert!(power(f32::NAN).is_nan() && power(-f32::NAN).is_nan(), "{isa}");
        }
    }
}
