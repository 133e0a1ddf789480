//! A wait ends when the rank that holds it up stands still, and only then.

#![allow(clippy::panic, clippy::unwrap_used)] // test support outside #[test] functions

mod common;

use common::{Failure, MS, Outcome, TAG, Wait, receive, send};
use ringattn_comm::local::{DEFAULT_TIMEOUT, Launch, LocalCommunicator, run};
use ringattn_comm::suite::Block;
use ringattn_comm::{CommError, Communicator, Operation, ReceiveRequest, RunError};
use ringattn_core::{Progress, Rank};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(500);

/// Gives no sign of life until the run is ended.
fn stand_still(comm: &LocalCommunicator) -> Outcome {
    let mut never = comm.immediate_receive::<Block>(comm.rank(), TAG)?;
    while !never.test()? {
        sleep(5 * MS);
    }
    Ok(())
}

/// Runs with a short timeout, in which the rank `stuck` stands still.
fn timed_out(size: u32, stuck: u32, work: fn(&LocalCommunicator) -> Outcome) -> CommError {
    let ended = Launch::new(size).timeout(SHORT).run(|comm| {
        if comm.rank().0 == stuck {
            return stand_still(&comm);
        }
        work(&comm)
    });
    match ended {
        Err(RunError::World(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn assert_culprit(error: &CommError, expected: u32) {
    let CommError::TimedOut { culprit, timeout: SHORT, .. } = error else { panic!("{error}") };
    assert_eq!(*culprit, Rank(expected));
}

#[test]
fn a_stuck_rank_is_named_by_a_receive() {
    assert_culprit(&timed_out(2, 1, |comm| receive(comm, 1)), 1);
}

#[test]
fn a_stuck_rank_is_named_by_a_send() {
    assert_culprit(&timed_out(2, 0, |comm| send(comm, 0)), 0);
}

#[test]
fn a_stuck_rank_is_named_by_a_barrier() {
    for stuck in [0, 3, 6] {
        assert_culprit(&timed_out(7, stuck, |comm| Ok(comm.barrier()?)), stuck);
    }
}

#[test]
fn a_stuck_rank_is_named_by_a_gather() {
    let gather = |comm: &LocalCommunicator| {
        comm.gather(Block::new(vec![]), Rank(0))?;
        Ok(())
    };
    assert_culprit(&timed_out(5, 3, gather), 3);
    assert_culprit(&timed_out(5, 0, gather), 0);
}

#[test]
fn the_stuck_rank_at_the_end_of_a_chain_is_named() {
    // 0 waits for 1 waits for 2 waits for 3.
    assert_culprit(&timed_out(4, 3, |comm| receive(comm, comm.rank().0 + 1)), 3);
}

#[test]
fn a_stuck_rank_that_nobody_waits_for_is_found_too() {
    assert_culprit(&timed_out(3, 1, |_| Ok(())), 1);
}

/// Computes for four timeouts and counts every third of one.
fn slow_step(comm: &LocalCommunicator) -> Outcome {
    let watch = comm.progress();
    for _ in 0..12 {
        sleep(SHORT / 3);
        watch.advance()?;
    }
    Ok(())
}

#[test]
fn a_slow_rank_is_no_failure() {
    let ended = Launch::new(4).timeout(SHORT).run(|comm| {
        // 0 waits for 1 waits for 2, which computes; 3 waits in the barrier.
        match comm.rank().0 {
            0 => receive(&comm, 1)?,
            1 => {
                receive(&comm, 2)?;
                send(&comm, 0)?;
            }
            2 => {
                slow_step(&comm)?;
                send(&comm, 1)?;
            }
            _ => {}
        }
        comm.barrier()?;
        Ok::<_, Failure>(())
    });
    assert!(ended.is_ok(), "{ended:?}");
}

#[test]
fn results_are_held_for_a_slow_rank() {
    let work = |comm: LocalCommunicator| if comm.rank().0 == 1 { slow_step(&comm) } else { Ok(()) };
    let ended = Launch::new(3).timeout(SHORT).run(work);
    assert!(ended.is_ok(), "{ended:?}");
}

#[test]
fn ranks_that_wait_for_one_another_are_a_deadlock() {
    let ended = Launch::new(4).timeout(SHORT).run(|comm| match comm.rank().0 {
        0 => receive(&comm, 2),
        rank => receive(&comm, rank % 3 + 1),
    });
    let Err(RunError::World(CommError::Deadlock { ranks })) = ended else { panic!("{ended:?}") };
    assert_eq!(ranks, [Rank(1), Rank(2), Rank(3)]);
}

#[test]
fn a_wait_for_oneself_is_a_deadlock_at_once() {
    let ended = run(1, DEFAULT_TIMEOUT, |comm| receive(&comm, 0));
    let Err(RunError::Rank { error: Failure::Comm(CommError::Deadlock { ranks }), .. }) = ended
    else {
        panic!("{ended:?}");
    };
    assert_eq!(ranks, [Rank(0)]);
}

#[test]
fn a_peer_that_has_ended_is_not_waited_for() {
    let waits: [(Operation, Wait); 2] = [(Operation::Receive, receive), (Operation::Send, send)];
    for (operation, wait) in waits {
        let expected = CommError::PeerEnded { rank: Rank(0), peer: Rank(1), operation, tag: TAG };
        let until_noticed = || {
            let start = Instant::now();
            let ended = run(2, DEFAULT_TIMEOUT, |comm| match comm.rank().0 {
                0 => wait(&comm, 1),
                _ => {
                    sleep(20 * MS);
                    Ok(())
                }
            });
            let Err(RunError::Rank { error: Failure::Comm(error), .. }) = ended else {
                panic!("{ended:?}");
            };
            assert_eq!(error, expected);
            start.elapsed()
        };
        // The quickest of ten: the machine may be busy. Without a wake-up, each would last 250 ms.
        let quickest = (0..10).map(|_| until_noticed()).min();
        assert!(quickest < Some(150 * MS), "{quickest:?}");
    }
}

#[test]
fn a_message_sent_before_the_end_still_arrives() {
    for _ in 0..200 {
        let ended = run(2, DEFAULT_TIMEOUT, |comm| match comm.rank().0 {
            0 => receive(&comm, 1),
            _ => {
                drop(comm.immediate_send(Block::new(vec![1]), Rank(0), TAG)?);
                Ok(())
            }
        });
        assert!(ended.is_ok(), "{ended:?}");
    }
}
