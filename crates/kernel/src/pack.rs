//! Packing: a tile of keys and values, widened to f32 and laid out as the micro-kernels read it.
//!
//! Keys become panels `[d][panel keys]`, values panels `[KEY_TILE][panel columns]`. Rows that are
//! not tame are written as 0 and remembered: a weight of 0 times NaN would be NaN.

use crate::finite::is_tame;
use crate::isa::{MicroShape, VECTORS};
use crate::prefetch::AHEAD;
use crate::problem::MAX_HEAD_DIM;
use crate::rows::Rows;
use crate::turn::{TURNED, turn};
use crate::workspace::KEY_TILE;
use half::slice::HalfFloatSliceExt;
use pulp::{Simd, WithSimd};
use ringattn_core::{AttentionShape, ElementsView};
use std::ops::Range;

/// How the tiles of one call are laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) shape: AttentionShape,
    pub(crate) micro: MicroShape,
}

impl Layout {
    /// Vectors of a row of values.
    pub(crate) fn value_vectors(self) -> usize {
        self.shape.head_dim().div_ceil(self.micro.lanes)
    }

    /// Floats of a tile's packed keys.
    pub(crate) fn keys_len(self) -> usize {
        KEY_TILE * self.shape.head_dim()
    }

    /// Floats of a packed tile, keys then values, rounded up to whole cache lines.
    pub(crate) fn tile_len(self) -> usize {
        let values = KEY_TILE * self.value_vectors() * self.micro.lanes;
        (self.keys_len() + values).next_multiple_of(16)
    }
}

/// What is known of a packed tile beside its numbers.
#[derive(Clone, Debug)]
pub(crate) struct TileNote {
    /// The key head.
    pub(crate) head: usize,
    /// The block's slots in it.
    pub(crate) slots: Range<usize>,
    /// Its wild keys, counted from the tile's first, increasing.
    pub(crate) wild: Vec<usize>,
}

/// Packs one tile.
pub(crate) struct Pack<'a> {
    pub(crate) layout: Layout,
    pub(crate) keys: Rows<'a>,
    pub(crate) values: Rows<'a>,
    pub(crate) note: &'a mut TileNote,
    pub(crate) out: &'a mut [f32],
}

impl WithSimd for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let head_dim = self.layout.shape.head_dim();
        let panel = self.layout.micro.panel();
        let together = panel.min(TURNED);
        let (packed_keys, packed_values) = self.out.split_at_mut(self.layout.keys_len());
        let mut stage = [[[0.0_f32; MAX_HEAD_DIM]; 2]; TURNED];
        let count = self.note.slots.len();
        for first in (0..count.next_multiple_of(panel)).step_by(together) {
            let zeros = &[0.0; MAX_HEAD_DIM][..head_dim];
            let (mut keys, mut values) = ([zeros; TURNED], [zeros; TURNED]);
            let filled = together.min(count.saturating_sub(first));
            for (index, [key_stage, value_stage]) in stage[..filled].iter_mut().enumerate() {
                let (head, slot) = (self.note.head, self.note.slots.start + first + index);
                self.keys.prefetch(head, slot + AHEAD);
                self.values.prefetch(head, slot + AHEAD);
                let key = widened(&self.keys, (head, slot), &mut key_stage[..head_dim]);
                let value = widened(&self.values, (head, slot), &mut value_stage[..head_dim]);
                if is_tame(key) && is_tame(value) {
                    (keys[index], values[index]) = (key, value);
                } else {
                    self.note.wild.push(first + index);
                }
            }
            let (whole, offset) = (first / panel * panel, first % panel);
            let to = &mut packed_keys[whole * head_dim..(whole + panel) * head_dim];
            turn(simd, &keys[..together], &mut to[offset..], panel);
            place_values(simd, &values[..filled], (self.layout, first), packed_values);
        }
    }
}

/// The row of `(head, slot)` as f32: where it lies if it is f32, else in `stage`.
#[inline(always)]
pub(crate) fn widened<'a>(
    rows: &Rows<'a>,
    (head, slot): (usize, usize),
    stage: &'a mut [f32],
) -> &'a [f32] {
    let start = rows.start(head, slot);
    match rows.data {
        ElementsView::F32(x) => &x[start..start + stage.len()],
        view => {
            widen(view, start, stage);
            stage
        }
    }
}

/// Copies `to.len()` elements from `from` on, as f32.
#[inline(always)]
pub(crate) fn widen(view: ElementsView<'_>, from: usize, to: &mut [f32]) {
    let range = from..from + to.len();
    match view {
        ElementsView::F32(x) => to.copy_from_slice(&x[range]),
        ElementsView::Bf16(x) => {
            for (to, from) in to.iter_mut().zip(&x[range]) {
                *to = f32::from_bits(u32::from(from.to_bits()) << 16);
            }
        }
        ElementsView::F16(x) => x[range].convert_to_f32_slice(to),
    }
}

/// `[keys][d]` to `[d][keys]`.
#[inline(always)]
pub(crate) fn transpose(from: &[f32], head_dim: usize, to: &mut [f32]) {
    let keys = to.len() / head_dim;
    for (column, to) in to.chunks_exact_mut(keys).enumerate() {
        for (row, to) in from.chunks_exact(head_dim).zip(to) {
            *to = row[column];
        }
    }
}

/// Spreads rows of values over the panels, from the tile's key `first` on; columns behind `d` are 0.
#[inline(always)]
fn place_values<S: Simd>(
    _: S,
    rows: &[&[f32]],
    (layout, first): (Layout, usize),
    packed: &mut [f32],
) {
    let (head_dim, lanes) = (layout.shape.head_dim(), layout.micro.lanes);
    let vectors = layout.value_vectors();
    let mut done = 0;
    while done < vectors {
        let count = if vectors - done >= layout.micro.vectors { layout.micro.vectors } else { 1 };
        let (width, column) = (count * lanes, done * lanes);
        let filled = width.min(head_dim - column);
        let panel = &mut packed[column * KEY_TILE..(column + width) * KEY_TILE][first * width..];
        for (row, to) in rows.iter().zip(panel.chunks_exact_mut(width)) {
            let from = &row[column..column + filled];
            let (whole, _) = S::as_simd_f32s(from);
            let (places, _) = S::as_mut_simd_f32s(to);
            // Both lengths are known here: so short a copy is no call.
            match (whole.as_chunks::<VECTORS>().0, places.as_chunks_mut::<VECTORS>().0) {
                ([whole], [place]) => *place = *whole,
                _ => {
                    to[..filled].copy_from_slice(from);
                    to[filled..].fill(0.0);
                }
            }
        }
        done += count;
    }
}
