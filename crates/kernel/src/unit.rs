//! A work unit: one tile of query rows of one head against the packed tiles of one key head.
//!
//! For each key tile: `S = Q K^T`, weights, `Y += P V`. Rows that the vector path must not touch
//! there (a wild query, a wild key among those they see) take the careful path for that tile, and
//! leave no trace in the others: every number of a row is computed from that row alone.

use crate::careful::Meeting;
use crate::finite::is_tame;
use crate::geometry::Span;
use crate::isa::{ROWS_OF_16, ROWS_OF_32, VECTORS};
use crate::pack::{Layout, TileNote};
use crate::problem::{Problem, Work};
use crate::softmax::weigh;
use crate::state::{Cell, Cells};
use crate::tile::{accumulate, scores};
use crate::workspace::{MAX_LANES, QUERY_TILE, STRIDE, Scratch};
use pulp::{Simd, WithSimd};
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
    /// At most [`QUERY_TILE`] query rows.
    pub(crate) rows: Range<usize>,
    pub(crate) cells: &'a Cells<'a>,
    pub(crate) scratch: &'a mut Scratch,
}

impl WithSimd for Unit<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if S::REGISTER_COUNT >= 32 {
            self.run::<S, ROWS_OF_32, VECTORS>(simd);
        } else {
            self.run::<S, ROWS_OF_16, VECTORS>(simd);
        }
    }
}

impl Unit<'_> {
    #[inline(always)]
    fn run<S: Simd, const MR: usize, const NV: usize>(mut self, simd: S) {
        let intervals = &self.work.intervals[self.rows.clone()];
        let sees =
            |note: &TileNote| intervals.iter().any(|i| !Span::cut(*i, &note.slots).is_empty());
        if !self.notes.iter().any(sees) {
            return;
        }
        self.load();
        let head_dim = self.layout.shape.head_dim();
        let vectors = self.layout.value_vectors();
        let (notes, packed) = (self.notes, self.packed);
        for (note, tile) in notes.iter().zip(packed.chunks_exact(self.layout.tile_len())) {
            let (keys, values) = tile.split_at(self.layout.keys_len());
            self.look(note);
            let mut groups = [Span::EMPTY; QUERY_TILE];
            let groups = &mut groups[..self.rows.len().div_ceil(MR)];
            for (group, spans) in groups.iter_mut().zip(self.scratch.spans.chunks_exact(MR)) {
                *group = spans.iter().fold(Span::EMPTY, |hull, span| hull.hull(*span));
            }
            let hull = groups.iter().fold(Span::EMPTY, |hull, group| hull.hull(*group));
            if !hull.is_empty() {
                let scratch = &mut *self.scratch;
                let reach = hull.end.next_multiple_of(NV * S::F32_LANES) * head_dim;
                scores::<S, MR, NV>(
                    simd,
                    (&scratch.q, head_dim),
                    &keys[..reach],
                    &mut scratch.s,
                    groups,
                );
                weigh_rows::<S, MR>(simd, scratch, vectors, groups);
                accumulate::<S, MR, NV>(
                    simd,
                    &scratch.s,
                    (values, vectors),
                    &mut scratch.y,
                    groups,
                );
            }
            self.fold_carefully(note);
        }
        self.store();
    }

    /// Fills the tiles: queries in base-2 units, rounded once, and the state.
    #[inline(always)]
    fn load(&mut self) {
        let shape = self.layout.shape;
        let head_dim = shape.head_dim();
        let padded = self.layout.value_vectors() * self.layout.micro.lanes;
        let scale = f64::from(self.problem.softmax_scale) * LOG2_E;
        let scratch = &mut *self.scratch;
        for row in 0..QUERY_TILE {
            let q = &mut scratch.q[row * STRIDE..row * STRIDE + head_dim];
            let y = &mut scratch.y[row * STRIDE..row * STRIDE + padded];
            if row >= self.rows.len() {
                q.fill(0.0);
                y.fill(0.0);
                continue;
            }
            let token = self.rows.start + row;
            let first = token * shape.query_width() + self.head * head_dim;
            let query = &self.work.queries.data[first..first + head_dim];
            for (to, from) in q.iter_mut().zip(query) {
                *to = (f64::from(*from) * scale) as f32;
            }
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
        let shape = self.layout.shape;
        let head_dim = shape.head_dim();
        let scratch = &mut *self.scratch;
        for &(row, span) in &scratch.careful {
            let first = (self.rows.start + row) * shape.query_width() + self.head * head_dim;
            let meeting = Meeting {
                query: &self.work.queries.data[first..first + head_dim],
                keys: self.work.block.keys,
                values: self.work.block.values,
                slots: note.slots.start + span.start..note.slots.start + span.end,
                stride: shape.key_width(),
                first: note.head * head_dim,
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

/// The row pass over all groups; rows of Y shrink where their maximum grew.
#[inline(always)]
fn weigh_rows<S: Simd, const MR: usize>(
    simd: S,
    scratch: &mut Scratch,
    vectors: usize,
    groups: &[Span],
) {
    for (group, &hull) in groups.iter().enumerate().filter(|(_, hull)| !hull.is_empty()) {
        for row in group * MR..(group + 1) * MR {
            let (s, _) = S::as_mut_simd_f32s(&mut scratch.s[row * STRIDE..(row + 1) * STRIDE]);
            let lanes = &mut scratch.z[row * MAX_LANES..row * MAX_LANES + S::F32_LANES];
            let (z, _) = S::as_mut_simd_f32s(lanes);
            let spans = (hull, scratch.spans[row]);
            if let Some(factor) = weigh(simd, s, spans, &mut scratch.m[row], &mut z[0]) {
                let (y, _) = S::as_mut_simd_f32s(&mut scratch.y[row * STRIDE..(row + 1) * STRIDE]);
                let factor = simd.splat_f32s(factor);
                for sums in &mut y[..vectors] {
                    *sums = simd.mul_f32s(*sums, factor);
                }
            }
        }
    }
}
