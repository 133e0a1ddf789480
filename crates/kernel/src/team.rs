//! The threads of one rank, and where they run.
//!
//! Items of work are taken from one queue in the order given, so that a caller who lists the largest
//! first leaves little to wait for at the end. Which thread takes which item is left to chance, and no
//! result may depend on it. Knows nothing of the work.

use crate::clock::BusyTime;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Where the threads of a team run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    /// Wherever the system puts them.
    #[default]
    Free,
    /// Each on a processor of its own, the first thread on the `first`-th of those that the process
    /// may use, counted round. Memory that a thread touches first then stays near it.
    From {
        /// The first thread's place.
        first: usize,
    },
}

/// Threads that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TeamError {
    /// Nobody to do the work.
    #[error("at least one thread is needed")]
    NoThreads,
    /// The system gives no such threads.
    #[error("cannot start {threads} threads: {reason}")]
    Start {
        /// How many were asked for.
        threads: usize,
        /// Why not.
        reason: String,
    },
    /// The system does not bind a thread to a processor.
    #[error("cannot pin threads to processors: {reason}")]
    Pin {
        /// Why not.
        reason: String,
    },
}

/// How long a caller who has finished watches for the other threads before it lets itself be woken:
/// the few items of a decode step take less than a sleep.
const WATCH: Duration = Duration::from_micros(50);

/// How long the other threads stay awake after their last item. Between the items of a decode step pass
/// some ten microseconds, and a thread that sleeps takes as long again to wake.
const LINGER: Duration = Duration::from_micros(200);

/// Threads that share out work: the caller's and those of a pool.
pub struct Team {
    threads: usize,
    /// The threads beside the caller's; `None`: there are none.
    pool: Option<ThreadPool>,
    /// Calls of [`Team::each`] so far: tells threads that stay awake to look for work.
    calls: Arc<AtomicUsize>,
}

impl Team {
    /// `threads` threads, one of which is whoever calls [`Team::each`]; the caller of this is pinned
    /// like the others.
    ///
    /// # Errors
    /// When `threads` is 0, or when they cannot be started or pinned.
    pub fn new(threads: usize, pinning: Pinning) -> Result<Self, TeamError> {
        let pool = match threads {
            0 => return Err(TeamError::NoThreads),
            1 => None,
            _ => Some(
                ThreadPoolBuilder::new()
                    .num_threads(threads - 1)
                    .thread_name(|index| format!("team-{}", index + 1))
                    .build()
                    .map_err(|error| TeamError::Start { threads, reason: error.to_string() })?,
            ),
        };
        if let Pinning::From { first } = pinning {
            let refusal = |reason| TeamError::Pin { reason };
            affinity::pin(first).map_err(refusal)?;
            if let Some(pool) = &pool {
                let pinned = pool.broadcast(|thread| affinity::pin(first + 1 + thread.index()));
                pinned.into_iter().collect::<Result<(), _>>().map_err(refusal)?;
            }
        }
        Ok(Self { threads, pool, calls: Arc::default() })
    }

    /// How many threads work.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `body` on every item, on all threads, whose processor time for it is added to `busy`. After
    /// an error no further item is begun.
    ///
    /// # Errors
    /// One of those that `body` returned.
    pub fn each<T: Send, E: Send>(
        &self,
        items: Vec<T>,
        busy: &BusyTime,
        body: impl Fn(T) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let Some(pool) = self.pool.as_ref().filter(|_| items.len() > 1) else {
            return busy.measure(|| items.into_iter().try_for_each(body));
        };
        let queue = Mutex::new(items.into_iter());
        let work = || {
            busy.measure(|| {
                while let Some(item) = next(&queue) {
                    if let Err(error) = body(item) {
                        lock(&queue).by_ref().for_each(drop);
                        return Err(error);
                    }
                }
                Ok(())
            })
        };
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let (others, failed) = (AtomicUsize::new(self.threads - 1), Mutex::new(None));
        pool.in_place_scope(|scope| {
            for _ in 1..self.threads {
                scope.spawn(|_| {
                    if let Err(error) = work() {
                        *lock(&failed) = Some(error);
                    }
                    others.fetch_sub(1, Ordering::Release);
                });
            }
            let own = work();
            let start = Instant::now();
            while others.load(Ordering::Acquire) > 0 && start.elapsed() < WATCH {
                std::hint::spin_loop();
            }
            own
        })?;
        let calls = Arc::clone(&self.calls);
        pool.spawn_broadcast(move |_| linger(&calls, call));
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// Stays awake until there is another call, for [`LINGER`] at most; whoever needs the processor has it.
fn linger(calls: &AtomicUsize, last: usize) {
    let start = Instant::now();
    while calls.load(Ordering::Relaxed) == last && start.elapsed() < LINGER {
        std::thread::yield_now();
    }
}

// A panic in `body` cannot leave the queue half changed: it is locked only to take from it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn next<T>(queue: &Mutex<std::vec::IntoIter<T>>) -> Option<T> {
    lock(queue).next()
}

#[cfg(target_os = "linux")]
mod affinity {
    use rustix::io::Errno;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use std::sync::OnceLock;

