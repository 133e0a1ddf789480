//! The cores that a rank computes on: instruction set, threads, and where these run.

use ringattn_core::Rank;
use ringattn_kernel::{Isa, KernelError, Pinning, Team};
use std::sync::Arc;

/// The cores that every rank of a process gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The instruction set.
    pub isa: Isa,
    /// Threads of each rank.
    pub threads: usize,
    /// Whether threads stay on one processor each.
    pub affinity: Affinity,
}

/// Whether the threads of all ranks stay on one processor each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// The system moves them as it likes.
    #[default]
    Free,
    /// Rank by rank, thread by thread, on the processors that the process may use.
    Pinned,
}

impl Device {
    /// The threads of `rank`.
    ///
    /// # Errors
    /// When they cannot be started or pinned.
    pub fn team(&self, rank: Rank) -> Result<Arc<Team>, KernelError> {
        Ok(Arc::new(Team::new(self.threads, self.pinning(rank.index() * self.threads))?))
    }

    /// So many threads for what rank 0 does while the others wait, on the processors of all.
    ///
    /// # Errors
    /// When they cannot be started or pinned.
    pub fn process_team(&self, threads: usize) -> Result<Arc<Team>, KernelError> {
        Ok(Arc::new(Team::new(threads, self.pinning(0))?))
    }

    fn pinning(&self, first: usize) -> Pinning {
        match self.affinity {
            Affinity::Free => Pinning::Free,
            Affinity::Pinned => Pinning::From { first },
        }
    }
}
