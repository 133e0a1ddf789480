//! Weight matrices as files store them, and as layers use them.
//!
//! A stored matrix is `[rows = out features, cols = in features]`, row-major, owned by this process or
//! in a mapped file, whose data need not be aligned; values are little-endian. Layers hold packed
//! matrices of the same element type. Nothing here knows a file format.

use crate::file::MappedFile;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use ringattn_core::{DType, Elements};
use ringattn_engine::cpu::Isa;
use ringattn_engine::cpu::dense::{BLOCK, Codes, DenseError, PackedMatrix};
use std::sync::Arc;

/// A stored matrix `[rows, cols]`.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    rows: usize,
    cols: usize,
    storage: Storage,
}

#[derive(Clone, Debug)]
enum Storage {
    Owned(Arc<Elements>),
    Mapped { file: Arc<MappedFile>, start: usize, dtype: DType },
    Quantised(Arc<QuantisedRows>),
}

/// Rows of codes with a scale and an offset for each [`BLOCK`] columns of a row:
/// `w = code * scale + offset`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuantisedRows {
    /// Which numbers the codes are.
    pub(crate) kind: Codes,
    /// `[rows, cols]`.
    pub(crate) codes: Vec<i8>,
    /// `[rows, cols / BLOCK]`.
    pub(crate) scales: Vec<f16>,
    /// `[rows, cols / BLOCK]`.
    pub(crate) offsets: Vec<f16>,
}

impl Matrix {
    /// A matrix of this process; `None` unless there are `rows * cols` elements.
    pub(crate) fn owned(rows: usize, cols: usize, elements: Elements) -> Option<Self> {
        let fits = rows.checked_mul(cols) == Some(elements.view().len());
        fits.then(|| Self { rows, cols, storage: Storage::Owned(Arc::new(elements)) })
    }

    /// A quantised matrix; `None` unless the rows are whole blocks and there are as many of all.
    pub(crate) fn quantised([rows, cols]: [usize; 2], values: QuantisedRows) -> Option<Self> {
        let blocks = rows.checked_mul(cols / BLOCK)?;
        let fits = cols.is_multiple_of(BLOCK)
            && rows.checked_mul(cols) == Some(values.codes.len())
            && [values.scales.len(), values.offsets.len()] == [blocks; 2];
        fits.then(|| Self { rows, cols, storage: Storage::Quantised(Arc::new(values)) })
    }

    /// A matrix whose data starts at byte `start` of `file`; `None` unless it lies within.
    pub(crate) fn mapped(
        [rows, cols]: [usize; 2],
        dtype: DType,
        file: &Arc<MappedFile>,
        start: usize,
    ) -> Option<Self> {
        let size = rows.checked_mul(cols)?.checked_mul(dtype.size() as usize)?;
        let inside = start.checked_add(size)? <= file.bytes().len();
        let storage = Storage::Mapped { file: Arc::clone(file), start, dtype };
        inside.then_some(Self { rows, cols, storage })
    }

    /// The matrix packed for `isa`, in the same element type, or quantised likewise.
    pub(crate) fn pack(&self, isa: Isa) -> Result<PackedMatrix, DenseError> {
        let size = (self.rows, self.cols);
        let (bytes, dtype) = match self.plain() {
            Ok(plain) => plain,
            Err(values) => {
                let blocks = self.cols / BLOCK;
                return PackedMatrix::pack_quantised(isa, size, values.kind, |row, to| {
                    let part = row * blocks..(row + 1) * blocks;
                    to.codes.copy_from_slice(&values.codes[row * self.cols..(row + 1) * self.cols]);
                    to.scales.copy_from_slice(&values.scales[part.clone()]);
                    to.offsets.copy_from_slice(&values.offsets[part]);
                });
            }
        };
        let row_bytes = self.cols * dtype.size() as usize;
        PackedMatrix::pack(isa, size, dtype, |row, to| {
            widen(&bytes[row * row_bytes..(row + 1) * row_bytes], dtype, to);
        })
    }

    /// Whether both hold the same values in the same type.
    pub(crate) fn same_values(&self, other: &Self) -> bool {
        self.plain() == other.plain()
    }

    /// The bytes and their type, or what is quantised.
    fn plain(&self) -> Result<(&[u8], DType), &QuantisedRows> {
        match &self.storage {
            Storage::Owned(elements) => Ok((elements.bytes(), elements.view().dtype())),
            Storage::Mapped { file, start, dtype } => {
                let size = self.rows * self.cols * dtype.size() as usize;
                Ok((&file.bytes()[*start..*start + size], *dtype))
            }
            Storage::Quantised(values) => Err(values),
        }
    }
}

