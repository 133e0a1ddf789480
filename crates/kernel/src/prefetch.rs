//! Asking for what is read soon. Rows of a shard may lie far apart, where the processor's own
//! prefetching finds no pattern and each row costs a whole latency of memory; and it never enters the
//! next page. Knows no tensor.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Rows to ask ahead: their requests are under way together, and the last lies in the next page.
pub(crate) const AHEAD: usize = 16;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Asks for the `len` elements behind `first`, which need not exist, into the first cache: for rows
/// that are copied, where the second was measured to be slower.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn prefetch_first<T>(first: *const T, len: usize) {
    for offset in (0..len * size_of::<T>()).step_by(LINE) {
        // SAFETY: a prefetch is a hint that never faults, whatever the address; every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(first.cast::<i8>().wrapping_add(offset)) };
    }
}

/// No stable way on this architecture.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn prefetch_first<T>(_: *const T, _: usize) {}
