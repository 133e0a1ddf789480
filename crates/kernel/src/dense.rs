//! Dense layers, `y = x W^T`, on the attention kernel's own micro-kernel.
//!
//! `W` is packed once, into panels `[in][panel rows]` of its own element type, or of codes and factors
//! where it is quantised; a panel is widened piece by piece while it is used. The inner dimension is cut
//! into equal pieces whose sums are added in order, so an element of `y` depends on its row of `x` and its
//! row of `W` alone: neither the number of rows in a call nor the panels chosen change a bit. Only a single
//! row's product with quantised weights is another sum (`integer`). Calls run on the caller's thread.

pub(crate) mod fixed;
mod integer;
mod single;

use crate::Isa;
use crate::isa::{Micro, MicroShape, ROWS_OF_32, Shaped, VECTORS};
use crate::lines::Lines;
use crate::pack::{transpose, widen};
use crate::quantised::QuantisedPanels;
use crate::staged::{DEPTH, LINE, pieces};
use crate::tile::{Operands, Start, multiply};
use crate::workspace::MAX_LANES;
use pulp::Simd;
use ringattn_core::{DType, ElementsView, OutOfMemory, PlainElement, bf16, f16, try_filled};
use std::ops::Range;
use thiserror::Error;

pub use crate::quantised::{BLOCK, Codes, QuantisedRow};
pub use crate::staged::StagedRows;
use integer::Integer;
use single::Single;

/// Rows of W in the widest panel.
const MAX_PANEL: usize = MAX_LANES * VECTORS;
/// Floats of the widest micro-tile.
const MICRO_TILE: usize = ROWS_OF_32 * MAX_PANEL;

/// A multiple of every instruction set's panel: where ranges of rows may begin.
pub const PANEL_STEP: usize = MAX_PANEL;

/// A weight matrix `[rows = out, cols = in]`, packed for one instruction set.
#[derive(Clone, Debug)]
pub struct PackedMatrix {
    isa: Isa,
    micro: MicroShape,
    rows: usize,
    cols: usize,
    data: Panels,
}

/// Panels of `cols * panel` elements; rows behind the last are 0.
#[derive(Clone, Debug)]
enum Panels {
    F32(Lines<f32>),
    Bf16(Lines<bf16>),
    F16(Lines<f16>),
    Quantised(QuantisedPanels),
}

impl Panels {
    /// The elements, where they are plain ones.
    fn plain(&self) -> Result<ElementsView<'_>, &QuantisedPanels> {
        match self {
            Self::F32(data) => Ok(ElementsView::F32(data)),
            Self::Bf16(data) => Ok(ElementsView::Bf16(data)),
            Self::F16(data) => Ok(ElementsView::F16(data)),
            Self::Quantised(panels) => Err(panels),
        }
    }
}

/// Columns `[first, first + n)` of a row-major matrix of `width` columns, to be written.
#[derive(Debug)]
pub struct Columns<'a> {
    /// The elements.
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

/// Working memory of one thread, reused from call to call: a piece of a panel, widened.
#[derive(Debug, Default)]
pub struct Workspace(Vec<f32>);

/// Why a dense layer could not be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DenseError {
    /// Sizes that do not fit together.
    #[error("dense layer: {what} is {actual}, expected {expected}")]
    Size {
        /// What does not fit.
        what: &'static str,
        /// What the other sizes ask for.
        expected: usize,
        /// What there is.
        actual: usize,
    },
    /// The processor lacks the instruction set.
    #[error("this processor has no {isa}")]
    Isa {
        /// What was asked for.
        isa: Isa,
    },
    /// No memory for the packed weights.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

pub(crate) fn size(what: &'static str, expected: usize, actual: usize) -> Result<(), DenseError> {
    if expected == actual { Ok(()) } else { Err(DenseError::Size { what, expected, actual }) }
}

impl PackedMatrix {
    /// Packs a matrix of `rows * cols` elements of `dtype`; `read` writes row `i` in f32 to its
    /// buffer, and values that `dtype` holds exactly are kept exactly.
    ///
    /// # Errors
    /// When this processor lacks `isa` or memory is lacking.
    pub fn pack(
        isa: Isa,
        (rows, cols): (usize, usize),
        dtype: DType,
        read: impl FnMut(usize, &mut [f32]),
    ) -> Result<Self, DenseError> {
        let micro = MicroShape::of(isa).ok_or(DenseError::Isa { isa })?;
        let data = match dtype {
            DType::F32 => Panels::F32(panels((rows, cols), micro, read)?),
            DType::Bf16 => Panels::Bf16(panels((rows, cols), micro, read)?),
            DType::F16 => Panels::F16(panels((rows, cols), micro, read)?),
        };
        Ok(Self { isa, micro, rows, cols, data })
    }

