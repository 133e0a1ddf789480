//! Which numbers the vector path may touch, and a fast search for those that are no numbers.
//!
//! A row is *tame* when every element is below `2^40` in magnitude. Products of tame rows stay below
//! `256 * 2^80 < 2^88`, so tame rows can neither overflow nor make a NaN. Any other row (huge,
//! infinite or NaN) is *wild* and goes to the careful path.

use ringattn_core::{DType, ElementsView, PlainElement};

/// Bits of `2^40`; magnitudes compare as integers, with infinities and NaN above all numbers.
const TAME_BITS: u32 = (127 + 40) << 23;

/// Whether every element of `row` is a number below `2^40` in magnitude.
#[inline(always)]
pub(crate) fn is_tame(row: &[f32]) -> bool {
    let mut largest = 0;
    for &value in row {
        largest = largest.max(value.to_bits() & 0x7fff_ffff);
    }
    largest < TAME_BITS
}

/// The index of the first NaN or infinity in `values`.
pub fn non_finite(values: ElementsView<'_>) -> Option<usize> {
    match values {
        ElementsView::F32(x) => search(x, |value| value.to_bits(), exponent(DType::F32)),
        ElementsView::Bf16(x) => {
            search(x, |value| u32::from(value.to_bits()), exponent(DType::Bf16))
        }
        ElementsView::F16(x) => search(x, |value| u32::from(value.to_bits()), exponent(DType::F16)),
    }
}

/// The exponent bits of a type; all are set in NaN and infinities, and in nothing else.
fn exponent(dtype: DType) -> u32 {
    match dtype {
        DType::F32 => 0x7f80_0000,
        DType::Bf16 => 0x7f80,
        DType::F16 => 0x7c00,
    }
}

/// Looks through whole runs without a branch per element, which the compiler turns into vectors.
fn search<T: PlainElement>(values: &[T], bits: impl Fn(T) -> u32, mask: u32) -> Option<usize> {
    const RUN: usize = 1024;
    let bad = |value: &T| bits(*value) & mask == mask;
    for (index, run) in values.chunks(RUN).enumerate() {
        if run.iter().fold(false, |found, value| found | bad(value)) {
            return run.iter().position(bad).map(|at| index * RUN + at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringattn_core::Elements;

    #[test]
    fn the_first_of_several_is_found() {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            for at in [0, 1, 1023, 1024, 2999] {
                for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut values = vec![-1.5; 3000];
                    values[at] = bad;
                    values[2999] = f32::NAN;
                    let values = Elements::from_f32(values, dtype);
                    assert_eq!(non_finite(values.view()), Some(at), "{dtype} {bad}");
                }
            }
            let largest = Elements::from_f32(vec![65504.0, -0.0, 1e-40], DType::F16);
            assert_eq!(non_finite(largest.view()), None);
        }
        assert_eq!(non_finite(ElementsView::F32(&[f32::MAX, f32::MIN])), None);
        assert_eq!(non_finite(ElementsView::F32(&[])), None);
    }

    #[test]
    fn tame_means_small_numbers() {
        assert!(is_tame(&[]) && is_tame(&[-1e12, 0.0, 1e-45]));
        for wild in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.1e12] {
            assert!(!is_tame(&[0.0, wild]), "{wild}");
        }
    }
}
