//! The local communicator: ranks are threads of one process, and messages are handed over by value.
//!
//! A message is never converted to bytes; an `Arc` inside it is copied as a pointer. Knows nothing of
//! what the messages mean.

mod launch;
mod mailbox;
mod outcome;
mod request;
mod running;

pub use launch::{DEFAULT_TIMEOUT, Launch, MAX_RANKS, run};
pub use request::LocalReceive;

use crate::deadline::Observe;
use crate::request::Route;
use crate::world::{Cause, Watch, World};
use crate::{CommError, Communicator, Counters, MatchedSend, Tag, collective};
pub(crate) use mailbox::Mailbox;
use mailbox::{Envelope, Posted};
use ringattn_core::{Message, Rank};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// One rank's end of a world of threads.
///
/// It stays with the thread of its rank, as MPI's does, so that what works here works there.
pub struct LocalCommunicator {
    world: Arc<World>,
    mailboxes: Arc<[Mailbox]>,
    rank: Rank,
    counters: Rc<Cell<Counters>>,
}

impl LocalCommunicator {
    pub(crate) fn new(world: Arc<World>, mailboxes: Arc<[Mailbox]>, rank: Rank) -> Self {
        Self { world, mailboxes, rank, counters: Rc::default() }
    }

    fn mailbox(&self, rank: Rank) -> &Mailbox {
        &self.mailboxes[rank.index()]
    }

    /// What an operation with `peer` needs, if there is such a peer and the run goes on.
    pub(crate) fn route(&self, peer: Rank, tag: Tag) -> Result<Route, CommError> {
        let size = self.world.size();
        if peer.0 >= size {
            return Err(CommError::NoSuchRank { rank: self.rank, peer, size });
        }
        if tag > Tag::LIMIT {
            return Err(CommError::NoSuchTag { tag });
        }
        self.world.check()?;
        self.world.count(self.rank);
        let (world, counters) = (Arc::clone(&self.world), Rc::clone(&self.counters));
        Ok(Route { world, counters, rank: self.rank, peer, tag })
    }
}

impl Communicator for LocalCommunicator {
    type SendRequest = MatchedSend;
    type ReceiveRequest<M: Message> = LocalReceive<M>;
    type Watch = Watch;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.world.size()
    }

    fn immediate_send<M: Message>(
        &self,
        message: M,
        to: Rank,
        tag: Tag,
    ) -> Result<MatchedSend, CommError> {
        let route = self.route(to, tag)?;
        route.count(|counters| {
            counters.sent_messages += 1;
            counters.sent_bytes += message.byte_len();
        });
        let (envelope, matched) = Envelope::seal(message);
        if self.mailbox(to).deliver((self.rank, tag), envelope) == Posted::Matched {
            self.world.wake(to);
        }
        Ok(MatchedSend::new(route, matched))
    }

    fn immediate_receive<M: Message>(
        &self,
        from: Rank,
        tag: Tag,
    ) -> Result<LocalReceive<M>, CommError> {
        let route = self.route(from, tag)?;
        let (landing, posted) = self.mailbox(self.rank).post((from, tag));
        if posted == Posted::Matched {
            self.world.wake(from);
        }
        Ok(LocalReceive::new(route, Arc::clone(&self.mailboxes), landing))
    }

    fn abort(&self, reason: String) {
        self.world.abort(Cause::Called { culprit: self.rank, reason });
    }

    fn progress(&self) -> Watch {
        Watch::new(Arc::clone(&self.world), self.rank)
    }

    fn counters(&self) -> Counters {
        self.counters.get()
    }

    fn broadcast<M: Message + Clone>(
        &self,
        message: Option<M>,
        root: Rank,
    ) -> Result<M, CommError> {
        collective::broadcast_linear(self, message, root)
    }
}
