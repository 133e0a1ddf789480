//! `y = x W^T + bias` for a block of rows.

use super::layer::DensePassError;
use crate::weights::Linear;
use ringattn_core::Progress;
use ringattn_engine::cpu::dense::{Columns, PANEL_STEP, StagedRows, Workspace, Write};

/// Out features that are computed between two signs of progress: about 1 GFLOP for the widest
/// published layers, so that peers never take a slow rank for a stuck one.
const PIECE: usize = 16 * PANEL_STEP;

/// `y = x W^T + bias` or `y += x W^T + bias`; `x` `[rows, in]`, staged, `y` `[rows, out]`.
pub(crate) fn linear(
    layer: &Linear,
    x: &StagedRows,
    (y, write): (&mut [f32], Write),
    (workspace, progress): (&mut Workspace, &dyn Progress),
) -> Result<(), DensePassError> {
    let width = layer.weight.rows();
    for first in (0..width).step_by(PIECE) {
        let out = first..(first + PIECE).min(width);
        let target = Columns { data: &mut *y, width, first };
        layer.weight.multiply(out, x, (target, write), workspace)?;
        progress.advance()?;
    }
    if let Some(bias) = &layer.bias {
        for row in y.chunks_exact_mut(width) {
            row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
        }
    }
    Ok(())
}
