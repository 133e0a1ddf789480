//! Dot products of bytes on x86-64: one instruction where there is VNNI, else three, or two for
//! codes of 4 bits.

use super::{ByteDot, WithByteDot};
use core::arch::x86_64::_mm512_dpbusd_epi32;
use pulp::x86::{V3, V4};
use pulp::{NullaryFnOnce, Simd, cast, f32x8, f32x16, i32x8, i32x16, u32x8, u32x16};

pulp::simd_type! {
    /// x86-64-v4 and VNNI, as far as a product needs them.
    struct Vnni {
        pub avx512f: "avx512f",
        pub avx512bw: "avx512bw",
        pub avx512dq: "avx512dq",
        pub avx512vl: "avx512vl",
        pub avx512vnni: "avx512vnni",
    }
}

/// AVX-512 with VNNI.
#[derive(Clone, Copy)]
struct Fused(V4, Vnni);

/// Two 16-bit ones.
const ONES: u32 = 0x0001_0001;

impl ByteDot for Fused {
    type Simd = V4;

    #[inline(always)]
    fn simd(self) -> V4 {
        self.0
    }

    #[inline(always)]
    fn dot(self, sums: i32x16, codes: u32x16, digits: u32) -> i32x16 {
        let digits = self.0.splat_u32s(digits);
        // SAFETY: `Vnni` proves that the processor has the instruction, and its `vectorize` enables it.
        cast(unsafe { _mm512_dpbusd_epi32(cast(sums), cast(codes), cast(digits)) })
    }

    #[inline(always)]
    fn floats(self, integers: i32x16) -> f32x16 {
        self.0.floats(integers)
    }
}

impl ByteDot for V4 {
    type Simd = Self;

    #[inline(always)]
    fn simd(self) -> Self {
        self
    }

    #[inline(always)]
    fn dot(self, sums: i32x16, codes: u32x16, digits: u32) -> i32x16 {
        let digits = cast(self.splat_u32s(digits));
        let pairs = self.avx512bw._mm512_maddubs_epi16(cast(codes), digits);
        let quads = self.avx512bw._mm512_madd_epi16(pairs, cast(self.splat_u32s(ONES)));
        cast(self.avx512f._mm512_add_epi32(cast(sums), quads))
    }

    #[inline(always)]
    fn dot_nibbles(self, sums: i32x16, codes: u32x16, digits: u32) -> i32x16 {
        let digits = cast(self.splat_u32s(digits));
        let pairs = self.avx512bw._mm512_maddubs_epi16(cast(codes), digits);
        cast(self.avx512bw._mm512_add_epi16(cast(sums), pairs))
    }

    #[inline(always)]
    fn settle(self, sums: i32x16) -> i32x16 {
        cast(self.avx512bw._mm512_madd_epi16(cast(sums), cast(self.splat_u32s(ONES))))
    }

    #[inline(always)]
    fn floats(self, integers: i32x16) -> f32x16 {
        cast(self.avx512f._mm512_cvtepi32_ps(cast(integers)))
    }
}

impl ByteDot for V3 {
    type Simd = Self;

    #[inline(always)]
    fn simd(self) -> Self {
        self
    }

    #[inline(always)]
    fn dot(self, sums: i32x8, codes: u32x8, digits: u32) -> i32x8 {
        let digits = cast(self.splat_u32s(digits));
        let pairs = self.avx2._mm256_maddubs_epi16(cast(codes), digits);
        let quads = self.avx2._mm256_madd_epi16(pairs, cast(self.splat_u32s(ONES)));
        cast(self.avx2._mm256_add_epi32(cast(sums), quads))
    }

    #[inline(always)]
    fn dot_nibbles(self, sums: i32x8, codes: u32x8, digits: u32) -> i32x8 {
        let digits = cast(self.splat_u32s(digits));
        let pairs = self.avx2._mm256_maddubs_epi16(cast(codes), digits);
        cast(self.avx2._mm256_add_epi16(cast(sums), pairs))
    }

    #[inline(always)]
    fn settle(self, sums: i32x8) -> i32x8 {
        cast(self.avx2._mm256_madd_epi16(cast(sums), cast(self.splat_u32s(ONES))))
    }

    #[inline(always)]
    fn floats(self, integers: i32x8) -> f32x8 {
        cast(self.avx._mm256_cvtepi32_ps(cast(integers)))
    }
}

/// Work and what it is done with.
struct Call<D, Op>(D, Op);

