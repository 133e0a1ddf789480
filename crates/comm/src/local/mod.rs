//! The local communicator: ranks are threads of one process, and messages are handed over by value.
//!
//! A message is never converted to bytes; an `Arc` inside it is copied as a pointer. Knows nothing of
//! what the messages mean.

mod launch;
mod mailbox;
mod member;
mod outcome;
mod request;
mod running;
mod world;

pub use launch::{DEFAULT_TIMEOUT, Launch, MAX_RANKS, run};
pub use request::{LocalReceive, LocalSend};

use crate::deadline::Observe;
use crate::{CommError, Communicator, Counters, Tag};
use mailbox::{Envelope, Posted};
use request::Route;
use ringattn_core::{Interrupted, Message, Progress, Rank};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use world::{Cause, World};

/// One rank's end of a world of threads.
///
/// It stays with the thread of its rank, as MPI's does, so that what works here works there.
pub struct LocalCommunicator {
    world: Arc<World>,
    rank: Rank,
    counters: Rc<Cell<Counters>>,
}

impl LocalCommunicator {
    fn new(world: Arc<World>, rank: Rank) -> Self {
        Self { world, rank, counters: Rc::default() }
    }

    /// What an operation with `peer` needs, if there is such a peer and the run goes on.
    fn route(&self, peer: Rank, tag: Tag) -> Result<Route, CommError> {
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
    type SendRequest = LocalSend;
    type ReceiveRequest<M: Message> = LocalReceive<M>;
    type Watch = LocalWatch;

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
    ) -> Result<LocalSend, CommError> {
        let route = self.route(to, tag)?;
        route.count(|counters| {
            counters.sent_messages += 1;
            counters.sent_bytes += message.byte_len();
        });
        let (envelope, matched) = Envelope::seal(message);
        if self.world.mailbox(to).deliver((self.rank, tag), envelope) == Posted::Matched {
            self.world.wake(to);
        }
        Ok(LocalSend::new(route, matched))
    }

    fn immediate_receive<M: Message>(
        &self,
        from: Rank,
        tag: Tag,
    ) -> Result<LocalReceive<M>, CommError> {
        let route = self.route(from, tag)?;
        let (landing, posted) = self.world.mailbox(self.rank).post((from, tag));
        if posted == Posted::Matched {
            self.world.wake(from);
        }
        Ok(LocalReceive::new(route, landing))
    }

    fn abort(&self, reason: String) {
        self.world.abort(Cause::Called { culprit: self.rank, reason });
    }

    fn progress(&self) -> LocalWatch {
        LocalWatch { world: Arc::clone(&self.world), rank: self.rank }
    }

    fn counters(&self) -> Counters {
        self.counters.get()
    }
}

/// The progress counter of one rank.
#[derive(Clone)]
pub struct LocalWatch {
    world: Arc<World>,
    rank: Rank,
}

impl Progress for LocalWatch {
    fn advance(&self) -> Result<(), Interrupted> {
        self.world.count(self.rank);
        if self.world.has_ended() { Err(Interrupted) } else { Ok(()) }
    }
}
