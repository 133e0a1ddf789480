//! Copies the rows of some tokens out of a tensor, wherever it is, and converts them.
//!
//! Source `[heads, tokens, d]`, result `[listed tokens, heads, d]`. What lies outside of memory is read
//! in spans: listed tokens that are near each other come with what lies between them, so that rows of
//! 256 bytes do not become as many reads.

use super::{Store, TensorError};
use ringattn_core::{DType, Elements, PlainElement, bf16, f16, try_filled};
use std::ops::Range;

/// Most bytes of one read.
const SPAN: usize = 1 << 20;

/// What to copy.
pub(super) struct Gather<'a> {
    pub(super) store: &'a Store,
    /// The type of the tensor's elements.
    pub(super) from: DType,
    /// Heads, tokens and head dimension of the tensor.
    pub(super) shape: (usize, usize, usize),
    /// The listed tokens, increasing.
    pub(super) tokens: &'a [usize],
}

impl Gather<'_> {
    /// The rows as `[listed tokens, heads, d]` of that type.
    pub(super) fn elements(&self, dtype: DType) -> Result<Elements, TensorError> {
        match dtype {
            DType::F32 => Ok(Elements::F32(self.copy()?)),
            DType::Bf16 => Ok(Elements::Bf16(self.copy()?)),
            DType::F16 => Ok(Elements::F16(self.copy()?)),
        }
    }

    fn copy<T: PlainElement>(&self) -> Result<Vec<T>, TensorError> {
        let (heads, _, head_dim) = self.shape;
        let width = heads.saturating_mul(head_dim);
        let mut elements = try_filled(self.tokens.len().saturating_mul(width), T::from_f32(0.0))?;
        let row = head_dim * self.from.size() as usize;
        let mut buffer = Vec::new();
        for head in 0..heads {
            for slots in self.spans(row) {
                let first = self.tokens[slots.start];
                let count = self.tokens[slots.end - 1] - first + 1;
                let bytes = self.bytes(head, first..first + count, &mut buffer)?;
                for slot in slots {
                    let start = (self.tokens[slot] - first) * row;
                    let target = slot * width + head * head_dim;
                    let target = &mut elements[target..target + head_dim];
                    self.convert(&bytes[start..start + row], target);
                }
            }
        }
        Ok(elements)
    }

    /// The listed tokens in stretches that one read may cover.
    fn spans(&self, row: usize) -> impl Iterator<Item = Range<usize>> {
        let most = (SPAN / row.max(1)).max(1);
        let mut start = 0;
        std::iter::from_fn(move || {
            let first = *self.tokens.get(start)?;
            let len = self.tokens[start..].partition_point(|&token| token < first + most);
            let slots = start..start + len;
            start = slots.end;
            Some(slots)
        })
    }

    /// The rows of these tokens, of which `buffer` may be the place.
    fn bytes<'b>(
        &'b self,
        head: usize,
        tokens: Range<usize>,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], TensorError> {
        let (_, all, head_dim) = self.shape;
        let row = head_dim * self.from.size() as usize;
        let (start, len) = ((head * all + tokens.start) * row, tokens.len() * row);
        match self.store {
            Store::Memory(source) => Ok(&source.bytes()[start..start + len]),
            Store::Outside(data) => {
                buffer.resize(len, 0);
                let (offset, bytes) = (start as u64, len);
                data.read_at(buffer, offset).map_err(|source| TensorError::Read {
                    offset,
                    bytes,
                    source,
                })?;
                Ok(buffer)
            }
        }
    }

    fn convert<T: PlainElement>(&self, row: &[u8], target: &mut [T]) {
        match self.from {
            DType::F32 => converted::<4, f32, T>(row, target, f32::from_ne_bytes),
            DType::Bf16 => converted::<2, bf16, T>(row, target, bf16::from_ne_bytes),
            DType::F16 => converted::<2, f16, T>(row, target, f16::from_ne_bytes),
        }
    }
}

fn converted<const N: usize, From: PlainElement, To: PlainElement>(
    row: &[u8],
    target: &mut [To],
    read: impl Fn([u8; N]) -> From,
) {
    for (&bytes, target) in row.as_chunks::<N>().0.iter().zip(target) {
        *target = To::from_f32(read(bytes).to_f32());
    }
}
