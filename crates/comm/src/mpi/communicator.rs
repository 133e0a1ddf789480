//! The communicator that the rank's thread holds, and its receive requests. Knows no MPI: it talks
//! to the link thread over the desk.

use super::desk::{Desk, Key, Outgoing, Packet, Spent};
use super::landing::{Delivery, Landing, Progress, Refusal, Slot};
use crate::local::{LocalCommunicator, LocalReceive, Mailbox};
use crate::request::{Route, Span};
use crate::world::{Look, Watch, World};
use crate::{CommError, Communicator, Counters, MatchedSend, Operation, ReceiveRequest, Tag};
use ringattn_core::{Message, Rank};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// One rank's end of an MPI job.
pub struct MpiCommunicator {
    /// For messages to the rank itself, and what else is the same: checks, counters, progress.
    own: LocalCommunicator,
    desk: Arc<Desk>,
    checksum: Arc<Spent>,
}

impl MpiCommunicator {
    pub(super) fn new(
        world: Arc<World>,
        rank: Rank,
        size: u32,
        desk: Arc<Desk>,
        checksum: Arc<Spent>,
    ) -> Self {
        let mailboxes = (0..size).map(|_| Mailbox::default()).collect();
        Self { own: LocalCommunicator::new(world, mailboxes, rank), desk, checksum }
    }
}

impl Communicator for MpiCommunicator {
    type SendRequest = MatchedSend;
    type ReceiveRequest<M: Message> = MpiReceive<M>;
    type Watch = Watch;

    fn rank(&self) -> Rank {
        self.own.rank()
    }

    fn size(&self) -> u32 {
        self.own.size()
    }

    fn immediate_send<M: Message>(
        &self,
        message: M,
        to: Rank,
        tag: Tag,
    ) -> Result<MatchedSend, CommError> {
        if to == self.rank() {
            return self.own.immediate_send(message, to, tag);
        }
        let route = self.own.route(to, tag)?;
        route.count(|counters| {
            counters.sent_messages += 1;
            counters.sent_bytes += message.byte_len();
        });
        let matched = Arc::new(AtomicBool::new(false));
        let outgoing = Outgoing {
            to,
            tag,
            pack: Box::new(move || Packet {
                kind: M::KIND,
                header: message.header(),
                payload: message.payload(),
            }),
            matched: Arc::clone(&matched),
        };
        self.desk.tell_link(|state| {
            if let Some(run) = &mut state.run {
                run.outgoing.push(outgoing);
            }
        });
        Ok(MatchedSend::new(route, matched))
    }

    fn immediate_receive<M: Message>(
        &self,
        from: Rank,
        tag: Tag,
    ) -> Result<MpiReceive<M>, CommError> {
        if from == self.rank() {
            return self.own.immediate_receive(from, tag).map(|own| MpiReceive(Source::Own(own)));
        }
        let route = self.own.route(from, tag)?;
        let landing = Arc::new(Landing::new());
        let slot: Arc<dyn Slot> = Arc::clone(&landing) as _;
        self.desk.tell_link(|state| {
            if let Some(run) = &mut state.run {
                run.posted.entry((from, tag)).or_default().push_back(slot);
            }
        });
        let posted = Posted { key: (from, tag), landing, desk: Arc::clone(&self.desk) };
        Ok(MpiReceive(Source::Peer { route, posted }))
    }

    fn abort(&self, reason: String) {
        self.own.abort(reason);
    }

    fn progress(&self) -> Watch {
        self.own.progress()
    }

    fn counters(&self) -> Counters {
        Counters { checksum: self.checksum.total(), ..self.own.counters() }
    }
}

/// A posted receive. Taken back when dropped, if no message has matched it.
struct Posted<M: Message> {
    key: Key,
    landing: Arc<Landing<M>>,
    desk: Arc<Desk>,
}

impl<M: Message> Posted<M> {
    fn look(&self) -> Look<()> {
        match self.landing.progress() {
            Progress::Posted => Look::Nothing,
            Progress::Matched => Look::UnderWay,
            Progress::Landed => Look::Ready(()),
        }
    }

    fn take(&self) -> Look<Delivery<M>> {
        match self.look() {
            Look::Nothing => Look::Nothing,
            Look::UnderWay => Look::UnderWay,
            Look::Ready(()) => self.landing.take().into(),
        }
    }
}

impl<M: Message> Drop for Posted<M> {
    fn drop(&mut self) {
        // First, so that the link thread does not post it again.
        self.landing.withdraw();
        let mut state = self.desk.lock();
        if let Some(run) = &mut state.run
            && let Some(queue) = run.posted.get_mut(&self.key)
        {
            let own = Arc::as_ptr(&self.landing);
            queue.retain(|posted| !std::ptr::addr_eq(Arc::as_ptr(posted), own));
            if queue.is_empty() {
                run.posted.remove(&self.key);
            }
        }
    }
}

/// A receive under way.
#[must_use = "the message comes out of `wait`"]
pub struct MpiReceive<M: Message>(Source<M>);

enum Source<M: Message> {
    /// The rank itself.
    Own(LocalReceive<M>),
    /// Another process.
    Peer { route: Route, posted: Posted<M> },
}

impl<M: Message> ReceiveRequest<M> for MpiReceive<M> {
    fn test(&mut self) -> Result<bool, CommError> {
        match &mut self.0 {
            Source::Own(own) => own.test(),
            Source::Peer { route, posted } => route.test(Operation::Receive, || posted.look()),
        }
    }

    fn wait(self) -> Result<M, CommError> {
        let (route, posted) = match self.0 {
            Source::Own(own) => return own.wait(),
            Source::Peer { route, posted } => (route, posted),
        };
        let begun = Instant::now();
        let delivery = route.wait(Operation::Receive, || posted.take())?;
        let wait = Span { begun, ended: Instant::now() };
        let message = delivery.contents.map_err(|refusal| match refusal {
            Refusal::Kind(actual) => route.kind_error(M::KIND, &actual),
            Refusal::Message(source) => route.message_error(source),
        })?;
        let transfer = Span { begun: delivery.begun, ended: delivery.landed };
        route.count_received(message.byte_len(), wait, transfer);
        Ok(message)
    }
}
