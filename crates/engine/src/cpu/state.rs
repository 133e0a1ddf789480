//! The state of a rank's query rows on the CPU, whose `y` lies where the output shall be, and that of
//! visiting ones, which lies as it travels.

use super::in_order;
use crate::backend::MergeOrder;
use ringattn_core::{
    AttentionShape, ElementsView, Log2, NaturalLog, OutOfMemory, Partial, Slot, merge_row,
    normalize, try_filled,
};
use ringattn_kernel::{Arrangement, KernelError, OutputRows, StateMut, non_finite};

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

/// What errors call a state that came from another rank.
const ARRIVED: &str = "state of another rank";

/// Query heads and head dimension.
fn heads(shape: AttentionShape) -> (usize, usize) {
    (shape.query_heads(), shape.head_dim())
}

/// The empty state of so many visiting query rows.
pub(super) fn empty(shape: AttentionShape, rows: usize) -> Result<Partial, KernelError> {
    Partial::identity(shape, rows).map_err(no_memory)
}

/// A visiting state, to be written where it lies.
pub(super) fn lend(state: &mut Partial) -> Result<StateMut<'_>, KernelError> {
    let (heads, head_dim) = heads(state.shape());
    let arrangement = Arrangement::token_major(heads, state.rows(), head_dim);
    let Partial { m, z, y, .. } = state;
    Ok(StateMut { m, z, y: OutputRows::whole(y, arrangement)? })
}

fn no_memory(error: OutOfMemory) -> KernelError {
    KernelError::Memory { bytes: usize::try_from(error.bytes).unwrap_or(usize::MAX) }
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

    /// Makes it the empty state again.
    pub(super) fn clear(&mut self) {
        self.m.fill(Log2::NEG_INFINITY);
        self.z.fill(0.0);
        self.y.for_each_mut(|_, _, row| row.fill(0.0));
    }

    /// A copy that can travel.
    pub(super) fn partial(&self, shape: AttentionShape) -> Result<Partial, KernelError> {
        let mut partial = empty(shape, self.y.len())?;
        self.check(&partial)?;
        partial.m.copy_from_slice(&self.m);
        partial.z.copy_from_slice(&self.z);
        for (index, to) in partial.y.chunks_exact_mut(shape.head_dim()).enumerate() {
            let (row, head) = (index / shape.query_heads(), index % shape.query_heads());
            to.copy_from_slice(self.y.row(head, row));
        }
        Ok(partial)
    }

    /// Merges a state that came. Which operand is the first decides over the last bit, so that ranks
    /// which exchange their states get the same.
    pub(super) fn merge(
        &mut self,
        mut arrived: Partial,
        order: MergeOrder,
    ) -> Result<(), KernelError> {
        self.check(&arrived)?;
        let shape = arrived.shape();
        for (index, theirs) in arrived.y.chunks_exact_mut(shape.head_dim()).enumerate() {
            let (row, head) = (index / shape.query_heads(), index % shape.query_heads());
            let cell = head * self.y.len() + row;
            let (m, z) = (&mut self.m[cell], &mut self.z[cell]);
            let (their_m, their_z) = (&mut arrived.m[cell], &mut arrived.z[cell]);
            let own = self.y.row_mut(head, row);
            match order {
                MergeOrder::OwnFirst => merge_row((m, z, own), (*their_m, *their_z, theirs)),
                MergeOrder::ArrivedFirst => {
                    merge_row((their_m, their_z, theirs), (*m, *z, own));
                    (*m, *z) = (*their_m, *their_z);
                    own.copy_from_slice(theirs);
                }
            }
        }
        Ok(())
    }

    /// Whether the two are states of the same rows and heads.
    fn check(&self, other: &Partial) -> Result<(), KernelError> {
        let (expected, actual) = (self.y.shape(), heads(other.shape()));
        if expected != actual {
            return Err(KernelError::Heads { tensor: ARRIVED, expected, actual });
        }
        let (expected, actual) = (self.y.len(), other.rows());
        if expected != actual {
            return Err(KernelError::Length { tensor: ARRIVED, expected, actual });
        }
        Ok(())
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
