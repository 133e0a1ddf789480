//! Where a posted receive's message will lie. Knows no MPI.
//!
//! The link thread rebuilds the message from its bytes, so that this, too, is hidden behind the
//! compute of the rank's own thread.

use ringattn_core::{Message, MessageError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A message as bytes, once all have come.
pub(super) struct Parcel {
    pub(super) kind: String,
    pub(super) header: Vec<u64>,
    pub(super) payload: Vec<u8>,
    /// When its envelope had matched the receive.
    pub(super) begun: Instant,
}

/// A posted receive, as the link thread sees it.
pub(super) trait Slot: Send + Sync {
    /// A message has matched the receive.
    fn matched(&self);

    /// What had matched was no message of this run. Gives whether there still is a request.
    fn repost(&self) -> bool;

    /// The message has come.
    fn land(&self, parcel: Parcel);
}

/// Why a message that has come is not given out.
pub(super) enum Refusal {
    /// It is of this kind.
    Kind(String),
    /// Its bytes do not form a message of its kind.
    Message(MessageError),
}

/// A message that is there, and when its transfer began and ended.
pub(super) struct Delivery<M> {
    pub(super) contents: Result<M, Refusal>,
    pub(super) begun: Instant,
    pub(super) landed: Instant,
}

/// How far a posted receive is.
enum State<M> {
    /// No message has matched it.
    Posted,
    /// Its message is under way.
    Matched,
    /// Its message is there.
    Landed(Delivery<M>),
    /// Its message was given out, or its request is gone.
    Empty,
}

/// One posted receive, between the rank's thread and the link thread.
pub(super) struct Landing<M>(Mutex<State<M>>);

/// How a posted receive looks to the rank's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Posted,
    Matched,
    Landed,
}

impl<M: Message> Landing<M> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State::Posted))
    }

    pub(super) fn progress(&self) -> Progress {
        match *self.lock() {
            State::Posted => Progress::Posted,
            State::Matched => Progress::Matched,
            State::Landed(_) | State::Empty => Progress::Landed,
        }
    }

    /// The message, once it is there.
    pub(super) fn take(&self) -> Option<Delivery<M>> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Empty) {
            State::Landed(delivery) => Some(delivery),
            other => {
                *state = other;
                None
            }
        }
    }

    /// The request is gone.
    pub(super) fn withdraw(&self) {
        *self.lock() = State::Empty;
    }

    fn advance(&self, next: State<M>) {
        let mut state = self.lock();
        if !matches!(*state, State::Empty) {
            *state = next;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Message> Slot for Landing<M> {
    fn matched(&self) {
        self.advance(State::Matched);
    }

    fn repost(&self) -> bool {
        self.advance(State::Posted);
        !matches!(*self.lock(), State::Empty)
    }

    fn land(&self, parcel: Parcel) {
        let Parcel { kind, header, payload, begun } = parcel;
        // Not under the lock: it takes long, and the rank's thread looks meanwhile.
        let contents = if kind == M::KIND {
            M::from_payload(&header, payload).map_err(Refusal::Message)
        } else {
            Err(Refusal::Kind(kind))
        };
        self.advance(State::Landed(Delivery { contents, begun, landed: Instant::now() }));
    }
}
