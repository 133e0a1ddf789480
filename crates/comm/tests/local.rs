//! The local communicator passes the suite, never converts a message, and runs up to 1024 ranks.

#![allow(clippy::panic)] // test support outside #[test] functions

use ringattn_comm::suite::{self, Block, SuiteError};
use ringattn_comm::{CommError, Communicator, ReceiveRequest, RunError, SendRequest, Tag, local};
use ringattn_core::{Message, MessageError, Payload, Rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const SIZES: [u32; 8] = [1, 2, 3, 4, 5, 7, 8, 64];

fn on_every_rank(
    size: u32,
    check: impl Fn(&local::LocalCommunicator) -> Result<(), SuiteError> + Sync,
) {
    let done = local::run(size, local::DEFAULT_TIMEOUT, |comm| check(&comm));
    assert!(done.is_ok(), "p = {size}: {done:?}");
}

#[test]
fn every_check_of_the_suite_alone() {
    for size in SIZES {
        for (name, check) in suite::checks() {
            let done = local::run(size, local::DEFAULT_TIMEOUT, |comm| check(&comm));
            assert!(done.is_ok(), "{name}, p = {size}: {done:?}");
        }
    }
}

#[test]
fn the_whole_suite_in_one_world() {
    for size in SIZES {
        on_every_rank(size, suite::all);
    }
}

#[test]
fn the_most_ranks() {
    on_every_rank(local::MAX_RANKS, |comm| {
        suite::ring_shift(comm)?;
        Ok(comm.barrier()?)
    });
}

#[test]
fn no_rank_and_too_many_are_refused() {
    for requested in [0, local::MAX_RANKS + 1, u32::MAX] {
        let refused = local::run(requested, local::DEFAULT_TIMEOUT, |_| Ok::<_, CommError>(()));
        let Err(RunError::Ranks { requested: named, limit: 1024 }) = refused else {
            panic!("{requested} ranks: {refused:?}");
        };
        assert_eq!(named, requested);
    }
}

#[test]
fn results_come_in_rank_order_from_named_threads() {
    let names = local::run(5, local::DEFAULT_TIMEOUT, |_| {
        Ok::<_, CommError>(std::thread::current().name().map(str::to_owned))
    });
    let names: Vec<_> = names.unwrap().into_iter().flatten().collect();
    assert_eq!(names, ["rank 0", "rank 1", "rank 2", "rank 3", "rank 4"]);
}

#[test]
fn no_rank_leaves_a_barrier_before_all_have_come() {
    let arrived = AtomicU32::new(0);
    on_every_rank(8, |comm| {
        for round in 1..=50 {
            std::thread::sleep(Duration::from_micros(u64::from(comm.rank().0 * round % 7) * 100));
            arrived.fetch_add(1, Ordering::SeqCst);
            comm.barrier()?;
            assert!(arrived.load(Ordering::SeqCst) >= round * comm.size());
        }
        Ok(())
    });
}

/// A message that cannot be converted.
struct Unconvertible(Arc<u8>);

impl Message for Unconvertible {
    const KIND: &'static str = "unconvertible";
    fn byte_len(&self) -> u64 {
        1
    }
    fn header(&self) -> Vec<u64> {
        panic!("header of a local message")
    }
    fn payload(&self) -> Payload {
        panic!("bytes of a local message")
    }
    fn from_payload(_: &[u64], _: Vec<u8>) -> Result<Self, MessageError> {
        panic!("local message from bytes")
    }
}

#[test]
fn a_message_is_handed_over_and_never_converted() {
    let shared = Arc::new(7);
    on_every_rank(2, |comm| {
        if comm.rank() == Rank(0) {
            let message = Unconvertible(Arc::clone(&shared));
            comm.immediate_send(message, Rank(1), Tag(0))?.wait()?;
        } else {
            let message = comm.immediate_receive::<Unconvertible>(Rank(0), Tag(0))?.wait()?;
            assert!(Arc::ptr_eq(&message.0, &shared));
        }
        Ok(())
    });
    assert_eq!(Arc::strong_count(&shared), 1);
}

#[test]
fn waiting_for_a_late_peer_is_a_peer_wait() {
    let waits = local::run(2, local::DEFAULT_TIMEOUT, |comm| {
        let peer = Rank(1 - comm.rank().0);
        let late = Duration::from_millis(50);
        if comm.rank() == Rank(0) {
            std::thread::sleep(late);
            comm.immediate_send(Block::new(vec![1]), peer, Tag(0))?.wait()?;
            comm.immediate_send(Block::new(vec![1]), peer, Tag(0))?.wait()?;
        } else {
            comm.immediate_receive::<Block>(peer, Tag(0))?.wait()?;
            std::thread::sleep(late);
            comm.immediate_receive::<Block>(peer, Tag(0))?.wait()?;
        }
        Ok::<_, CommError>(comm.counters())
    });
    for counters in waits.unwrap() {
        assert!(counters.peer_wait >= Duration::from_millis(30), "{counters:?}");
        assert!(counters.transfer_wait <= counters.transfer, "{counters:?}");
    }
}

#[test]
fn two_worlds_in_one_process_do_not_meet() {
    std::thread::scope(|scope| {
        let worlds = [3, 4].map(|size| scope.spawn(move || on_every_rank(size, suite::all)));
        worlds.into_iter().for_each(|world| world.join().unwrap());
    });
}
