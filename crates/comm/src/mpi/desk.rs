//! What the rank's threads and the link thread share: orders in one direction, what was heard of the
//! peers in the other. Knows no MPI.

use super::clock::Clock;
use super::landing::Slot;
use super::last_words::LastWords;
use super::peers::Peers;
use super::wire::Stage;
use crate::Tag;
use crate::world::{Cause, World};
use ringattn_core::{Payload, Rank};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a waiting rank's thread looks whether time goes on.
const SLICE: Duration = Duration::from_millis(50);
/// How long the link thread may be held up in MPI, or by a long message, before the rank's thread lets
/// the time go on without it. Every wait ends.
const HELD_UP: Duration = Duration::from_secs(1);

/// Source and tag: messages and receives of one key match in the order posted.
pub(super) type Key = (Rank, Tag);

/// A message taken apart.
pub(super) struct Packet {
    pub(super) kind: &'static str,
    pub(super) header: Vec<u64>,
    pub(super) payload: Payload,
}

/// A message to be sent, converted to bytes by the link thread.
pub(super) struct Outgoing {
    pub(super) to: Rank,
    pub(super) tag: Tag,
    pub(super) pack: Box<dyn FnOnce() -> Packet + Send>,
    pub(super) matched: Arc<AtomicBool>,
}

/// Time that the link thread has spent for a run.
#[derive(Default)]
pub(super) struct Spent(AtomicU64);

impl Spent {
    pub(super) fn add(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(0), Ordering::Relaxed);
    }

    pub(super) fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// The run that this process is in.
pub(super) struct Run {
    pub(super) world: Arc<World>,
    pub(super) checksum: Arc<Spent>,
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) posted: BTreeMap<Key, VecDeque<Arc<dyn Slot>>>,
    /// Of the rank's thread.
    pub(super) last_words: Arc<LastWords>,
}

/// How the link thread is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// By MPI_Finalize, once everything is sent.
    Finalize,
    /// By MPI_Abort with this exit code, at once.
    Abort(u8),
}

/// Everything that is shared.
pub(super) struct State {
    pub(super) run: Option<Run>,
    /// Of the present run or, between runs, of the last.
    pub(super) number: u64,
    pub(super) stage: Stage,
    /// Why the job cannot end well, when that is found after its last run.
    pub(super) cause: Option<Cause>,
    pub(super) order: Option<Order>,
    pub(super) peers: Peers,
    /// Whether the process that started this one is gone.
    pub(super) launcher_is_gone: bool,
    /// Whether MPI has been ended.
    pub(super) has_ended: bool,
}

/// Where the threads of one process meet.
pub(super) struct Desk {
    state: Mutex<State>,
    for_link: Condvar,
    for_rank: Condvar,
}

impl Desk {
    pub(super) fn new(number: u64, peers: Peers) -> Self {
        let state = State {
            run: None,
            number,
            stage: Stage::Working,
            cause: None,
            order: None,
            peers,
            launcher_is_gone: false,
            has_ended: false,
        };
        Self { state: Mutex::new(state), for_link: Condvar::new(), for_rank: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something that the link thread should see soon.
    pub(super) fn tell_link<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.for_link.notify_one();
        result
    }

    /// Changes something that the rank's thread should see soon.
    pub(super) fn tell_rank<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.for_rank.notify_all();
        result
    }

    /// Lets the link thread sleep until it is told something, for `period` at most.
    pub(super) fn pause(&self, period: Duration) {
        let state = self.lock();
        let has_news =
            state.order.is_some() || state.run.as_ref().is_some_and(|run| !run.outgoing.is_empty());
        if !has_news {
            drop(self.for_link.wait_timeout(state, period).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Waits on behalf of the rank's thread until `look` finds something, for `limit` of listened
    /// time at most.
    pub(super) fn wait_for<T>(
        &self,
        limit: Duration,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        let end = state.peers.clock().listened() + limit;
        // What this thread lived through, and of that what passed since time last went on.
        let mut own = Clock::new(Instant::now());
        let (mut looked, mut since) = (state.peers.clock().looked(), own.listened());
        loop {
            if let Some(found) = look(&mut state) {
                return Some(found);
            }
            let left = end.saturating_sub(state.peers.clock().listened());
            if left.is_zero() {
                return None;
            }
            let waited = self.for_rank.wait_timeout(state, left.min(SLICE));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            own.go_on(Instant::now());
            if state.peers.clock().looked() != looked {
                (looked, since) = (state.peers.clock().looked(), own.listened());
            } else if own.listened() - since > HELD_UP {
                looked = own.looked();
                state.peers.go_on(looked);
            }
        }
    }
}
