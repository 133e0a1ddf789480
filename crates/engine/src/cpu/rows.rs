//! Rows of a tensor that is kept alive by whoever refers to it: a rank's shard, read where it lies.

use ringattn_core::{DType, Elements, ElementsView, Source};
use ringattn_kernel::{Arrangement, Rows};
use std::fmt;
use std::sync::Arc;

/// Some rows of a shared tensor; a clone is a second handle to the same memory.
#[derive(Clone)]
pub struct SharedRows {
    source: Arc<dyn Source>,
    dtype: DType,
    arrangement: Arrangement,
    /// The token of each slot; `None`: all tokens in order.
    tokens: Option<Arc<Vec<usize>>>,
}

impl SharedRows {
    /// All rows of a tensor in memory.
    pub fn whole(elements: Elements, arrangement: Arrangement) -> Self {
        let dtype = elements.view().dtype();
        Self { source: Arc::new(elements), dtype, arrangement, tokens: None }
    }

    /// All rows of a tensor of this type; `None` when its bytes are not aligned for it.
    pub(super) fn of_source(
        source: Arc<dyn Source>,
        dtype: DType,
        arrangement: Arrangement,
    ) -> Option<Self> {
        ElementsView::of_bytes(source.bytes(), dtype)?;
        Some(Self { source, dtype, arrangement, tokens: None })
    }

    /// All rows of a tensor in memory that others hold as well.
    pub fn shared(elements: Arc<Elements>, arrangement: Arrangement) -> Self {
        let dtype = elements.view().dtype();
        Self { source: elements, dtype, arrangement, tokens: None }
    }

    /// The listed tokens of a tensor of this type; `None` when its bytes cannot be read in place
    /// because they are not aligned for it.
    pub fn listed(
        source: Arc<dyn Source>,
        dtype: DType,
        arrangement: Arrangement,
        tokens: Arc<Vec<usize>>,
    ) -> Option<Self> {
        ElementsView::of_bytes(source.bytes(), dtype)?;
        Some(Self { source, dtype, arrangement, tokens: Some(tokens) })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The rows as the kernel reads them. Whether they lie inside the tensor is the kernel's to check.
    pub fn rows(&self) -> Rows<'_> {
        // A source that breaks its promise and moves is seen as one without elements, which the
        // kernel refuses.
        let view = ElementsView::of_bytes(self.source.bytes(), self.dtype);
        let view = view.unwrap_or(ElementsView::F32(&[]));
        match &self.tokens {
            None => Rows::whole(view, self.arrangement),
            Some(tokens) => Rows::listed(view, self.arrangement, tokens),
        }
    }

    /// Bytes of the rows, whatever else the tensor holds.
    pub fn byte_len(&self) -> u64 {
        let slots = self.tokens.as_ref().map_or(self.arrangement.tokens(), |tokens| tokens.len());
        let elements = (self.arrangement.heads() * self.arrangement.head_dim()) as u64;
        slots as u64 * elements * self.dtype.size()
    }

    /// The rows as `[slots, heads, d]` in memory order: where they lie if they lie so, else a copy.
    pub(super) fn token_major(&self) -> Arc<dyn Source> {
        let rows = self.rows();
        let heads = self.arrangement.heads();
        let Self { arrangement, source, .. } = self;
        let (tokens, head_dim) = (arrangement.tokens(), arrangement.head_dim());
        let lies_so = *arrangement == Arrangement::token_major(heads, tokens, head_dim)
            && source.bytes().len() as u64 == self.byte_len();
        if self.tokens.is_none() && lies_so {
            return Arc::clone(source);
        }
        let mut bytes = Vec::with_capacity(self.byte_len() as usize);
        for slot in 0..rows.len() {
            for head in 0..heads {
                bytes.extend_from_slice(rows.row(head, slot).bytes());
            }
        }
        Arc::new(bytes)
    }
}

impl fmt::Debug for SharedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dtype, arrangement, tokens, .. } = self;
        f.debug_struct("SharedRows")
            .field("dtype", dtype)
            .field("arrangement", arrangement)
            .field("listed", &tokens.as_ref().map(|tokens| tokens.len()))
            .finish_non_exhaustive()
    }
}
