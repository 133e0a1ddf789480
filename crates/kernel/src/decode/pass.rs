//! One pass over a chunk of keys and a chunk of values, with all queries of some key heads.
//!
//! `s[i][j] = q_i.k_j` of the next chunk and `t_i += sum_j w[i][j] v_j` of the last one, by turns: two vectors
//! of a key, two of a value. So keys and values are each read from front to back, every line once, which is
//! what the processor's own prefetching follows, and it follows both all the time: by turns of whole tokens
//! one waits while the other is read, and a loop of nothing but these products was 4 to 18 % slower. Queries
//! and sums of values, of which there are few, come from the first cache each time.
//! Knows neither softmax nor intervals.

use super::lanes::Lanes;
use super::rows::{CHUNK, ChunkRows};
use super::stored::Stored;
use crate::geometry::Span;
use pulp::Simd;
use std::ops::Range;

/// What a pass reads and writes. Queries are counted through the heads; rows of `q` and `t` are `row`
/// floats apart, rows of `s` and `w` [`CHUNK`].
pub(super) struct Pass<'a, E> {
    pub(super) keys: ChunkRows<E>,
    pub(super) values: ChunkRows<E>,
    /// Key heads, and queries of each.
    pub(super) heads: usize,
    pub(super) queries: usize,
    /// The keys whose logits are formed; others of their group of vector lanes get 0.
    pub(super) seen: Span,
    /// The values that are summed, one after the other.
    pub(super) summed: Span,
    pub(super) row: usize,
    pub(super) q: &'a [f32],
    pub(super) s: &'a mut [f32],
    pub(super) w: &'a [f32],
    pub(super) t: &'a mut [f32],
    /// For each query as many vectors as a vector has lanes: products whose lanes are yet to be added.
    pub(super) products: &'a mut [f32],
}

/// Rows of any number of pairs, where the compiler is not told how many.
const ANY: usize = 0;

/// Queries of a register block at most: their weights and the sums of their products fit.
const BLOCK: usize = 4;

/// What of a token is read: its key, its value.
const KEY: usize = 1;
const VALUE: usize = 2;
const BOTH: usize = KEY | VALUE;

/// One head of a token, and its first query of a register block.
#[derive(Clone, Copy)]
struct At {
    head: usize,
    key: usize,
    query: usize,
}

