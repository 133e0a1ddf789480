//! Numbers to compute with: close to unit-normal, the same in every run.

use super::case::Case;
use super::narrow::{Layer, shapes};
use super::{BenchError, BenchSize, Stored};
use ringattn_core::{DType, Elements, Growth, OutOfMemory, PlainElement, f16, try_reserved};
use ringattn_engine::cpu::dense::{Codes, PackedMatrix, QuantisedRow};
use ringattn_engine::cpu::limits::last_caches;
use ringattn_engine::cpu::{Arrangement, CpuBlock, Isa, SharedRows, on_large_pages};
use std::sync::Arc;

/// The numbers repeat after so many: prime, so that no row of a tensor equals another soon, and few
/// enough that making gigabytes of them is quick.
const PERIOD: usize = 65_537;

/// Bytes of weights that lie in main memory: so many at least,
const LEAST_BYTES: u64 = 128 << 20;
/// and so many times what the last caches hold.
const TIMES_CACHES: u64 = 4;

/// The numbers, and the blocks of K and V and the weights that cases share.
pub(super) struct Inputs {
    size: BenchSize,
    normals: Vec<f32>,
    blocks: Vec<(Case, CpuBlock)>,
    layers: Vec<(Stored, Vec<Arc<Layer>>)>,
}

impl Inputs {
    /// None yet, for a benchmark of `size`.
    pub(super) fn new(size: BenchSize) -> Self {
        Self { size, normals: Vec::new(), blocks: Vec::new(), layers: Vec::new() }
    }

    /// A matrix of weights, `[out, in]`.
    pub(super) fn weights(
        &mut self,
        isa: Isa,
        (out, width): (usize, usize),
        stored: Stored,
    ) -> Result<PackedMatrix, BenchError> {
        let values: Vec<f32> = self.numbers(out * width, 4)?;
        let row = |row: usize| &values[row * width..][..width];
        Ok(match stored {
            Stored::Plain(dtype) => PackedMatrix::pack(isa, (out, width), dtype, |index, to| {
                to.copy_from_slice(row(index));
            })?,
            Stored::Quantised(codes) => {
                PackedMatrix::pack_quantised(isa, (out, width), codes, |index, to| {
                    quantise(row(index), codes, to);
                })?
            }
        })
    }

    /// The layers that a run of `case` reads: one where nothing is meant to be measured, else more than
    /// the last caches of its threads hold. Cases of one type share them.
    pub(super) fn layers(&mut self, case: &Case, isa: Isa) -> Result<Vec<Arc<Layer>>, BenchError> {
        let bytes = match self.size {
            BenchSize::Smallest => 0,
            _ => LEAST_BYTES.max(TIMES_CACHES * last_caches(case.threads) as u64),
        };
        let known = self.layers.iter().position(|(stored, _)| *stored == case.dtype);
        let mut layers = known.map_or(Vec::new(), |index| self.layers.swap_remove(index).1);
        let mut held: u64 = 0;
        let mut wanted = 0;
        while wanted == 0 || held < bytes {
            if wanted == layers.len() {
                // Packed anew, not cloned: packing asks for large pages, and bears a lack of memory.
                let mut pack = |shape| self.weights(isa, shape, case.dtype);
                let [qkv, out, up, down] = shapes(case);
                layers.push(Arc::new([pack(qkv)?, pack(out)?, pack(up)?, pack(down)?]));
            }
            held += layers[wanted].iter().map(PackedMatrix::byte_len).sum::<u64>();
            wanted += 1;
        }
        let shared = layers[..wanted].to_vec();
        self.layers.push((case.dtype, layers));
        Ok(shared)
    }

    /// `len` elements of `dtype`, on large pages as a cache's are; another `seed` gives others.
    pub(super) fn elements(
        &mut self,
        len: usize,
        dtype: DType,
        seed: usize,
    ) -> Result<Elements, OutOfMemory> {
        let mut elements = Elements::empty(dtype);
        elements.try_reserve(len, Growth::Exact)?;
        on_large_pages(&mut elements);
        match &mut elements {
            Elements::F32(to) => self.extend(to, len, seed)?,
            Elements::Bf16(to) => self.extend(to, len, seed)?,
            Elements::F16(to) => self.extend(to, len, seed)?,
        }
        Ok(elements)
    }

