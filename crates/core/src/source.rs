//! Tensor data that several ranks read in place.

use crate::Elements;

/// Bytes of a tensor, wherever they are. Blocks refer to a source by `Arc` and so keep it alive.
pub trait Source: Send + Sync + 'static {
    /// The elements in the memory order of the machine: at every call the same bytes at the same
    /// place. They need not be aligned.
    fn bytes(&self) -> &[u8];
}

impl Source for Elements {
    fn bytes(&self) -> &[u8] {
        Elements::bytes(self)
    }
}
