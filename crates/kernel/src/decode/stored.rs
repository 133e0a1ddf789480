//! How stored elements become vectors of f32 without leaving their place.
//!
//! Elements are read in pairs of vectors. Two bytes wide ones come as words of two: the pair is the
//! low halves and the high halves, so that no lane has to move. Queries are laid out the same way
//! beforehand and sums are put back afterwards; a dot product and a weighted sum do not care.

use half::{bf16, f16};
use pulp::Simd;
use ringattn_core::PlainElement;

/// An element type that the vector path reads as it lies.
pub(crate) trait Stored: PlainElement {
    /// Whether a pair holds the even and the odd elements, not the first and the second half.
    const ALTERNATES: bool;

    /// The `2 * S::F32_LANES` elements from `from` on.
    ///
    /// An f16 infinity or NaN becomes NaN.
    ///
    /// # Safety
    /// So many elements must be readable at `from`, without regard to alignment.
    unsafe fn pair<S: Simd>(simd: S, from: *const Self) -> [S::f32s; 2];
}

impl Stored for f32 {
    const ALTERNATES: bool = false;

    #[inline(always)]
    unsafe fn pair<S: Simd>(_: S, from: *const Self) -> [S::f32s; 2] {
        let from = from.cast::<S::f32s>();
        // SAFETY: two vectors are readable, says the caller.
        unsafe { [from.read_unaligned(), from.add(1).read_unaligned()] }
    }
}

impl Stored for bf16 {
    const ALTERNATES: bool = true;

    #[inline(always)]
    unsafe fn pair<S: Simd>(simd: S, from: *const Self) -> [S::f32s; 2] {
        // SAFETY: one vector of words is as long as two vectors of elements.
        let words = unsafe { from.cast::<S::u32s>().read_unaligned() };
        let low = simd.wrapping_dyn_shl_u32s(words, simd.splat_u32s(16));
        let high = simd.and_u32s(words, simd.splat_u32s(0xffff_0000));
        [simd.transmute_f32s_u32s(low), simd.transmute_f32s_u32s(high)]
    }
}

impl Stored for f16 {
    const ALTERNATES: bool = true;

    #[inline(always)]
    unsafe fn pair<S: Simd>(simd: S, from: *const Self) -> [S::f32s; 2] {
        // SAFETY: one vector of words is as long as two vectors of elements.
        halves(simd, unsafe { from.cast::<S::u32s>().read_unaligned() })
    }
}

/// The f16 in the low and those in the high halves of words; infinities and NaN become NaN.
#[inline(always)]
pub(crate) fn halves<S: Simd>(simd: S, words: S::u32s) -> [S::f32s; 2] {
    let low = simd.wrapping_dyn_shl_u32s(words, simd.splat_u32s(16));
    [widen(simd, low), widen(simd, words)]
}

/// The f16 in the high half of each word; NaN where that is no number.
#[inline(always)]
fn widen<S: Simd>(simd: S, words: S::u32s) -> S::f32s {
    let sign = simd.and_u32s(words, simd.splat_u32s(0x8000_0000));
    let shifted = simd.wrapping_dyn_shr_u32s(words, simd.splat_u32s(3));
    let magnitude = simd.and_u32s(shifted, simd.splat_u32s(0x0fff_e000));
    let small = simd.transmute_f32s_u32s(simd.or_u32s(sign, magnitude));
    // The exponents' biases differ by 112; a multiplication moves subnormal numbers right, too.
    let number = simd.mul_f32s(small, simd.splat_f32s(f32::from_bits((127 + 112) << 23)));
    let is_number = simd.less_than_u32s(magnitude, simd.splat_u32s(0x0f80_0000));
    simd.select_f32s(is_number, number, simd.splat_f32s(f32::NAN))
}

/// Where element `index` of a row lies among the pairs of vectors of `lanes` floats.
pub(crate) fn place<E: Stored>(index: usize, lanes: usize) -> usize {
    if !E::ALTERNATES {
        return index;
    }
    let within = index % (2 * lanes);
    index - within + (within % 2) * lanes + within / 2
}
