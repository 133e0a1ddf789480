//! The online-softmax state `(m, z, y)` and its monoid.
//!
//! For a query row: `m` a running maximum of the logits (in base-2 units, `logit * log2 e`),
//! `z = sum 2^(s - m)`, `y = sum 2^(s - m) v`. The empty state `(-inf, 0, 0)` is the identity. Merge:
//! `m = max(ma, mb)`, `z = za 2^(ma - m) + zb 2^(mb - m)`, the same for `y`. It is associative and
//! commutative up to rounding, not idempotent: no block may be counted twice. A stored `m` need not
//! be the true maximum, only consistent with `z` and `y`. Result: `out = y / z`,
//! `lse = (m + log2 z) ln 2`; a row that saw nothing gives `out = 0`, `lse = -inf`.

use crate::{AttentionShape, Log2, NaturalLog, OutOfMemory, try_filled};
use thiserror::Error;

/// The states of all query rows of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    shape: AttentionShape,
    rows: usize,
    /// Running maxima, `[Hq, rows]`.
    pub m: Vec<Log2>,
    /// Sums of weights, `[Hq, rows]`.
    pub z: Vec<f32>,
    /// Weighted sums of values, `[rows, Hq, d]`.
    pub y: Vec<f32>,
}

/// States that do not belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot merge a state of {} rows ({:?}) into one of {} rows ({:?})",
        actual.0, actual.1, expected.0, expected.1)]
pub struct MergeError {
    /// Rows and shape of the state that was to take in the other.
    pub expected: (usize, AttentionShape),
    /// Those of the other.
    pub actual: (usize, AttentionShape),
}

/// The result of attention for the query rows of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// `[rows, Hq, d]`.
    pub out: Vec<f32>,
    /// Log of the sum of `exp(logit)`, `[Hq, rows]`.
    pub lse: Vec<NaturalLog>,
}

impl Partial {
    /// The identity for `rows` query rows.
    ///
    /// # Errors
    /// When the memory cannot be had.
    pub fn identity(shape: AttentionShape, rows: usize) -> Result<Self, OutOfMemory> {
        let heads = shape.query_heads();
        Ok(Self {
            shape,
            rows,
            m: try_filled(heads.saturating_mul(rows), Log2::NEG_INFINITY)?,
            z: try_filled(heads.saturating_mul(rows), 0.0)?,
            y: try_filled(shape.query_width().saturating_mul(rows), 0.0)?,
        })
    }

    /// A state of the given parts, whose lengths fit.
    pub(crate) fn from_parts(
        (shape, rows): (AttentionShape, usize),
        m: Vec<Log2>,
        z: Vec<f32>,
        y: Vec<f32>,
    ) -> Self {
        Self { shape, rows, m, z, y }
    }

    /// Heads and head dimension.
    pub fn shape(&self) -> AttentionShape {
        self.shape
    }

    /// Query rows, that is tokens.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Folds `other` into `self`; `self` is the first operand of every sum.
    ///
    /// # Errors
    /// When the two are states of different rows or shapes; nothing is changed then.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        if (self.shape, self.rows) != (other.shape, other.rows) {
            let (expected, actual) = ((self.rows, self.shape), (other.rows, other.shape));
            return Err(MergeError { expected, actual });
        }
        let head_dim = self.shape.head_dim();
        for row in 0..self.rows {
            for head in 0..self.shape.query_heads() {
                let at = head * self.rows + row;
                let first = (row * self.shape.query_heads() + head) * head_dim;
                let values = first..first + head_dim;
                let own = (&mut self.m[at], &mut self.z[at], &mut self.y[values.clone()]);
                merge_row(own, (other.m[at], other.z[at], &other.y[values]));
            }
        }
        Ok(())
    }

    /// `out = y / z` in place of `y`, and `lse`.
    pub fn finish(mut self) -> Attention {
        let head_dim = self.shape.head_dim();
        let heads = self.shape.query_heads();
        for (index, y) in self.y.chunks_exact_mut(head_dim).enumerate() {
            let (row, head) = (index / heads, index % heads);
            normalize(y, self.z[head * self.rows + row]);
        }
        let lse = self.m.iter().zip(&self.z).map(|(m, &z)| m.times(z)).collect();
        Attention { out: self.y, lse }
    }
}

