//! The row pass: logits become weights, the running maximum and sum follow.
//!
//! `m' = max(m, max s)`, `p = 2^(s - m')`, `z' = z 2^(m - m') + sum p`. Works on tame rows only, so
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

/// `2^x` for `x <= 0` or NaN, by lane. Below -127 the result is exactly 0, also for `-inf`.
#[inline(always)]
pub(crate) fn exp2<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    // At -127 the polynomial is exactly 1, whose exponent bits the integer sum below cancels. The
    // constant is the first operand because x86 returns the second one when either is NaN.
    let x = simd.max_f32s(simd.splat_f32s(-127.0), x);
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

/// Turns the logits of one row into weights and folds them into `(m, z)`.
///
/// `row` is the row of S in vectors, `hull` what the row's group sees, `seen` what the row itself
/// sees: weights of the hull's other keys become 0. Returns the factor by which the row of Y has to
/// shrink, when the maximum grew.
#[inline(always)]
pub(crate) fn weigh<S: Simd>(
    simd: S,
    row: &mut [S::f32s],
    (hull, seen): (Span, Span),
    m: &mut f32,
    z: &mut S::f32s,
) -> Option<f32> {
    let lanes = S::F32_LANES;
    let zero = simd.splat_f32s(0.0);
    let row = &mut row[hull.start / lanes..hull.end.div_ceil(lanes)];
    if seen.is_empty() {
        row.fill(zero);
        return None;
    }
    let origin = hull.start / lanes;
    let (first, last) = (seen.start / lanes - origin, seen.end.div_ceil(lanes) - origin);
    let (before, rest) = row.split_at_mut(first);
    let (row, behind) = rest.split_at_mut(last - first);
    before.fill(zero);
    behind.fill(zero);
    hide_edges(simd, row, seen);

    let mut top = row[0];
    for &logits in row.iter() {
        top = simd.max_f32s(top, logits);
    }
    let top = simd.reduce_max_f32s(top);
    let mut shrink = None;
    if top > *m {
        let factor = exp2(simd, simd.splat_f32s(*m - top));
        *z = simd.mul_f32s(*z, factor);
        *m = top;
        shrink = Some(simd.reduce_max_f32s(factor));
    }
    let shift = simd.splat_f32s(*m);
    let mut sum = *z;
    for logits in row {
        let weight = exp2(simd, simd.sub_f32s(*logits, shift));
        *logits = weight;
        sum = simd.add_f32s(sum, weight);
    }
    *z = sum;
    shrink
}

/// Writes `-inf` over the unseen lanes of the first and the last vector.
#[inline(always)]
fn hide_edges<S: Simd>(simd: S, row: &mut [S::f32s], seen: Span) {
    let lanes = S::F32_LANES;
    let hidden = simd.splat_f32s(f32::NEG_INFINITY);
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
