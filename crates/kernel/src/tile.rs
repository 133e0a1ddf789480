//! The micro-kernel and the two products of a row group: `S = Q K^T` and `Y += P V`.
//!
//! `C[i][:] = C0[i][:] + sum_k A[i][k] B[k][:]` for `MR` rows and `NV` vectors, all accumulators in
//! registers. The sum is formed first and then added to `C0`: many small terms that were added one by
//! one to a large `C0` would all be rounded away (47 ulp were seen in 2335 keys). A is row-major, B is
//! packed. Knows spans, no softmax.

use crate::geometry::Span;
use crate::prefetch::{LINE, prefetch_first};
use crate::workspace::{KEY_TILE, STRIDE};
use pulp::Simd;

/// Keys whose values are summed before they are added to `y`. Counted from the tile's first key, not
/// from the span's: the span is the whole group's, and must not decide how a row's sum is cut.
const SUM: usize = 128;

/// Products that are summed one by one in a logit; sums of so many are then added. One chain of 256
/// exceeds the error that a logit may carry.
const DOT: usize = 64;

/// How far ahead of its use B is asked for where it streams from the second cache, in floats: what is used
/// up in some 500 cycles. The processor's own prefetching stops at each page.
const STREAM: usize = 1536;

/// What C holds before the product is added.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Zero,
    Kept,
}

/// A and B of a product.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    /// Rows of `depth` floats, a constant number of floats apart.
    pub(crate) a: *const f32,
    /// Rows of vectors.
    pub(crate) b: *const f32,
    /// Vectors from one row of B to the next.
    pub(crate) line: usize,
    /// What is read next, asked for meanwhile: its first float, which need not exist, and the floats of a
    /// step.
    pub(crate) next: (*const f32, usize),
}

impl Operands {
    /// A stays in the first cache, B follows what lies behind it.
    #[inline(always)]
    fn streaming<S: Simd>(a: *const f32, (b, line): (*const f32, usize)) -> Self {
        Self { a, b, line, next: (b.wrapping_add(STREAM), line * S::F32_LANES) }
    }
}

/// `MR x NV` vectors of C, `depth` steps; rows of A are `LDA` floats apart.
///
/// # Safety
/// `a` must be readable at `i * LDA + k` for `i < MR`, `k < depth`; `b` for NV vectors at `k * line`;
/// `c`, a pointer and the floats between its rows, must be writable, and nothing else reading it, for
/// `NV` vectors at each row.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "one index runs over registers and memory alike")]
pub(crate) unsafe fn multiply<S: Simd, const MR: usize, const NV: usize, const LDA: usize>(
    simd: S,
    depth: usize,
    Operands { a, b, line, next: (mut next, step) }: Operands,
    (c, row): (*mut f32, usize),
    start: Start,
) {
    let mut sums = [[simd.splat_f32s(0.0); NV]; MR];
    // Nothing is asked for where a row of the tile is less than a line.
    let line_len = LINE / size_of::<f32>();
    let width = NV * S::F32_LANES / line_len * line_len;
    // C, which is added to at the end, may lie in as many pages as it has rows.
    for i in 0..MR {
        prefetch_first(c.wrapping_add(i * row), width);
    }
    // SAFETY: all three accesses stay inside what the caller vouches for; vectors are read and
    // written without regard to alignment.
    unsafe {
        for k in 0..depth {
            prefetch_first(next, width);
            next = next.wrapping_add(step);
            let mut wide = [simd.splat_f32s(0.0); NV];
            for j in 0..NV {
                wide[j] = b.cast::<S::f32s>().add(k * line + j).read_unaligned();
            }
            for i in 0..MR {
                let factor = simd.splat_f32s(a.add(i * LDA + k).read());
                for j in 0..NV {
                    sums[i][j] = simd.mul_add_e_f32s(factor, wide[j], sums[i][j]);
                }
            }
        }
        for i in 0..MR {
            for j in 0..NV {
                let c = c.add(i * row).cast::<S::f32s>().add(j);
                let sum = match start {
                    Start::Zero => sums[i][j],
                    Start::Kept => simd.add_f32s(c.read_unaligned(), sums[i][j]),
                };
                c.write_unaligned(sum);
            }
        }
    }
}

