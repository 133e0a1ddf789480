//! The requests of the local communicator. Knows no launch and no abort's cause.

use super::mailbox::{Delivery, Landing};
use super::world::{Awaited, World};
use crate::{CommError, Counters, Operation, ReceiveRequest, SendRequest, Tag};
use ringattn_core::{Message, Rank};
use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Between which ranks a request goes, and where it is counted.
pub(super) struct Route {
    pub(super) world: Arc<World>,
    pub(super) counters: Rc<Cell<Counters>>,
    pub(super) rank: Rank,
    pub(super) peer: Rank,
    pub(super) tag: Tag,
}

impl Route {
    /// Changes the rank's counters, unless the message belongs to a collective operation.
    pub(super) fn count(&self, change: impl FnOnce(&mut Counters)) {
        if self.tag.is_counted() {
            let mut counters = self.counters.get();
            change(&mut counters);
            self.counters.set(counters);
        }
    }

    fn awaited(&self, operation: Operation) -> Awaited {
        Awaited { peer: self.peer, operation, tag: self.tag }
    }

    fn test(&self, operation: Operation, ready: impl Fn() -> bool) -> Result<bool, CommError> {
        self.world.test(self.rank, self.awaited(operation), ready)
    }

    fn wait<T>(&self, operation: Operation, ready: impl Fn() -> Option<T>) -> Result<T, CommError> {
        self.world.wait(self.rank, self.awaited(operation), ready)
    }
}

/// A message handed over, until the receiver has matched it.
#[must_use = "a send is complete only after `wait`"]
pub struct LocalSend {
    route: Route,
    matched: Arc<AtomicBool>,
}

impl LocalSend {
    pub(super) fn new(route: Route, matched: Arc<AtomicBool>) -> Self {
        Self { route, matched }
    }
}

impl SendRequest for LocalSend {
    fn test(&mut self) -> Result<bool, CommError> {
        self.route.test(Operation::Send, || self.matched.load(Ordering::Acquire))
    }

    fn wait(self) -> Result<(), CommError> {
        let started = Instant::now();
        let ready = || self.matched.load(Ordering::Acquire).then_some(());
        self.route.wait(Operation::Send, ready)?;
        self.route.count(|counters| counters.peer_wait += started.elapsed());
        Ok(())
    }
}

/// A posted receive.
#[must_use = "the message comes out of `wait`"]
pub struct LocalReceive<M> {
    route: Route,
    landing: Arc<Landing>,
    state: State,
    message: PhantomData<fn() -> M>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Posted,
    Taken,
}

impl<M: Message> LocalReceive<M> {
    pub(super) fn new(route: Route, landing: Arc<Landing>) -> Self {
        Self { route, landing, state: State::Posted, message: PhantomData }
    }
}

impl<M: Message> ReceiveRequest<M> for LocalReceive<M> {
    fn test(&mut self) -> Result<bool, CommError> {
        self.route.test(Operation::Receive, || self.landing.is_there())
    }

    fn wait(mut self) -> Result<M, CommError> {
        let started = Instant::now();
        let delivery = self.route.wait(Operation::Receive, || self.landing.take())?;
        let ended = Instant::now();
        self.state = State::Taken;
        let Delivery { envelope, begun, landed } = delivery;
        let message: M = envelope.open().map_err(|actual| CommError::Kind {
            rank: self.route.rank,
            from: self.route.peer,
            tag: self.route.tag,
            expected: M::KIND,
            actual: actual.to_owned(),
        })?;
        let transfer_wait = landed.min(ended).saturating_duration_since(begun.max(started));
        self.route.count(|counters| {
            counters.received_messages += 1;
            counters.received_bytes += message.byte_len();
            counters.transfer += landed.saturating_duration_since(begun);
            counters.transfer_wait += transfer_wait;
            counters.peer_wait += (ended - started).saturating_sub(transfer_wait);
        });
        Ok(message)
    }
}

impl<M> Drop for LocalReceive<M> {
    fn drop(&mut self) {
        if self.state == State::Posted {
            let key = (self.route.peer, self.route.tag);
            self.route.world.mailbox(self.route.rank).withdraw(key, &self.landing);
        }
    }
}
