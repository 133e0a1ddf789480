//! What one core can do at best, measured: the roof that kernel speeds are compared with.
//!
//! Speeds only make sense beside a limit taken in the same minute on the same machine.

use crate::Isa;
use pulp::{Simd, WithSimd};
use std::hint::black_box;
use std::time::Instant;

/// Floating-point operations per second of independent fused multiply-adds in registers on one core
/// under `isa`; 0 when this processor lacks it.
///
/// Takes the best of many windows of a fraction of a millisecond, about 50 ms in all, so that other
/// work on the machine hardly shows.
pub fn fma_peak(isa: Isa) -> f64 {
    const WINDOWS: usize = 200;
    let mut best: f64 = 0.0;
    for _ in 0..WINDOWS {
        let start = Instant::now();
        let Some(operations) = isa.run(Multiplications { steps: 8192 }) else { return 0.0 };
        best = best.max(operations / start.elapsed().as_secs_f64().max(1e-9));
    }
    best
}

/// A loop of nothing but multiply-adds.
struct Multiplications {
    steps: usize,
}

impl WithSimd for Multiplications {
    /// Floating-point operations done.
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        // Latency 4 times two units: 12 chains fill the units, and fit 16 registers.
        const CHAINS: usize = 12;
        // The compiler must not know that chains start alike, or it merges them into one.
        let mut sums = [simd.splat_f32s(0.0); CHAINS];
        for sum in &mut sums {
            *sum = simd.splat_f32s(black_box(1.0));
        }
        let (factor, term) = (simd.splat_f32s(black_box(0.5)), simd.splat_f32s(black_box(0.25)));
        for _ in 0..self.steps {
            for sum in &mut sums {
                *sum = simd.mul_add_e_f32s(*sum, factor, term);
            }
        }
        for sum in sums {
            black_box(simd.reduce_sum_f32s(sum));
        }
        (2 * CHAINS * S::F32_LANES * self.steps) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_no_slower_than_scalars() {
        let peaks: Vec<f64> = Isa::available().into_iter().map(fma_peak).collect();
        assert!(peaks.iter().all(|&peak| peak > 1e6), "{peaks:?}");
        assert!(peaks[0] >= peaks[peaks.len() - 1] * 0.8, "{peaks:?}");
    }
}