    /// Packs a quantised matrix of `rows * cols` codes, [`BLOCK`] columns of a row sharing a scale and an
    /// offset; `read` fills in row `i`.
    ///
    /// # Errors
    /// When the rows are no whole blocks, this processor lacks `isa`, or memory is lacking.
    pub fn pack_quantised(
        isa: Isa,
        (rows, cols): (usize, usize),
        codes: Codes,
        read: impl FnMut(usize, QuantisedRow<'_>),
    ) -> Result<Self, DenseError> {
        let micro = MicroShape::of(isa).ok_or(DenseError::Isa { isa })?;
        size("quantised row length", cols.next_multiple_of(BLOCK), cols)?;
        let panels = QuantisedPanels::pack((rows, cols / BLOCK), codes, micro.panel(), read)?;
        Ok(Self { isa, micro, rows, cols, data: Panels::Quantised(panels) })
    }

    /// Out features.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// In features.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The instruction set that it is packed for.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Bytes of the packed values.
    pub fn byte_len(&self) -> u64 {
        match self.data.plain() {
            Ok(data) => data.len() as u64 * data.dtype().size(),
            Err(panels) => panels.byte_len(),
        }
    }

    /// Writes row `row` to `out`, `cols` floats.
    ///
    /// # Errors
    /// When there is no such row, or `out` has another length.
    pub fn row(&self, row: usize, out: &mut [f32]) -> Result<(), DenseError> {
        size("row", row.min(self.rows.saturating_sub(1)), row)?;
        size("row length", self.cols, out.len())?;
        let panel = self.micro.panel();
        let first = row / panel * panel * self.cols + row % panel;
        match self.data.plain() {
            Err(panels) => panels.row(row, out),
            Ok(data) => {
                for (column, value) in out.iter_mut().enumerate() {
                    *value = data.get(first + column * panel);
                }
            }
        }
        Ok(())
    }

    /// Columns `out` of `y = x W^T` (or `y += x W^T`). `out` is a range of rows of W that begins at a
    /// multiple of [`PANEL_STEP`] and ends at one or at the last row.
    ///
    /// # Errors
    /// When the sizes do not fit together.
    pub fn multiply(
        &self,
        out: Range<usize>,
        x: &StagedRows,
        (y, write): (Columns<'_>, Write),
        workspace: &mut Workspace,
    ) -> Result<(), DenseError> {
        size("columns of x", self.cols, x.cols())?;
        size("start of columns", out.start.next_multiple_of(PANEL_STEP), out.start)?;
        let end = if out.end.is_multiple_of(PANEL_STEP) { out.end } else { self.rows };
        size("end of columns", end, out.end)?;
        size("last column", out.end.min(self.rows), out.end)?;
        size("width of y", y.width.max(y.first + out.len()), y.width)?;
        size("y", x.rows() * y.width, y.data.len())?;
        let (single, call) = (x.rows() == 1, Call { out, x, y, write });
        let done = match self.data.plain() {
            Ok(weights) if single => self.isa.run(Single { weights, call }),
            Err(panels) if single && self.isa.has_dots() => {
                self.isa.run_dots(Integer { panels, call })
            }
            _ => self.isa.run(Shaped(Product { matrix: self, call, widened: &mut workspace.0 })),
        };
        done.ok_or(DenseError::Isa { isa: self.isa })
    }
}

/// What a call asks for, its sizes checked: columns `out` of the product with `x`, written to `y`.
struct Call<'a> {
    out: Range<usize>,
    x: &'a StagedRows,
    y: Columns<'a>,
    write: Write,
}

impl Call<'_> {
    /// Row 0 of `y` at columns `columns` of the whole product.
    #[inline(always)]
    fn row(&mut self, columns: Range<usize>) -> &mut [f32] {
        let first = self.y.first + columns.start - self.out.start;
        &mut self.y.data[first..first + columns.len()]
    }
}

/// `[rows, cols]` as panels `[cols][panel]`.
fn panels<T: PlainElement>(
    (rows, cols): (usize, usize),
    micro: MicroShape,
    mut read: impl FnMut(usize, &mut [f32]),
) -> Result<Lines<T>, OutOfMemory> {
    let panel = micro.panel();
    let len = rows.next_multiple_of(panel).saturating_mul(cols);
    let mut data = Lines::zeroed(len)?;
    let mut staged = try_filled(panel * cols, 0.0)?;
    let mut turned = try_filled(panel * cols, 0.0)?;
    for (index, to) in data.chunks_exact_mut((panel * cols).max(1)).enumerate() {
        for (row, staged) in (index * panel..).zip(staged.chunks_exact_mut(cols)) {
            if row < rows { read(row, staged) } else { staged.fill(0.0) }
        }
        transpose(&staged, cols, &mut turned);
        for (to, &from) in to.iter_mut().zip(&turned) {
            *to = T::from_f32(from);
        }
    }
    Ok(data)
}

