//! A work unit: one tile of query rows of one head against the packed tiles of one key head.
//!
//! For each key tile: `S = Q K^T`, weights, `Y += P V`. Rows that the vector path must not touch
//! there (a wild query, a wild key among those they see) take the careful path for that tile, and
//! leave no trace in the others: every number of a row is computed from that row alone.

use crate::careful::Meeting;
use crate::finite::is_tame;
use crate::geometry::Span;
use crate::isa::Micro;
use crate::pack::{Layout, TileNote, widen, widened};
use crate::prefetch::AHEAD;
use crate::problem::{MAX_HEAD_DIM, Problem, Work};
use crate::softmax::{Factor, largest, raise, weigh};
use crate::state::{Cell, Cells};
use crate::tile::{accumulate, scores};
use crate::workspace::{MAX_LANES, STRIDE, Scratch};
use pulp::Simd;
use std::f64::consts::LOG2_E;
use std::ops::Range;

/// One unit, ready to run on any instruction set.
pub(crate) struct Unit<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) work: &'a Work<'a>,
    pub(crate) layout: Layout,
    /// The packed tiles, `layout.tile_len()` floats for each note.
    pub(crate) packed: &'a [f32],
    pub(crate) notes: &'a [TileNote],
    /// The query head.
    pub(crate) head: usize,
    /// At most a tile of query rows.
    pub(crate) rows: Range<usize>,
    pub(crate) cells: &'a Cells<'a>,
    pub(crate) scratch: &'a mut Scratch,
}

impl Micro for Unit<'_> {
    type Output = ();

    #[inline(always)]
    fn with_shape<S: Simd, const MR: usize, const NV: usize>(mut self, simd: S) {
        self.load(simd);
        let (notes, packed) = (self.notes, self.packed);
        for (note, tile) in notes.iter().zip(packed.chunks_exact(self.layout.tile_len())) {
            let (keys, values) = tile.split_at(self.layout.keys_len());
            self.look(note);
            let rows = self.rows.len();
            for first in (0..rows).step_by(MR) {
                let group = Group { keys, values, first, layout: self.layout };
                // A short last group takes a micro-kernel of its own; rows never meet in a sum, so
                // that their number changes no bit.
                match rows - first {
                    1 => group.fold::<S, 1, NV>(simd, self.scratch),
                    2..=4 => group.fold::<S, 4, NV>(simd, self.scratch),
                    _ => group.fold::<S, MR, NV>(simd, self.scratch),
                }
            }
            self.fold_carefully(note);
        }
        self.store();
    }
}

impl Unit<'_> {
    /// Fills the tiles: queries in base-2 units, rounded once, and the state.
    #[inline(always)]
    fn load<S: Simd>(&mut self, simd: S) {
        let head_dim = self.layout.shape.head_dim();
        let padded = self.layout.value_vectors() * self.layout.micro.lanes;
        let scale = Factor::new(f64::from(self.problem.softmax_scale) * LOG2_E);
        let (scratch, queries) = (&mut *self.scratch, &self.work.queries);
        let stage = &mut [0.0; MAX_HEAD_DIM][..head_dim];
        for row in 0..self.rows.len().next_multiple_of(self.layout.micro.rows) {
            let q = &mut scratch.q[row * STRIDE..row * STRIDE + head_dim];
            let y = &mut scratch.y[row * STRIDE..row * STRIDE + padded];
            if row >= self.rows.len() {
                q.fill(0.0);
                y.fill(0.0);
                continue;
            }
            let token = self.rows.start + row;
            queries.prefetch(self.head, token + AHEAD);
            self.cells.prefetch(self.head, token + AHEAD);
            let query = widened(queries, (self.head, token), stage);
            scale.multiply(simd, query, q);
            scratch.tame[row] = is_tame(query) && is_tame(q);
            if !scratch.tame[row] {
                q.fill(0.0);
            }
            // SAFETY: units are disjoint in (head, rows), and the cell dies in this iteration.
            let Cell { m, z, y: sums } = unsafe { self.cells.cell(self.head, token) };
            scratch.m[row] = m.0;
            scratch.z[row * MAX_LANES..(row + 1) * MAX_LANES].fill(0.0);
            scratch.z[row * MAX_LANES] = *z;
            y[..head_dim].copy_from_slice(sums);
            y[head_dim..].fill(0.0);
        }
    }

    /// Writes the state back; lanes are summed from the first to the last.
    #[inline(always)]
    fn store(&mut self) {
        let head_dim = self.layout.shape.head_dim();
        for row in 0..self.rows.len() {
            // SAFETY: units are disjoint in (head, rows), and the cell dies in this iteration.
            let cell = unsafe { self.cells.cell(self.head, self.rows.start + row) };
            cell.m.0 = self.scratch.m[row];
            *cell.z = self.scratch.z[row * MAX_LANES..(row + 1) * MAX_LANES].iter().sum();
            cell.y.copy_from_slice(&self.scratch.y[row * STRIDE..row * STRIDE + head_dim]);
        }
    }

    /// Finds out what each row sees of the tile, and on which path.
    #[inline(always)]
    fn look(&mut self, note: &TileNote) {
        let scratch = &mut *self.scratch;
        scratch.careful.clear();
        scratch.spans.fill(Span::EMPTY);
        for (row, interval) in self.work.intervals[self.rows.clone()].iter().enumerate() {
            let span = Span::cut(*interval, &note.slots);
            let wild = || {
                let next = note.wild.partition_point(|&key| key < span.start);
                note.wild.get(next).is_some_and(|&key| key < span.end)
            };
            // A maximum of +inf or NaN came in with the state; the vector path assumes neither.
            if span.is_empty() || (scratch.tame[row] && scratch.m[row] < f32::INFINITY && !wild()) {
                scratch.spans[row] = span;
            } else {
                scratch.careful.push((row, span));
            }
        }
    }

    /// Does the tile's careful rows.
    fn fold_carefully(&mut self, note: &TileNote) {
        let head_dim = self.layout.shape.head_dim();
        let (scratch, queries) = (&mut *self.scratch, &self.work.queries);
        let query = &mut [0.0; MAX_HEAD_DIM][..head_dim];
        for &(row, span) in &scratch.careful {
            widen(queries.data, queries.start(self.head, self.rows.start + row), query);
            let meeting = Meeting {
                query,
                keys: self.work.block.keys,
                values: self.work.block.values,
                slots: note.slots.start + span.start..note.slots.start + span.end,
                head: note.head,
                scale: self.problem.softmax_scale,
            };
            meeting.fold(
                &mut scratch.m[row],
                &mut scratch.z[row * MAX_LANES..(row + 1) * MAX_LANES],
                &mut scratch.y[row * STRIDE..row * STRIDE + head_dim],
            );
        }
    }
}

