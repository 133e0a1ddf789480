//! Which ranks of a local run have not returned. Knows no communicator.

use ringattn_core::Rank;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The ranks whose threads run or are still to be started.
pub(super) struct Running {
    ranks: Mutex<Vec<Rank>>,
    all_left: Condvar,
}

/// Takes a rank out when its thread ends, however it ends.
pub(super) struct Leaving<'a> {
    running: &'a Running,
    rank: Rank,
}

impl Running {
    pub(super) fn new(size: u32) -> Self {
        Self { ranks: Mutex::new((0..size).map(Rank).collect()), all_left: Condvar::new() }
    }

    /// To be held by `rank`'s thread.
    pub(super) fn enter(&self, rank: Rank) -> Leaving<'_> {
        Leaving { running: self, rank }
    }

    /// `first` and the ranks above it will not be started.
    pub(super) fn forget_from(&self, first: Rank) {
        self.lock().retain(|rank| *rank < first);
    }

    /// The ranks that still run, after `period` or once there are none.
    pub(super) fn wait(&self, period: Duration) -> Vec<Rank> {
        let some_run = |ranks: &mut Vec<Rank>| !ranks.is_empty();
        let waited = self.all_left.wait_timeout_while(self.lock(), period, some_run);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Rank>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut ranks = self.running.lock();
        ranks.retain(|rank| *rank != self.rank);
        if ranks.is_empty() {
            self.running.all_left.notify_all();
        }
    }
}
