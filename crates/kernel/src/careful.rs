//! The careful path: one query row, some keys, in f64, for inputs that the vector path must not see.
//!
//! The same formulas, with every number checked. A logit that is NaN, infinite, or beyond f32 makes
//! `z` NaN, so that it is never swallowed; a NaN or infinity in a value reaches `y` by arithmetic.

use crate::rows::Rows;
use std::f64::consts::LOG2_E;
use std::ops::Range;

/// One query row and the keys that it meets.
pub(crate) struct Meeting<'a> {
    /// The query as given, `[d]`.
    pub(crate) query: &'a [f32],
    /// The block's keys.
    pub(crate) keys: Rows<'a>,
    /// The block's values.
    pub(crate) values: Rows<'a>,
    /// The slots to meet.
    pub(crate) slots: Range<usize>,
    /// The key head.
    pub(crate) head: usize,
    /// The softmax scale in natural units.
    pub(crate) scale: f32,
}

impl Meeting<'_> {
    /// Folds the keys into `m`, `z` (whose first lane takes the sum) and `y`.
    pub(crate) fn fold(&self, m: &mut f32, z: &mut [f32], y: &mut [f32]) {
        // Rounded as `m` is, so that no logit lies above the maximum.
        let logits: Vec<f32> = self.slots.clone().map(|slot| self.logit(slot) as f32).collect();
        if logits.iter().any(|logit| !logit.is_finite()) {
            z.fill(f32::NAN);
            return;
        }
        let top = f64::from(logits.iter().fold(*m, |top, &logit| top.max(logit)));
        let kept = if *m == f32::NEG_INFINITY { 0.0 } else { (f64::from(*m) - top).exp2() };
        let mut sums: Vec<f64> = y.iter().map(|&value| f64::from(value) * kept).collect();
        let mut total = z.iter().map(|&lane| f64::from(lane)).sum::<f64>() * kept;
        for (slot, &logit) in self.slots.clone().zip(&logits) {
            let weight = (f64::from(logit) - top).exp2();
            total += weight;
            let row = self.values.row(self.head, slot);
            for (offset, sum) in sums.iter_mut().enumerate().take(self.query.len()) {
                *sum += weight * f64::from(row.get(offset));
            }
        }
        *m = top as f32;
        z.fill(0.0);
        z[0] = total as f32;
        for (value, sum) in y.iter_mut().zip(sums) {
            *value = sum as f32;
        }
    }

    /// The logit in base-2 units.
    fn logit(&self, slot: usize) -> f64 {
        let row = self.keys.row(self.head, slot);
        let dot: f64 = (self.query.iter().enumerate())
            .map(|(offset, &q)| f64::from(q) * f64::from(row.get(offset)))
            .sum();
        dot * f64::from(self.scale) * LOG2_E
    }
}
