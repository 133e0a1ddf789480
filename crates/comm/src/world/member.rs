//! One rank of a run, as the others see it. Knows no other rank.
//!
//! Each rank has one thread that waits, and one bell for it. Whoever makes a wait's condition true
//! does so first and rings second, and ringing takes the lock under which the waiter looks: no
//! wake-up is lost. A bell is rung while no other lock is held.
//!
//! Orders between threads: `waiting_for`, `has_left` and the count around a wait are sequentially
//! consistent. So a rank that leaves sees whoever waits for it, or that one sees that it has left;
//! and whoever sees a wait withdrawn sees it counted.

use crate::deadline::Standing;
use ringattn_core::Rank;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One rank. Alone on its cache lines: compute threads count often.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Member {
    count: AtomicU64,
    /// The awaited rank plus 1; 0 for none.
    waiting_for: AtomicU32,
    has_left: AtomicBool,
    bell_lock: Mutex<()>,
    bell: Condvar,
}

impl Member {
    /// One more unit of work is done.
    pub(super) fn count(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// How the rank stands now.
    pub(super) fn standing(&self) -> Standing {
        let waiting_for = self.waiting_for.load(Ordering::SeqCst).checked_sub(1).map(Rank);
        Standing { waiting_for, count: self.count.load(Ordering::SeqCst) }
    }

    /// Takes over what a rank of another process says of itself.
    #[cfg(feature = "mpi")]
    pub(super) fn hear(&self, standing: Standing) {
        self.count.store(standing.count, Ordering::SeqCst);
        self.waiting_for.store(standing.waiting_for.map_or(0, |rank| rank.0 + 1), Ordering::SeqCst);
    }

    /// The rank has returned a result.
    pub(super) fn leave(&self) {
        self.has_left.store(true, Ordering::SeqCst);
    }

    /// Whether the rank has returned a result.
    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::SeqCst)
    }

    /// Lets everyone see that the rank waits for `peer`, until dropped.
    pub(super) fn publish_wait(&self, peer: Rank) -> Waiting<'_> {
        self.waiting_for.store(peer.0 + 1, Ordering::SeqCst);
        Waiting(self)
    }

    /// Keeps the bell silent while the rank looks whether it must wait.
    pub(super) fn hold_bell(&self) -> MutexGuard<'_, ()> {
        self.bell_lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the bell rings, for `period` at most.
    pub(super) fn listen(&self, bell: MutexGuard<'_, ()>, period: Duration) {
        drop(self.bell.wait_timeout(bell, period).unwrap_or_else(PoisonError::into_inner));
    }

    /// Lets the rank look again at what it waits for.
    pub(super) fn ring(&self) {
        drop(self.hold_bell());
        self.bell.notify_one();
    }
}

/// A published wait. Its end is progress.
pub(super) struct Waiting<'a>(&'a Member);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_add(1, Ordering::SeqCst);
        self.0.waiting_for.store(0, Ordering::SeqCst);
    }
}
