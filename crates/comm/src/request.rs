//! What the requests of all communicators have in common. Knows no transport.

use crate::world::{Awaited, Look, World};
use crate::{CommError, Counters, Operation, SendRequest, Tag, Wait};
use ringattn_core::Rank;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between which ranks a request goes, and where it is counted.
pub(crate) struct Route {
    pub(crate) world: Arc<World>,
    pub(crate) counters: Rc<Cell<Counters>>,
    pub(crate) rank: Rank,
    pub(crate) peer: Rank,
    pub(crate) tag: Tag,
}

impl Route {
    /// Changes the rank's counters, unless the message belongs to a collective operation.
    pub(crate) fn count(&self, change: impl FnOnce(&mut Counters)) {
        if self.tag.is_counted() {
            let mut counters = self.counters.get();
            change(&mut counters);
            self.counters.set(counters);
        }
    }

    fn awaited(&self, operation: Operation) -> Awaited {
        Awaited { peer: self.peer, operation, tag: self.tag }
    }

    pub(crate) fn test(
        &self,
        operation: Operation,
        look: impl Fn() -> Look<()>,
    ) -> Result<bool, CommError> {
        self.world.test(self.rank, self.awaited(operation), look)
    }

    pub(crate) fn wait<T>(
        &self,
        operation: Operation,
        look: impl Fn() -> Look<T>,
    ) -> Result<T, CommError> {
        self.world.wait(self.rank, self.awaited(operation), look)
    }

    /// A message of another kind than asked for.
    pub(crate) fn kind_error(&self, expected: &'static str, actual: &str) -> CommError {
        let actual = actual.to_owned();
        CommError::Kind { rank: self.rank, from: self.peer, tag: self.tag, expected, actual }
    }

    /// A message whose bytes do not form one of its kind.
    #[cfg(feature = "mpi")]
    pub(crate) fn message_error(&self, source: ringattn_core::MessageError) -> CommError {
        CommError::Message { rank: self.rank, from: self.peer, tag: self.tag, source }
    }

    /// Counts a message of `bytes` bytes that a wait has given out.
    pub(crate) fn count_received(&self, bytes: u64, wait: Span, transfer: Span) {
        let last = Wait { wait: wait.ends(), transfer: Some(transfer.ends()) };
        let (begun, ended) = last.for_transfer();
        let transfer_wait = ended.saturating_duration_since(begun);
        self.count(|counters| {
            counters.last_wait = Some(last);
            counters.received_messages += 1;
            counters.received_bytes += bytes;
            counters.transfer += transfer.length();
            counters.transfer_wait += transfer_wait;
            counters.peer_wait += wait.length().saturating_sub(transfer_wait);
        });
    }
}

/// From one moment to another.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
}

impl Span {
    fn length(self) -> Duration {
        self.ended.saturating_duration_since(self.begun)
    }

    fn ends(self) -> (Instant, Instant) {
        (self.begun, self.ended)
    }
}

/// A message handed over, until the receiver has matched it.
#[must_use = "a send is complete only after `wait`"]
pub struct MatchedSend {
    route: Route,
    matched: Arc<AtomicBool>,
}

impl MatchedSend {
    pub(crate) fn new(route: Route, matched: Arc<AtomicBool>) -> Self {
        Self { route, matched }
    }

    fn look(&self) -> Look<()> {
        self.matched.load(Ordering::Acquire).then_some(()).into()
    }
}

impl SendRequest for MatchedSend {
    fn test(&mut self) -> Result<bool, CommError> {
        self.route.test(Operation::Send, || self.look())
    }

    fn wait(self) -> Result<(), CommError> {
        let begun = Instant::now();
        self.route.wait(Operation::Send, || self.look())?;
        let wait = Span { begun, ended: Instant::now() };
        self.route.count(|counters| {
            counters.peer_wait += wait.length();
            counters.last_wait = Some(Wait { wait: wait.ends(), transfer: None });
        });
        Ok(())
    }
}
