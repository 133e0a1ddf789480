//! A whole tensor that is shared, and the rows of it that each rank reads.

use ringattn_core::{
    DType, Elements, ElementsView, OutOfMemory, PlainElement, Source, bf16, f16, try_reserved,
};
use ringattn_engine::cpu::{Arrangement, SharedRows};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// `[heads, tokens, d]`; a batch is part of the heads. A clone is a second handle to the same memory.
///
/// Ranks read their rows where they lie. Only when the elements are not aligned in memory, or have
/// another type than K and V shall be kept in, a rank makes a copy of its rows.
#[derive(Clone)]
pub struct Tensor {
    source: Arc<dyn Source>,
    dtype: DType,
    heads: usize,
    tokens: usize,
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
    pub tokens: usize,
    /// Head dimension.
    pub head_dim: usize,
    /// Bytes there are.
    pub actual: usize,
}

impl Tensor {
    /// The tensor of that shape `[heads, tokens, d]` in this vector (`Vec<f32>`, `Vec<bf16>`,
    /// `Vec<f16>` or [`Elements`]), which is taken over and not copied.
    ///
    /// # Errors
    /// When the number of elements is another.
    pub fn new(
        elements: impl Into<Elements>,
        shape: (usize, usize, usize),
    ) -> Result<Self, TensorError> {
        let elements = elements.into();
        let dtype = elements.view().dtype();
        Self::of_source(Arc::new(elements), dtype, shape)
    }

    /// The tensor of that shape `[heads, tokens, d]` in these bytes, such as those of a mapped file.
    ///
    /// # Errors
    /// When the number of bytes is another.
    pub fn of_source(
        source: Arc<dyn Source>,
        dtype: DType,
        (heads, tokens, head_dim): (usize, usize, usize),
    ) -> Result<Self, TensorError> {
        let size = heads
            .checked_mul(tokens)
            .and_then(|rows| rows.checked_mul(head_dim))
            .and_then(|elements| elements.checked_mul(dtype.size() as usize));
        let actual = source.bytes().len();
        if size != Some(actual) {
            return Err(TensorError { dtype, heads, tokens, head_dim, actual });
        }
        Ok(Self { source, dtype, heads, tokens, head_dim })
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
        self.tokens as u64
    }

    /// Head dimension.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Bytes that all ranks together copy to read the tensor as `dtype`: 0 when it is read in place.
    pub(crate) fn copied_bytes(&self, dtype: DType) -> u64 {
        let elements = self.source.bytes().len() as u64 / self.dtype.size();
        if self.in_place(dtype) { 0 } else { elements.saturating_mul(dtype.size()) }
    }

    /// The rows of the listed tokens as `dtype`: in place when they are so in memory, else a copy.
    pub(crate) fn rows(
        &self,
        tokens: &Arc<Vec<usize>>,
        dtype: DType,
    ) -> Result<SharedRows, OutOfMemory> {
        let arrangement = Arrangement::head_major(self.heads, self.tokens, self.head_dim);
        let listed = || {
            let source = Arc::clone(&self.source);
            SharedRows::listed(source, dtype, arrangement, Arc::clone(tokens))
        };
        match self.in_place(dtype).then(listed).flatten() {
            Some(rows) => Ok(rows),
            None => {
                let arrangement = Arrangement::token_major(self.heads, tokens.len(), self.head_dim);
                Ok(SharedRows::whole(self.copy(tokens, dtype)?, arrangement))
            }
        }
    }

    fn in_place(&self, dtype: DType) -> bool {
        self.dtype == dtype && ElementsView::of_bytes(self.source.bytes(), dtype).is_some()
    }

    /// The rows as `[slots, heads, d]`, converted to `dtype`.
    fn copy(&self, tokens: &[usize], dtype: DType) -> Result<Elements, OutOfMemory> {
        match dtype {
            DType::F32 => Ok(Elements::F32(self.gather(tokens)?)),
            DType::Bf16 => Ok(Elements::Bf16(self.gather(tokens)?)),
            DType::F16 => Ok(Elements::F16(self.gather(tokens)?)),
        }
    }

    fn gather<T: PlainElement>(&self, tokens: &[usize]) -> Result<Vec<T>, OutOfMemory> {
        let mut elements = try_reserved(tokens.len() * self.heads * self.head_dim)?;
        for &token in tokens {
            for head in 0..self.heads {
                let row = self.row(head, token);
                match self.dtype {
                    DType::F32 => elements.extend(converted::<4, f32, T>(row, f32::from_ne_bytes)),
                    DType::Bf16 => {
                        elements.extend(converted::<2, bf16, T>(row, bf16::from_ne_bytes));
                    }
                    DType::F16 => elements.extend(converted::<2, f16, T>(row, f16::from_ne_bytes)),
                }
            }
        }
        Ok(elements)
    }

    fn row(&self, head: usize, token: usize) -> &[u8] {
        let len = self.head_dim * self.dtype.size() as usize;
        let row = head * self.tokens + token;
        &self.source.bytes()[row * len..][..len]
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dtype, heads, tokens, head_dim, .. } = self;
        write!(f, "Tensor({dtype} [{heads}, {tokens}, {head_dim}])")
    }
}

fn converted<const N: usize, From: PlainElement, To: PlainElement>(
    row: &[u8],
    read: impl Fn([u8; N]) -> From,
) -> impl Iterator<Item = To> {
    row.as_chunks::<N>().0.iter().map(move |&bytes| To::from_f32(read(bytes).to_f32()))
}
