//! Quantised blocks as codes with a scale and an offset: `w = code * scale + offset`.
//!
//! A block is 32 columns of a row. Q4_0: f16 `d`, 16 bytes of 4-bit codes, `(q - 8) d`. Q4_1: f16 `d`, f16
//! `m`, the same codes, `q d + m`. Q8_0: f16 `d`, 32 signed bytes, `q d`. A byte of 4-bit codes holds
//! columns `i` (low) and `i + 16` (high). Other types are left to candle's dequantisers.

use crate::weights::QuantisedRows;
use candle_core::quantized::GgmlDType;
use half::f16;
use ringattn_core::{OutOfMemory, try_reserved};
use ringattn_engine::cpu::dense::{BLOCK, Codes};

/// The codes of a tensor; row `i` here is row `source(i)` of the file. `None` for types that are not read
/// here, and for bytes or sizes that are no whole number of blocks.
pub(super) fn codes(
    dtype: GgmlDType,
    bytes: &[u8],
    [rows, cols]: [usize; 2],
    source: impl Fn(usize) -> usize,
) -> Option<Result<QuantisedRows, OutOfMemory>> {
    let (block_bytes, kind) = match dtype {
        GgmlDType::Q4_0 => (18, Codes::Nibbles { lowest: -8 }),
        GgmlDType::Q4_1 => (20, Codes::Nibbles { lowest: 0 }),
        GgmlDType::Q8_0 => (34, Codes::Bytes),
        _ => return None,
    };
    let row_bytes = cols / BLOCK * block_bytes;
    let whole = cols.is_multiple_of(BLOCK) && rows.checked_mul(row_bytes) == Some(bytes.len());
    whole.then(|| {
        let blocks = rows * (cols / BLOCK);
        let mut values = QuantisedRows {
            kind,
            codes: try_reserved(rows * cols)?,
            scales: try_reserved(blocks)?,
            offsets: try_reserved(blocks)?,
        };
        for row in (0..rows).map(source) {
            let row = &bytes[row * row_bytes..(row + 1) * row_bytes];
            row.chunks_exact(block_bytes).for_each(|block| values.push(dtype, block));
        }
        Ok(values)
    })
}

impl QuantisedRows {
    /// Adds one block of a type that [`codes`] knows.
    fn push(&mut self, dtype: GgmlDType, block: &[u8]) {
        let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]);
        let (offset, start) = if dtype == GgmlDType::Q4_1 { (half(2), 4) } else { (f16::ZERO, 2) };
        self.scales.push(half(0));
        self.offsets.push(offset);
        let stored = &block[start..];
        if dtype == GgmlDType::Q8_0 {
            self.codes.extend(stored.iter().map(|&code| code as i8));
            return;
        }
        let zero = if dtype == GgmlDType::Q4_0 { 8 } else { 0 };
        self.codes.extend(stored.iter().map(|byte| (byte & 15) as i8 - zero));
        self.codes.extend(stored.iter().map(|byte| (byte >> 4) as i8 - zero));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::CpuStorage;
    use std::borrow::Cow;

    #[test]
    fn codes_give_what_dequantising_gives() {
        for (dtype, size) in [(GgmlDType::Q4_0, 18), (GgmlDType::Q4_1, 20), (GgmlDType::Q8_0, 34)] {
            // Two rows of two blocks, with scales and offsets that are numbers.
            let mut bytes: Vec<u8> = (0..4 * size).map(|i| (i * 89 + 7) as u8).collect();
            for block in bytes.chunks_exact_mut(size) {
                block[..2].copy_from_slice(&f16::from_f32(0.37).to_le_bytes());
                if dtype == GgmlDType::Q4_1 {
                    block[2..4].copy_from_slice(&f16::from_f32(-1.9).to_le_bytes());
                }
            }
            let widened = dtype.from_data(Cow::Borrowed(&bytes)).dequantize(128).unwrap();
            let CpuStorage::F32(expected) = widened else { panic!("f32 was asked for") };
            let swapped = |row| 1 - row;
            let values = codes(dtype, &bytes, [2, 64], swapped).unwrap().unwrap();
            for (index, &code) in values.codes.iter().enumerate() {
                let block = index / 32;
                let [scale, offset] =
                    [values.scales[block], values.offsets[block]].map(f16::to_f32);
                let value = f32::from(code) * scale + offset;
                assert_eq!(value, expected[(index + 64) % 128], "{dtype:?} {index}");
            }
            assert!(codes(dtype, &bytes[1..], [2, 64], swapped).is_none());
            assert!(codes(dtype, &bytes, [2, 63], swapped).is_none());
        }
        assert!(codes(GgmlDType::Q6K, &[], [0, 0], |row| row).is_none());
    }
}
