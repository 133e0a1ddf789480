//! Dense layers over few rows, the shape of decoding: threads share out the out features.
//!
//! `y = x W^T + bias` or `y += x W^T + bias`, bound by the reading of `W`. An element of `y` depends on
//! its row of `x` and its row of `W` alone, so this gives the same bits as the path that shares out
//! rows, for any number of threads.

use super::layer::DensePassError;
use super::workers::Workers;
use crate::weights::Linear;
use ringattn_core::{Progress, try_filled};
use ringattn_engine::cpu::dense::{Columns, PANEL_STEP, PackedMatrix, StagedRows, Write};

/// The most rows that come here; more give every thread rows of its own.
pub(crate) const ROWS: usize = 24;

/// Pieces for each thread, so that one which is held up leaves the others work.
const PIECES: usize = 3;

/// A matrix and what its product goes to, `[rows, out]`.
pub(crate) struct Product<'a> {
    pub(crate) matrix: &'a PackedMatrix,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) y: &'a mut [f32],
    pub(crate) write: Write,
}

impl<'a> Product<'a> {
    /// The product with a layer's weight.
    pub(crate) fn of(layer: &'a Linear, y: &'a mut [f32], write: Write) -> Self {
        Self { matrix: &layer.weight, bias: layer.bias.as_deref(), y, write }
    }
}

/// Out features `first ..` of a product, `[rows, len]`.
struct Piece<'a> {
    matrix: &'a PackedMatrix,
    bias: Option<&'a [f32]>,
    write: Write,
    first: usize,
    len: usize,
    y: &'a mut [f32],
}

/// Computes all products of the same staged rows.
pub(crate) fn multiply(
    x: &StagedRows,
    products: &mut [Product<'_>],
    workers: &Workers,
    progress: &dyn Progress,
) -> Result<(), DensePassError> {
    let total = products.iter().map(|product| product.y.len()).sum();
    let mut buffer = try_filled(total, 0.0)?;
    let panels: usize = products.iter().map(|p| p.matrix.rows().div_ceil(PANEL_STEP)).sum();
    let len = panels.div_ceil(PIECES * workers.threads()).max(1) * PANEL_STEP;
    let mut pieces = Vec::new();
    let mut rest = &mut buffer[..];
    for product in &*products {
        let width = product.matrix.rows();
        let rows = product.y.len() / width.max(1);
        for first in (0..width).step_by(len) {
            let len = len.min(width - first);
            let (y, behind) = rest.split_at_mut(rows * len);
            rest = behind;
            if product.write == Write::Add {
                for (to, from) in y.chunks_exact_mut(len).zip(product.y.chunks_exact(width)) {
                    to.copy_from_slice(&from[first..first + len]);
                }
            }
            let bias = product.bias.map(|bias| &bias[first..first + len]);
            let (matrix, write) = (product.matrix, product.write);
            pieces.push(Piece { matrix, bias, write, first, len, y });
        }
    }
    workers.each(pieces, |piece, scratch| {
        let target = Columns { data: &mut *piece.y, width: piece.len, first: 0 };
        let columns = piece.first..piece.first + piece.len;
        piece.matrix.multiply(columns, x, (target, piece.write), &mut scratch.dense)?;
        if let Some(bias) = piece.bias {
            for row in piece.y.chunks_exact_mut(piece.len) {
                row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
            }
        }
        Ok::<_, DensePassError>(progress.advance()?)
    })?;
    let mut rest = &buffer[..];
    for product in products {
        let width = product.matrix.rows();
        let rows = product.y.len() / width.max(1);
        for first in (0..width).step_by(len) {
            let len = len.min(width - first);
            let (y, behind) = rest.split_at(rows * len);
            rest = behind;
            for (from, to) in y.chunks_exact(len).zip(product.y.chunks_exact_mut(width)) {
                to[first..first + len].copy_from_slice(from);
            }
        }
    }
    Ok(())
}
