//! Starting the ranks of a run where its engine has them, and bringing what they found together.

use crate::engines::Engine;
use crate::error::Error;
use crate::options::RunOptions;
use ringattn_comm::local::Launch;
use ringattn_comm::{CommError, Communicator, ReceiveRequest, RunError, SendRequest, Tag};
use ringattn_core::{Message, OutOfMemory, Rank};
use std::fmt;
use std::time::Duration;
use thiserror::Error;

/// How long ranks may take to end once the run has failed.
const GRACE: Duration = Duration::from_secs(5);

/// What every rank of a run does.
pub(crate) trait Task: Sync {
    /// What a rank brings home.
    type Shard: Message;
    /// Why a rank fails.
    type Error: fmt::Display + Send;

    /// The work of one rank.
    fn run<C: Communicator>(&self, comm: &C) -> Result<Self::Shard, Self::Error>;
}

/// What the ranks of this process found.
pub(crate) enum Shards<S> {
    /// All ranks, in order: they are threads of this process.
    All(Vec<S>),
    /// One rank, whose peers are other processes.
    Own(S),
}

/// Whether this process has what all ranks found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    Here,
    AtRoot,
}

/// Why shards could not be brought together.
#[derive(Debug, Error)]
pub enum CollectError {
    /// A message did not come.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// No memory for the whole.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Runs `task` on every rank of `options`.
pub(crate) fn launch<T: Task>(
    options: &RunOptions,
    task: &T,
) -> Result<Shards<T::Shard>, RunError<T::Error>> {
    match &options.engine {
        Engine::Local => {
            let run = |comm| task.run(&comm);
            let launch =
                Launch::new(options.ranks).timeout(options.timeout).stop_signal(&options.stop);
            let shards = match &options.on_stuck {
                Some(hook) => launch.on_stuck(GRACE, |cause, ranks| hook(cause, ranks)).run(run),
                None => launch.run(run),
            };
            shards.map(Shards::All)
        }
        Engine::Mpi(job) => {
            job.run(options.timeout, &options.stop, |comm| task.run(&comm)).map(Shards::Own)
        }
    }
}

/// Gives the shards of all ranks to `take`, in order, in the process that has the results: with MPI
/// that of rank 0, where they arrive one by one.
pub(crate) fn collect<S: Message>(
    options: &RunOptions,
    shards: Shards<S>,
    mut take: impl FnMut(Rank, S) -> Result<(), OutOfMemory>,
) -> Result<Collected, Error> {
    match shards {
        Shards::All(shards) => {
            for (rank, shard) in (0..).map(Rank).zip(shards) {
                take(rank, shard)?;
            }
            Ok(Collected::Here)
        }
        Shards::Own(shard) => match &options.engine {
            Engine::Mpi(job) => {
                Ok(job
                    .run(options.timeout, &options.stop, |comm| to_root(&comm, shard, &mut take))?)
            }
            // No shard of one rank comes from here.
            Engine::Local => Ok(Collected::AtRoot),
        },
    }
}

/// Where they go.
const ROOT: Rank = Rank(0);
/// The tag of shards on their way home.
const SHARDS: Tag = Tag(2);

fn to_root<C: Communicator, S: Message>(
    comm: &C,
    shard: S,
    take: &mut impl FnMut(Rank, S) -> Result<(), OutOfMemory>,
) -> Result<Collected, CollectError> {
    if comm.rank() != ROOT {
        comm.immediate_send(shard, ROOT, SHARDS)?.wait()?;
        return Ok(Collected::AtRoot);
    }
    take(ROOT, shard)?;
    for rank in (1..comm.size()).map(Rank) {
        take(rank, comm.immediate_receive::<S>(rank, SHARDS)?.wait()?)?;
    }
    Ok(Collected::Here)
}
