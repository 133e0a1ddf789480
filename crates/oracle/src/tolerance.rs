//! How far a f32 result may lie from the f64 one.
//!
//! A logit `s` computed in f32 carries an error up to `e = 2^-22 max(1, max |s|)`; it moves `lse` by
//! as much and each weight by that factor. To this comes the rounding of the sums, 2e-6.

use crate::Dense;

/// Allowed absolute errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Of an element of `out`.
    pub out: f64,
    /// Of an element of `lse`.
    pub lse: f64,
}

impl Tolerance {
    /// `lse` within `2e-6 + 2e`, `out` within `2e-6 + 2e max |v|`.
    pub fn of(dense: &Dense) -> Self {
        let logit = 2.0_f64.powi(-22) * dense.largest_logit.max(1.0);
        Self { out: 2e-6 + 2.0 * logit * dense.largest_value, lse: 2e-6 + 2.0 * logit }
    }

    /// The first element of `out` or `lse` outside the tolerance, in words.
    pub fn violation(&self, dense: &Dense, out: &[f32], lse: &[f32]) -> Option<String> {
        if (out.len(), lse.len()) != (dense.out.len(), dense.lse.len()) {
            return Some(format!("lengths {} and {}", out.len(), lse.len()));
        }
        first_beyond(self.out, &dense.out, out)
            .map(|text| format!("out{text}"))
            .or_else(|| first_beyond(self.lse, &dense.lse, lse).map(|text| format!("lse{text}")))
    }
}

fn first_beyond(allowed: f64, expected: &[f64], actual: &[f32]) -> Option<String> {
    let beyond = |(&expected, &actual): (&f64, &f32)| {
        let actual = f64::from(actual);
        // Equal infinities have no difference; a NaN fails every comparison, so it counts as beyond.
        actual != expected && !matches!((actual - expected).abs(), error if error <= allowed)
    };
    let at = expected.iter().zip(actual).position(beyond)?;
    Some(format!("[{at}] = {}, expected {} within {allowed:e}", actual[at], expected[at]))
}
