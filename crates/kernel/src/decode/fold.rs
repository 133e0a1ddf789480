//! One item of the decode shape: all queries of some key heads against one split of the slots.
//!
//! Chunk by chunk, `s = q k`, weights, `t = w v`, `y += t`, from the empty state. Rows of keys and
//! values are not searched for numbers that are none; the results tell. A logit that is no number
//! sends its query to the careful path for that chunk. So does a sum of values, if its query sees a
//! wild row; if not, another query's row got in with weight 0, and the sum is formed again without.

use super::Call;
use super::lanes::Lanes;
use super::pass::Pass;
use super::rows::{CHUNK, ChunkRows};
use super::scratch::{Scratch, View};
use super::stored::{Stored, place};
use crate::KernelError;
use crate::careful::Meeting;
use crate::finite::is_tame;
use crate::geometry::Span;
use crate::pack::widen;
use crate::prefetch::AHEAD;
use crate::problem::MAX_HEAD_DIM;
use crate::rows::Rows;
use crate::softmax::{hide_edges, largest, raise, weigh};
use crate::workspace::MAX_LANES;
use pulp::bytemuck::cast_slice_mut;
use pulp::{Simd, WithSimd};
use ringattn_core::{DType, ElementsView};
use std::f64::consts::LOG2_E;
use std::mem::{swap, take};
use std::ops::Range;
use std::ptr::null;

/// One item, ready to run on any instruction set.
pub(super) struct Item<'a> {
    pub(super) call: &'a Call<'a>,
    /// The key heads, which lie beside each other and are read side by side.
    pub(super) heads: Range<usize>,
    /// The split's slots, from a multiple of [`CHUNK`] on.
    pub(super) slots: Range<usize>,
    /// Takes the state: for each query `m`, `z`, `y`.
    pub(super) out: &'a mut [f32],
    pub(super) scratch: &'a mut Scratch,
}

impl WithSimd for Item<'_> {
    type Output = Result<(), KernelError>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let whole = self.call.head_dim().is_multiple_of(2 * S::F32_LANES);
        let words = cfg!(target_endian = "little");
        let block = self.call.work.block;
        match (block.keys.data, block.values.data) {
            (ElementsView::F32(k), ElementsView::F32(v)) if whole => self.run(simd, Some((k, v))),
            (ElementsView::Bf16(k), ElementsView::Bf16(v)) if whole && words => {
                self.run(simd, Some((k, v)))
            }
            (ElementsView::F16(k), ElementsView::F16(v)) if whole && words => {
                self.run(simd, Some((k, v)))
            }
            _ => self.run::<S, f32>(simd, None),
        }
    }
}

