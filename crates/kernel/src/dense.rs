//! Dense layers: `y = x W^T`, with the `gemm` library behind a safe door.
//!
//! Each call runs on one thread with blocking that depends on the sizes alone. Callers cut the work
//! by sizes and hand the pieces to threads, so that no thread count changes a sum.

use thiserror::Error;

/// A row-major matrix, `rows * cols` elements.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// The elements.
    pub data: &'a [f32],
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
}

/// Columns `[first, first + W.rows)` of a row-major matrix of `width` columns, to be written.
#[derive(Debug)]
pub struct Columns<'a> {
    /// The elements, `x.rows * width` of them.
    pub data: &'a mut [f32],
    /// Columns of the whole matrix.
    pub width: usize,
    /// The first column to write.
    pub first: usize,
}

/// What happens to the elements that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// They are replaced.
    Replace,
    /// The product is added to them.
    Add,
}

/// Matrices that do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("dense layer: {what} has {actual}, expected {expected}")]
pub struct DenseError {
    /// What does not fit.
    pub what: &'static str,
    /// What the other matrices ask for.
    pub expected: usize,
    /// What there is.
    pub actual: usize,
}

/// `y = x W^T` (or `y += x W^T`), `x` `[n, in]`, `weight` `[out, in]`, `y` `[n, out]`.
///
/// # Errors
/// When the sizes do not fit together.
pub fn multiply_transposed(
    x: Matrix<'_>,
    weight: Matrix<'_>,
    y: Columns<'_>,
    write: Write,
) -> Result<(), DenseError> {
    let needed = x.rows * y.width;
    let checks = [
        ("x", x.rows * x.cols, x.data.len()),
        ("W", weight.rows * weight.cols, weight.data.len()),
        ("columns of W", x.cols, weight.cols),
        ("y", needed, y.data.len()),
        ("columns of y", y.width, y.width.max(y.first + weight.rows)),
    ];
    for (what, expected, actual) in checks {
        if expected != actual {
            return Err(DenseError { what, expected, actual });
        }
    }
    if x.rows == 0 || weight.rows == 0 {
        return Ok(());
    }
    // A row-major destination is written as its transpose, y^T = W x^T, which gemm prefers.
    let (m, n, k) = (weight.rows, x.rows, x.cols);
    // SAFETY: all strides below stay inside the three slices: `x` holds `n * k` elements in rows of
    // `k`, `weight` `m * k` in rows of `k`, and row `i` of `y` holds columns `first .. first + m`,
    // where `first + m <= width` and `y` has `n * width` elements; all four were checked above. `y`
    // is borrowed mutably and so overlaps neither input, and the call runs on this thread alone.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            y.data.as_mut_ptr().add(y.first),
            y.width as isize,
            1,
            write == Write::Add,
            weight.data.as_ptr(),
            1,
            k as isize,
            x.data.as_ptr(),
            k as isize,
            1,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
    Ok(())
}
