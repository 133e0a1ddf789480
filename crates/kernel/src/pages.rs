//! Large pages under long buffers. A page of 2 MiB spares a stream the walk and the stop that it makes at
//! the end of every small one: keys and values were read a quarter faster. Knows nothing of what a buffer
//! holds.

use ringattn_core::Elements;

/// Asks the system for large pages under the room that a vector has to grow. Where it refuses, pages stay
/// small.
#[cfg(target_os = "linux")]
pub(crate) fn ask_for_large_pages<T>(buffer: &mut Vec<T>) {
    use rustix::mm::{Advice, madvise};

    /// Bytes of a large page, of the usual size.
    const LARGE: usize = 2 << 20;

    let spare = buffer.spare_capacity_mut();
    let from = spare.as_mut_ptr().cast::<u8>();
    let skipped = from.align_offset(LARGE);
    // Only where they fit whole: the vector must not take more memory than it was given.
    let whole = size_of_val(spare).saturating_sub(skipped) / LARGE * LARGE;
    if whole > 0 {
        // SAFETY: the range is whole pages inside the vector's own memory, and this advice leaves what
        // they hold as it is.
        let _ = unsafe { madvise(from.add(skipped).cast(), whole, Advice::LinuxHugepage) };
    }
}

/// Other systems choose their pages themselves.
#[cfg(not(target_os = "linux"))]
pub(crate) fn ask_for_large_pages<T>(_: &mut Vec<T>) {}

/// Large pages under the room that `elements` have to grow, for keys and values that are read again and
/// again: asked for before they are written.
pub fn on_large_pages(elements: &mut Elements) {
    match elements {
        Elements::F32(buffer) => ask_for_large_pages(buffer),
        Elements::Bf16(buffer) => ask_for_large_pages(buffer),
        Elements::F16(buffer) => ask_for_large_pages(buffer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringattn_core::{DType, Growth};

    #[test]
    fn advice_changes_nothing_that_is_there() {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            for (held, room) in [(0, 0), (3, 0), (3, 5), (1 << 20, 3 << 20), (0, (4 << 20) + 1)] {
                let mut elements = Elements::empty(dtype);
                elements.try_extend(&vec![1.5; held]).unwrap();
                elements.try_reserve(room, Growth::Exact).unwrap();
                on_large_pages(&mut elements);
                elements.try_extend(&vec![2.5; room]).unwrap();
                let mut expected = vec![1.5; held];
                expected.resize(held + room, 2.5);
                assert_eq!(elements, Elements::from_f32(expected, dtype));
            }
        }
    }
}
