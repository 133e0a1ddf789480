//! Many messages at once: which receive gets which.

use super::{Block, SuiteError, after, before, equal};
use crate::{Communicator, ReceiveRequest, SendRequest, Tag};
use ringattn_core::Rank;

const FLIGHT: u32 = 32;

/// Messages of one source and tag arrive in the order sent.
pub(super) fn many_in_flight<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    let sends = (0..FLIGHT)
        .map(|i| comm.immediate_send(Block::signed(comm.rank(), i), after(comm, 1), Tag(0)))
        .collect::<Result<Vec<_>, _>>()?;
    let receives = (0..FLIGHT)
        .map(|_| comm.immediate_receive::<Block>(before(comm, 1), Tag(0)))
        .collect::<Result<Vec<_>, _>>()?;
    for (i, receive) in (0..).zip(receives) {
        equal(comm, "block in flight", receive.wait()?, Block::signed(before(comm, 1), i))?;
    }
    Ok(sends.into_iter().try_for_each(SendRequest::wait)?)
}

/// Sent with tags 1, 2; received with tags 2, 1.
pub(super) fn tags_do_not_mix<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    let (to, from) = (after(comm, 1), before(comm, 1));
    let one = comm.immediate_send(Block::signed(comm.rank(), 1), to, Tag(1))?;
    let two = comm.immediate_send(Block::signed(comm.rank(), 2), to, Tag(2))?;
    for tag in [2, 1] {
        let block = comm.immediate_receive::<Block>(from, Tag(tag))?.wait()?;
        equal(comm, "block of a tag", block, Block::signed(from, tag))?;
    }
    one.wait()?;
    Ok(two.wait()?)
}

/// Every rank sends to every rank; each receives from all in descending order.
pub(super) fn sources_do_not_mix<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    let sends = (0..comm.size())
        .map(|to| comm.immediate_send(Block::signed(comm.rank(), to), Rank(to), Tag(4)))
        .collect::<Result<Vec<_>, _>>()?;
    for from in (0..comm.size()).rev().map(Rank) {
        let block = comm.immediate_receive::<Block>(from, Tag(4))?.wait()?;
        equal(comm, "block of a source", block, Block::signed(from, comm.rank().0))?;
    }
    Ok(sends.into_iter().try_for_each(SendRequest::wait)?)
}

/// Requests are waited for from the last to the first.
pub(super) fn waits_in_any_order<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    let (to, from) = (after(comm, 1), before(comm, 1));
    let receives = (0..FLIGHT)
        .map(|i| comm.immediate_receive::<Block>(from, Tag(i % 2)))
        .collect::<Result<Vec<_>, _>>()?;
    let sends = (0..FLIGHT)
        .map(|i| comm.immediate_send(Block::signed(comm.rank(), i), to, Tag(i % 2)))
        .collect::<Result<Vec<_>, _>>()?;
    sends.into_iter().rev().try_for_each(SendRequest::wait)?;
    for (i, receive) in (0..FLIGHT).zip(receives).rev() {
        equal(comm, "block waited for late", receive.wait()?, Block::signed(from, i))?;
    }
    Ok(())
}

/// All messages are on their way before any receive is posted.
pub(super) fn send_before_receive<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    let send = comm.immediate_send(Block::signed(comm.rank(), 5), after(comm, 1), Tag(5))?;
    comm.barrier()?;
    let block = comm.immediate_receive::<Block>(before(comm, 1), Tag(5))?.wait()?;
    equal(comm, "block sent early", block, Block::signed(before(comm, 1), 5))?;
    Ok(send.wait()?)
}

/// All receives are posted before any message is sent.
pub(super) fn receive_before_send<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    let mut receive = comm.immediate_receive::<Block>(before(comm, 1), Tag(6))?;
    equal(comm, "receive complete before the send", receive.test()?, false)?;
    comm.barrier()?;
    let send = comm.immediate_send(Block::signed(comm.rank(), 6), after(comm, 1), Tag(6))?;
    send.wait()?;
    equal(comm, "block received early", receive.wait()?, Block::signed(before(comm, 1), 6))
}

/// A receive that is given up before its message was sent leaves it to the next.
pub(super) fn a_dropped_receive_takes_nothing<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    drop(comm.immediate_receive::<Block>(before(comm, 1), Tag(7))?);
    comm.barrier()?;
    let send = comm.immediate_send(Block::signed(comm.rank(), 7), after(comm, 1), Tag(7))?;
    let block = comm.immediate_receive::<Block>(before(comm, 1), Tag(7))?.wait()?;
    send.wait()?;
    equal(comm, "block after a dropped receive", block, Block::signed(before(comm, 1), 7))
}
