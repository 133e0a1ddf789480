//! Where the ranks of a run are: threads of this process, or processes of an MPI job.

use crate::error::Error;
use crate::host;
use crate::job::Job;
use ringattn_comm::{CommError, RunError, StopSignal};
use ringattn_core::Rank;
use std::fmt;

/// Where ranks are.
#[derive(Clone, Debug, Default)]
pub enum Engine {
    /// Threads of this process.
    #[default]
    Local,
    /// Processes of a job, of which this is one. Needs the feature `mpi`.
    Mpi(Job),
}

impl Engine {
    /// Does what every process does by itself before or between runs, such as reading inputs. In a job,
    /// none gets a result before all have one, and the first failure is everybody's.
    ///
    /// # Errors
    /// What `work` returns, or that another process failed.
    pub fn together<T, E: fmt::Display + From<Error>>(
        &self,
        stop: &StopSignal,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        match self {
            Self::Local => work(),
            Self::Mpi(job) => job.together(stop, work).map_err(|error| match error {
                RunError::Rank { error, .. } => error,
                RunError::World(error) => Error::Peer(error).into(),
                RunError::Panicked { culprit, message } => {
                    let reason = format!("panic: {message}");
                    Error::Peer(CommError::Aborted { culprit, reason }).into()
                }
                other => Error::Peer(CommError::Stopped { reason: other.to_string() }).into(),
            }),
        }
    }

    /// Whether this process has the results.
    pub fn is_root(&self) -> bool {
        match self {
            Self::Local => true,
            Self::Mpi(job) => job.is_root(),
        }
    }

    /// Ranks that the machine of this process shares its cores among, of `ranks` in all.
    pub(crate) fn ranks_here(&self, ranks: u32) -> usize {
        match self {
            Self::Local => ranks as usize,
            Self::Mpi(job) => job.ranks_here(),
        }
    }

    /// Ranks whose memory is that of this process.
    pub(crate) fn ranks_in_process(&self, ranks: u32) -> u32 {
        match self {
            Self::Local => ranks,
            Self::Mpi(_) => 1,
        }
    }

    /// The number of ranks, where it is not to be chosen.
    pub(crate) fn size(&self) -> Option<u32> {
        match self {
            Self::Local => None,
            Self::Mpi(job) => Some(job.size()),
        }
    }

    /// The machine that `rank` is on.
    pub(crate) fn host(&self, rank: Rank) -> String {
        match self {
            Self::Local => host::name(),
            Self::Mpi(job) => job.host(rank).to_owned(),
        }
        // A local rank is where this process is.
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Mpi(_) => "mpi",
        })
    }
}
