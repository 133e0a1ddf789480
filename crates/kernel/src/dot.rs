//! Dot products of bytes, which instruction sets offer beside their floats. Knows no layout.
//!
//! `sums[i] += sum over b < 4 of codes[i].byte(b) * digits.byte(b)`, exact in 32 bits.

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::isa::Isa;
use crate::quantised::{BLOCK, QUAD};
use pulp::{Scalar, Simd};

/// Bits of a digit, with its sign: two products of such a one with a byte add up within 16 bits, which is
/// what AVX2 has.
pub(crate) const DIGIT_BITS: u32 = 7;

// Two products of 15 and the least digit, from each quad of a block.
const _: () = assert!(2 * 15 * (1 << (DIGIT_BITS - 1)) * (BLOCK / QUAD) <= i16::MAX as usize);

/// An instruction set with dot products of bytes.
pub(crate) trait ByteDot: Copy {
    /// Its vectors.
    type Simd: Simd;

    /// Its vectors.
    fn simd(self) -> Self::Simd;

    /// Adds to each word of `sums` the four unsigned bytes of its word of `codes` times the four signed
    /// bytes of `digits`, of [`DIGIT_BITS`] each.
    fn dot(self, sums: Integers<Self>, codes: Words<Self>, digits: u32) -> Integers<Self>;

    /// The same for codes of 4 bits, whose products with all digits of a block add up within 16 bits: `sums`
    /// begin at 0, take [`BLOCK`] columns at most, and are words only when they have been settled.
    #[inline(always)]
    fn dot_nibbles(self, sums: Integers<Self>, codes: Words<Self>, digits: u32) -> Integers<Self> {
        self.dot(sums, codes, digits)
    }

    /// What [`ByteDot::dot_nibbles`] has summed.
    #[inline(always)]
    fn settle(self, sums: Integers<Self>) -> Integers<Self> {
        sums
    }

    /// Integers as floats, rounded to nearest.
    fn floats(self, integers: Integers<Self>) -> <Self::Simd as Simd>::f32s;
}

/// A vector of signed words.
pub(crate) type Integers<D> = <<D as ByteDot>::Simd as Simd>::i32s;
/// A vector of unsigned words.
pub(crate) type Words<D> = <<D as ByteDot>::Simd as Simd>::u32s;

/// Work that is written for any [`ByteDot`].
pub(crate) trait WithByteDot {
    /// Does the work.
    fn with_dot<D: ByteDot>(self, dot: D);
}

impl Isa {
    /// Whether it has dot products of bytes here.
    pub(crate) fn has_dots(self) -> bool {
        self != Self::Neon
    }

    /// Runs `op` with this instruction set's dot products of bytes; `None` where there are none.
    pub(crate) fn run_dots(self, op: impl WithByteDot) -> Option<()> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => x86::run_avx512(op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => x86::run_avx2(op),
            Self::Scalar => {
                op.with_dot(Scalar::new());
                Some(())
            }
            _ => None,
        }
    }
}

impl ByteDot for Scalar {
    type Simd = Self;

    fn simd(self) -> Self {
        self
    }

    #[inline(always)]
    fn dot(self, sum: i32, codes: u32, digits: u32) -> i32 {
        let products = codes.to_le_bytes().into_iter().zip(digits.to_le_bytes());
        sum + products.map(|(code, digit)| i32::from(code) * i32::from(digit as i8)).sum::<i32>()
    }

    #[inline(always)]
    fn floats(self, integer: i32) -> f32 {
        integer as f32
    }
}
