//! Where a posted receive's message will lie, as bytes. Knows no MPI.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A message that is there, and when its transfer began and ended.
pub(super) struct Delivery {
    pub(super) kind: String,
    pub(super) header: Vec<u64>,
    pub(super) payload: Vec<u8>,
    pub(super) begun: Instant,
    pub(super) landed: Instant,
}

/// How far a posted receive is.
#[derive(Default)]
enum State {
    /// No message has matched it.
    #[default]
    Posted,
    /// Its message is under way.
    Matched,
    /// Its message is there.
    Landed(Delivery),
    /// Its message was given out, or its request is gone.
    Empty,
}

/// One posted receive, between the rank's thread and the link thread.
#[derive(Default)]
pub(super) struct Landing(Mutex<State>);

/// How a posted receive looks to the rank's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Posted,
    Matched,
    Landed,
}

impl Landing {
    /// A message has matched the receive.
    pub(super) fn matched(&self) {
        self.advance(State::Matched);
    }

    /// What had matched was no message of this run. Gives whether there still is a request.
    pub(super) fn repost(&self) -> bool {
        let mut state = self.lock();
        if matches!(*state, State::Empty) {
            return false;
        }
        *state = State::Posted;
        true
    }

    /// The request is gone.
    pub(super) fn withdraw(&self) {
        *self.lock() = State::Empty;
    }

    /// The message is there.
    pub(super) fn land(&self, delivery: Delivery) {
        self.advance(State::Landed(delivery));
    }

    fn advance(&self, next: State) {
        let mut state = self.lock();
        if !matches!(*state, State::Empty) {
            *state = next;
        }
    }

    pub(super) fn progress(&self) -> Progress {
        match *self.lock() {
            State::Posted => Progress::Posted,
            State::Matched => Progress::Matched,
            State::Landed(_) | State::Empty => Progress::Landed,
        }
    }

    /// The message, once it is there.
    pub(super) fn take(&self) -> Option<Delivery> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Empty) {
            State::Landed(delivery) => Some(delivery),
            other => {
                *state = other;
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
