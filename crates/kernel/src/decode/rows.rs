//! Where the rows of a chunk of keys or values lie, and the chunk's two products with few queries.
//!
//! `s[i][j] = q_i.k_j` and `t_i = sum_j w[i][j] v_j`, rows read as they lie and widened in registers.
//! A row serves all queries of a register block at once. Knows neither softmax nor intervals.

use super::stored::Stored;
use crate::prefetch::{AHEAD, prefetch_second};
use pulp::Simd;
use std::ops::Range;

/// Keys of a chunk: their weights are formed together, their values summed before they are added
/// to `y`.
pub(super) const CHUNK: usize = 64;
/// Keys whose dot products are formed together where a type takes them by groups.
const KEYS: usize = 4;
/// Vector pairs that one chain sums in a logit: 64 products.
const DOT: usize = 32;

/// Rows of a chunk in some heads, each a whole number of vector pairs.
pub(super) struct ChunkRows<E> {
    /// The chunk's row 0 in the first head.
    pub(super) first: *const E,
    /// Elements from one row to the next.
    pub(super) stride: usize,
    /// Elements from one head to the next.
    pub(super) head: usize,
    /// Pairs of vectors in a row.
    pub(super) pairs: usize,
    /// Elements of a row that come from memory; 0 for rows that are near already.
    pub(super) len: usize,
}

impl<E: Stored> ChunkRows<E> {
    /// The rows from head `head` on.
    #[inline(always)]
    pub(super) fn head(&self, head: usize) -> Self {
        Self { first: self.first.wrapping_add(head * self.head), ..*self }
    }

    #[inline(always)]
    fn row(&self, key: usize) -> *const E {
        self.first.wrapping_add(key * self.stride)
    }

    /// Asks for a row after `key`, which may lie in the next chunk or nowhere.
    #[inline(always)]
    fn prefetch(&self, key: usize) {
        prefetch_second(self.row(key + AHEAD), self.len);
    }

    /// Logits of the keys `seen` for `queries` rows of `q` (`row` floats apart), into rows of `s`
    /// ([`CHUNK`] apart).
    ///
    /// # Safety
    /// The rows `seen` must be readable.
    #[inline(always)]
    pub(super) unsafe fn dots<S: Simd>(
        &self,
        simd: S,
        seen: Range<usize>,
        (q, row): (&[f32], usize),
        s: &mut [f32],
    ) {
        let queries = s.len() / CHUNK;
        assert!(q.len() >= queries * row && row >= self.pairs * 2 * S::F32_LANES);
        assert!(seen.end <= CHUNK);
        let mut key = seen.start;
        while key < seen.end {
            let keys = if E::BY_GROUPS && seen.end - key >= KEYS { KEYS } else { 1 };
            for ahead in key..key + keys {
                self.prefetch(ahead);
            }
            let mut first = 0;
            while first < queries {
                let count = block::<S>(queries - first);
                let (q, s) = (&q[first * row..], &mut s[first * CHUNK + key..]);
                // SAFETY: the keys are in `seen`; the assert above and `count <= queries - first`
                // keep the queries inside `q`.
                unsafe {
                    match (keys, count) {
                        (KEYS, 4) => self.dot::<S, KEYS, 4>(simd, key, (q.as_ptr(), row), s),
                        (KEYS, 3) => self.dot::<S, KEYS, 3>(simd, key, (q.as_ptr(), row), s),
                        (KEYS, 2) => self.dot::<S, KEYS, 2>(simd, key, (q.as_ptr(), row), s),
                        (KEYS, _) => self.dot::<S, KEYS, 1>(simd, key, (q.as_ptr(), row), s),
                        (_, 4) => self.dot::<S, 1, 4>(simd, key, (q.as_ptr(), row), s),
                        (_, 3) => self.dot::<S, 1, 3>(simd, key, (q.as_ptr(), row), s),
                        (_, 2) => self.dot::<S, 1, 2>(simd, key, (q.as_ptr(), row), s),
                        _ => self.dot::<S, 1, 1>(simd, key, (q.as_ptr(), row), s),
                    }
                }
                first += count;
            }
            key += keys;
        }
    }

    /// # Safety
    /// `K` rows must be readable from `key` on, and `Q` rows of `pairs` vector pairs at `q`.
    #[inline(always)]
    unsafe fn dot<S: Simd, const K: usize, const Q: usize>(
        &self,
        simd: S,
        key: usize,
        (q, row): (*const f32, usize),
        s: &mut [f32],
    ) {
        let first = 0..self.pairs.min(DOT);
        // SAFETY: as the caller says, for a part of the pairs.
        let mut sums = unsafe { self.chain::<S, K, Q>(simd, key, (q, row), first) };
        for first in (DOT..self.pairs).step_by(DOT) {
            let part = first..self.pairs.min(first + DOT);
            // SAFETY: as the caller says, for a part of the pairs.
            let more = unsafe { self.chain::<S, K, Q>(simd, key, (q, row), part) };
            for (sums, more) in sums.iter_mut().zip(more) {
                for (sum, more) in sums.iter_mut().zip(more) {
                    *sum = simd.add_f32s(*sum, more);
                }
            }
        }
        for (k, sums) in sums.into_iter().enumerate() {
            for (i, sum) in sums.into_iter().enumerate() {
                s[i * CHUNK + k] = simd.reduce_sum_f32s(sum);
            }
        }
    }