impl Item<'_> {
    /// Runs the item on keys and values as they lie, or on rows that are staged as f32.
    #[inline(always)]
    fn run<S: Simd, E: Stored>(
        mut self,
        simd: S,
        lying: Option<(&[E], &[E])>,
    ) -> Result<(), KernelError> {
        let row = self.call.head_dim().next_multiple_of(2 * S::F32_LANES);
        self.scratch.fit(self.heads.len(), self.call.queries(), row)?;
        self.load::<S, E>();
        let [mut last, mut next] = take(&mut self.scratch.views);
        self.look(self.slots.start..self.slots.start, &mut last);
        loop {
            let start = last.slots.end;
            self.look(start..self.slots.end.min(start + CHUNK), &mut next);
            self.stream(simd, lying, &mut next, &last);
            self.settle::<S, E>(simd, &mut last);
            self.fold_carefully::<S, E>(&last);
            if next.slots.is_empty() {
                break;
            }
            self.weigh(simd, &mut next);
            swap(&mut last, &mut next);
        }
        self.scratch.views = [last, next];
        self.store::<S, E>();
        Ok(())
    }

    /// Fills the query rows, in base-2 units, rounded once.
    #[inline(always)]
    fn load<S: Simd, E: Stored>(&mut self) {
        let scale = f64::from(self.call.problem.softmax_scale) * LOG2_E;
        let scratch = &mut *self.scratch;
        scratch.q.fill(0.0);
        let query = &mut [0.0; MAX_HEAD_DIM][..self.call.head_dim()];
        for (index, q) in scratch.q.chunks_exact_mut(scratch.row).enumerate() {
            self.call.query(self.heads.start, index, query);
            for (at, &value) in query.iter().enumerate() {
                q[place::<E>(at, S::F32_LANES)] = (f64::from(value) * scale) as f32;
            }
            scratch.tame[index] = is_tame(query) && is_tame(q);
        }
    }

    /// Finds out what each query sees of a chunk, and on which path.
    #[inline(always)]
    fn look(&mut self, slots: Range<usize>, view: &mut View) {
        view.careful.clear();
        view.spans.clear();
        view.hull = Span::EMPTY;
        for index in 0..self.scratch.tame.len() {
            let mut span = Span::cut(self.call.interval(index), &slots);
            if !span.is_empty() && !self.scratch.tame[index] {
                view.careful.push((index, span));
                span = Span::EMPTY;
            }
            view.spans.push(span);
            view.hull = view.hull.hull(span);
        }
        view.slots = slots;
    }

    /// Reads the next chunk's keys and the last one's values side by side, into `s` and `t`: while
    /// one's sums wait for memory or for each other, the other's proceed.
    #[inline(always)]
    fn stream<S: Simd, E: Stored>(
        &mut self,
        simd: S,
        lying: Option<(&[E], &[E])>,
        next: &mut View,
        last: &View,
    ) {
        let block = self.call.work.block;
        let keys = self.rows::<S, E>(lying.map(|(keys, _)| keys), block.keys, 0, next);
        let values = self.rows::<S, E>(lying.map(|(_, values)| values), block.values, 1, last);
        let (queries, heads, scratch) = (self.call.queries(), self.heads.len(), &mut *self.scratch);
        scratch.t.fill(0.0);
        let pass = Pass {
            keys,
            values,
            heads,
            queries,
            seen: next.hull,
            summed: last.hull,
            row: scratch.row,
            q: &scratch.q,
            s: &mut next.s,
            w: &last.s,
            t: &mut scratch.t,
            products: &mut scratch.products,
        };
        // SAFETY: `keys` holds the rows that the next chunk's hull says, `values` those of the last
        // one's, in each head.
        unsafe { pass.run(&Lanes::new(simd)) };
    }

    /// Rows of a chunk in all heads, those of its hull readable: as they lie, or copied to stage `at`
    /// where they follow no stride, or else widened there, which is for f32 as `E` only.
    #[inline(always)]
    fn rows<S: Simd, E: Stored>(
        &mut self,
        lying: Option<&[E]>,
        stored: Rows<'_>,
        at: usize,
        view: &View,
    ) -> ChunkRows<E> {
        let (head_dim, row) = (self.call.head_dim(), self.scratch.row);
        let rows = ChunkRows {
            first: null(),
            stride: row,
            head: CHUNK * row,
            pairs: row / (2 * S::F32_LANES),
        };
        if view.hull.is_empty() {
            return rows;
        }
        let Some(lying) = lying else {
            assert!(E::DTYPE == DType::F32);
            self.stage::<S, E>(stored, (at, 0..self.heads.len()), view, |_| true);
            return ChunkRows { first: self.scratch.stages[at].as_ptr().cast(), ..rows };
        };
        let Some((head, stride)) = stored.strides() else {
            self.collect(lying, stored, at, view);
            return ChunkRows { first: self.scratch.stages[at].as_ptr().cast(), ..rows };
        };
        let first = stored.start(self.heads.start, view.slots.start);
        let last = stored.start(self.heads.end - 1, view.slots.end - 1);
        assert!(last + head_dim <= lying.len());
        ChunkRows { first: lying[first..].as_ptr(), stride, head, ..rows }
    }

    /// Copies the hull's rows to stage `at` as they are: where rows lie must change no bit.
    #[inline(always)]
    fn collect<E: Stored>(&mut self, lying: &[E], stored: Rows<'_>, at: usize, view: &View) {
        let row = self.scratch.row;
        let stage: &mut [E] = cast_slice_mut(&mut self.scratch.stages[at]);
        for key in view.hull.start..view.hull.end {
            for head in 0..self.heads.len() {
                let (from, slot) = (self.heads.start + head, view.slots.start + key);
                stored.prefetch(from, slot + AHEAD);
                let start = stored.start(from, slot);
                let to = (head * CHUNK + key) * row;
                stage[to..to + row].copy_from_slice(&lying[start..start + row]);
            }
        }
    }

    /// Fills the hull's rows of stage `at` in the item's heads `heads`, widened and placed as `E` asks;
    /// with zeros where not `keep`.
    #[inline(always)]
    fn stage<S: Simd, E: Stored>(
        &mut self,
        stored: Rows<'_>,
        (at, heads): (usize, Range<usize>),
        view: &View,
        keep: impl Fn(&[f32]) -> bool,
    ) {
        let mut plain = [0.0; MAX_HEAD_DIM];
        let plain = &mut plain[..self.call.head_dim()];
        let row = self.scratch.row;
        for (key, head) in (view.hull.start..view.hull.end)
            .flat_map(|key| heads.clone().map(move |head| (key, head)))
        {
            let (from, slot) = (self.heads.start + head, view.slots.start + key);
            stored.prefetch(from, slot + AHEAD);
            widen(stored.data, stored.start(from, slot), plain);
            let to = (head * CHUNK + key) * row;
            let to = &mut self.scratch.stages[at][to..to + row];
            to.fill(0.0);
            if keep(plain) {
                spread::<E>(plain, to, S::F32_LANES);
            }
        }
    }

    /// Logits become weights; `m`, `z` and `y` follow where the maximum grew.
    #[inline(always)]
    fn weigh<S: Simd>(&mut self, simd: S, view: &mut View) {
        if view.hull.is_empty() {
            return;
        }
        let scratch = &mut *self.scratch;
        let reach = view.hull.start / S::F32_LANES..view.hull.end.div_ceil(S::F32_LANES);
        scratch.fresh.fill(0.0);
        for (index, span) in view.spans.iter_mut().enumerate() {
            let (s, _) = S::as_mut_simd_f32s(&mut view.s[index * CHUNK..(index + 1) * CHUNK]);
            if !span.is_empty() && !are_numbers(simd, s, *span) {
                view.careful.push((index, *span));
                *span = Span::EMPTY;
            }
            let top = largest(simd, s, (view.hull, *span));
            let s = &mut s[reach.clone()];
            if top == f32::NEG_INFINITY {
                s.fill(simd.splat_f32s(0.0));
                continue;
            }
            let lanes = index * MAX_LANES..index * MAX_LANES + S::F32_LANES;
            let (z, _) = S::as_mut_simd_f32s(&mut scratch.z[lanes.clone()]);
            if let Some(factor) = raise(simd, top, &mut scratch.m[index], &mut z[0]) {
                let row = index * scratch.row..(index + 1) * scratch.row;
                for sums in S::as_mut_simd_f32s(&mut scratch.y[row]).0 {
                    *sums = simd.mul_f32s(*sums, factor);
                }
            }
            let (fresh, _) = S::as_mut_simd_f32s(&mut scratch.fresh[lanes]);
            weigh(simd, s, scratch.m[index], &mut fresh[0]);
        }
    }

    /// Adds a chunk's sums to the state, of each query whose sums are numbers.
    #[inline(always)]
    fn settle<S: Simd, E: Stored>(&mut self, simd: S, view: &mut View) {
        for index in 0..view.spans.len() {
            let row = index * self.scratch.row..(index + 1) * self.scratch.row;
            let span = view.spans[index];
            if span.is_empty() {
                continue;
            }
            if !all_numbers(simd, &self.scratch.t[row.clone()])
                && !self.mend::<S, E>(simd, view, index)
            {
                view.careful.push((index, span));
                continue;
            }
            let scratch = &mut *self.scratch;
            let (t, _) = S::as_simd_f32s(&scratch.t[row.clone()]);
            let (y, _) = S::as_mut_simd_f32s(&mut scratch.y[row]);
            for (sum, &term) in y.iter_mut().zip(t) {
                *sum = simd.add_f32s(*sum, term);
            }
            let lanes = index * MAX_LANES..(index + 1) * MAX_LANES;
            for (sum, &term) in scratch.z[lanes.clone()].iter_mut().zip(&scratch.fresh[lanes]) {
                *sum += term;
            }
        }
    }

    /// Forms a query's sums again with the chunk's wild rows of values left out, if it sees none of
    /// them; says whether that is so.
    #[inline(never)]
    fn mend<S: Simd, E: Stored>(&mut self, simd: S, view: &View, index: usize) -> bool {
        let values = self.call.work.block.values;
        let mut plain = [0.0; MAX_HEAD_DIM];
        let plain = &mut plain[..self.call.head_dim()];
        let head = index / self.call.queries();
        for key in view.spans[index].start..view.spans[index].end {
            let (from, slot) = (self.heads.start + head, view.slots.start + key);
            widen(values.data, values.start(from, slot), plain);
            if !is_tame(plain) {
                return false;
            }
        }
        self.stage::<S, E>(values, (1, head..head + 1), view, is_tame);
        let scratch = &mut *self.scratch;
        let stride = scratch.row;
        let first = scratch.stages[1][head * CHUNK * stride..].as_ptr();
        let (apart, pairs) = (CHUNK * stride, stride / (2 * S::F32_LANES));
        let rows = ChunkRows { first, stride, head: apart, pairs };
        let t = &mut scratch.t[index * stride..(index + 1) * stride];
        t.fill(0.0);
        let pass = Pass {
            keys: rows,
            values: rows,
            heads: 1,
            queries: 1,
            seen: Span::EMPTY,
            summed: view.hull,
            row: stride,
            q: &scratch.q[..stride],
            s: &mut [0.0; CHUNK],
            w: &view.s[index * CHUNK..(index + 1) * CHUNK],
            t,
            products: &mut scratch.products,
        };
        // SAFETY: the stage holds a whole chunk, in rows of `pairs` vector pairs.
        unsafe { pass.run(&Lanes::new(simd)) };
        true
    }

    /// Does the chunk's careful queries.
    #[inline(always)]
    fn fold_carefully<S: Simd, E: Stored>(&mut self, view: &View) {
        let scratch = &mut *self.scratch;
        let mut plain = [0.0; MAX_HEAD_DIM];
        let plain = &mut plain[..self.call.head_dim()];
        let query = &mut [0.0; MAX_HEAD_DIM][..self.call.head_dim()];
        for &(index, span) in &view.careful {
            self.call.query(self.heads.start, index, query);
            let y = &mut scratch.y[index * scratch.row..(index + 1) * scratch.row];
            let meeting = Meeting {
                query,
                keys: self.call.work.block.keys,
                values: self.call.work.block.values,
                slots: view.slots.start + span.start..view.slots.start + span.end,
                head: self.heads.start + index / self.call.queries(),
                scale: self.call.problem.softmax_scale,
            };
            gather::<E>(y, plain, S::F32_LANES);
            let z = &mut scratch.z[index * MAX_LANES..(index + 1) * MAX_LANES];
            meeting.fold(&mut scratch.m[index], z, plain);
            spread::<E>(plain, y, S::F32_LANES);
        }
    }

    /// Writes the state out; lanes are summed from the first to the last.
    #[inline(always)]
    fn store<S: Simd, E: Stored>(&mut self) {
        let states = self.out.chunks_exact_mut(self.call.state_len());
        for (index, state) in states.enumerate() {
            state[0] = self.scratch.m[index];
            state[1] = self.scratch.z[index * MAX_LANES..(index + 1) * MAX_LANES].iter().sum();
            let row = index * self.scratch.row..(index + 1) * self.scratch.row;
            gather::<E>(&self.scratch.y[row], &mut state[2..], S::F32_LANES);
        }
    }
}

