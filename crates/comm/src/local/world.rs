//! What the ranks of one local run share: their mailboxes, how each of them stands, and the cause
//! that ended the run. Knows no threads' lives and no message's contents.

use super::mailbox::Mailbox;
use super::member::Member;
use crate::deadline::{Blame, Deadline, Observe, Standing};
use crate::stop::Stoppable;
use crate::{CommError, Operation, Tag};
use ringattn_core::Rank;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What ended a run before its ranks did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A rank called `abort`.
    Called { culprit: Rank, reason: String },
    /// A rank returned an error.
    Returned { culprit: Rank, reason: String },
    /// A rank panicked.
    Panicked { culprit: Rank, message: String },
    /// A rank got no thread.
    NotStarted { culprit: Rank },
    /// No rank's own failure: a time-out, a deadlock, a stop.
    World(CommError),
}

impl Cause {
    /// What every rank is told.
    fn to_error(&self) -> CommError {
        let aborted =
            |culprit: &Rank, reason: String| CommError::Aborted { culprit: *culprit, reason };
        match self {
            Self::Called { culprit, reason } | Self::Returned { culprit, reason } => {
                aborted(culprit, reason.clone())
            }
            Self::Panicked { culprit, message } => aborted(culprit, format!("panic: {message}")),
            Self::NotStarted { culprit } => aborted(culprit, "could not be started".to_owned()),
            Self::World(error) => error.clone(),
        }
    }
}

/// What a wait is for.
#[derive(Clone, Copy)]
pub(super) struct Awaited {
    pub(super) peer: Rank,
    pub(super) operation: Operation,
    pub(super) tag: Tag,
}

impl Awaited {
    /// What `rank` is told when the peer has left.
    fn in_vain(self, rank: Rank) -> CommError {
        let Self { peer, operation, tag } = self;
        CommError::PeerEnded { rank, peer, operation, tag }
    }
}

/// The shared state of one run.
pub(super) struct World {
    timeout: Duration,
    members: Vec<Member>,
    has_ended: AtomicBool,
    cause: Mutex<Option<Cause>>,
}

impl World {
    pub(super) fn new(size: u32, timeout: Duration) -> Self {
        let members = (0..size).map(|_| Member::default()).collect();
        Self { timeout, members, has_ended: AtomicBool::new(false), cause: Mutex::default() }
    }

    fn member(&self, rank: Rank) -> &Member {
        &self.members[rank.index()]
    }

    pub(super) fn mailbox(&self, rank: Rank) -> &Mailbox {
        self.member(rank).mailbox()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// One more unit of `rank`'s work is done.
    pub(super) fn count(&self, rank: Rank) {
        self.member(rank).count();
    }

    /// Lets `rank` look again at what it waits for.
    pub(super) fn wake(&self, rank: Rank) {
        self.member(rank).ring();
    }

    /// Whether the run was ended before its ranks did.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Ends the run for every rank, unless it has ended; the first cause stays.
    pub(super) fn abort(&self, cause: Cause) {
        {
            let mut first = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
            if first.is_some() {
                return;
            }
            *first = Some(cause);
            self.has_ended.store(true, Ordering::Release);
        }
        self.members.iter().for_each(Member::ring);
    }

    /// What ended the run.
    pub(super) fn cause(&self) -> Option<Cause> {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An error once the run was ended.
    pub(super) fn check(&self) -> Result<(), CommError> {
        if !self.has_ended() {
            return Ok(());
        }
        self.cause().map_or(Ok(()), |cause| Err(cause.to_error()))
    }

    /// `rank` has returned a result; whoever waits for it now waits in vain.
    pub(super) fn leave(&self, rank: Rank) {
        self.member(rank).leave();
        let waits = |member: &&Member| member.standing().waiting_for == Some(rank);
        self.members.iter().filter(waits).for_each(Member::ring);
    }

    /// Whether `rank` has returned a result.
    pub(super) fn has_left(&self, rank: Rank) -> bool {
        self.member(rank).has_left()
    }

    /// Whether `ready` holds now, on behalf of `rank`'s thread.
    pub(super) fn test(
        &self,
        rank: Rank,
        awaited: Awaited,
        ready: impl Fn() -> bool,
    ) -> Result<bool, CommError> {
        self.check()?;
        // Read before `ready`: what the peer did before it left is seen.
        let has_left = self.has_left(awaited.peer);
        match (ready(), has_left) {
            (true, _) => Ok(true),
            (false, false) => Ok(false),
            (false, true) => Err(awaited.in_vain(rank)),
        }
    }

    /// Waits on behalf of `rank`'s thread until `ready` gives something.
    pub(super) fn wait<T>(
        &self,
        rank: Rank,
        awaited: Awaited,
        ready: impl Fn() -> Option<T>,
    ) -> Result<T, CommError> {
        self.check()?;
        if let Some(value) = ready() {
            self.count(rank);
            return Ok(value);
        }
        let peer = awaited.peer;
        if peer == rank {
            return Err(CommError::Deadlock { ranks: vec![rank] });
        }
        let member = self.member(rank);
        let _waiting = member.publish_wait(peer);
        let mut deadline = Deadline::new(self.timeout);
        let mut looked = Instant::now();
        loop {
            let bell = member.hold_bell();
            self.check()?;
            // Read before `ready`: what the peer did before it left is seen.
            let has_left = self.has_left(peer);
            if let Some(value) = ready() {
                return Ok(value);
            }
            if has_left {
                return Err(awaited.in_vain(rank));
            }
            let period = deadline.period();
            member.listen(bell, period);
            if looked.elapsed() >= period {
                self.blame(rank, deadline.look(looked.elapsed(), peer, self));
                looked = Instant::now();
            }
        }
    }

    /// Ends the run if somebody is to blame for `waiting`'s wait.
    pub(super) fn blame(&self, waiting: Rank, blame: Option<Blame>) {
        let error = match blame {
            None => return,
            Some(Blame::Deadlock(ranks)) => CommError::Deadlock { ranks },
            Some(Blame::Stuck(culprit)) => {
                CommError::TimedOut { waiting, culprit, timeout: self.timeout }
            }
        };
        self.abort(Cause::World(error));
    }
}

impl Observe for World {
    fn size(&self) -> u32 {
        self.members.len() as u32
    }

    fn standing(&self, rank: Rank) -> Standing {
        self.member(rank).standing()
    }
}

impl Stoppable for World {
    fn stop(&self, reason: &str) {
        self.abort(Cause::World(CommError::Stopped { reason: reason.to_owned() }));
    }
}
