//! The state of a rank's query rows on the CPU, whose `y` lies where the output shall be.

use ringattn_core::{Log2, NaturalLog, OutOfMemory, normalize, try_filled};
use ringattn_kernel::{OutputRows, StateMut};

/// The `(m, z, y)` of some query rows.
#[derive(Debug)]
pub struct CpuState<'a> {
    /// Running maxima, `[Hq, rows]`.
    m: Vec<Log2>,
    /// Sums of weights, `[Hq, rows]`.
    z: Vec<f32>,
    /// Weighted sums of values.
    y: OutputRows<'a>,
}

/// The result of attention for some query rows.
#[derive(Debug)]
pub struct CpuOutput<'a> {
    /// The rows, in place.
    pub out: OutputRows<'a>,
    /// Log of the sum of `exp(logit)`, `[Hq, rows]`.
    pub lse: Vec<NaturalLog>,
}

impl<'a> CpuState<'a> {
    /// The empty state of the query rows whose output goes to `y`; what `y` held is lost.
    ///
    /// # Errors
    /// When the memory for `m` and `z` cannot be had.
    pub fn empty(mut y: OutputRows<'a>) -> Result<Self, OutOfMemory> {
        let ((heads, _), rows) = (y.shape(), y.len());
        let cells = heads.saturating_mul(rows);
        let (m, z) = (try_filled(cells, Log2::NEG_INFINITY)?, try_filled(cells, 0.0)?);
        for head in 0..heads {
            (0..rows).for_each(|slot| y.row_mut(head, slot).fill(0.0));
        }
        Ok(Self { m, z, y })
    }

    pub(super) fn lend(&mut self) -> StateMut<'_> {
        StateMut { m: &mut self.m, z: &mut self.z, y: self.y.reborrow() }
    }

    /// `out = y / z` in place of `y`, and `lse`.
    pub(super) fn finish(self) -> CpuOutput<'a> {
        let Self { m, z, y: mut out } = self;
        let rows = out.len();
        for (cell, &z) in z.iter().enumerate() {
            normalize(out.row_mut(cell / rows, cell % rows), z);
        }
        let lse = m.iter().zip(&z).map(|(m, &z)| m.times(z)).collect();
        CpuOutput { out, lse }
    }
}
