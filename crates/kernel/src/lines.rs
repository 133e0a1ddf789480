//! Buffers of numbers that begin on a cache line, on large pages where they are long.
//!
//! A vector that crosses a line costs two accesses of the first cache, and in a buffer that begins
//! beside a line every one does. A page of 2 MiB spares the walks that a long stream else waits for.

use crate::pages::ask_for_large_pages;
use crate::prefetch::LINE;
use pulp::bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use ringattn_core::{OutOfMemory, try_reserved};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A cache line's worth of anything.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

// SAFETY: an array of bytes as long as its alignment: no padding, and any bytes are valid.
unsafe impl Zeroable for Line {}
// SAFETY: likewise.
unsafe impl Pod for Line {}

/// `len` numbers, of a type whose size divides a line's.
#[derive(Clone, Debug)]
pub(crate) struct Lines<T> {
    lines: Vec<Line>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> Lines<T> {
    /// `len` zeros.
    ///
    /// # Errors
    /// When the memory cannot be had.
    pub(crate) fn zeroed(len: usize) -> Result<Self, OutOfMemory> {
        let count = len.div_ceil(LINE / size_of::<T>());
        let mut lines = try_reserved(count)?;
        ask_for_large_pages(&mut lines);
        lines.resize(count, Line([0; LINE]));
        Ok(Self { lines, len, element: PhantomData })
    }

    /// Makes the buffer `len` long; what it held is lost when it has to grow.
    ///
    /// # Errors
    /// When the memory cannot be had.
    pub(crate) fn resize(&mut self, len: usize) -> Result<(), OutOfMemory> {
        if len.div_ceil(LINE / size_of::<T>()) > self.lines.len() {
            // The old memory first: both at once are not needed.
            *self = Self::default();
            *self = Self::zeroed(len)?;
        }
        self.len = len;
        Ok(())
    }
}

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Self { lines: Vec::new(), len: 0, element: PhantomData }
    }
}

impl<T: Pod> Deref for Lines<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        &cast_slice(&self.lines)[..self.len]
    }
}

impl<T: Pod> DerefMut for Lines<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut cast_slice_mut(&mut self.lines)[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn buffers_begin_on_a_line_and_are_as_long_as_asked() {
        for len in [0, 1, 15, 16, 17, 1000, (5 << 20) + 3] {
            let mut floats = Lines::<f32>::zeroed(len).unwrap();
            assert_eq!((floats.len(), floats.as_ptr().align_offset(LINE)), (len, 0));
            assert!(floats.iter().all(|&x| x == 0.0));
            floats.fill(1.5);
            assert!(floats.clone().iter().all(|&x| x == 1.5));
            let halves = Lines::<bf16>::zeroed(len).unwrap();
            assert_eq!((halves.len(), halves.as_ptr().align_offset(LINE)), (len, 0));
        }
        assert!(Lines::<f32>::zeroed(usize::MAX / 8).is_err());
    }

    #[test]
    fn a_buffer_grows_to_the_longest_and_stays_on_its_line() {
        let mut floats = Lines::<f32>::default();
        for len in [0, 3, 40, 17, 41, 1000, 0] {
            floats.resize(len).unwrap();
            assert_eq!((floats.len(), floats.as_ptr().align_offset(LINE)), (len, 0));
            floats.fill(1.0);
        }
    }
}
