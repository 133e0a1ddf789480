//! `y = x W^T + bias` for a block of rows.

use crate::weights::Linear;
use ringattn_engine::cpu::dense::{Columns, DenseError, Workspace, Write};

/// `y = x W^T + bias` or `y += x W^T + bias`; `x` `[rows, in]`, `y` `[rows, out]`.
pub(crate) fn linear(
    layer: &Linear,
    x: &[f32],
    (y, write): (&mut [f32], Write),
    workspace: &mut Workspace,
) -> Result<(), DenseError> {
    let out = layer.weight.rows();
    let target = Columns { data: &mut *y, width: out, first: 0 };
    layer.weight.multiply(0..out, x, (target, write), workspace)?;
    if let Some(bias) = &layer.bias {
        for row in y.chunks_exact_mut(out) {
            row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
        }
    }
    Ok(())
}