impl<D: ByteDot, Op: WithByteDot> NullaryFnOnce for Call<D, Op> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.1.with_dot(self.0);
    }
}

/// Runs `op` with 16 lanes.
pub(super) fn run_avx512(op: impl WithByteDot) -> Option<()> {
    let simd = V4::try_new()?;
    match Vnni::try_new() {
        Some(vnni) => vnni.vectorize(Call(Fused(simd, vnni), op)),
        None => simd.vectorize(Call(simd, op)),
    }
    Some(())
}

/// Runs `op` with 8 lanes.
pub(super) fn run_avx2(op: impl WithByteDot) -> Option<()> {
    let simd = V3::try_new()?;
    simd.vectorize(Call(simd, op));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    /// Each instruction set's sums of the same words.
    fn sums(codes: [u32; 16], digits: u32, start: [i32; 16]) -> Vec<[i32; 16]> {
        struct Sums<'a>(&'a mut Vec<[i32; 16]>, [u32; 16], u32, [i32; 16]);

        impl WithByteDot for Sums<'_> {
            fn with_dot<D: ByteDot>(self, dot: D) {
                let mut sums = self.3.map(|start| start as u32);
                let (words, _) = D::Simd::as_simd_u32s(&self.1);
                let (to, _) = D::Simd::as_mut_simd_u32s(&mut sums);
                for (to, &word) in to.iter_mut().zip(words) {
                    let sum = dot.dot(dot.simd().transmute_i32s_u32s(*to), word, self.2);
                    *to = dot.simd().transmute_u32s_i32s(sum);
                }
                self.0.push(sums.map(|sum| sum as i32));
            }
        }

        let mut all = Vec::new();
        Sums(&mut all, codes, digits, start).with_dot(pulp::Scalar::new());
        if let Some(simd) = V3::try_new() {
            simd.vectorize(Call(simd, Sums(&mut all, codes, digits, start)));
        }
        if let Some(simd) = V4::try_new() {
            simd.vectorize(Call(simd, Sums(&mut all, codes, digits, start)));
            if let Some(vnni) = Vnni::try_new() {
                let call = Call(Fused(simd, vnni), Sums(&mut all, codes, digits, start));
                vnni.vectorize(call);
            }
        }
        all
    }

    /// A whole block of the largest and of the smallest sums.
    #[test]
    fn sums_of_nibbles_do_not_overflow() {
        struct Sums(u32, i32);

        impl WithByteDot for Sums {
            fn with_dot<D: ByteDot>(self, dot: D) {
                let simd = dot.simd();
                let mut sums = simd.splat_i32s(0);
                for _ in 0..crate::quantised::BLOCK / 4 {
                    sums = dot.dot_nibbles(sums, simd.splat_u32s(0x0f0f_0f0f), self.0);
                }
                let settled = simd.transmute_u32s_i32s(dot.settle(sums));
                let mut words = [0; 16];
                D::Simd::as_mut_simd_u32s(&mut words).0[0] = settled;
                assert_eq!(words[0] as i32, self.1);
            }
        }

        for digit in [-64_i8, 63] {
            let digits = u32::from_le_bytes([digit as u8; 4]);
            let expected = 15 * 32 * i32::from(digit);
            for isa in Isa::available().into_iter().filter(|isa| isa.has_dots()) {
                isa.run_dots(Sums(digits, expected)).unwrap();
            }
            if let Some(simd) = V4::try_new() {
                simd.vectorize(Call(simd, Sums(digits, expected)));
            }
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_integers() {
        let extremes = [0_u8, 1, 127, 128, 255];
        let digits = [-64_i8, -1, 0, 1, 63];
        for (index, &first) in digits.iter().enumerate() {
            for &second in &digits {
                let digit_bytes = [first, second, second, digits[(index + 2) % 5]];
                let word = u32::from_le_bytes(digit_bytes.map(|digit| digit as u8));
                let codes = std::array::from_fn(|lane| {
                    u32::from_le_bytes(std::array::from_fn(|b| extremes[(lane * 3 + b * b) % 5]))
                });
                let start = std::array::from_fn(|lane| lane as i32 * 1000 - 7000);
                let all = sums(codes, word, start);
                for lane in 0..16 {
                    let products = codes[lane].to_le_bytes().into_iter().zip(digit_bytes);
                    let dot: i32 = products.map(|(a, b)| i32::from(a) * i32::from(b)).sum();
                    assert!(all.iter().all(|sums| sums[lane] == start[lane] + dot), "{word:#x}");
                }
            }
        }
    }
}