/// `S = Q K^T` for one group of `MR` rows, in every panel that `span` touches.
///
/// `q` and `s` hold the group's rows, `keys` a tile of packed panels `[d][NV vectors]`.
#[inline(always)]
pub(crate) fn scores<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    (q, head_dim): (&[f32], usize),
    keys: &[f32],
    s: &mut [f32],
    span: Span,
) {
    let width = NV * S::F32_LANES;
    assert!(q.len() >= MR * STRIDE && s.len() >= MR * STRIDE && head_dim <= STRIDE);
    assert!(KEY_TILE.is_multiple_of(width) && span.end <= KEY_TILE && KEY_TILE <= STRIDE);
    for first in (span.start / width * width..span.end).step_by(width) {
        let panel = &keys[first * head_dim..(first + width) * head_dim];
        let s = &mut s[first..];
        // Where the span ends or begins within the panel, half of it may do.
        let (start, end) = (span.start.saturating_sub(first), span.end - first);
        if NV == 2 && start >= S::F32_LANES {
            panel_scores::<S, MR, 1>(simd, (q, head_dim), (panel, NV, 1), s);
        } else if NV == 2 && end <= S::F32_LANES {
            panel_scores::<S, MR, 1>(simd, (q, head_dim), (panel, NV, 0), s);
        } else {
            panel_scores::<S, MR, NV>(simd, (q, head_dim), (panel, NV, 0), s);
        }
    }
}

/// `S = Q K^T` for `NV` vectors of a panel of `line`, from vector `at` on; `s` begins at the panel.
#[inline(always)]
fn panel_scores<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    (q, head_dim): (&[f32], usize),
    (panel, line, at): (&[f32], usize, usize),
    s: &mut [f32],
) {
    let offset = at * S::F32_LANES;
    assert!(q.len() >= (MR - 1) * STRIDE + head_dim && at + NV <= line);
    assert!(panel.len() >= head_dim * line * S::F32_LANES);
    assert!(s.len() >= (MR - 1) * STRIDE + offset + NV * S::F32_LANES);
    let piece = head_dim.div_ceil(head_dim.div_ceil(DOT));
    for from in (0..head_dim).step_by(piece) {
        let depth = piece.min(head_dim - from);
        let start = if from == 0 { Start::Zero } else { Start::Kept };
        // SAFETY: `q` holds `MR` rows of `from + depth <= head_dim` floats, `panel` as many rows of
        // `line >= at + NV` vectors, `s` room for NV vectors behind `offset` in each of its rows, all
        // by the asserts; `s` is borrowed mutably.
        unsafe {
            let b = panel.as_ptr().add(from * line * S::F32_LANES + offset);
            let operands = Operands::streaming::<S>(q.as_ptr().add(from), (b, line));
            let c = (s.as_mut_ptr().add(offset), STRIDE);
            multiply::<S, MR, NV, STRIDE>(simd, depth, operands, c, start);
        }
    }
}

/// `Y += P V` for one group of `MR` rows, over the keys of `span`, which is not empty.
///
/// `p` and `y` hold the group's rows, `values` a tile of packed panels `[KEY_TILE][NV vectors]`, the
/// last ones of one vector each where `NV` does not divide `vectors`, the number in a row of Y.
#[inline(always)]
pub(crate) fn accumulate<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    p: &[f32],
    (values, vectors): (&[f32], usize),
    y: &mut [f32],
    span: Span,
) {
    let lanes = S::F32_LANES;
    assert!(p.len() >= MR * STRIDE && y.len() >= MR * STRIDE && vectors * lanes <= STRIDE);
    assert!(span.start <= span.end && span.end <= KEY_TILE && KEY_TILE <= STRIDE);
    assert!(values.len() >= KEY_TILE * vectors * lanes);
    let mut done = 0;
    while done < vectors {
        let count = if vectors - done >= NV { NV } else { 1 };
        for piece in (span.start / SUM * SUM..span.end).step_by(SUM) {
            let start = piece.max(span.start);
            let depth = span.end.min(piece + SUM) - start;
            // SAFETY: `p` and `y` hold `MR` rows of STRIDE floats, of which `start + depth <=
            // span.end` and `(done + count) * lanes` are used (first two asserts); the panel at
            // `done` holds KEY_TILE rows of `count` vectors (last assert); `y` is borrowed mutably.
            unsafe {
                let a = p.as_ptr().add(start);
                let b = values.as_ptr().add((done * KEY_TILE + start * count) * lanes);
                let c = (y.as_mut_ptr().add(done * lanes), STRIDE);
                let operands = Operands::streaming::<S>(a, (b, count));
                if count == NV {
                    multiply::<S, MR, NV, STRIDE>(simd, depth, operands, c, Start::Kept);
                } else {
                    multiply::<S, MR, 1, STRIDE>(simd, depth, operands, c, Start::Kept);
                }
            }
        }
        done += count;
    }
}