    /// The processors that the process may use, as the first thread found that was to be bound: a thread
    /// that is bound sees its own alone, and so do those that it starts.
    static ALLOWED: OnceLock<Result<CpuSet, Errno>> = OnceLock::new();

    /// Binds the calling thread to the `place`-th processor that the process may use.
    pub(super) fn pin(place: usize) -> Result<(), String> {
        let allowed = ALLOWED.get_or_init(|| sched_getaffinity(None));
        let allowed = allowed.as_ref().map_err(ToString::to_string)?;
        let processors = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
        let count = allowed.count() as usize;
        let Some(processor) = processors.clone().nth(place % count.max(1)) else {
            return Err("the process may use no processor".into());
        };
        let mut own = CpuSet::new();
        own.set(processor);
        sched_setaffinity(None, &own).map_err(|error| error.to_string())
    }
}

#[cfg(not(target_os = "linux"))]
mod affinity {
    /// Other systems offer no binding to one processor.
    pub(super) fn pin(_: usize) -> Result<(), String> {
        Err("threads can be pinned to processors on Linux only".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_done_once_whatever_the_team() {
        for threads in 1..=5 {
            for pinning in [Pinning::Free, Pinning::From { first: threads }] {
                let team = Team::new(threads, pinning).unwrap();
                for items in [0, 1, 2, 100] {
                    let done: Vec<_> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                    let body = |item: usize| {
                        done[item].fetch_add(1, Ordering::Relaxed);
                        Ok::<_, ()>(())
                    };
                    team.each((0..items).collect(), &BusyTime::default(), body).unwrap();
                    assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn an_error_ends_the_rest() {
        for threads in [1, 2, 4] {
            let team = Team::new(threads, Pinning::Free).unwrap();
            let done = AtomicUsize::new(0);
            let body = |item| {
                done.fetch_add(1, Ordering::Relaxed);
                if item == 3 { Err(item) } else { Ok(()) }
            };
            let items = (0..1000).map(|item| item % 4).collect();
            assert_eq!(team.each(items, &BusyTime::default(), body), Err(3));
            assert!(done.into_inner() < 1000);
        }
    }

    #[test]
    fn no_threads_is_no_team() {
        assert_eq!(Team::new(0, Pinning::Free).err(), Some(TeamError::NoThreads));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pinned_thread_can_lead_a_team_on_other_processors() {
        let processors = |team: &Team| {
            let pool = team.pool.as_ref().unwrap();
            let mine = |_: rayon::BroadcastContext<'_>| {
                let allowed = rustix::thread::sched_getaffinity(None).unwrap();
                (0..rustix::thread::CpuSet::MAX_CPU).find(|&processor| allowed.is_set(processor))
            };
            pool.broadcast(mine)
        };
        let all = Team::new(3, Pinning::From { first: 0 }).unwrap();
        let _alone = Team::new(1, Pinning::From { first: 0 }).unwrap();
        let again = Team::new(3, Pinning::From { first: 0 }).unwrap();
        assert_eq!(processors(&all), processors(&again));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pinned_threads_run_on_one_processor_each() {
        let team = Team::new(3, Pinning::From { first: 1 }).unwrap();
        let widths = Mutex::new(Vec::new());
        let body = |()| {
            let allowed = rustix::thread::sched_getaffinity(None).unwrap();
            widths.lock().unwrap().push(allowed.count());
            Ok::<_, ()>(())
        };
        team.each(vec![(); 20], &BusyTime::default(), body).unwrap();
        assert_eq!(widths.into_inner().unwrap(), [1; 20]);
    }
}