/// The rows of one micro-kernel, from `first` on, before one packed key tile.
struct Group<'a> {
    keys: &'a [f32],
    values: &'a [f32],
    first: usize,
    layout: Layout,
}

impl Group<'_> {
    /// Folds the tile into the state of `MR` rows; S is a strip that stays in the first cache.
    #[inline(always)]
    fn fold<S: Simd, const MR: usize, const NV: usize>(&self, simd: S, scratch: &mut Scratch) {
        let rows = self.first..self.first + MR;
        let hull = scratch.spans[rows.clone()].iter().fold(Span::EMPTY, |hull, s| hull.hull(*s));
        if hull.is_empty() {
            return;
        }
        let (head_dim, vectors) = (self.layout.shape.head_dim(), self.layout.value_vectors());
        let tile = rows.start * STRIDE..rows.end * STRIDE;
        let q = (&scratch.q[tile.clone()], head_dim);
        scores::<S, MR, NV>(simd, q, self.keys, &mut scratch.s, hull);
        self.weigh::<S, MR>(simd, scratch, hull);
        let y = &mut scratch.y[tile];
        accumulate::<S, MR, NV>(simd, &scratch.s, (self.values, vectors), y, hull);
    }

    /// The row pass; rows of Y shrink where their maximum grew.
    ///
    /// All maxima come before all exponentials, so that no row waits for the end of the one before.
    #[inline(always)]
    fn weigh<S: Simd, const MR: usize>(&self, simd: S, scratch: &mut Scratch, hull: Span) {
        let mut tops = [f32::NEG_INFINITY; MR];
        for (index, top) in tops.iter_mut().enumerate() {
            let row = &mut scratch.s[index * STRIDE..(index + 1) * STRIDE];
            let (s, _) = S::as_mut_simd_f32s(row);
            *top = largest(simd, s, (hull, scratch.spans[self.first + index]));
        }
        let reach = hull.start / S::F32_LANES..hull.end.div_ceil(S::F32_LANES);
        for (index, top) in tops.into_iter().enumerate() {
            let (s, _) = S::as_mut_simd_f32s(&mut scratch.s[index * STRIDE..(index + 1) * STRIDE]);
            let s = &mut s[reach.clone()];
            if top == f32::NEG_INFINITY {
                s.fill(simd.splat_f32s(0.0));
                continue;
            }
            let row = self.first + index;
            let lanes = &mut scratch.z[row * MAX_LANES..row * MAX_LANES + S::F32_LANES];
            let (z, _) = S::as_mut_simd_f32s(lanes);
            if let Some(factor) = raise(simd, top, &mut scratch.m[row], &mut z[0]) {
                let (y, _) = S::as_mut_simd_f32s(&mut scratch.y[row * STRIDE..(row + 1) * STRIDE]);
                for sums in &mut y[..self.layout.value_vectors()] {
                    *sums = simd.mul_f32s(*sums, factor);
                }
            }
            weigh(simd, s, scratch.m[row], &mut z[0]);
        }
    }
}
