//! The state of a rank's query rows on the CPU, whose `y` lies where the output shall be.

use super::in_order;
use ringattn_core::{ElementsView, Log2, NaturalLog, OutOfMemory, Slot, normalize, try_filled};
use ringattn_kernel::{OutputRows, StateMut, non_finite};

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
    /// Query rows with a NaN or an infinity in any of these, in order. Found while they are in cache.
    pub(super) non_finite: Vec<Slot>,
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
        y.for_each_mut(|_, _, row| row.fill(0.0));
        Ok(Self { m, z, y })
    }

    pub(super) fn lend(&mut self) -> StateMut<'_> {
        StateMut { m: &mut self.m, z: &mut self.z, y: self.y.reborrow() }
    }

    /// `out = y / z` in place of `y`, and `lse`.
    pub(super) fn finish(self) -> CpuOutput<'a> {
        let Self { m, z, y: mut out } = self;
        let lse: Vec<NaturalLog> = m.iter().zip(&z).map(|(m, &z)| m.times(z)).collect();
        let (rows, mut bad) = (out.len(), Vec::new());
        out.for_each_mut(|head, slot, row| {
            let cell = head * rows + slot;
            normalize(row, z[cell]);
            if !lse[cell].0.is_finite() || non_finite(ElementsView::F32(row)).is_some() {
                bad.push(Slot(slot as u64));
            }
        });
        CpuOutput { out, lse, non_finite: in_order(bad) }
    }
}
