//! Numbers to compute with: close to unit-normal, the same in every run.

use super::case::Case;
use ringattn_core::{DType, Elements, OutOfMemory, PlainElement, try_reserved};
use ringattn_engine::cpu::{Arrangement, CpuBlock, SharedRows};

/// The numbers repeat after so many: prime, so that no row of a tensor equals another soon, and few
/// enough that making gigabytes of them is quick.
const PERIOD: usize = 65_537;

/// The numbers, and the blocks of K and V that cases share.
#[derive(Default)]
pub(super) struct Inputs {
    normals: Vec<f32>,
    blocks: Vec<(Case, CpuBlock)>,
}

impl Inputs {
    /// `len` elements of `dtype`; another `seed` gives others.
    pub(super) fn elements(
        &mut self,
        len: usize,
        dtype: DType,
        seed: usize,
    ) -> Result<Elements, OutOfMemory> {
        Ok(match dtype {
            DType::F32 => Elements::F32(self.numbers(len, seed)?),
            DType::Bf16 => Elements::Bf16(self.numbers(len, seed)?),
            DType::F16 => Elements::F16(self.numbers(len, seed)?),
        })
    }

    /// `len` numbers as `T`.
    pub(super) fn numbers<T: PlainElement>(
        &mut self,
        len: usize,
        seed: usize,
    ) -> Result<Vec<T>, OutOfMemory> {
        if self.normals.is_empty() {
            self.normals = try_reserved(PERIOD)?;
            self.normals.extend((0..PERIOD as u64).map(near_normal));
        }
        let mut numbers = try_reserved(len)?;
        let stream = self.normals.iter().cycle().skip(seed * 1009 % PERIOD);
        numbers.extend(stream.take(len).map(|&number| T::from_f32(number)));
        Ok(numbers)
    }

    /// A block of `rows` tokens for `case`, shared with all cases whose K and V are alike.
    pub(super) fn block(&mut self, case: &Case, rows: usize) -> Result<CpuBlock, OutOfMemory> {
        let alike = |other: &Case| {
            (other.dtype, other.kv_heads, other.head_dim)
                == (case.dtype, case.kv_heads, case.head_dim)
                && (other.what, other.tokens, other.mask) == (case.what, case.tokens, case.mask)
        };
        if let Some((_, block)) = self.blocks.iter().find(|(other, _)| alike(other)) {
            return Ok(block.clone());
        }
        let len = rows.saturating_mul(case.kv_heads * case.head_dim);
        let arrangement = Arrangement::token_major(case.kv_heads, rows, case.head_dim);
        let mut tensor =
            |seed| Ok(SharedRows::whole(self.elements(len, case.dtype, seed)?, arrangement));
        let block = CpuBlock::new(tensor(2)?, tensor(3)?);
        self.blocks.push((case.clone(), block.clone()));
        Ok(block)
    }
}

/// Number `index` of a stream of mean 0 and variance 1: the sum of four uniform ones, each of 16 of
/// the bits that splitmix64 gives.
fn near_normal(index: u64) -> f32 {
    let mut bits = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    let uniforms = [0, 16, 32, 48].map(|shift| (bits >> shift & 0xffff) as f32 / 65_536.0 - 0.5);
    // Each has variance 1/12.
    uniforms.iter().sum::<f32>() * 3.0_f32.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_have_unit_moments() {
        let numbers: Vec<f32> = Inputs::default().numbers(PERIOD, 1).unwrap();
        let mean = |power| {
            let sum: f64 = numbers.iter().map(|&x| f64::from(x).powi(power)).sum();
            sum / PERIOD as f64
        };
        // Standard errors are 0.0039 and 0.0051 (the fourth moment is 2.7); five of them.
        assert!(mean(1).abs() < 0.02 && (mean(2) - 1.0).abs() < 0.026, "{} {}", mean(1), mean(2));
    }
}
