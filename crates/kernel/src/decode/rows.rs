//! Where the rows of a chunk of keys or values lie, and what few queries make of a row.
//!
//! Rows are read as they lie and widened in registers; a row serves all queries of a register block at
//! once. Knows neither softmax nor intervals.

use super::stored::Stored;
use crate::prefetch::{AHEAD, prefetch_second};
use pulp::Simd;

/// Keys of a chunk: their weights are formed together, their values summed before they are added
/// to `y`.
pub(super) const CHUNK: usize = 64;

/// `P` vector pairs of each of `Q` rows.
pub(super) type Pairs<S, const Q: usize, const P: usize> = [[[<S as Simd>::f32s; 2]; P]; Q];

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
    /// Whether rows are to be asked for beforehand: those that lie apart. Where they follow each other the
    /// processor asks by itself, and sooner.
    pub(super) asks: bool,
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

    /// Asks for `P` pairs from element `at` on of a row after `key`, which may lie in the next chunk or
    /// nowhere.
    #[inline(always)]
    pub(super) fn prefetch<S: Simd, const P: usize>(&self, (key, at): (usize, usize)) {
        if self.asks {
            prefetch_second(self.row(key + AHEAD).wrapping_add(at), P * 2 * S::F32_LANES);
        }
    }

    /// The products of a row's `P` pairs from element `at` on with those of `Q` queries: of each a vector
    /// whose lanes are yet to be added. One chain a query, so that the row is read from front to back.
    ///
    /// # Safety
    /// The row must be readable, with `P` pairs from `at` on.
    #[inline(always)]
    pub(super) unsafe fn dot<S: Simd, const Q: usize, const P: usize>(
        &self,
        simd: S,
        (key, at): (usize, usize),
        q: &Pairs<S, Q, P>,
    ) -> [S::f32s; Q] {
        let mut sums = [simd.splat_f32s(0.0); Q];
        for p in 0..P {
            // SAFETY: the pair lies in a readable row.
            let [a, b] = unsafe { E::pair(simd, self.row(key).add(at + p * 2 * S::F32_LANES)) };
            for (sum, q) in sums.iter_mut().zip(q) {
                *sum = simd.mul_add_e_f32s(a, q[p][0], *sum);
                *sum = simd.mul_add_e_f32s(b, q[p][1], *sum);
            }
        }
        sums
    }

    /// Adds a row's `P` pairs from element `at` on to `t`, for each of `Q` queries with its weight for this
    /// key in its row of `w` ([`CHUNK`] a row).
    ///
    /// # Safety
    /// The row must be readable, with `P` pairs from `at` on.
    #[inline(always)]
    pub(super) unsafe fn add<S: Simd, const Q: usize, const P: usize>(
        &self,
        simd: S,
        (key, at): (usize, usize),
        w: &[f32],
        t: &mut Pairs<S, Q, P>,
    ) {
        for p in 0..P {
            // SAFETY: the pair lies in a readable row.
            let [a, b] = unsafe { E::pair(simd, self.row(key).add(at + p * 2 * S::F32_LANES)) };
            for (i, t) in t.iter_mut().enumerate() {
                let weight = simd.splat_f32s(w[i * CHUNK + key]);
                t[p][0] = simd.mul_add_e_f32s(weight, a, t[p][0]);
                t[p][1] = simd.mul_add_e_f32s(weight, b, t[p][1]);
            }
        }
    }
}