    /// `len` numbers as `T`.
    pub(super) fn numbers<T: PlainElement>(
        &mut self,
        len: usize,
        seed: usize,
    ) -> Result<Vec<T>, OutOfMemory> {
        let mut numbers = try_reserved(len)?;
        self.extend(&mut numbers, len, seed)?;
        Ok(numbers)
    }

    /// Puts `len` numbers behind those that `to` has.
    fn extend<T: PlainElement>(
        &mut self,
        to: &mut Vec<T>,
        len: usize,
        seed: usize,
    ) -> Result<(), OutOfMemory> {
        if self.normals.is_empty() {
            self.normals = try_reserved(PERIOD)?;
            self.normals.extend((0..PERIOD as u64).map(near_normal));
        }
        let stream = self.normals.iter().cycle().skip(seed * 1009 % PERIOD);
        to.extend(stream.take(len).map(|&number| T::from_f32(number)));
        Ok(())
    }

    /// A block of `rows` tokens for `case`, shared with all cases whose K and V are alike.
    pub(super) fn block(&mut self, case: &Case, rows: usize) -> Result<CpuBlock, BenchError> {
        let dtype = case.dtype.plain()?;
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
        let mut tensor = |seed| {
            let elements = self.elements(len, dtype, seed)?;
            Ok::<_, OutOfMemory>(SharedRows::whole(elements, arrangement))
        };
        let block = CpuBlock::new(tensor(2)?, tensor(3)?);
        self.blocks.push((case.clone(), block.clone()));
        Ok(block)
    }
}

/// `row` in codes that reach three standard deviations each way.
fn quantise(row: &[f32], codes: Codes, to: QuantisedRow<'_>) {
    let (lowest, most) = match codes {
        Codes::Nibbles { lowest } => (lowest, 15),
        Codes::Bytes => (i8::MIN, u8::MAX),
    };
    let scale = 6.0 / f32::from(most);
    for (code, &value) in to.codes.iter_mut().zip(row) {
        // The cast ends at 0 and 255.
        let step = ((value + 3.0) * (1.0 / scale) + 0.5) as u8;
        *code = lowest.wrapping_add_unsigned(step.min(most));
    }
    to.scales.fill(f16::from_f32(scale));
    to.offsets.fill(f16::from_f32(-3.0 - f32::from(lowest) * scale));
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
    fn codes_stand_for_the_numbers() {
        let isa = Isa::detect();
        for codes in [Codes::Bytes, Codes::Nibbles { lowest: -8 }, Codes::Nibbles { lowest: 0 }] {
            let mut inputs = Inputs::new(BenchSize::Smallest);
            let of = |stored, inputs: &mut Inputs| {
                let mut row = vec![0.0; 3200];
                inputs.weights(isa, (2, 3200), stored).unwrap().row(1, &mut row).unwrap();
                row
            };
            let plain = of(DType::F32.into(), &mut inputs);
            let coded = of(Stored::Quantised(codes), &mut inputs);
            let step = 6.0 / if codes == Codes::Bytes { 255.0 } else { 15.0 };
            for (plain, code) in plain.iter().zip(&coded) {
                let error = (plain.clamp(-3.0, 3.0) - code).abs();
                // Half a step, and the rounding of the scale and offset to 11 bits.
                assert!(error <= step / 2.0 + 0.01, "{plain} became {code}");
            }
        }
    }

    #[test]
    fn the_numbers_have_unit_moments() {
        let numbers: Vec<f32> = Inputs::new(BenchSize::Smallest).numbers(PERIOD, 1).unwrap();
        let mean = |power| {
            let sum: f64 = numbers.iter().map(|&x| f64::from(x).powi(power)).sum();
            sum / PERIOD as f64
        };
        // Standard errors are 0.0039 and 0.0051 (the fourth moment is 2.7); five of them.
        assert!(mean(1).abs() < 0.02 && (mean(2) - 1.0).abs() < 0.026, "{} {}", mean(1), mean(2));
    }
}
