//! What ranks do in the tests of failures and deadlines.

#![allow(dead_code, unreachable_pub)] // each test file uses a part

use ringattn_comm::local::LocalCommunicator;
use ringattn_comm::suite::Block;
use ringattn_comm::{CommError, Communicator, ReceiveRequest, SendRequest, Tag};
use ringattn_core::{Interrupted, Progress, Rank};
use std::thread::sleep;
use std::time::Duration;
use thiserror::Error;

pub const TAG: Tag = Tag(1);
pub const MS: Duration = Duration::from_millis(1);
/// Well above the 100 ms that an abort may take, for a loaded machine; well below the time-out.
pub const SOON: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum Failure {
    #[error(transparent)]
    Comm(#[from] CommError),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    #[error("the disk is full")]
    DiskFull,
}

pub type Outcome = Result<(), Failure>;
pub type Wait = fn(&LocalCommunicator, u32) -> Outcome;

pub fn receive(comm: &LocalCommunicator, from: u32) -> Outcome {
    comm.immediate_receive::<Block>(Rank(from), TAG)?.wait()?;
    Ok(())
}

pub fn send(comm: &LocalCommunicator, to: u32) -> Outcome {
    Ok(comm.immediate_send(Block::new(vec![0]), Rank(to), TAG)?.wait()?)
}

/// Computes until told to stop.
pub fn compute(comm: &LocalCommunicator) -> Outcome {
    let watch = comm.progress();
    loop {
        sleep(MS);
        watch.advance()?;
    }
}