impl<E: Stored> Pass<'_, E> {
    /// Does the pass.
    ///
    /// # Safety
    /// The rows `seen` and `summed` must be readable in all heads.
    #[inline(always)]
    pub(super) unsafe fn run<S: Simd>(mut self, lanes: &Lanes<S>) {
        let (all, pair) = (self.heads * self.queries, 2 * S::F32_LANES);
        assert!(self.keys.pairs * pair <= self.row && self.values.pairs == self.keys.pairs);
        assert!(self.q.len() >= all * self.row && self.t.len() >= all * self.row);
        assert!(self.s.len() >= all * CHUNK && self.w.len() >= all * CHUNK);
        assert!(self.products.len() >= all * S::F32_LANES * S::F32_LANES);
        assert!(self.seen.end.max(self.summed.end) <= CHUNK);
        for first in (0..CHUNK).step_by(S::F32_LANES) {
            // SAFETY: the rows are readable, and all lengths are what has been asserted.
            unsafe {
                // Rows of 64 and of 128 numbers.
                match self.keys.pairs {
                    2 if S::F32_LANES == 16 => self.group::<S, 2>(lanes, first),
                    4 => self.group::<S, 4>(lanes, first),
                    8 if S::F32_LANES == 8 => self.group::<S, 8>(lanes, first),
                    _ => self.group::<S, ANY>(lanes, first),
                }
            }
        }
    }

    /// As many keys and values as a vector has lanes, from `first` on; rows have `P` pairs.
    ///
    /// # Safety
    /// As for [`Pass::run`], and its assertions must hold.
    #[inline(always)]
    unsafe fn group<S: Simd, const P: usize>(&mut self, lanes: &Lanes<S>, first: usize) {
        let part = first..first + S::F32_LANES;
        let rows = (self.seen.within(&part), self.summed.within(&part));
        if !rows.0.is_empty() && rows.0.len() < S::F32_LANES {
            self.products.fill(0.0);
        }
        // A second block of queries finds the rows in the first cache.
        for query in (0..self.queries).step_by(BLOCK) {
            // SAFETY: the caller's promise, and these are queries of the pass.
            unsafe {
                match self.queries - query {
                    BLOCK.. => self.turns::<S, BLOCK, P>(lanes.simd(), &rows, query),
                    3 => self.turns::<S, 3, P>(lanes.simd(), &rows, query),
                    2 => self.turns::<S, 2, P>(lanes.simd(), &rows, query),
                    _ => self.turns::<S, 1, P>(lanes.simd(), &rows, query),
                }
            }
        }
        if !rows.0.is_empty() {
            self.logits(lanes, first);
        }
    }

    /// `Q` queries of each head, from `query` on, with the rows that are seen, summed or both.
    ///
    /// # Safety
    /// As for [`Pass::group`]; the rows must be seen or summed.
    #[inline(always)]
    unsafe fn turns<S: Simd, const Q: usize, const P: usize>(
        &mut self,
        simd: S,
        (seen, summed): &(Range<usize>, Range<usize>),
        query: usize,
    ) {
        let mut ends = [seen.start, seen.end, summed.start, summed.end];
        ends.sort_unstable();
        for keys in ends.windows(2).map(|ends| ends[0]..ends[1]) {
            // SAFETY: all of these rows are readable for what they are read for, and these are queries of
            // the pass.
            unsafe {
                match (seen.contains(&keys.start), summed.contains(&keys.start)) {
                    (true, true) => self.tokens::<S, Q, P, BOTH>(simd, keys, query),
                    (true, false) => self.tokens::<S, Q, P, KEY>(simd, keys, query),
                    (false, true) => self.tokens::<S, Q, P, VALUE>(simd, keys, query),
                    (false, false) => (),
                }
            }
        }
    }

    /// `Q` queries of each head, from `query` on, with what `WHAT` says of some tokens.
    ///
    /// # Safety
    /// As for [`Pass::token`].
    #[inline(always)]
    unsafe fn tokens<S: Simd, const Q: usize, const P: usize, const WHAT: usize>(
        &mut self,
        simd: S,
        keys: Range<usize>,
        query: usize,
    ) {
        for key in keys {
            for head in 0..self.heads {
                let at = At { head, key, query: head * self.queries + query };
                // SAFETY: the caller's promise.
                unsafe { self.token::<S, Q, P, WHAT>(simd, at) };
            }
        }
    }

    /// Pairs of a row: `P`, or as many as it has.
    #[inline(always)]
    fn pairs<const P: usize>(&self) -> usize {
        if P == ANY { self.keys.pairs } else { P }
    }

    /// Adds the products' lanes: the logits of a group of keys, from `first` on.
    #[inline(always)]
    fn logits<S: Simd>(&mut self, lanes: &Lanes<S>, first: usize) {
        let (products, _) = S::as_mut_simd_f32s(self.products);
        let products = products.chunks_exact_mut(S::F32_LANES);
        for (s, products) in self.s.chunks_exact_mut(CHUNK).zip(products) {
            let (s, _) = S::as_mut_simd_f32s(&mut s[first..]);
            s[0] = lanes.sums(products);
        }
    }

    /// The products of `Q` queries with a key, two sums a query, of even and of odd vectors; and a
    /// value added to the sums of `Q` queries, each with its weight: a pair of the one, a pair of the other.
    ///
    /// # Safety
    /// The rows that `WHAT` names must be readable, and the queries those of the pass.
    #[inline(always)]
    unsafe fn token<S: Simd, const Q: usize, const P: usize, const WHAT: usize>(
        &mut self,
        simd: S,
        at: At,
    ) {
        let (key, value) = (self.keys.row(at.head, at.key), self.values.row(at.head, at.key));
        let q = self.q.as_ptr().wrapping_add(at.query * self.row).cast::<S::f32s>();
        let t = self.t.as_mut_ptr().wrapping_add(at.query * self.row).cast::<S::f32s>();
        let w = self.w.as_ptr().wrapping_add(at.query * CHUNK + at.key);
        let apart = self.row / S::F32_LANES;
        let mut weights = [simd.splat_f32s(0.0); Q];
        if WHAT & VALUE != 0 {
            for (i, weight) in weights.iter_mut().enumerate() {
                // SAFETY: `w` has a row for each query of the pass.
                *weight = simd.splat_f32s(unsafe { *w.add(i * CHUNK) });
            }
        }
        let mut sums = [[simd.splat_f32s(0.0); 2]; Q];
        for pair in 0..self.pairs::<P>() {
            if WHAT & KEY != 0 {
                // SAFETY: the pair lies in a readable row.
                let [a, b] = unsafe { E::pair(simd, key.add(pair * 2 * S::F32_LANES)) };
                for (i, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: rows of `q` are at least so many pairs long, and aligned for vectors or not.
                    let [x, y] = unsafe {
                        let q = q.add(i * apart + 2 * pair);
                        [q.read_unaligned(), q.add(1).read_unaligned()]
                    };
                    sums[0] = simd.mul_add_e_f32s(a, x, sums[0]);
                    sums[1] = simd.mul_add_e_f32s(b, y, sums[1]);
                }
            }
            if WHAT & VALUE != 0 {
                // SAFETY: the pair lies in a readable row.
                let [a, b] = unsafe { E::pair(simd, value.add(pair * 2 * S::F32_LANES)) };
                for (i, &weight) in weights.iter().enumerate() {
                    // SAFETY: rows of `t` are at least so many pairs long, and aligned for vectors or not.
                    unsafe {
                        let t = t.add(i * apart + 2 * pair);
                        t.write_unaligned(simd.mul_add_e_f32s(weight, a, t.read_unaligned()));
                        let t = t.add(1);
                        t.write_unaligned(simd.mul_add_e_f32s(weight, b, t.read_unaligned()));
                    }
                }
            }
        }
        if WHAT & KEY == 0 {
            return;
        }
        let products = self.products.as_mut_ptr().cast::<S::f32s>();
        for (i, sums) in sums.iter().enumerate() {
            let index = (at.query + i) * S::F32_LANES + at.key % S::F32_LANES;
            // SAFETY: `run` has made sure that each query has as many vectors as lanes.
            unsafe { products.add(index).write_unaligned(simd.add_f32s(sums[0], sums[1])) };
        }
    }
}
