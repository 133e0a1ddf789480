//! `y = x W^T + bias` for a block of rows, with weights widened piece by piece where they are not
//! stored as f32.

use crate::weights::{Linear, Matrix};
use ringattn_core::DType;
use ringattn_engine::cpu::dense::{self, Columns, DenseError, Write};

/// Widened weights that are held at once, in elements.
const WIDENED: usize = 1 << 20;

/// `y = x W^T + bias` or `y += x W^T + bias`; `x` `[rows, in]`, `y` `[rows, out]`.
pub(crate) fn linear(
    layer: &Linear,
    x: &[f32],
    y: &mut [f32],
    write: Write,
    widened: &mut Vec<f32>,
) -> Result<(), DenseError> {
    let (weight, out) = (&layer.weight, layer.weight.rows());
    let rows = x.len() / weight.cols().max(1);
    for first in (0..out).step_by(panel(weight)) {
        let end = (first + panel(weight)).min(out);
        let target = Columns { data: &mut *y, width: out, first };
        multiply(weight, first..end, (x, rows), (target, write), widened)?;
    }
    if let Some(bias) = &layer.bias {
        for row in y.chunks_exact_mut(out) {
            row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
        }
    }
    Ok(())
}

/// Columns `range` of `x W^T`.
pub(crate) fn multiply(
    weight: &Matrix,
    range: std::ops::Range<usize>,
    (x, rows): (&[f32], usize),
    (y, write): (Columns<'_>, Write),
    widened: &mut Vec<f32>,
) -> Result<(), DenseError> {
    let cols = weight.cols();
    let part = dense::Matrix {
        rows: range.len(),
        cols,
        data: weight.rows_f32(range, widened),
    };
    dense::multiply_transposed(dense::Matrix { data: x, rows, cols }, part, y, write)
}

/// Rows of the weight that are multiplied at once.
fn panel(weight: &Matrix) -> usize {
    match weight.dtype() {
        DType::F32 => weight.rows().max(1),
        DType::Bf16 | DType::F16 => (WIDENED / weight.cols().max(1)).max(16),
    }
}