    /// # Safety
    /// As for `dot`, for `pairs` of each row.
    #[inline(always)]
    unsafe fn chain<S: Simd, const K: usize, const Q: usize>(
        &self,
        simd: S,
        key: usize,
        (q, row): (*const f32, usize),
        pairs: Range<usize>,
    ) -> [[S::f32s; Q]; K] {
        let mut sums = [[simd.splat_f32s(0.0); Q]; K];
        for pair in pairs {
            let at = pair * 2 * S::F32_LANES;
            for (k, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the pair lies in a readable row.
                let [a, b] = unsafe { E::pair(simd, self.row(key + k).add(at)) };
                for (i, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: the pair lies in a readable row of `q`.
                    let [qa, qb] = unsafe { f32::pair(simd, q.add(i * row + at)) };
                    *sum = simd.mul_add_e_f32s(a, qa, *sum);
                    *sum = simd.mul_add_e_f32s(b, qb, *sum);
                }
            }
        }
        sums
    }

    /// Adds the values `seen` with the weights in the rows of `w` ([`CHUNK`] apart) to rows of `t`
    /// (`row` floats apart), one after the other: however the keys are cut, the bits are the same.
    ///
    /// # Safety
    /// The rows `seen` must be readable.
    #[inline(always)]
    pub(super) unsafe fn sums<S: Simd>(
        &self,
        simd: S,
        seen: Range<usize>,
        w: &[f32],
        (t, row): (&mut [f32], usize),
    ) {
        let queries = w.len() / CHUNK;
        assert!(t.len() >= queries * row && row >= self.pairs * 2 * S::F32_LANES);
        assert!(seen.end <= CHUNK);
        let near = Self { len: 0, ..*self };
        let mut first = 0;
        while first < queries {
            let count = block::<S>(queries - first);
            let w = &w[first * CHUNK..];
            let mut pair = 0;
            while pair < self.pairs {
                let columns = columns::<S>(count, self.pairs - pair);
                let t = (&mut t[first * row + pair * 2 * S::F32_LANES..], row);
                // The first pass over the rows asks for later ones.
                let rows = if first + pair == 0 { self } else { &near };
                let part = (seen.clone(), pair);
                // SAFETY: `seen` is readable and `pair + columns <= self.pairs`.
                unsafe {
                    match (count, columns) {
                        (4, 2) => rows.sum::<S, 4, 2>(simd, part, w, t),
                        (4, _) => rows.sum::<S, 4, 1>(simd, part, w, t),
                        (3, 2) => rows.sum::<S, 3, 2>(simd, part, w, t),
                        (3, _) => rows.sum::<S, 3, 1>(simd, part, w, t),
                        (2, 4) => rows.sum::<S, 2, 4>(simd, part, w, t),
                        (2, 2) => rows.sum::<S, 2, 2>(simd, part, w, t),
                        (2, _) => rows.sum::<S, 2, 1>(simd, part, w, t),
                        (_, 4) => rows.sum::<S, 1, 4>(simd, part, w, t),
                        (_, 2) => rows.sum::<S, 1, 2>(simd, part, w, t),
                        _ => rows.sum::<S, 1, 1>(simd, part, w, t),
                    }
                }
                pair += columns;
            }
            first += count;
        }
    }

    /// # Safety
    /// The rows `seen` must be readable, with `C` pairs from `pair` on.
    #[inline(always)]
    unsafe fn sum<S: Simd, const Q: usize, const C: usize>(
        &self,
        simd: S,
        (seen, pair): (Range<usize>, usize),
        w: &[f32],
        (t, row): (&mut [f32], usize),
    ) {
        let mut sums = [[[simd.splat_f32s(0.0); 2]; C]; Q];
        assert!(w.len() >= (Q - 1) * CHUNK + seen.end);
        for (i, sums) in sums.iter_mut().enumerate() {
            let (t, _) = S::as_simd_f32s(&t[i * row..i * row + C * 2 * S::F32_LANES]);
            for (c, sums) in sums.iter_mut().enumerate() {
                *sums = [t[2 * c], t[2 * c + 1]];
            }
        }
        for key in seen {
            self.prefetch(key);
            for c in 0..C {
                let at = (pair + c) * 2 * S::F32_LANES;
                // SAFETY: the pair lies in a readable row.
                let [a, b] = unsafe { E::pair(simd, self.row(key).add(at)) };
                for (i, sums) in sums.iter_mut().enumerate() {
                    let weight = simd.splat_f32s(w[i * CHUNK + key]);
                    let [sa, sb] = &mut sums[c];
                    *sa = simd.mul_add_e_f32s(weight, a, *sa);
                    *sb = simd.mul_add_e_f32s(weight, b, *sb);
                }
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            let (t, _) = S::as_mut_simd_f32s(&mut t[i * row..i * row + C * 2 * S::F32_LANES]);
            for (c, [a, b]) in sums.into_iter().enumerate() {
                (t[2 * c], t[2 * c + 1]) = (a, b);
            }
        }
    }
}

/// Queries of the next register block, of those left: groups of three are common.
#[inline(always)]
fn block<S: Simd>(left: usize) -> usize {
    let most = if S::REGISTER_COUNT >= 32 { 4 } else { 2 };
    if left >= most { most } else { left.min(3) }
}

/// Vector pairs of the next register block of sums: 16 accumulators where there are 32 registers,
/// else 8.
#[inline(always)]
fn columns<S: Simd>(queries: usize, left: usize) -> usize {
    let most = if S::REGISTER_COUNT >= 32 { 8 } else { 4 } / queries;
    match left.min(most) {
        4.. => 4,
        2..4 => 2,
        _ => 1,
    }
}