/// Puts a row's elements where `E` has them.
#[inline(always)]
fn spread<E: Stored>(plain: &[f32], to: &mut [f32], lanes: usize) {
    for (at, &value) in plain.iter().enumerate() {
        to[place::<E>(at, lanes)] = value;
    }
}

/// Takes a row's elements from where `E` has them.
#[inline(always)]
fn gather<E: Stored>(from: &[f32], plain: &mut [f32], lanes: usize) {
    for (at, value) in plain.iter_mut().enumerate() {
        *value = from[place::<E>(at, lanes)];
    }
}

/// Whether no logit that the query sees is NaN or infinite. Writes 0 over its neighbours.
#[inline(always)]
fn are_numbers<S: Simd>(simd: S, row: &mut [S::f32s], seen: Span) -> bool {
    let lanes = S::F32_LANES;
    let row = &mut row[seen.start / lanes..seen.end.div_ceil(lanes)];
    hide_edges(simd, row, seen, 0.0);
    vanish(simd, row)
}

/// Whether no element is NaN or infinite.
#[inline(always)]
fn all_numbers<S: Simd>(simd: S, row: &[f32]) -> bool {
    vanish(simd, S::as_simd_f32s(row).0)
}

/// Whether everything times 0 is 0.
#[inline(always)]
fn vanish<S: Simd>(simd: S, row: &[S::f32s]) -> bool {
    let zero = simd.splat_f32s(0.0);
    let mut sum = zero;
    for &values in row {
        sum = simd.mul_add_e_f32s(values, zero, sum);
    }
    simd.reduce_sum_f32s(sum) == 0.0
}
