//! Adds the lanes of vectors, of as many vectors as there are lanes at once.

use crate::workspace::MAX_LANES;
use pulp::Simd;

/// What adding takes on an instruction set.
pub(super) struct Lanes<S: Simd> {
    simd: S,
    /// The lanes whose number lacks the bit 1, 2, 4, 8.
    lacks: [S::m32s; 4],
}

impl<S: Simd> Lanes<S> {
    #[inline(always)]
    pub(super) fn new(simd: S) -> Self {
        let numbers: [u32; MAX_LANES] = std::array::from_fn(|lane| lane as u32);
        let numbers = S::as_simd_u32s(&numbers).0[0];
        let one = simd.splat_u32s(1);
        let mut lacks = [simd.less_than_u32s(numbers, one); 4];
        for (bit, mask) in lacks.iter_mut().enumerate() {
            let bits = simd.and_u32s(numbers, simd.splat_u32s(1 << bit));
            *mask = simd.less_than_u32s(bits, one);
        }
        Self { simd, lacks }
    }

    /// The instruction set.
    #[inline(always)]
    pub(super) fn simd(&self) -> S {
        self.simd
    }

    /// The sum of vector `i`'s lanes in lane `i`; what the vectors hold afterwards is of no use.
    #[inline(always)]
    pub(super) fn sums(&self, vectors: &mut [S::f32s]) -> S::f32s {
        #[cfg(target_arch = "x86_64")]
        if let Some(sums) = x86::sums(self.simd, vectors) {
            return sums;
        }
        // Neighbours are folded into one vector, which holds one's sums in every other lane, then
        // neighbours among these, and so on: `log2` of the lanes times.
        let (mut count, mut level) = (S::F32_LANES, 0);
        while count > 1 {
            count /= 2;
            for index in 0..count {
                let [a, b] = [vectors[2 * index], vectors[2 * index + 1]];
                vectors[index] = self.fold(a, b, level);
            }
            level += 1;
        }
        vectors[0]
    }

    /// Sums of lanes `2^level` apart: of `a` in the lanes that lack this bit, of `b` in the others.
    #[inline(always)]
    fn fold(&self, a: S::f32s, b: S::f32s, level: usize) -> S::f32s {
        let (simd, lacks) = (self.simd, self.lacks[level]);
        let own = simd.select_f32s(lacks, a, b);
        let other = simd.select_f32s(lacks, b, a);
        simd.add_f32s(own, simd.rotate_right_f32s(other, 1 << level))
    }
}

/// AVX2 has an instruction that adds neighbouring lanes of two vectors: half the time.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use pulp::bytemuck::{cast, cast_slice};
    use pulp::x86::V3;
    use pulp::{Simd, f32x8};
    use std::any::Any;

    /// As [`Lanes::sums`](super::Lanes::sums), where vectors are AVX2's.
    #[inline(always)]
    pub(super) fn sums<S: Simd>(simd: S, vectors: &[S::f32s]) -> Option<S::f32s> {
        // Known when this is compiled.
        let simd = *(&simd as &dyn Any).downcast_ref::<V3>()?;
        let vectors: &[f32x8; 8] = cast_slice(vectors).first_chunk()?;
        let [a, b, c, d, e, f, g, h] = *vectors;
        let low = neighbours(simd, neighbours(simd, a, b), neighbours(simd, c, d));
        let high = neighbours(simd, neighbours(simd, e, f), neighbours(simd, g, h));
        let (low, high) = (cast(low), cast(high));
        let left = simd.avx._mm256_permute2f128_ps::<0x20>(low, high);
        let right = simd.avx._mm256_permute2f128_ps::<0x31>(low, high);
        let sums: f32x8 = cast(simd.avx._mm256_add_ps(left, right));
        cast_slice(&[sums]).first().copied()
    }

    #[inline(always)]
    fn neighbours(simd: V3, a: f32x8, b: f32x8) -> f32x8 {
        cast(simd.avx._mm256_hadd_ps(cast(a), cast(b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use pulp::WithSimd;

    struct Sums<'a>(&'a mut Vec<f32>);

    impl WithSimd for Sums<'_> {
        type Output = ();

        fn with_simd<S: Simd>(self, simd: S) {
            let mut vectors = [simd.splat_f32s(0.0); MAX_LANES];
            for (index, vector) in vectors.iter_mut().enumerate() {
                let lanes: Vec<f32> =
                    (0..S::F32_LANES).map(|lane| (100 * index + lane * lane) as f32).collect();
                *vector = S::as_simd_f32s(&lanes).0[0];
            }
            self.0.resize(S::F32_LANES, 0.0);
            S::as_mut_simd_f32s(self.0).0[0] = Lanes::new(simd).sums(&mut vectors);
        }
    }

    #[test]
    fn each_lane_is_the_sum_of_its_vector() {
        for isa in Isa::available() {
            let mut sums = Vec::new();
            isa.run(Sums(&mut sums)).unwrap();
            let lanes = sums.len();
            let squares: usize = (0..lanes).map(|lane| lane * lane).sum();
            for (index, &sum) in sums.iter().enumerate() {
                assert_eq!(sum, (100 * index * lanes + squares) as f32, "{isa} {index}");
            }
        }
    }
}
