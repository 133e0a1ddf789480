//! The product of a single row with plain weights, the shape of decoding: bound by the reading of `W`.
//!
//! Several panels are taken at once, so that enough sums are under way, and weights are widened in
//! registers. Each sum is the same chain over a piece of the depth as the micro-kernel's, so the bits
//! are the same.

use super::{Call, MAX_PANEL, Write};
use crate::decode::stored::{Stored, place};
use crate::isa::VECTORS;
use crate::staged::pieces;
use pulp::{Simd, WithSimd};
use ringattn_core::ElementsView;
use std::ops::Range;

/// The most panels that are taken at once.
const PANELS: usize = 4;

/// `y = x W^T` of one row, its sizes checked; the weights are panels `[cols][panel rows]`.
pub(super) struct Single<'a> {
    pub(super) weights: ElementsView<'a>,
    pub(super) call: Call<'a>,
}

impl WithSimd for Single<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let cols = self.call.x.cols();
        match self.weights {
            ElementsView::F32(data) => PlainPanels { data, cols }.run(simd, self.call),
            ElementsView::Bf16(data) => PlainPanels { data, cols }.run(simd, self.call),
            ElementsView::F16(data) => PlainPanels { data, cols }.run(simd, self.call),
        }
    }
}

/// Panels `[cols][panel rows]`.
#[derive(Clone, Copy)]
struct PlainPanels<'a, E> {
    data: &'a [E],
    cols: usize,
}

impl<E: Stored> PlainPanels<'_, E> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S, mut call: Call<'_>) {
        let panel = VECTORS * S::F32_LANES;
        let mut first = call.out.start;
        while first < call.out.end {
            let panels = (call.out.end - first).div_ceil(panel).min(PANELS);
            match panels {
                PANELS => self.group::<S, PANELS>(simd, first, &mut call),
                3 => self.group::<S, 3>(simd, first, &mut call),
                2 => self.group::<S, 2>(simd, first, &mut call),
                _ => self.group::<S, 1>(simd, first, &mut call),
            }
            first += panels * panel;
        }
    }

    /// `G` panels from row `first` on.
    #[inline(always)]
    fn group<S: Simd, const G: usize>(self, simd: S, first: usize, call: &mut Call<'_>) {
        let width = (call.out.end - first).min(G * VECTORS * S::F32_LANES);
        let (x, write) = (call.x, call.write);
        let y = call.row(first..first + width);
        let mut tile = [0.0_f32; PANELS * MAX_PANEL];
        let place = |row| place::<E>(row, S::F32_LANES);
        if write == Write::Add {
            y.iter().enumerate().for_each(|(row, &y)| tile[place(row)] = y);
        }
        let (totals, _) = S::as_mut_simd_f32s(&mut tile);
        for (index, inner) in pieces(self.cols).enumerate() {
            let x = &x.piece(index, 0, 1)[..inner.len()];
            let sums = self.sums::<S, G>(simd, (first, &inner), x);
            for (total, &sum) in totals.iter_mut().zip(sums.as_flattened()) {
                let replace = index == 0 && write == Write::Replace;
                *total = if replace { sum } else { simd.add_f32s(*total, sum) };
            }
        }
        y.iter_mut().enumerate().for_each(|(row, y)| *y = tile[place(row)]);
    }

    /// `sum over k of x[k] w[k]` for each row of `G` panels from row `first` on, over a range of columns,
    /// at whose start `x` begins.
    #[inline(always)]
    fn sums<S: Simd, const G: usize>(
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
}
