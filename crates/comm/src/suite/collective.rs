//! The collective operations, under jitter.

use super::{Block, SuiteError, after, before, equal};
use crate::collective::{broadcast_binomial, broadcast_linear};
use crate::{CommError, Communicator, ReceiveRequest, SendRequest, Tag};
use ringattn_core::Rank;
use std::thread;
use std::time::Duration;

/// Sleeps 0 to 2 ms, differently for each rank and round.
fn jitter<C: Communicator>(comm: &C, round: u32) {
    let mixed = (comm.rank().0 ^ round.rotate_left(16)).wrapping_mul(2_654_435_761);
    thread::sleep(Duration::from_micros(u64::from(mixed >> 21)));
}

/// No rank leaves a barrier before all have come: receives are posted behind it, so no synchronous
/// send may be complete before it.
///
/// # Errors
/// When a rank does.
pub fn barriers<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    // To the rank half way round, the one that the rounds of a barrier reach last.
    let (half, tag) = (comm.size() / 2, Tag(8));
    let (to, from) = (after(comm, half), before(comm, half));
    for round in 0..20 {
        let mut send = comm.immediate_send(Block::signed(comm.rank(), round), to, tag)?;
        jitter(comm, round);
        equal(comm, "a rank is behind a barrier", send.test()?, false)?;
        comm.barrier()?;
        let block = comm.immediate_receive::<Block>(from, tag)?.wait()?;
        equal(comm, "block from behind a barrier", block, Block::signed(from, round))?;
        send.wait()?;
    }
    Ok(())
}

/// The ranks to use as roots: the first, one in the middle, the last.
fn roots<C: Communicator>(comm: &C) -> [Rank; 3] {
    [Rank(0), Rank(comm.size() / 2), Rank(comm.size() - 1)]
}

/// What every rank has signed, in rank order.
fn signed_by_all<C: Communicator>(comm: &C, number: u32) -> Vec<Block> {
    (0..comm.size()).map(|rank| Block::signed(Rank(rank), number)).collect()
}

pub(super) fn gather<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    for (round, root) in (0..).zip(roots(comm)) {
        jitter(comm, round);
        let gathered = comm.gather(Block::signed(comm.rank(), round), root)?;
        let expected = (comm.rank() == root).then(|| signed_by_all(comm, round));
        equal(comm, "gathered blocks", gathered, expected)?;
    }
    Ok(())
}

pub(super) fn broadcast<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    for (round, root) in (0..).zip(roots(comm)) {
        jitter(comm, round);
        let own = (comm.rank() == root).then(|| Block::signed(root, round));
        let block = comm.broadcast(own.clone(), root)?;
        equal(comm, "broadcast block", block, Block::signed(root, round))?;
        // Whichever the communicator takes, both work over its messages.
        for broadcast in [broadcast_binomial, broadcast_linear] {
            let block = broadcast(comm, own.clone(), root)?;
            equal(comm, "broadcast block", block, Block::signed(root, round))?;
        }
    }
    let refused = comm.broadcast::<Block>(None, comm.rank());
    let expected = CommError::NothingToBroadcast { root: comm.rank() };
    equal(comm, "broadcast of nothing", refused, Err(expected))
}

pub(super) fn all_gather<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    for round in 0..2 {
        jitter(comm, round);
        let gathered = comm.all_gather(Block::signed(comm.rank(), round))?;
        equal(comm, "all gathered blocks", gathered, signed_by_all(comm, round))?;
    }
    Ok(())
}
