//! Tensor data that several ranks read in place.

use crate::Elements;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a tensor, wherever they are. Blocks refer to a source by `Arc` and so keep it alive.
pub trait Source: Send + Sync + 'static {
    /// The elements in the memory order of the machine: at every call the same bytes at the same
    /// place. They need not be aligned.
    fn bytes(&self) -> &[u8];
}

impl Source for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Source for Elements {
    fn bytes(&self) -> &[u8] {
        Elements::bytes(self)
    }
}

/// Some bytes of a source.
#[derive(Clone)]
pub struct Part {
    source: Arc<dyn Source>,
    range: Range<usize>,
}

impl Part {
    /// The bytes of `range`; `None` when the source does not reach so far.
    pub fn new(source: Arc<dyn Source>, range: Range<usize>) -> Option<Self> {
        source.bytes().get(range.clone())?;
        Some(Self { source, range })
    }
}

impl Source for Part {
    fn bytes(&self) -> &[u8] {
        // Empty only when the source breaks its promise.
        self.source.bytes().get(self.range.clone()).unwrap_or_default()
    }
}
