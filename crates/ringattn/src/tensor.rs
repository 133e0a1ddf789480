//! A whole tensor as bytes, from which each rank takes the rows of its tokens.

use ringattn_core::{
    DType, Elements, OutOfMemory, PlainElement, Position, Rank, bf16, f16, try_reserved,
};
use ringattn_plan::Layout;
use thiserror::Error;

/// `[heads, tokens, d]` in little-endian bytes that need not be aligned. A batch is part of the
/// heads.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    bytes: &'a [u8],
    dtype: DType,
    heads: usize,
    tokens: u64,
    head_dim: usize,
}

/// Bytes that do not hold the tensor they are said to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a {dtype} tensor [{heads}, {tokens}, {head_dim}] does not fit in {actual} bytes")]
pub struct TensorError {
    /// Element type.
    pub dtype: DType,
    /// Heads, batch included.
    pub heads: usize,
    /// Tokens.
    pub tokens: u64,
    /// Head dimension.
    pub head_dim: usize,
    /// Bytes there are.
    pub actual: usize,
}

impl<'a> Tensor<'a> {
    /// A tensor of that shape `[heads, tokens, d]` in these bytes.
    ///
    /// # Errors
    /// When the number of bytes is another.
    pub fn new(
        bytes: &'a [u8],
        dtype: DType,
        (heads, tokens, head_dim): (usize, u64, usize),
    ) -> Result<Self, TensorError> {
        let size = (heads as u64)
            .checked_mul(tokens)
            .and_then(|rows| rows.checked_mul(head_dim as u64))
            .and_then(|elements| elements.checked_mul(dtype.size()));
        if size != Some(bytes.len() as u64) {
            return Err(TensorError { dtype, heads, tokens, head_dim, actual: bytes.len() });
        }
        Ok(Self { bytes, dtype, heads, tokens, head_dim })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Heads, batch included.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// Tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Head dimension.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// The rank's rows as `[slots, heads, d]`, converted to `dtype`.
    pub(crate) fn shard(
        &self,
        layout: &Layout,
        rank: Rank,
        dtype: DType,
    ) -> Result<Elements, OutOfMemory> {
        match dtype {
            DType::F32 => Ok(Elements::F32(self.gather(layout, rank)?)),
            DType::Bf16 => Ok(Elements::Bf16(self.gather(layout, rank)?)),
            DType::F16 => Ok(Elements::F16(self.gather(layout, rank)?)),
        }
    }

    /// The rank's rows as `[slots, heads, d]`, converted to `T`.
    pub(crate) fn gather<T: PlainElement>(
        &self,
        layout: &Layout,
        rank: Rank,
    ) -> Result<Vec<T>, OutOfMemory> {
        let slots = layout.count(rank) as usize;
        let mut elements = try_reserved(slots * self.heads * self.head_dim)?;
        for position in layout.positions(rank) {
            for head in 0..self.heads {
                let row = self.row(head, position);
                match self.dtype {
                    DType::F32 => elements.extend(converted::<4, f32, T>(row, f32::from_le_bytes)),
                    DType::Bf16 => {
                        elements.extend(converted::<2, bf16, T>(row, bf16::from_le_bytes));
                    }
                    DType::F16 => elements.extend(converted::<2, f16, T>(row, f16::from_le_bytes)),
                }
            }
        }
        Ok(elements)
    }

    fn row(&self, head: usize, position: Position) -> &'a [u8] {
        let len = self.head_dim * self.dtype.size() as usize;
        let row = head * self.tokens as usize + position.0 as usize;
        &self.bytes[row * len..][..len]
    }
}

fn converted<const N: usize, From: PlainElement, To: PlainElement>(
    row: &[u8],
    read: impl Fn([u8; N]) -> From,
) -> impl Iterator<Item = To> {
    row.as_chunks::<N>().0.iter().map(move |&bytes| To::from_f32(read(bytes).to_f32()))
}
