//! Where the rows of a chunk of keys or values lie. Knows nothing of what is computed with them.

/// Keys of a chunk: their weights are formed together, their values summed before they are added
/// to `y`.
pub(super) const CHUNK: usize = 64;

/// Rows of a chunk in some heads, each a whole number of vector pairs.
#[derive(Clone, Copy)]
pub(super) struct ChunkRows<E> {
    /// The chunk's row 0 in the first head.
    pub(super) first: *const E,
    /// Elements from one row to the next.
    pub(super) stride: usize,
    /// Elements from one head to the next.
    pub(super) head: usize,
    /// Pairs of vectors in a row.
    pub(super) pairs: usize,
}

impl<E> ChunkRows<E> {
    /// Where the row begins.
    #[inline(always)]
    pub(super) fn row(&self, head: usize, key: usize) -> *const E {
        self.first.wrapping_add(head * self.head + key * self.stride)
    }
}