/// Writes the little-endian values in `bytes` to `out`, of which there are as many.
pub(crate) fn widen(bytes: &[u8], dtype: DType, out: &mut [f32]) {
    match dtype {
        DType::F32 => {
            for (value, &raw) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *value = f32::from_le_bytes(raw);
            }
        }
        DType::Bf16 => {
            for (value, &raw) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *value = bf16::from_le_bytes(raw).to_f32();
            }
        }
        DType::F16 => {
            // In pieces, so that the conversion can use the machine's instruction for it.
            let mut piece = [f16::ZERO; 512];
            for (values, raw) in out.chunks_mut(512).zip(bytes.chunks(1024)) {
                for (half, &pair) in piece.iter_mut().zip(raw.as_chunks::<2>().0) {
                    *half = f16::from_le_bytes(pair);
                }
                piece[..values.len()].convert_to_f32_slice(values);
            }
        }
    }
}

/// `y = W x + bias`.
#[derive(Clone, Debug)]
pub struct Linear {
    /// `[out, in]`.
    pub weight: PackedMatrix,
    /// `[out]`.
    pub bias: Option<Vec<f32>>,
}

/// The weights of one decoder layer, `H` the hidden size, `F` the feed-forward size.
#[derive(Clone, Debug)]
pub struct LayerWeights {
    /// RMSNorm before attention, `[H]`.
    pub attention_norm: Vec<f32>,
    /// Queries, `[Hq * d, H]`; the first half of a head's rows pairs with the second in RoPE.
    pub q: Linear,
    /// Keys, `[Hk * d, H]`, paired likewise.
    pub k: Linear,
    /// Values, `[Hk * d, H]`.
    pub v: Linear,
    /// Output projection, `[H, Hq * d]`.
    pub o: Linear,
    /// RMSNorm of each query head before RoPE, `[d]`.
    pub q_norm: Option<Vec<f32>>,
    /// RMSNorm of each key head before RoPE, `[d]`.
    pub k_norm: Option<Vec<f32>>,
    /// RMSNorm before the feed-forward part, `[H]`.
    pub feed_forward_norm: Vec<f32>,
    /// Gate of SwiGLU, `[F, H]`.
    pub gate: Linear,
    /// Up projection, `[F, H]`.
    pub up: Linear,
    /// Down projection, `[H, F]`.
    pub down: Linear,
}

/// All weights of a model.
#[derive(Clone, Debug)]
pub struct Weights {
    /// Token embedding, `[vocabulary, H]`.
    pub embedding: PackedMatrix,
    /// One entry per layer.
    pub layers: Vec<LayerWeights>,
    /// RMSNorm before the head, `[H]`.
    pub final_norm: Vec<f32>,
    /// Vocabulary head, `[vocabulary, H]`; `None` when it is the embedding.
    pub head: Option<PackedMatrix>,
}

impl Linear {
    fn byte_len(&self) -> u64 {
        self.weight.byte_len() + vector_bytes(self.bias.as_deref())
    }
}

impl LayerWeights {
    fn byte_len(&self) -> u64 {
        let matrices = [&self.q, &self.k, &self.v, &self.o, &self.gate, &self.up, &self.down];
        let norms = [
            Some(self.attention_norm.as_slice()),
            self.q_norm.as_deref(),
            self.k_norm.as_deref(),
            Some(self.feed_forward_norm.as_slice()),
        ];
        matrices.iter().map(|linear| linear.byte_len()).sum::<u64>()
            + norms.iter().map(|norm| vector_bytes(*norm)).sum::<u64>()
    }
}

impl Weights {
    /// Bytes of all values in memory.
    pub fn byte_len(&self) -> u64 {
        self.embedding.byte_len()
            + self.layers.iter().map(LayerWeights::byte_len).sum::<u64>()
            + vector_bytes(Some(&self.final_norm))
            + self.head.as_ref().map_or(0, PackedMatrix::byte_len)
    }
}

fn vector_bytes(values: Option<&[f32]>) -> u64 {
    values.map_or(0, |values| size_of_val(values) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_widened_exactly() {
        let values: Vec<f32> = (0..2100).map(|i| (i as f32 - 900.0) * 0.25).collect();
        let mut row = vec![0.0; 700];
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            let elements = Elements::from_f32(values.clone(), dtype);
            let expected: Vec<f32> = (0..2100).map(|i| elements.view().get(i)).collect();
            let packed = Matrix::owned(3, 700, elements).unwrap().pack(Isa::detect()).unwrap();
            packed.row(2, &mut row).unwrap();
            assert_eq!(row, expected[1400..]);
        }
        assert!(Matrix::owned(2, 3, Elements::F32(vec![0.0; 5])).is_none());
    }

    #[test]
    fn quantised_rows_must_be_whole() {
        let values = |codes, blocks| QuantisedRows {
            kind: Codes::Bytes,
            codes: vec![1; codes],
            scales: vec![f16::from_f32(2.0); blocks],
            offsets: vec![f16::from_f32(0.5); blocks],
        };
        let matrix = Matrix::quantised([3, 64], values(192, 6)).unwrap();
        let mut row = vec![0.0; 64];
        matrix.pack(Isa::detect()).unwrap().row(2, &mut row).unwrap();
        assert_eq!(row, [2.5; 64]);
        assert!(matrix.same_values(&matrix.clone()));
        assert!(Matrix::quantised([3, 64], values(192, 5)).is_none());
        assert!(Matrix::quantised([3, 65], values(195, 6)).is_none());
    }
}
