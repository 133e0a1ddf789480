//! Buffers that are asked for, so that lack of memory is an error and not the end of the process.

use thiserror::Error;

/// A buffer could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no memory for a buffer of {bytes} bytes")]
pub struct OutOfMemory {
    /// What was asked for.
    pub bytes: u64,
}

/// An empty vector with room for `len` elements.
///
/// # Errors
/// When the memory cannot be had.
pub fn try_reserved<T>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut buffer = Vec::new();
    let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
    buffer.try_reserve_exact(len).map_err(|_| OutOfMemory { bytes })?;
    Ok(buffer)
}

/// A vector of `len` times `value`.
///
/// # Errors
/// When the memory cannot be had.
pub fn try_filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>, OutOfMemory> {
    let mut buffer = try_reserved(len)?;
    buffer.resize(len, value);
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_an_error() {
        assert_eq!(try_filled(3, 1.5_f32), Ok(vec![1.5; 3]));
        let bytes = 8 * (1 << 60);
        assert_eq!(try_filled(1 << 60, 0_u64), Err(OutOfMemory { bytes }));
    }
}
