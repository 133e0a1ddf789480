//! This process as one rank of an MPI job: from its start to one of its two ends.

use crate::host;
use ringattn_comm::mpi::{MpiCommunicator, Options, StartError, World};
use ringattn_comm::{CommError, RunError, StopSignal};
use ringattn_core::Rank;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long ranks may differ in what they do by themselves, such as loading a model: it has no
/// progress counter. A process that dies is noticed at once all the same.
const ALONE: Duration = Duration::from_secs(3600);

/// A rank of a job; a clone is a second handle.
///
/// After success, every rank calls [`Job::finish`]; after a failure, the rank that
/// [`speaks`](Job::speaks) tells the user, and every rank calls [`Job::abort`].
#[derive(Clone)]
pub struct Job(Arc<Shared>);

struct Shared {
    rank: Rank,
    hosts: Vec<String>,
    /// `None` once the job has ended.
    world: Mutex<Option<World>>,
}

impl Job {
    /// Starts MPI, once per process, and waits until all ranks have.
    ///
    /// # Errors
    /// When MPI does not start, or the ranks run different versions.
    pub fn start(options: Options) -> Result<Self, StartError> {
        let world = World::init(options, &host::name())?;
        let (rank, hosts) = (world.rank(), world.hosts().to_vec());
        Ok(Self(Arc::new(Shared { rank, hosts, world: Mutex::new(Some(world)) })))
    }

    /// This process's rank.
    pub fn rank(&self) -> Rank {
        self.0.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.0.hosts.len() as u32
    }

    /// The machine that `rank` is on.
    pub fn host(&self, rank: Rank) -> &str {
        self.0.hosts.get(rank.index()).map_or("", String::as_str)
    }

    /// Ranks on the machine of this process.
    pub(crate) fn ranks_here(&self) -> usize {
        let own = self.host(self.rank());
        self.0.hosts.iter().filter(|host| *host == own).count()
    }

    /// Whether this is the rank that has the results.
    pub fn is_root(&self) -> bool {
        self.rank() == Rank(0)
    }

    /// Whether this rank tells the user how the job failed.
    pub fn speaks(&self) -> bool {
        self.lock().as_ref().is_some_and(|world| world.speaker() == self.rank())
    }

    /// Does what every rank does by itself, such as reading inputs. No rank gets a result before all
    /// have one, and the first failure is everybody's.
    ///
    /// # Errors
    /// The first failure; the rank that failed gets its own error.
    pub fn together<T, E: fmt::Display>(
        &self,
        stop: &StopSignal,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        self.run(ALONE, stop, |_| work())
    }

    pub(crate) fn run<T, E: fmt::Display>(
        &self,
        timeout: Duration,
        stop: &StopSignal,
        rank_main: impl FnOnce(MpiCommunicator) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        match &mut *self.lock() {
            Some(world) => world.run(timeout, stop, rank_main),
            None => Err(RunError::World(self.has_ended())),
        }
    }

    /// Ends MPI after success, once every rank does the same.
    ///
    /// # Errors
    /// When another rank has failed since the last run.
    pub fn finish(&self) -> Result<(), CommError> {
        self.lock().as_mut().map_or_else(|| Err(self.has_ended()), World::finalize)
    }

    /// Ends this process, and the job with it, after a failure.
    pub fn abort(&self, code: u8) -> ! {
        match self.lock().take() {
            Some(world) => world.abort(code),
            None => std::process::exit(i32::from(code)),
        }
    }

    fn has_ended(&self) -> CommError {
        CommError::Transport { rank: self.rank(), reason: "the job has ended".to_owned() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<World>> {
        self.0.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job(rank {} of {})", self.rank(), self.size())
    }
}
