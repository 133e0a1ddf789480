//! Rows of an output buffer that are written in place, each set of rows by one owner.
//!
//! Rows of different owners, and of different heads of one owner, are interleaved in memory, so they
//! cannot be cut out as slices. Here their disjointness is proved once, by the list of tokens that
//! each owner gets; behind it, whoever holds the value may write its rows.

use crate::KernelError;
use crate::prefetch::{AHEAD, prefetch_first};
use crate::rows::{Arrangement, Placed};
use std::marker::PhantomData;

/// What errors call the buffer.
const OUTPUT: &str = "output";

/// The exclusive right to some rows of a buffer of f32.
#[derive(Debug)]
pub struct OutputRows<'a> {
    data: *mut f32,
    /// Elements of the whole buffer.
    len: usize,
    placed: Placed<'a>,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: the value stands for an exclusive borrow of its rows, which no other value has (see `split`
// and `whole`), and the rows are plain numbers.
unsafe impl Send for OutputRows<'_> {}
// SAFETY: a shared reference only reads plain numbers; whoever takes a `pointer` to write has to see
// to it that nobody else touches the row.
unsafe impl Sync for OutputRows<'_> {}

impl<'a> OutputRows<'a> {
    /// All rows of `data`.
    ///
    /// # Errors
    /// When the buffer has another length than the arrangement.
    pub fn whole(data: &'a mut [f32], arrangement: Arrangement) -> Result<Self, KernelError> {
        let rows = Self::unchecked(data, arrangement);
        rows.check(OUTPUT)?;
        Ok(rows)
    }

    /// All rows of `data`, whose length is yet to be compared with the arrangement.
    pub(crate) fn unchecked(data: &'a mut [f32], arrangement: Arrangement) -> Self {
        let placed = Placed { arrangement, tokens: None };
        Self { data: data.as_mut_ptr(), len: data.len(), placed, borrow: PhantomData }
    }

    /// Gives each owner the tokens of its list, in all heads.
    ///
    /// # Errors
    /// When the buffer has another length than the arrangement, when a token lies behind its end, when
    /// one is listed twice, or when memory is lacking.
    pub fn split(
        data: &'a mut [f32],
        arrangement: Arrangement,
        lists: impl IntoIterator<Item = &'a [usize]>,
    ) -> Result<Vec<Self>, KernelError> {
        let whole = Self::whole(data, arrangement)?;
        let tokens = arrangement.tokens();
        let mut taken = ringattn_core::try_filled(tokens, false)
            .map_err(|_| KernelError::Memory { bytes: tokens })?;
        let mut owners = Vec::new();
        for list in lists {
            let placed = Placed { arrangement, tokens: Some(list) };
            placed.check(OUTPUT, whole.len)?;
            for &token in list {
                if std::mem::replace(&mut taken[token], true) {
                    return Err(KernelError::RowTwice { token });
                }
            }
            owners.push(Self { placed, ..whole });
        }
        Ok(owners)
    }

    /// The same rows for a shorter time.
    pub fn reborrow(&mut self) -> OutputRows<'_> {
        OutputRows { borrow: PhantomData, ..*self }
    }

    /// Slots.
    pub fn len(&self) -> usize {
        self.placed.len()
    }

    /// Whether there is no slot.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Heads and elements of a row.
    pub fn shape(&self) -> (usize, usize) {
        (self.placed.arrangement.heads(), self.placed.arrangement.head_dim())
    }

    /// The row of a slot in a head.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, head: usize, slot: usize) -> &[f32] {
        // SAFETY: the row is this value's alone, and as long as it is borrowed shared nothing writes.
        unsafe { std::slice::from_raw_parts(self.pointer(head, slot), self.shape().1) }
    }

    /// The row of a slot in a head, to be written.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row_mut(&mut self, head: usize, slot: usize) -> &mut [f32] {
        // SAFETY: the row is this value's alone, which is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(head, slot), self.shape().1) }
    }

    /// Visits all rows, with their head and slot, heads in the outer loop.
    pub fn for_each_mut(&mut self, mut visit: impl FnMut(usize, usize, &mut [f32])) {
        for head in 0..self.shape().0 {
            for slot in 0..self.len() {
                self.prefetch(head, slot + AHEAD);
                visit(head, slot, self.row_mut(head, slot));
            }
        }
    }

    /// The first element of the row, behind which `d` elements lie in the buffer. Rows of different
    /// `(head, slot)` do not overlap.
    ///
    /// # Panics
    /// When there is no such row.
    pub(crate) fn pointer(&self, head: usize, slot: usize) -> *mut f32 {
        let (heads, head_dim) = self.shape();
        assert!(head < heads && slot < self.len());
        let start = self.placed.start(head, slot);
        assert!(self.len >= head_dim && start <= self.len - head_dim);
        // SAFETY: the assert keeps the offset inside the buffer, which is one allocation.
        unsafe { self.data.add(start) }
    }

    /// Asks for a row that is used soon, when there is one.
    #[inline(always)]
    pub(crate) fn prefetch(&self, head: usize, slot: usize) {
        if slot < self.len() {
            let start = self.placed.start(head, slot);
            prefetch_first(self.data.wrapping_add(start).cast_const(), self.shape().1);
        }
    }

    pub(crate) fn check(&self, tensor: &'static str) -> Result<(), KernelError> {
        self.placed.check(tensor, self.len)
    }
}
