//! Exponentials of a transformer's dense half: SwiGLU and the vocabulary's log-sum-exp.
//!
//! `silu(g) u = g / (1 + e^-g) u`, `log sum e^x = max + ln sum 2^((x - max) log2 e)`. Both with the
//! kernel's own `2^x`, whose argument is never positive here.

use crate::Isa;
use crate::softmax::exp2;
use pulp::{Simd, WithSimd};
use std::f32::consts::LOG2_E;

/// `gate[i] = silu(gate[i]) * up[i]`; elements beyond the shorter slice are left alone.
pub fn silu_multiply(isa: Isa, gate: &mut [f32], up: &[f32]) {
    let len = gate.len().min(up.len());
    let (gate, up) = (&mut gate[..len], &up[..len]);
    // A set that this processor lacks cannot have come out of `Isa::available`.
    if isa.run(Silu { gate: &mut *gate, up }).is_none() {
        Isa::Scalar.run(Silu { gate, up });
    }
}

/// `(max x, sum e^(x - max))` of all elements; `(-inf, 0)` of none. NaN goes through.
pub fn log_sum_exp(isa: Isa, values: &[f32]) -> (f32, f32) {
    let run = |isa: Isa| isa.run(LogSumExp { values });
    run(isa).or_else(|| run(Isa::Scalar)).unwrap_or((f32::NEG_INFINITY, 0.0))
}

struct Silu<'a> {
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl WithSimd for Silu<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (gates, gate_tail) = S::as_mut_simd_f32s(self.gate);
        let (ups, up_tail) = S::as_simd_f32s(self.up);
        for (gate, &up) in gates.iter_mut().zip(ups) {
            *gate = silu(simd, *gate, up);
        }
        if !gate_tail.is_empty() {
            let gate = simd.partial_load_f32s(gate_tail);
            let up = simd.partial_load_f32s(up_tail);
            simd.partial_store_f32s(gate_tail, silu(simd, gate, up));
        }
    }
}

/// `g / (1 + e^-g) u` by `t = e^-|g|`: `1 / (1 + t)` for `g >= 0`, else `t / (1 + t)`.
#[inline(always)]
fn silu<S: Simd>(simd: S, gate: S::f32s, up: S::f32s) -> S::f32s {
    let one = simd.splat_f32s(1.0);
    let t = exp2(simd, simd.mul_f32s(simd.abs_f32s(gate), simd.splat_f32s(-LOG2_E)));
    let positive = simd.greater_than_or_equal_f32s(gate, simd.splat_f32s(0.0));
    let sigmoid = simd.div_f32s(simd.select_f32s(positive, one, t), simd.add_f32s(one, t));
    simd.mul_f32s(simd.mul_f32s(gate, sigmoid), up)
}

struct LogSumExp<'a> {
    values: &'a [f32],
}

impl WithSimd for LogSumExp<'_> {
    type Output = (f32, f32);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (f32, f32) {
        let (vectors, tail) = S::as_simd_f32s(self.values);
        let mut top = simd.splat_f32s(f32::NEG_INFINITY);
        for &vector in vectors {
            top = simd.max_f32s(top, vector);
        }
        let max = tail.iter().fold(simd.reduce_max_f32s(top), |max, &x| max.max(x));
        if max == f32::NEG_INFINITY {
            return (max, 0.0);
        }
        let (shift, scale) = (simd.splat_f32s(max), simd.splat_f32s(LOG2_E));
        let mut sum = simd.splat_f32s(0.0);
        for &vector in vectors {
            let exponent = simd.mul_f32s(simd.sub_f32s(vector, shift), scale);
            sum = simd.add_f32s(sum, exp2(simd, exponent));
        }
        let rest: f32 = tail.iter().map(|x| (x - max).exp()).sum();
        (max, simd.reduce_sum_f32s(sum) + rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silu_and_log_sum_exp_agree_with_float64() {
        for isa in Isa::available() {
            for len in [0, 1, 7, 16, 33, 100] {
                let x: Vec<f32> = (0..len).map(|i| (i as f32 * 0.7).sin() * 30.0).collect();
                let up: Vec<f32> = (0..len).map(|i| (i as f32 * 1.3).cos()).collect();
                let mut gate = x.clone();
                silu_multiply(isa, &mut gate, &up);
                for i in 0..len {
                    let (g, u) = (f64::from(x[i]), f64::from(up[i]));
                    let expected = g / (1.0 + (-g).exp()) * u;
                    // A handful of roundings, and those of the exponent, which grow with it.
                    let bound = (4e-7 + 1.5e-7 * g.abs()) * expected.abs() + 1e-30;
                    assert!((f64::from(gate[i]) - expected).abs() <= bound, "{isa} {g}");
                }
                let (max, sum) = log_sum_exp(isa, &x);
                let expected = x.iter().map(|&v| f64::from(v).exp()).sum::<f64>().ln();
                let actual = f64::from(max) + f64::from(sum).ln();
                assert!(len == 0 && sum == 0.0 || (actual - expected).abs() < 4e-6, "{isa} {len}");
            }
        }
    }

    #[test]
    fn nan_is_not_swallowed() {
        for isa in Isa::available() {
            for at in [0, 20, 35] {
                let mut x = vec![1.0_f32; 36];
                x[at] = f32::NAN;
                let (max, sum) = log_sum_exp(isa, &x);
                assert!((max + sum).is_nan(), "{isa} {at}");
            }
        }
    }
}
