//! The micro-kernel and the two products of a tile: `S = Q K^T` and `Y += P V`.
//!
//! `C[i][:] = C0[i][:] + sum_k A[i][k] B[k][:]` for `MR` rows and `NV` vectors, all accumulators in
//! registers. A is row-major with the tiles' common stride, B is packed. Knows spans, no softmax.

use crate::geometry::Span;
use crate::workspace::{KEY_TILE, QUERY_TILE, STRIDE};
use pulp::Simd;

/// What C holds before the product is added.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Zero,
    Kept,
}

/// `MR x NV` vectors of C, `depth` steps.
///
/// # Safety
/// `a` must be readable at `i * STRIDE + k` for `i < MR`, `k < depth`; `b` for `depth * NV` vectors;
/// `c` must be writable, and nothing else reading it, for `NV` vectors from each `i * STRIDE`.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "one index runs over registers and memory alike")]
unsafe fn multiply<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    depth: usize,
    (a, b): (*const f32, *const f32),
    c: *mut f32,
    start: Start,
) {
    let mut sums = [[simd.splat_f32s(0.0); NV]; MR];
    // SAFETY: all three accesses stay inside what the caller vouches for; vectors are read and
    // written without regard to alignment.
    unsafe {
        if start == Start::Kept {
            for i in 0..MR {
                for j in 0..NV {
                    sums[i][j] = c.add(i * STRIDE).cast::<S::f32s>().add(j).read_unaligned();
                }
            }
        }
        for k in 0..depth {
            let mut row = [simd.splat_f32s(0.0); NV];
            for j in 0..NV {
                row[j] = b.cast::<S::f32s>().add(k * NV + j).read_unaligned();
            }
            for i in 0..MR {
                let factor = simd.splat_f32s(a.add(i * STRIDE + k).read());
                for j in 0..NV {
                    sums[i][j] = simd.mul_add_e_f32s(factor, row[j], sums[i][j]);
                }
            }
        }
        for i in 0..MR {
            for j in 0..NV {
                c.add(i * STRIDE).cast::<S::f32s>().add(j).write_unaligned(sums[i][j]);
            }
        }
    }
}

/// `S = Q K^T` for every micro-tile that a span of `groups` touches.
///
/// `keys` holds packed panels `[d][NV vectors]`, as many as the spans reach into; `groups` the hulls
/// of `MR` rows each.
#[inline(always)]
pub(crate) fn scores<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    (q, head_dim): (&[f32], usize),
    keys: &[f32],
    s: &mut [f32],
    groups: &[Span],
) {
    let width = NV * S::F32_LANES;
    assert!(groups.len() * MR <= QUERY_TILE && head_dim <= STRIDE);
    assert!(q.len() >= QUERY_TILE * STRIDE && s.len() >= QUERY_TILE * STRIDE);
    for (index, panel) in keys.chunks_exact(head_dim * width).enumerate() {
        let first = index * width;
        assert!(first + width <= KEY_TILE);
        for (group, span) in groups.iter().enumerate() {
            if !span.touches(first, first + width) {
                continue;
            }
            // SAFETY: rows `group * MR ..` of `q` and `s` exist (first two asserts), each of STRIDE
            // floats, of which `head_dim` and `first + width` are used (second and third assert);
            // `panel` holds `head_dim * NV` vectors; `s` is borrowed mutably.
            unsafe {
                let at = group * MR * STRIDE;
                let (a, c) = (q.as_ptr().add(at), s.as_mut_ptr().add(at + first));
                multiply::<S, MR, NV>(simd, head_dim, (a, panel.as_ptr()), c, Start::Zero);
            }
        }
    }
}

/// `Y += P V` over the keys of each group's span.
///
/// `values` holds packed panels `[KEY_TILE][NV vectors]`, the last one perhaps narrower; `vectors`
/// is the number of vectors in a row of Y.
#[inline(always)]
pub(crate) fn accumulate<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    p: &[f32],
    (values, vectors): (&[f32], usize),
    y: &mut [f32],
    groups: &[Span],
) {
    let lanes = S::F32_LANES;
    assert!(groups.len() * MR <= QUERY_TILE && vectors * lanes <= STRIDE);
    assert!(groups.iter().all(|span| span.end <= KEY_TILE));
    assert!(p.len() >= QUERY_TILE * STRIDE && y.len() >= QUERY_TILE * STRIDE);
    assert!(values.len() >= KEY_TILE * vectors * lanes);
    let mut done = 0;
    while done < vectors {
        let wide = vectors - done >= NV;
        let width = if wide { NV } else { 1 } * lanes;
        for (group, span) in groups.iter().enumerate() {
            if span.is_empty() {
                continue;
            }
            // SAFETY: rows `group * MR ..` of `p` and `y` exist (first and third assert), each of
            // STRIDE floats, of which `span.end` and `(done + width / lanes) * lanes` are used (first
            // two asserts); the panel at `done` holds KEY_TILE rows of `width` floats (last assert);
            // `y` is borrowed mutably.
            unsafe {
                let at = group * MR * STRIDE;
                let a = p.as_ptr().add(at + span.start);
                let b = values.as_ptr().add(done * lanes * KEY_TILE + span.start * width);
                let c = y.as_mut_ptr().add(at + done * lanes);
                let depth = span.end - span.start;
                if wide {
                    multiply::<S, MR, NV>(simd, depth, (a, b), c, Start::Kept);
                } else {
                    multiply::<S, MR, 1>(simd, depth, (a, b), c, Start::Kept);
                }
            }
        }
        done += width / lanes;
    }
}
