//! The product of a single row, the shape of decoding: bound by the reading of `W`.
//!
//! Several panels are taken at once, so that enough sums are under way, and weights are widened in
//! registers. Each sum is the same chain over a piece of the depth as the micro-kernel's, so the bits
//! are the same.

use super::{Columns, MAX_PANEL, Panels, Write};
use crate::decode::stored::{Stored, place};
use crate::isa::VECTORS;
use crate::quantised::{COLUMNS, QuantisedPanel, QuantisedPanels, byte, widened};
use crate::staged::{StagedRows, pieces};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// The most panels that are taken at once.
const PANELS: usize = 4;

/// `y = x W^T` of one row, its sizes checked.
pub(super) struct Single<'a> {
    pub(super) panels: &'a Panels,
    pub(super) cols: usize,
    pub(super) out: Range<usize>,
    pub(super) x: &'a StagedRows,
    pub(super) y: Columns<'a>,
    pub(super) write: Write,
}

impl WithSimd for Single<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (panels, cols) = (self.panels, self.cols);
        match panels {
            Panels::F32(data) => self.run(simd, PlainPanels { data, cols }),
            Panels::Bf16(data) => self.run(simd, PlainPanels { data, cols }),
            Panels::F16(data) => self.run(simd, PlainPanels { data, cols }),
            Panels::Quantised(panels) => self.run(simd, panels),
        }
    }
}

/// Panels whose weights can be multiplied as they are stored.
trait Weights<S: Simd>: Copy {
    /// Panels that are taken at once: enough sums to hide an addition's latency, and registers for what
    /// they need.
    const AT_ONCE: usize;

    /// `sum over k of x[k] w[k]` for each row of `G` panels from a row on, over a range of columns,
    /// at whose start `x` begins.
    fn sums<const G: usize>(
        self,
        simd: S,
        place: (usize, &Range<usize>),
        x: &[f32],
    ) -> [[S::f32s; VECTORS]; G];

    /// Where among the sums that of row `row` is.
    #[inline(always)]
    fn place(row: usize) -> usize {
        row
    }
}

impl Single<'_> {
    #[inline(always)]
    fn run<S: Simd, W: Weights<S>>(mut self, simd: S, weights: W) {
        let panel = VECTORS * S::F32_LANES;
        let mut first = self.out.start;
        while first < self.out.end {
            let panels = (self.out.end - first).div_ceil(panel).min(W::AT_ONCE);
            match panels {
                PANELS => self.group::<S, PANELS, _>(simd, first, weights),
                3 => self.group::<S, 3, _>(simd, first, weights),
                2 => self.group::<S, 2, _>(simd, first, weights),
                _ => self.group::<S, 1, _>(simd, first, weights),
            }
            first += panels * panel;
        }
    }

    /// `G` panels from row `first` on.
    #[inline(always)]
    fn group<S: Simd, const G: usize, W: Weights<S>>(&mut self, simd: S, first: usize, weights: W) {
        let width = (self.out.end - first).min(G * VECTORS * S::F32_LANES);
        let column = self.y.first + first - self.out.start;
        let y = &mut self.y.data[column..column + width];
        let mut tile = [0.0_f32; PANELS * MAX_PANEL];
        if self.write == Write::Add {
            y.iter().enumerate().for_each(|(row, &y)| tile[W::place(row)] = y);
        }
        let (totals, _) = S::as_mut_simd_f32s(&mut tile);
        for (index, inner) in pieces(self.cols).enumerate() {
            let x = &self.x.piece(index, 0, 1)[..inner.len()];
            let sums = weights.sums::<G>(simd, (first, &inner), x);
            for (total, &sum) in totals.iter_mut().zip(sums.as_flattened()) {
                let replace = index == 0 && self.write == Write::Replace;
                *total = if replace { sum } else { simd.add_f32s(*total, sum) };
            }
        }
        y.iter_mut().enumerate().for_each(|(row, y)| *y = tile[W::place(row)]);
    }
}

