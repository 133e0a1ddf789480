//! A whole tensor that is shared, and the rows of it that each rank reads.

mod gather;

use gather::Gather;
use ringattn_core::{DType, Elements, ElementsView, OutOfMemory, Source};
use ringattn_engine::cpu::{Arrangement, SharedRows};
use std::fmt;
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// Tensor data that lies outside of memory, such as a file's.
pub trait ReadAt: Send + Sync + 'static {
    /// Bytes there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `bytes` with those from `offset` on, in the memory order of the machine.
    ///
    /// # Errors
    /// When there are not so many, or they cannot be read.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

/// `[heads, tokens, d]`; a batch is part of the heads. A clone is a second handle to the same data.
///
/// Ranks read the rows of a tensor in memory where they lie. They make a copy of their rows, and of no
/// others, when the tensor lies outside of memory, its elements are not aligned, or K and V shall be
/// kept in another type.
#[derive(Clone)]
pub struct Tensor {
    store: Store,
    dtype: DType,
    heads: usize,
    tokens: usize,
    head_dim: usize,
}

/// Where the elements are.
#[derive(Clone)]
enum Store {
    Memory(Arc<dyn Source>),
    Outside(Arc<dyn ReadAt>),
}

/// Why there is no tensor, or no rows of it.
#[derive(Debug, Error)]
pub enum TensorError {
    /// Bytes that do not hold the tensor they are said to hold.
    #[error("a {dtype} tensor [{heads}, {tokens}, {head_dim}] does not fit in {actual} bytes")]
    Size {
        /// Element type.
        dtype: DType,
        /// Heads, batch included.
        heads: usize,
        /// Tokens.
        tokens: usize,
        /// Head dimension.
        head_dim: usize,
        /// Bytes there are.
        actual: u64,
    },
    /// The bytes could not be read.
    #[error("reading {bytes} bytes of a tensor from its byte {offset} on: {source}")]
    Read {
        /// Where they begin.
        offset: u64,
        /// How many.
        bytes: usize,
        /// Why not.
        source: io::Error,
    },
    /// No memory for a copy of the rows.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
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
        shape: (usize, usize, usize),
    ) -> Result<Self, TensorError> {
        Self::of_store(Store::Memory(source), dtype, shape)
    }

    /// The tensor of that shape `[heads, tokens, d]`, of which each rank reads its rows into memory.
    ///
    /// # Errors
    /// When the number of bytes is another.
    pub fn outside(
        data: Arc<dyn ReadAt>,
        dtype: DType,
        shape: (usize, usize, usize),
    ) -> Result<Self, TensorError> {
        Self::of_store(Store::Outside(data), dtype, shape)
    }

    fn of_store(
        store: Store,
        dtype: DType,
        (heads, tokens, head_dim): (usize, usize, usize),
    ) -> Result<Self, TensorError> {
        let size = heads
            .checked_mul(tokens)
            .and_then(|rows| rows.checked_mul(head_dim))
            .and_then(|elements| elements.checked_mul(dtype.size() as usize));
        let actual = match &store {
            Store::Memory(source) => source.bytes().len() as u64,
            Store::Outside(data) => data.len(),
        };
        if size.map(|size| size as u64) != Some(actual) {
            return Err(TensorError::Size { dtype, heads, tokens, head_dim, actual });
        }
        Ok(Self { store, dtype, heads, tokens, head_dim })
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

    /// Bytes that ranks with `tokens` tokens in all copy to read them as `dtype`: 0 when they read them
    /// in place.
    pub(crate) fn copied_bytes(&self, tokens: u64, dtype: DType) -> u64 {
        let row = (self.heads as u64).saturating_mul(self.head_dim as u64);
        let bytes = row.saturating_mul(dtype.size()).saturating_mul(tokens);
        if self.in_place(dtype).is_some() { 0 } else { bytes }
    }

    /// The rows of the listed tokens as `dtype`: in place when they are so in memory, else a copy.
    pub(crate) fn rows(
        &self,
        tokens: &Arc<Vec<usize>>,
        dtype: DType,
    ) -> Result<SharedRows, TensorError> {
        let arrangement = Arrangement::head_major(self.heads, self.tokens, self.head_dim);
        let listed = |source: &Arc<dyn Source>| {
            SharedRows::listed(Arc::clone(source), dtype, arrangement, Arc::clone(tokens))
        };
        if let Some(rows) = self.in_place(dtype).and_then(listed) {
            return Ok(rows);
        }
        let shape = (self.heads, self.tokens, self.head_dim);
        let gather = Gather { store: &self.store, from: self.dtype, shape, tokens };
        let arrangement = Arrangement::token_major(self.heads, tokens.len(), self.head_dim);
        Ok(SharedRows::whole(gather.elements(dtype)?, arrangement))
    }

    /// The bytes, if rows of that type can be read in them.
    fn in_place(&self, dtype: DType) -> Option<&Arc<dyn Source>> {
        match &self.store {
            Store::Memory(source) if self.dtype == dtype => {
                ElementsView::of_bytes(source.bytes(), dtype).map(|_| source)
            }
            _ => None,
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dtype, heads, tokens, head_dim, .. } = self;
        write!(f, "Tensor({dtype} [{heads}, {tokens}, {head_dim}])")
    }
}
