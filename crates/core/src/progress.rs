//! How long work says that it advances, and learns that it should stop.

use thiserror::Error;

/// The work was told to stop before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Called by long work once per unit (a group of kernel tiles, a block of rows).
///
/// A rank that waits for another watches whether that rank's count moves, so the unit must be small
/// against the shortest sensible deadline.
pub trait Progress: Sync {
    /// One more unit is done.
    ///
    /// # Errors
    /// [`Interrupted`] when the work should stop now.
    fn advance(&self) -> Result<(), Interrupted>;
}

/// Progress that nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn advance(&self) -> Result<(), Interrupted> {
        Ok(())
    }
}
