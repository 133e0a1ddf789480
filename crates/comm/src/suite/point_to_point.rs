//! One message at a time: that it arrives whole, once, synchronously and counted.

use super::block::Word;
use super::{Block, SuiteError, after, before, equal};
use crate::{CommError, Communicator, Counters, ReceiveRequest, SendRequest, Tag};
use ringattn_core::{Message, Progress, Rank};
use std::thread;
use std::time::Duration;

const TAG: Tag = Tag(3);

/// Every rank gets its predecessor's block: one hop round the ring.
///
/// # Errors
/// When it does not.
pub fn ring_shift<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    let own = Block::signed(comm.rank(), 0);
    let block = shift(comm, own)?;
    equal(comm, "shifted block", block, Block::signed(before(comm, 1), 0))
}

/// `p` hops bring every rank its own block back.
pub(super) fn full_ring<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    let watch = comm.progress();
    let mut block = Block::signed(comm.rank(), 0);
    for hop in 1..=comm.size() {
        block = shift(comm, block)?;
        equal(comm, "block after a hop", block.clone(), Block::signed(before(comm, hop), 0))?;
        equal(comm, "progress in a run that goes on", watch.advance(), Ok(()))?;
    }
    Ok(())
}

fn shift<C: Communicator, M: Message>(comm: &C, message: M) -> Result<M, CommError> {
    let receive = comm.immediate_receive::<M>(before(comm, 1), TAG)?;
    let send = comm.immediate_send(message, after(comm, 1), TAG)?;
    let received = receive.wait()?;
    send.wait()?;
    Ok(received)
}

pub(super) fn send_to_self<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    let own = Block::signed(comm.rank(), 9);
    let send = comm.immediate_send(own.clone(), comm.rank(), TAG)?;
    let block = comm.immediate_receive::<Block>(comm.rank(), TAG)?.wait()?;
    send.wait()?;
    equal(comm, "block to self", block, own)
}

/// 16 MiB from the first rank to the last.
pub(super) fn large_message<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    const LEN: usize = 16 << 20;
    let (first, last) = (Rank(0), Rank(comm.size() - 1));
    let send = if comm.rank() == first {
        let bytes = (0..LEN).map(|i| (i % 251) as u8).collect();
        Some(comm.immediate_send(Block::new(bytes), last, TAG)?)
    } else {
        None
    };
    if comm.rank() == last {
        let block = comm.immediate_receive::<Block>(first, TAG)?.wait()?;
        equal(comm, "length of a large block", block.bytes().len(), LEN)?;
        let differing = (0..LEN).find(|&i| block.bytes()[i] != (i % 251) as u8);
        equal(comm, "differing byte of a large block", differing, None)?;
    }
    Ok(send.map_or(Ok(()), SendRequest::wait)?)
}

pub(super) fn messages_without_bytes<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    for _ in 0..3 {
        let block = shift(comm, Block::new(Vec::new()))?;
        equal(comm, "block without bytes", block, Block::new(Vec::new()))?;
    }
    Ok(())
}

/// A send is complete only after its receive was posted, and then soon.
pub(super) fn sends_are_synchronous<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    let own = Block::signed(comm.rank(), 1);
    let mut send = comm.immediate_send(own, after(comm, 1), TAG)?;
    comm.barrier()?;
    for _ in 0..5 {
        equal(comm, "completion before the receive is posted", send.test()?, false)?;
        thread::sleep(Duration::from_millis(1));
    }
    comm.barrier()?;
    let receive = comm.immediate_receive::<Block>(before(comm, 1), TAG)?;
    send.wait()?;
    equal(comm, "synchronous block", receive.wait()?, Block::signed(before(comm, 1), 1))
}

/// Messages and bytes are counted exactly, and collective operations not at all.
///
/// # Errors
/// When they are not.
pub fn traffic_is_counted_exactly<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    let bytes_of = |rank: Rank| 100 + u64::from(rank.0);
    let start = comm.counters();
    for _ in 0..3 {
        shift(comm, Block::new(vec![0; bytes_of(comm.rank()) as usize]))?;
    }
    comm.barrier()?;
    comm.gather(Word(1), Rank(0))?;
    comm.all_gather(Word(1))?;
    comm.broadcast(Some(Word(1)), Rank(0))?;
    let counted = comm.counters().since(&start);
    let expected = Counters {
        sent_messages: 3,
        sent_bytes: 3 * bytes_of(comm.rank()),
        received_messages: 3,
        received_bytes: 3 * bytes_of(before(comm, 1)),
        ..counted
    };
    equal(comm, "counters", counted, expected)?;
    equal(comm, "waits within transfers", counted.transfer_wait <= counted.transfer, true)
}

/// A receive of another kind than was sent fails and names both; the run goes on.
pub(super) fn another_kind_is_refused<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    let from = before(comm, 1);
    let receive = comm.immediate_receive::<Block>(from, TAG)?;
    let send = comm.immediate_send(Word(7), after(comm, 1), TAG)?;
    let refused = receive.wait();
    send.wait()?;
    let expected = CommError::Kind {
        rank: comm.rank(),
        from,
        tag: TAG,
        expected: Block::KIND,
        actual: Word::KIND.to_owned(),
    };
    equal(comm, "receive of another kind", refused, Err(expected))
}

pub(super) fn no_such_peer_or_tag<C: Communicator>(comm: &C) -> Result<(), SuiteError> {
    let (rank, size, peer) = (comm.rank(), comm.size(), Rank(comm.size()));
    let no_rank = Some(CommError::NoSuchRank { rank, peer, size });
    let tag = Tag(Tag::LIMIT.0 + 1);
    let no_tag = Some(CommError::NoSuchTag { tag });
    equal(comm, "send to nobody", comm.immediate_send(Word(0), peer, TAG).err(), no_rank.clone())?;
    equal(
        comm,
        "receive from nobody",
        comm.immediate_receive::<Word>(peer, TAG).err(),
        no_rank.clone(),
    )?;
    equal(comm, "gather at nobody", comm.gather(Word(0), peer).err(), no_rank.clone())?;
    equal(comm, "broadcast of nobody", comm.broadcast(Some(Word(0)), peer).err(), no_rank)?;
    equal(comm, "send with no tag", comm.immediate_send(Word(0), rank, tag).err(), no_tag.clone())?;
    equal(comm, "receive with no tag", comm.immediate_receive::<Word>(rank, tag).err(), no_tag)
}