/// Panels `[cols][panel rows]` of plain elements.
#[derive(Clone, Copy)]
struct PlainPanels<'a, E> {
    data: &'a [E],
    cols: usize,
}

impl<E: Stored, S: Simd> Weights<S> for PlainPanels<'_, E> {
    const AT_ONCE: usize = PANELS;

    #[inline(always)]
    fn sums<const G: usize>(
        self,
        simd: S,
        (first, inner): (usize, &Range<usize>),
        x: &[f32],
    ) -> [[S::f32s; VECTORS]; G] {
        // A column of a panel is one pair.
        let panel = VECTORS * S::F32_LANES;
        let panels: [&[E]; G] = std::array::from_fn(|index| {
            let from = (first + index * panel) * self.cols + inner.start * panel;
            &self.data[from..from + x.len() * panel]
        });
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; G];
        for (k, &x) in x.iter().enumerate() {
            let x = simd.splat_f32s(x);
            for (sums, panel_data) in sums.iter_mut().zip(panels) {
                // SAFETY: the panel holds a pair for each element of `x`.
                let weights = unsafe { E::pair(simd, panel_data.as_ptr().add(k * panel)) };
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    *sum = simd.mul_add_e_f32s(x, weight, *sum);
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn place(row: usize) -> usize {
        place::<E>(row, S::F32_LANES)
    }
}

impl<S: Simd> Weights<S> for &QuantisedPanels {
    /// One panel's codes are work enough.
    const AT_ONCE: usize = 1;

    #[inline(always)]
    fn sums<const G: usize>(
        self,
        simd: S,
        (first, inner): (usize, &Range<usize>),
        x: &[f32],
    ) -> [[S::f32s; VECTORS]; G] {
        let panel = VECTORS * S::F32_LANES;
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; G];
        // No closure: what it holds would not be compiled for the instruction set.
        for (index, sums) in sums.iter_mut().enumerate() {
            *sums = panel_sums(simd, self.panel(first + index * panel), inner, (x, self.block()));
        }
        sums
    }
}

/// The sums of one quantised panel, whose factors serve `block` columns each.
#[inline(always)]
fn panel_sums<S: Simd>(
    simd: S,
    panel: QuantisedPanel<'_>,
    inner: &Range<usize>,
    (x, block): (&[f32], usize),
) -> [S::f32s; VECTORS] {
    let words = panel.words::<S, VECTORS>();
    let mut sums = [simd.splat_f32s(0.0); VECTORS];
    let mut column = inner.start;
    while column < inner.end {
        let next = ((column / block + 1) * block).min(inner.end);
        let factors = panel.factors::<S, VECTORS>(column);
        let x = &x[column - inner.start..next - inner.start];
        // Whole words, where the part begins with one, then what is left column by column.
        let aligned = if column.is_multiple_of(COLUMNS) { x.len() / COLUMNS * COLUMNS } else { 0 };
        let (whole, rest) = x.split_at(aligned);
        for (x, words) in whole.as_chunks::<COLUMNS>().0.iter().zip(&words[column / COLUMNS..]) {
            for ((sum, &word), &factors) in sums.iter_mut().zip(words).zip(&factors) {
                for (index, &x) in x.iter().enumerate() {
                    let weight = widened(simd, byte(simd, word, index), factors);
                    *sum = simd.mul_add_e_f32s(simd.splat_f32s(x), weight, *sum);
                }
            }
        }
        for (column, &x) in (column + aligned..next).zip(rest) {
            for ((sum, &word), &factors) in
                sums.iter_mut().zip(&words[column / COLUMNS]).zip(&factors)
            {
                let weight = widened(simd, byte(simd, word, column % COLUMNS), factors);
                *sum = simd.mul_add_e_f32s(simd.splat_f32s(x), weight, *sum);
            }
        }
        column = next;
    }
    sums
}
