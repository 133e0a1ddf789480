//! RMSNorm: `y = x / sqrt(mean(x^2) + eps) * weight` (1910.07467).

/// Normalises rows of `weight.len()` elements from `x` into `y`.
pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f64, y: &mut [f32]) {
    let width = weight.len();
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        let scale = reciprocal_root(x, eps);
        for ((y, x), weight) in y.iter_mut().zip(x).zip(weight) {
            *y = x * scale * weight;
        }
    }
}

/// The same in place.
pub(crate) fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f64) {
    for x in x.chunks_exact_mut(weight.len()) {
        let scale = reciprocal_root(x, eps);
        x.iter_mut().zip(weight).for_each(|(x, weight)| *x = *x * scale * weight);
    }
}

fn reciprocal_root(x: &[f32], eps: f64) -> f32 {
    // Squares in f64: neither overflow nor rounding of the sum can matter.
    let sum: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    (1.0 / (sum / x.len() as f64 + eps).sqrt()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_follow_the_formula() {
        let x = [3.0, -4.0, 0.0, 5.0, 1e20, 0.0];
        let weight = [1.0, 2.0, 3.0];
        let mut y = [0.0; 6];
        rms_norm(&x, &weight, 1e-5, &mut y);
        let scale = (25.0_f64 / 3.0 + 1e-5).sqrt().recip() as f32;
        assert_eq!(y[..3], [3.0 * scale, -4.0 * scale * 2.0, 0.0]);
        assert!((y[4] - 3.0_f32.sqrt() * 2.0).abs() < 1e-5);
        let mut in_place = x;
        rms_norm_in_place(&mut in_place, &weight, 1e-5);
        assert_eq!(in_place, y);
    }
}
