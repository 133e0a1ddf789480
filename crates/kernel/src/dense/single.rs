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
    /// One panel's codes are work enough; short vectors leave additions to wait for.
    const AT_ONCE: usize = if S::REGISTER_COUNT >= 32 { 1 } else { 2 };

    #[inline(always)]
    fn sums<const G: usize>(
        self,
        simd: S,
        (first, inner): (usize, &Range<usize>),
        x: &[f32],
    ) -> [[S::f32s; VECTORS]; G] {
        let panel = VECTORS * S::F32_LANES;
        let panels: [QuantisedPanel<'_>; G] =
            std::array::from_fn(|index| self.panel(first + index * panel));
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; G];
        let mut column = inner.start;
        while column < inner.end {
            let next = ((column / self.block() + 1) * self.block()).min(inner.end);
            let part = Part { panels, columns: column..next };
            let x = &x[column - inner.start..next - inner.start];
            if column.is_multiple_of(COLUMNS) {
                let (quads, rest) = x.as_chunks();
                part.quads(simd, quads, &mut sums);
                part.columns(simd, quads.len() * COLUMNS, rest, &mut sums);
            } else {
                part.columns(simd, 0, x, &mut sums);
            }
            column = next;
        }
        sums
    }
}

/// Columns of some panels that share their factors.
struct Part<'a, const G: usize> {
    panels: [QuantisedPanel<'a>; G],
    columns: Range<usize>,
}

impl<const G: usize> Part<'_, G> {
    /// Adds the products of the columns of whole words, the part's first.
    #[inline(always)]
    fn quads<S: Simd>(&self, simd: S, x: &[[f32; COLUMNS]], sums: &mut [[S::f32s; VECTORS]; G]) {
        let first = self.columns.start;
        for (panel, sums) in self.panels.iter().zip(sums) {
            let factors = panel.factors::<S, VECTORS>(first);
            let words = &panel.words::<S, VECTORS>()[first / COLUMNS..][..x.len()];
            let mut own = *sums;
            for (x, words) in x.iter().zip(words) {
                for ((sum, &word), &factors) in own.iter_mut().zip(words).zip(&factors) {
                    for (index, &x) in x.iter().enumerate() {
                        let weight = widened(simd, byte(simd, word, index), factors);
                        *sum = simd.mul_add_e_f32s(simd.splat_f32s(x), weight, *sum);
                    }
                }
            }
            *sums = own;
        }
    }

    /// Adds the products of columns that do not fill a word, from the part's `skipped`-th on.
    #[inline(always)]
    fn columns<S: Simd>(
        &self,
        simd: S,
        skipped: usize,
        x: &[f32],
        sums: &mut [[S::f32s; VECTORS]; G],
    ) {
        let columns = self.columns.clone().skip(skipped);
        for (panel, sums) in self.panels.iter().zip(sums) {
            let factors = panel.factors::<S, VECTORS>(self.columns.start);
            for (column, &x) in columns.clone().zip(x) {
                let words = &panel.words::<S, VECTORS>()[column / COLUMNS];
                for ((sum, &word), &factors) in sums.iter_mut().zip(words).zip(&factors) {
                    let weight = widened(simd, byte(simd, word, column % COLUMNS), factors);
                    *sum = simd.mul_add_e_f32s(simd.splat_f32s(x), weight, *sum);
                }
            }
        }
    }
}