/// `y / z` in place of `y`: zeros for a row that saw nothing.
pub fn normalize(y: &mut [f32], z: f32) {
    if z == 0.0 {
        y.fill(0.0);
    } else {
        y.iter_mut().for_each(|value| *value /= z);
    }
}

/// Folds the second state of a query row into the first, which is the first operand of every sum; an
/// empty second one changes nothing.
#[inline(always)]
pub fn merge_row(
    (m, z, y): (&mut Log2, &mut f32, &mut [f32]),
    (other_m, other_z, other_y): (Log2, f32, &[f32]),
) {
    if other_z == 0.0 && other_m == Log2::NEG_INFINITY {
        return;
    }
    let top = if other_m.0 > m.0 { other_m } else { *m };
    let (mine, theirs) = (weight(*m, top), weight(other_m, top));
    *m = top;
    *z = *z * mine + other_z * theirs;
    for (sum, &term) in y.iter_mut().zip(other_y) {
        *sum = *sum * mine + term * theirs;
    }
}

/// `2^(from - to)`, 0 for an empty state, without `(-inf) - (-inf)`.
fn weight(from: Log2, to: Log2) -> f32 {
    if from.0 == f32::NEG_INFINITY { 0.0 } else { (from.0 - to.0).exp2() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(m: f32, z: f32, y: f32) -> Partial {
        let shape = AttentionShape::new(1, 1, 1).unwrap();
        Partial { shape, rows: 1, m: vec![Log2(m)], z: vec![z], y: vec![y] }
    }

    fn identity() -> Partial {
        one(f32::NEG_INFINITY, 0.0, 0.0)
    }

    fn merged(first: &Partial, second: &Partial) -> Partial {
        let mut result = first.clone();
        result.merge(second).unwrap();
        result
    }

    #[test]
    fn the_empty_state_is_the_identity() {
        let state = one(-90000.0, 1.5, -3.0);
        assert_eq!(merged(&identity(), &identity()), identity());
        assert_eq!(merged(&identity(), &state), state);
        assert_eq!(merged(&state, &identity()), state);
        let nothing = identity().finish();
        assert_eq!(nothing.out, [0.0]);
        assert_eq!(nothing.lse, [NaturalLog(f32::NEG_INFINITY)]);
    }

    #[test]
    fn states_far_apart_stay_finite() {
        for delta in [-1e30_f32, -800.0, -100.0, 100.0, 800.0, 1e30] {
            let result = merged(&one(0.0, 1.0, 2.0), &one(delta, 1.0, 4.0)).finish();
            let expected = if delta > 0.0 { 4.0 } else { 2.0 };
            assert_eq!(result.out, [expected], "delta {delta}");
            assert!(result.lse[0].0.is_finite(), "delta {delta}");
        }
    }

    #[test]
    fn a_maximum_that_lags_changes_nothing() {
        // The same sum, its weights counted from two different maxima.
        let exact = one(3.0, 2.0, 6.0).finish();
        let lagging = one(0.0, 16.0, 48.0).finish();
        assert_eq!(exact, lagging);
    }

    #[test]
    fn the_lse_is_natural() {
        // One key with logit ln 8: m = 3 in base 2.
        let result = one(3.0, 1.0, 1.0).finish();
        assert!((result.lse[0].0 - 8.0_f32.ln()).abs() < 1e-7);
    }

    proptest! {
        #[test]
        fn merge_is_commutative_and_associative(
            states in prop::array::uniform3((-60.0f32..60.0, 0.5f32..4.0, -4.0f32..4.0)),
        ) {
            let [a, b, c] = states.map(|(m, z, y)| one(m, z, y));
            let orders = [
                merged(&merged(&a, &b), &c),
                merged(&a, &merged(&b, &c)),
                merged(&merged(&c, &b), &a),
            ].map(Partial::finish);
            for order in &orders[1..] {
                // Each order rounds a handful of times; y is at most 4 and z at least 0.5 times
                // the largest weight, so |out| <= 8 and its rounding stays below 8 * 8 * 2^-24.
                prop_assert!((order.out[0] - orders[0].out[0]).abs() <= 8.0 * 8.0 * f32::EPSILON);
                prop_assert!((order.lse[0].0 - orders[0].lse[0].0).abs() <= 64.0 * f32::EPSILON);
            }
        }
    }
}
