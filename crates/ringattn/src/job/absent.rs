//! The rank of an MPI job in a build without MPI: there is none.

use ringattn_comm::local::LocalCommunicator;
use ringattn_comm::{CommError, RunError, StopSignal};
use ringattn_core::Rank;
use std::fmt;
use std::time::Duration;

/// A rank of a job, which only a build with the feature `mpi` can be.
#[derive(Clone, Debug)]
pub enum Job {}

impl Job {
    /// This process's rank.
    pub fn rank(&self) -> Rank {
        match *self {}
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        match *self {}
    }

    /// The machine that a rank is on.
    pub fn host(&self, _: Rank) -> &str {
        match *self {}
    }

    pub(crate) fn ranks_here(&self) -> usize {
        match *self {}
    }

    /// Whether this is the rank that has the results.
    pub fn is_root(&self) -> bool {
        match *self {}
    }

    /// Whether this rank tells the user how the job failed.
    pub fn speaks(&self) -> bool {
        match *self {}
    }

    /// Does what every rank does by itself.
    ///
    /// # Errors
    /// Never: there is no job.
    pub fn together<T, E: fmt::Display>(
        &self,
        _: &StopSignal,
        _: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        match *self {}
    }

    pub(crate) fn run<T, E: fmt::Display>(
        &self,
        _: Duration,
        _: &StopSignal,
        _: impl FnOnce(LocalCommunicator) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        match *self {}
    }

    /// Ends MPI after success.
    ///
    /// # Errors
    /// Never: there is no job.
    pub fn finish(&self) -> Result<(), CommError> {
        match *self {}
    }

    /// Ends this process, and the job with it, after a failure.
    pub fn abort(&self, _: u8) -> ! {
        match *self {}
    }
}
