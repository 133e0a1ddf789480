//! Starts the ranks of a local run, watches over them, joins them and says how the run ended. Knows
//! no message.

use super::LocalCommunicator;
use super::mailbox::Mailbox;
use super::outcome::conclude;
use super::running::Running;
use crate::deadline::{Deadline, Observe};
use crate::stop::Stoppable;
use crate::world::{Cause, Outcome, World, run_rank};
use crate::{CommError, RunError, StopSignal};
use ringattn_core::Rank;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The most ranks that a local run has.
pub const MAX_RANKS: u32 = 1024;

/// How long a rank may stand still while others wait for it, unless said otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The stack of a rank's thread in bytes; pages that are never touched cost nothing.
const STACK: usize = 2 << 20;

/// Runs `rank_main` on `size` ranks and collects what they return, in rank order.
///
/// Short for [`Launch`] without further wishes.
///
/// # Errors
/// As for [`Launch::run`].
pub fn run<T, E, F>(size: u32, timeout: Duration, rank_main: F) -> Result<Vec<T>, RunError<E>>
where
    T: Send,
    E: fmt::Display + Send,
    F: Fn(LocalCommunicator) -> Result<T, E> + Sync,
{
    Launch::new(size).timeout(timeout).run(rank_main)
}

/// What to do about ranks that do not end.
type StuckHook<'a> = Box<dyn Fn(&CommError, &[Rank]) + 'a>;

/// How a local run is started.
pub struct Launch<'a> {
    size: u32,
    timeout: Duration,
    stop: Option<StopSignal>,
    stuck: Option<(Duration, StuckHook<'a>)>,
}

impl<'a> Launch<'a> {
    /// A run of `size` ranks with [`DEFAULT_TIMEOUT`].
    pub fn new(size: u32) -> Self {
        Self { size, timeout: DEFAULT_TIMEOUT, stop: None, stuck: None }
    }

    /// How long a rank may stand still while others wait for it.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Lets `signal` end the run.
    #[must_use]
    pub fn stop_signal(self, signal: &StopSignal) -> Self {
        Self { stop: Some(signal.clone()), ..self }
    }

    /// Calls `hook` once, on the calling thread, when ranks still run `grace` after the run was
    /// ended, with the cause and these ranks.
    ///
    /// A thread cannot be ended from outside, so a run with a rank that never returns does not
    /// return either. A program that has nothing more to lose reports the cause here and exits.
    #[must_use]
    pub fn on_stuck(self, grace: Duration, hook: impl Fn(&CommError, &[Rank]) + 'a) -> Self {
        Self { stuck: Some((grace, Box::new(hook))), ..self }
    }

    /// Runs `rank_main` on one thread per rank, named "rank 3", and collects what they return, in
    /// rank order.
    ///
    /// A rank that returns an error or panics ends the run: every wait of the others fails at once,
    /// their compute at the next `advance`. Ranks that have returned count as waiting for the rest.
    ///
    /// # Errors
    /// The first failure of the run, with the rank to blame; what followed from it is dropped.
    pub fn run<T, E, F>(&self, rank_main: F) -> Result<Vec<T>, RunError<E>>
    where
        T: Send,
        E: fmt::Display + Send,
        F: Fn(LocalCommunicator) -> Result<T, E> + Sync,
    {
        if self.size == 0 || self.size > MAX_RANKS {
            return Err(RunError::Ranks { requested: self.size, limit: MAX_RANKS });
        }
        let world = Arc::new(World::new(self.size, self.timeout));
        if let Some(signal) = &self.stop {
            let world: Arc<dyn Stoppable> = Arc::clone(&world) as _;
            signal.attach(Arc::downgrade(&world));
        }
        let running = Running::new(self.size);
        let mailboxes: Arc<[Mailbox]> = (0..self.size).map(|_| Mailbox::default()).collect();
        let (outcomes, failed_start) = thread::scope(|scope| {
            let start = |rank: Rank| {
                let (world, running, rank_main) = (&world, &running, &rank_main);
                let mailboxes = Arc::clone(&mailboxes);
                let name = format!("rank {rank}");
                thread::Builder::new().name(name).stack_size(STACK).spawn_scoped(scope, move || {
                    let _leaving = running.enter(rank);
                    run_rank(world, rank, || {
                        rank_main(LocalCommunicator::new(Arc::clone(world), mailboxes, rank))
                    })
                })
            };
            let mut handles = Vec::with_capacity(self.size as usize);
            let mut failed_start = None;
            for rank in (0..self.size).map(Rank) {
                match start(rank) {
                    Ok(handle) => handles.push(handle),
                    Err(source) => {
                        running.forget_from(rank);
                        world.abort(Cause::NotStarted { culprit: rank });
                        failed_start = Some(RunError::Start { rank, source });
                        break;
                    }
                }
            }
            self.watch(&world, &running);
            let join = |handle: ScopedJoinHandle<'_, _>| handle.join().unwrap_or(Outcome::Panicked);
            (handles.into_iter().map(join).collect(), failed_start)
        });
        match (world.cause(), failed_start) {
            (Some(Cause::NotStarted { .. }), Some(error)) => Err(error),
            (cause, _) => conclude(cause, outcomes, self.size),
        }
    }

    /// Waits until all ranks have returned, under the same deadline as the ranks' own waits once a
    /// rank has left its result.
    fn watch(&self, world: &World, running: &Running) {
        let mut deadline = Deadline::new(world.timeout());
        let mut looked = Instant::now();
        let mut ended: Option<Instant> = None;
        let mut hook = self.stuck.as_ref();
        loop {
            let ranks = running.wait(deadline.period());
            let Some(&first) = ranks.first() else { return };
            if let Some(cause) = world.check().err() {
                let since = *ended.get_or_insert_with(Instant::now);
                if let Some((_, report)) = hook.take_if(|(grace, _)| since.elapsed() >= *grace) {
                    report(&cause, &ranks);
                }
            } else if let Some(waiting) = (0..world.size()).map(Rank).find(|&r| world.has_left(r))
                && looked.elapsed() >= deadline.period()
            {
                world.blame(waiting, deadline.look(looked.elapsed(), first, world));
                looked = Instant::now();
            }
        }
    }
}
