//! The receive request of the local communicator. Knows no launch and no abort's cause.

use super::mailbox::{Delivery, Landing, Mailbox};
use crate::request::{Route, Span};
use crate::{CommError, Operation, ReceiveRequest};
use ringattn_core::Message;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

/// A posted receive.
#[must_use = "the message comes out of `wait`"]
pub struct LocalReceive<M> {
    route: Route,
    mailboxes: Arc<[Mailbox]>,
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
    pub(super) fn new(route: Route, mailboxes: Arc<[Mailbox]>, landing: Arc<Landing>) -> Self {
        Self { route, mailboxes, landing, state: State::Posted, message: PhantomData }
    }
}

impl<M: Message> ReceiveRequest<M> for LocalReceive<M> {
    fn test(&mut self) -> Result<bool, CommError> {
        self.route.test(Operation::Receive, || self.landing.is_there().then_some(()).into())
    }

    fn wait(mut self) -> Result<M, CommError> {
        let started = Instant::now();
        let delivery = self.route.wait(Operation::Receive, || self.landing.take().into())?;
        let ended = Instant::now();
        self.state = State::Taken;
        let Delivery { envelope, begun, landed } = delivery;
        let message: M =
            envelope.open().map_err(|actual| self.route.kind_error(M::KIND, actual))?;
        let (wait, transfer) = (Span { begun: started, ended }, Span { begun, ended: landed });
        self.route.count_received(message.byte_len(), wait, transfer);
        Ok(message)
    }
}

impl<M> Drop for LocalReceive<M> {
    fn drop(&mut self) {
        if self.state == State::Posted {
            let key = (self.route.peer, self.route.tag);
            self.mailboxes[self.route.rank.index()].withdraw(key, &self.landing);
        }
    }
}
