//! A row of `x` in fixed point, as dot products of bytes read it. Knows no weights.
//!
//! [`BLOCK`] elements share a unit, a power of two: `x = X * unit`, `X` an integer below `2^27`, so that an
//! element loses at most `2^-27` of the block's largest, an eighth of what a float loses of itself. `X` is
//! written in [`DIGITS`] digits of -64 to 63, `X = sum over i of digit[i] * 128^(DIGITS - 1 - i)`.

use crate::dot::DIGIT_BITS;
use crate::quantised::{BLOCK, QUAD};

/// Digits of an element.
pub(crate) const DIGITS: usize = 4;
/// One more than a digit can be, in units of the next one.
pub(crate) const RADIX: f32 = (1_u32 << DIGIT_BITS) as f32;
/// Bits of the largest integers.
const BITS: i32 = (DIGIT_BITS as usize * DIGITS) as i32 - 1;
/// The largest integer that a float holds and digits can write: their limit is 63/127 of `128^DIGITS`.
const LARGEST: f32 = 133_160_000.0;
/// Blocks whose elements are smaller than 2 to this lose more: the factor must be a number.
const LEAST_EXPONENT: i32 = -90;

/// [`BLOCK`] elements.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct FixedBlock {
    /// The elements' digits, the weightiest first, each kind in words of four columns.
    pub(crate) digits: [[u32; BLOCK / QUAD]; DIGITS],
    /// What each kind of digit sums to.
    pub(crate) sums: [i32; DIGITS],
    /// What an integer stands for; NaN where an element of the block is no finite number.
    pub(crate) unit: f32,
    /// The sum of the elements.
    pub(crate) total: f32,
}

impl FixedBlock {
    /// At most [`BLOCK`] elements; those that lack are 0.
    pub(crate) fn new(x: &[f32]) -> Self {
        let mut block = Self::default();
        // As bits, what is no finite number is larger than every number.
        let largest = x.iter().fold(0, |largest, x| x.abs().to_bits().max(largest));
        let (factor, unit) = units(f32::from_bits(largest));
        let mut integers = [0_i32; BLOCK];
        for (integer, &x) in integers.iter_mut().zip(x) {
            let scaled = x * factor;
            *integer = (scaled + 0.5_f32.copysign(scaled)) as i32;
        }
        let total: i64 = integers.iter().map(|&integer| i64::from(integer)).sum();
        for place in (0..DIGITS).rev() {
            let mut bytes = [0; BLOCK];
            for (byte, integer) in bytes.iter_mut().zip(&mut integers) {
                // The low bits, with their sign.
                let digit = *integer << (32 - DIGIT_BITS) >> (32 - DIGIT_BITS);
                *byte = digit as u8;
                block.sums[place] += digit;
                *integer = (*integer - digit) >> DIGIT_BITS;
            }
            for (word, &quad) in block.digits[place].iter_mut().zip(bytes.as_chunks::<QUAD>().0) {
                *word = u32::from_le_bytes(quad);
            }
        }
        (block.unit, block.total) = (unit, total as f32 * unit);
        block
    }
}

/// What elements up to `largest` are multiplied by to be integers, and the unit.
fn units(largest: f32) -> (f32, f32) {
    if !largest.is_finite() {
        return (0.0, f32::NAN);
    }
    let exponent = ((largest.to_bits() >> 23) as i32 - 127).max(LEAST_EXPONENT);
    let shift = BITS - 1 - exponent;
    let shift = if largest * power(shift) <= LARGEST { shift } else { shift - 1 };
    (power(shift), power(-shift))
}

/// `2^exponent`, a normal number.
fn power(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An element, read back from its digits.
    fn element(block: &FixedBlock, index: usize) -> f64 {
        let integer = block.digits.iter().fold(0_i64, |sum, digits| {
            let digit = digits[index / QUAD].to_le_bytes()[index % QUAD] as i8;
            assert!((-64..64).contains(&digit));
            128 * sum + i64::from(digit)
        });
        integer as f64 * f64::from(block.unit)
    }

    #[test]
    fn elements_are_kept_to_a_small_part_of_the_largest() {
        let wave = |i: usize| (i as f32 * 0.7).sin();
        for largest in [1.0_f32, 1.99, 1.984_25, 1.984_3, 1.999_999_9, 1e-20, 3e38, f32::MAX] {
            let mut x: Vec<f32> = (0..BLOCK).map(|i| wave(i) * largest).collect();
            (x[3], x[17], x[5]) = (largest, -largest, largest * 1e-6);
            let block = FixedBlock::new(&x);
            // Half a unit, where the largest integer is at least 2^25.
            let bound = f64::from(largest) / f64::from(1 << 26);
            for (index, &x) in x.iter().enumerate() {
                let error = (element(&block, index) - f64::from(x)).abs();
                assert!(error <= bound, "{largest:e}: {x:e}, {error:e}");
            }
            let kept: f64 = (0..BLOCK).map(|index| element(&block, index)).sum();
            let error = (kept - f64::from(block.total)).abs();
            assert!(error <= kept.abs() * 1e-7 || kept.abs() > f64::from(f32::MAX), "{largest:e}");
            for (place, digits) in block.digits.iter().enumerate() {
                let digits = digits.iter().flat_map(|word| word.to_le_bytes());
                assert_eq!(
                    digits.map(|digit| i32::from(digit as i8)).sum::<i32>(),
                    block.sums[place]
                );
            }
        }
    }

    #[test]
    fn short_blocks_zeros_and_no_numbers() {
        let block = FixedBlock::new(&[]);
        assert_eq!((block.total, block.digits), (0.0, [[0; 8]; DIGITS]));
        let block = FixedBlock::new(&[0.0, -2.5, 0.0]);
        assert_eq!([0, 1, 2, 31].map(|index| element(&block, index)), [0.0, -2.5, 0.0, 0.0]);
        let tiny = FixedBlock::new(&[f32::from_bits(1), 1e-40]);
        assert!(tiny.unit > 0.0 && tiny.total.abs() < 1e-34);
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let block = FixedBlock::new(&[1.0, bad, 2.0]);
            assert!(block.unit.is_nan() && block.total.is_nan());
        }
    }
}
