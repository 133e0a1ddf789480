//! The inverse frequencies of rotary position embedding.
//!
//! Pair `i` of a head of dimension `d` turns by `position * f_i`. Plain: `f_i = theta^(-2i/d)`.
//! Linear scaling: `f_i / factor`. Llama 3: with the wavelength `w = 2 pi / f_i`, the original
//! context `c` and `s = (c/w - low) / (high - low)`, the frequency is `f_i` where `w < c/high`,
//! `f_i / factor` where `w > c/low`, and `(1-s) f_i/factor + s f_i` between. GGUF files hold the
//! quotient of plain and scaled frequency instead. It knows neither tokens nor which two elements of
//! a head form a pair.

use std::f64::consts::TAU;

/// The inverse frequencies of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Radians per position for each pair of a head, `[head_dim / 2]`.
    pub inverse_frequencies: Vec<f64>,
}

/// How the frequencies are stretched for a context longer than the one trained first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All by the same factor.
    Linear {
        /// Quotient of new and old context.
        factor: f64,
    },
    /// Low ones by a factor, high ones not, and a ramp between.
    Llama3 {
        /// Quotient for the low frequencies.
        factor: f64,
        /// Turns within the original context below which a frequency is low.
        low: f64,
        /// Turns within the original context above which a frequency is high; more than `low`.
        high: f64,
        /// Tokens of the original context.
        original_context: f64,
    },
}

impl Rope {
    /// Frequencies for heads of dimension `head_dim` (even) and base `theta`.
    pub fn new(head_dim: usize, theta: f64, scaling: RopeScaling) -> Self {
        let plain = |pair: usize| theta.powf(-2.0 * pair as f64 / head_dim as f64);
        let pairs = 0..head_dim / 2;
        Self { inverse_frequencies: pairs.map(|pair| scaling.apply(plain(pair))).collect() }
    }

    /// Divides frequency `i` by `factors[i]`.
    pub(crate) fn divide(&mut self, factors: &[f32]) {
        for (frequency, &factor) in self.inverse_frequencies.iter_mut().zip(factors) {
            *frequency /= f64::from(factor);
        }
    }
}

impl RopeScaling {
    fn apply(self, frequency: f64) -> f64 {
        match self {
            Self::None => frequency,
            Self::Linear { factor } => frequency / factor,
            Self::Llama3 { factor, low, high, original_context } => {
                let turns = original_context * frequency / TAU;
                if turns > high {
                    frequency
                } else if turns < low {
                    frequency / factor
                } else {
                    let s = (turns - low) / (high - low);
                    (1.0 - s) * frequency / factor + s * frequency
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_follows_the_formulas() {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-15 * b.abs();
        let plain = Rope::new(8, 10_000.0, RopeScaling::None).inverse_frequencies;
        let expected = [1.0, 0.1, 0.01, 0.001];
        assert!(plain.iter().zip(expected).all(|(&a, b)| close(a, b)), "{plain:?}");
        let linear = Rope::new(8, 10_000.0, RopeScaling::Linear { factor: 4.0 });
        let quarter = |(&a, b): (&f64, f64)| close(a, b / 4.0);
        assert!(linear.inverse_frequencies.iter().zip(expected).all(quarter));

        let scaling =
            RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original_context: 256.0 };
        let scaled = Rope::new(8, 10_000.0, scaling).inverse_frequencies;
        // Turns in 256 tokens: 40.7, 4.07, 0.407, 0.0407: two high, two low.
        assert!(close(scaled[0], 1.0) && close(scaled[1], 0.1), "{scaled:?}");
        assert!(close(scaled[2], 0.01 / 8.0) && close(scaled[3], 0.001 / 8.0), "{scaled:?}");
        // Theta 100 and d = 4: the second frequency 0.1 with 157.08 tokens makes 2.5 turns, s = 1/2.
        let middle = RopeScaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high: 4.0,
            original_context: 2.5 * TAU / 0.1,
        };
        let ramp = Rope::new(4, 100.0, middle).inverse_frequencies[1];
        assert!((ramp - (0.5 * 0.1 / 8.0 + 0.5 * 0.1)).abs() < 1e-15, "{ramp}");
    }
}