/// The product of many rows, panel by panel, each widened once.
struct Product<'a> {
    matrix: &'a PackedMatrix,
    call: Call<'a>,
    widened: &'a mut Vec<f32>,
}

impl Micro for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_shape<S: Simd, const MR: usize, const NV: usize>(mut self, simd: S) {
        let panel = NV * S::F32_LANES;
        for (index, inner) in pieces(self.matrix.cols).enumerate() {
            let kept = index > 0 || self.call.write == Write::Add;
            let start = if kept { Start::Kept } else { Start::Zero };
            for first in (self.call.out.start..self.call.out.end).step_by(panel) {
                let width = panel.min(self.call.out.end - first);
                self.panel::<S, MR, NV>(simd, (first, width), (index, &inner), start);
            }
        }
    }
}

impl Product<'_> {
    /// One panel of W, the `index`-th piece `inner` of its depth, against all rows.
    #[inline(always)]
    fn panel<S: Simd, const MR: usize, const NV: usize>(
        &mut self,
        simd: S,
        (first, width): (usize, usize),
        (index, inner): (usize, &Range<usize>),
        start: Start,
    ) {
        let panel = NV * S::F32_LANES;
        let at = first * self.matrix.cols + inner.start * panel;
        let len = inner.len() * panel;
        let weights = match &self.matrix.data {
            Panels::F32(data) => &data[at..at + len],
            other => {
                self.widened.resize(DEPTH * MAX_PANEL, 0.0);
                let widened = &mut self.widened[..len];
                match other.plain() {
                    Ok(halves) => widen(halves, at, widened),
                    Err(panels) => panels.widen::<S, NV>(simd, (first, inner), widened),
                }
                &*widened
            }
        };
        let (y, ldc) = (&mut *self.call.y.data, self.call.y.width);
        let column = self.call.y.first + first - self.call.out.start;
        for row in (0..self.call.x.rows()).step_by(MR) {
            let rows = MR.min(self.call.x.rows() - row);
            let x = self.call.x.piece(index, row, MR);
            let target = Target { y: &mut y[row * ldc + column..], ldc, rows, width };
            match rows {
                1 => target.micro::<S, 1, NV>(simd, (x, inner.len()), weights, start),
                2..=4 => target.micro::<S, 4, NV>(simd, (x, inner.len()), weights, start),
                _ => target.micro::<S, MR, NV>(simd, (x, inner.len()), weights, start),
            }
        }
    }
}

/// Where a micro-tile goes: `rows` rows of `width` columns, the first at the start of `y`.
struct Target<'a> {
    y: &'a mut [f32],
    ldc: usize,
    rows: usize,
    width: usize,
}

impl Target<'_> {
    #[inline(always)]
    fn micro<S: Simd, const MR: usize, const NV: usize>(
        self,
        simd: S,
        (x, depth): (&[f32], usize),
        weights: &[f32],
        start: Start,
    ) {
        let panel = NV * S::F32_LANES;
        assert!(depth <= LINE && x.len() >= MR * LINE && weights.len() >= depth * panel);
        let (a, b) = (x.as_ptr(), weights.as_ptr());
        // The panel stays in the first cache, the rows behind these come next.
        let next = (a.wrapping_add(MR * LINE), (MR * LINE).div_ceil(depth.max(1)));
        let operands = Operands { a, b, line: NV, next };
        if self.rows == MR && self.width == panel {
            assert!(self.y.len() >= (MR - 1) * self.ldc + panel);
            // SAFETY: `x` holds MR rows of LINE >= depth floats, `weights` depth rows of NV
            // vectors, and `y` NV vectors at each of MR rows `ldc` apart (both asserts); `y` is
            // borrowed mutably.
            unsafe {
                let c = (self.y.as_mut_ptr(), self.ldc);
                multiply::<S, MR, NV, LINE>(simd, depth, operands, c, start);
            }
            return;
        }
        let mut tile = [0.0_f32; MICRO_TILE];
        assert!(MR * panel <= MICRO_TILE && self.rows <= MR && self.width <= panel);
        for (row, tile) in tile.chunks_exact_mut(panel).take(self.rows).enumerate() {
            let there = &self.y[row * self.ldc..][..self.width];
            tile[..self.width].copy_from_slice(there);
        }
        // SAFETY: as above, with the local tile of MR rows of NV vectors as the target.
        unsafe {
            let c = (tile.as_mut_ptr(), panel);
            multiply::<S, MR, NV, LINE>(simd, depth, operands, c, start);
        }
        for (row, tile) in tile.chunks_exact(panel).take(self.rows).enumerate() {
            self.y[row * self.ldc..][..self.width].copy_from_slice(&tile[..self.width]);
        }
    }
}

#[cfg(test)]
mod tests;
