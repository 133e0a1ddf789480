//! Where the messages to one rank meet the receives that it has posted (MPI 4.1, 3.5). Knows no
//! other rank's state and wakes nobody.

use crate::Tag;
use ringattn_core::{Message, Rank};
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Source and tag: messages and receives of one key match in the order posted.
pub(super) type Key = (Rank, Tag);

/// A message on its way.
pub(super) struct Envelope {
    contents: Box<dyn Any + Send>,
    kind: &'static str,
    matched: Arc<AtomicBool>,
}

impl Envelope {
    /// The message in its envelope, and the flag that is set once a receive has matched it.
    pub(super) fn seal<M: Message>(message: M) -> (Self, Arc<AtomicBool>) {
        let matched = Arc::new(AtomicBool::new(false));
        let envelope =
            Self { contents: Box::new(message), kind: M::KIND, matched: Arc::clone(&matched) };
        (envelope, matched)
    }

    /// The message, or the kind that it really is.
    pub(super) fn open<M: Message>(self) -> Result<M, &'static str> {
        self.contents.downcast::<M>().map(|message| *message).map_err(|_| self.kind)
    }
}

/// A message that is there, and when its transfer began and ended.
pub(super) struct Delivery {
    pub(super) envelope: Envelope,
    pub(super) begun: Instant,
    pub(super) landed: Instant,
}

/// Where a posted receive's message will lie.
#[derive(Default)]
pub(super) struct Landing(Mutex<Option<Delivery>>);

impl Landing {
    /// The message, once.
    pub(super) fn take(&self) -> Option<Delivery> {
        self.lock().take()
    }

    /// Whether the message is there.
    pub(super) fn is_there(&self) -> bool {
        self.lock().is_some()
    }

    fn land(&self, envelope: Envelope, begun: Instant) {
        envelope.matched.store(true, Ordering::Release);
        *self.lock() = Some(Delivery { envelope, begun, landed: Instant::now() });
    }

    fn lock(&self) -> MutexGuard<'_, Option<Delivery>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the other side was there already; then it must be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Posted {
    /// Message and receive have met.
    Matched,
    /// It waits for the other side.
    Queued,
}

/// At most one of the two is not empty.
#[derive(Default)]
struct Queue {
    messages: VecDeque<Envelope>,
    receives: VecDeque<Arc<Landing>>,
}

/// The messages to one rank that no receive has matched, and the receives without message.
#[derive(Default)]
pub(crate) struct Mailbox(Mutex<HashMap<Key, Queue>>);

impl Mailbox {
    /// Hands in a message from `key`'s rank.
    pub(super) fn deliver(&self, key: Key, envelope: Envelope) -> Posted {
        let mut queues = self.lock();
        // From here on both sides have posted, if the receive has.
        let begun = Instant::now();
        let queue = queues.entry(key).or_default();
        let Some(landing) = queue.receives.pop_front() else {
            queue.messages.push_back(envelope);
            return Posted::Queued;
        };
        if queue.receives.is_empty() {
            queues.remove(&key);
        }
        landing.land(envelope, begun);
        Posted::Matched
    }

    /// Posts a receive of the next message from `key`'s rank.
    pub(super) fn post(&self, key: Key) -> (Arc<Landing>, Posted) {
        let landing = Arc::new(Landing::default());
        let mut queues = self.lock();
        let begun = Instant::now();
        let queue = queues.entry(key).or_default();
        let Some(envelope) = queue.messages.pop_front() else {
            queue.receives.push_back(Arc::clone(&landing));
            return (landing, Posted::Queued);
        };
        if queue.messages.is_empty() {
            queues.remove(&key);
        }
        landing.land(envelope, begun);
        (landing, Posted::Matched)
    }

    /// Takes back a posted receive, if no message has matched it.
    pub(super) fn withdraw(&self, key: Key, landing: &Arc<Landing>) {
        let mut queues = self.lock();
        if let Some(queue) = queues.get_mut(&key) {
            queue.receives.retain(|posted| !Arc::ptr_eq(posted, landing));
            if queue.receives.is_empty() && queue.messages.is_empty() {
                queues.remove(&key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
