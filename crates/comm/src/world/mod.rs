//! How the ranks of one run stand, as one process sees them, and the cause that ended the run. Knows
//! no transport, no message and no threads' lives.
//!
//! In a local run all ranks write into one `World`. Between processes each has its own, in which the
//! transport writes what it hears of the others.

mod member;
mod outcome;

#[cfg(feature = "mpi")]
pub(crate) use outcome::panic_message;
pub(crate) use outcome::{Outcome, run_rank};

use crate::deadline::{Blame, Deadline, Observe, Standing};
use crate::stop::Stoppable;
use crate::{CommError, Operation, Tag};
use member::Member;
use ringattn_core::{Interrupted, Progress, Rank};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a rank looks again and again, letting other threads go first, before it sleeps: the steps of a
/// decoded token follow each other faster than threads wake up (four ranks decode 1.1 times as fast).
const WATCH: Duration = Duration::from_micros(100);

/// What ended a run before its ranks did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
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
    pub(crate) fn to_error(&self) -> CommError {
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
pub(crate) struct Awaited {
    pub(crate) peer: Rank,
    pub(crate) operation: Operation,
    pub(crate) tag: Tag,
}

impl Awaited {
    /// What `rank` is told when the peer has left.
    fn in_vain(self, rank: Rank) -> CommError {
        let Self { peer, operation, tag } = self;
        CommError::PeerEnded { rank, peer, operation, tag }
    }
}

/// What a look at an awaited message found.
pub(crate) enum Look<T> {
    /// What was waited for.
    Ready(T),
    /// The message is under way and comes even if its sender has left. Between threads it never is.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code))]
    UnderWay,
    /// Nothing yet.
    Nothing,
}

impl<T> From<Option<T>> for Look<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or(Self::Nothing, Self::Ready)
    }
}

/// The shared state of one run.
pub(crate) struct World {
    timeout: Duration,
    members: Vec<Member>,
    has_ended: AtomicBool,
    cause: Mutex<Option<Cause>>,
}

impl World {
    pub(crate) fn new(size: u32, timeout: Duration) -> Self {
        let members = (0..size).map(|_| Member::default()).collect();
        Self { timeout, members, has_ended: AtomicBool::new(false), cause: Mutex::default() }
    }

    fn member(&self, rank: Rank) -> &Member {
        &self.members[rank.index()]
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// One more unit of `rank`'s work is done.
    pub(crate) fn count(&self, rank: Rank) {
        self.member(rank).count();
    }

    /// Lets `rank` look again at what it waits for.
    pub(crate) fn wake(&self, rank: Rank) {
        self.member(rank).ring();
    }

    /// Whether the run was ended before its ranks did.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Ends the run for every rank, unless it has ended; the first cause stays.
    pub(crate) fn abort(&self, cause: Cause) {
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
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An error once the run was ended.
    pub(crate) fn check(&self) -> Result<(), CommError> {
        if !self.has_ended() {
            return Ok(());
        }
        self.cause().map_or(Ok(()), |cause| Err(cause.to_error()))
    }

    /// How `rank`, in another process, stood when it last said so.
    #[cfg(feature = "mpi")]
    pub(crate) fn hear(&self, rank: Rank, standing: Standing) {
        self.member(rank).hear(standing);
    }

    /// `rank` has returned a result; whoever waits for it now waits in vain.
    pub(crate) fn leave(&self, rank: Rank) {
        self.member(rank).leave();
        let waits = |member: &&Member| member.standing().waiting_for == Some(rank);
        self.members.iter().filter(waits).for_each(Member::ring);
    }

    /// Whether `rank` has returned a result.
    pub(crate) fn has_left(&self, rank: Rank) -> bool {
        self.member(rank).has_left()
    }

    /// Whether `look` finds something now, on behalf of `rank`'s thread.
    pub(crate) fn test(
        &self,
        rank: Rank,
        awaited: Awaited,
        look: impl Fn() -> Look<()>,
    ) -> Result<bool, CommError> {
        self.check()?;
        // Read before `look`: what the peer did before it left is seen.
        let has_left = self.has_left(awaited.peer);
        match (look(), has_left) {
            (Look::Ready(()), _) => Ok(true),
            (Look::Nothing, true) => Err(awaited.in_vain(rank)),
            (Look::UnderWay | Look::Nothing, _) => Ok(false),
        }
    }

    /// Waits on behalf of `rank`'s thread until `look` finds something.
    pub(crate) fn wait<T>(
        &self,
        rank: Rank,
        awaited: Awaited,
        look: impl Fn() -> Look<T>,
    ) -> Result<T, CommError> {
        self.check()?;
        let found = look();
        if let Look::Ready(value) = found {
            self.count(rank);
            return Ok(value);
        }
        let peer = awaited.peer;
        if peer == rank && matches!(found, Look::Nothing) {
            return Err(CommError::Deadlock { ranks: vec![rank] });
        }
        let member = self.member(rank);
        let _waiting = member.publish_wait(peer);
        let mut deadline = Deadline::new(self.timeout);
        let begun = Instant::now();
        let mut looked = begun;
        loop {
            let bell = member.hold_bell();
            self.check()?;
            // Read before `look`: what the peer did before it left is seen.
            let has_left = self.has_left(peer);
            match look() {
                Look::Ready(value) => return Ok(value),
                Look::Nothing if has_left => return Err(awaited.in_vain(rank)),
                Look::UnderWay | Look::Nothing => {}
            }
            if begun.elapsed() < WATCH {
                drop(bell);
                thread::yield_now();
                continue;
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
    pub(crate) fn blame(&self, waiting: Rank, blame: Option<Blame>) {
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

/// The progress counter of one rank.
#[derive(Clone)]
pub struct Watch {
    world: Arc<World>,
    rank: Rank,
}

impl Watch {
    pub(crate) fn new(world: Arc<World>, rank: Rank) -> Self {
        Self { world, rank }
    }
}

impl Progress for Watch {
    fn advance(&self) -> Result<(), Interrupted> {
        self.world.count(self.rank);
        if self.world.has_ended() { Err(Interrupted) } else { Ok(()) }
    }
}
