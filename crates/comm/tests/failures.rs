//! Every failure ends every rank soon, with the right culprit.

#![allow(clippy::panic, clippy::unwrap_used)] // test support outside #[test] functions

mod common;

use common::{Failure, MS, Outcome, SOON, TAG, compute, receive, send};
use ringattn_comm::local::{DEFAULT_TIMEOUT, Launch, LocalCommunicator, run};
use ringattn_comm::suite::Block;
use ringattn_comm::{CommError, Communicator, ReceiveRequest, RunError, StopSignal};
use ringattn_core::{Interrupted, Progress, Rank};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Ranks 0 to 4 are busy in every way there is, for ever, while rank 5 does `fail`. Checks that all
/// of them end soon, all with the same error, and gives it with the run's.
fn while_all_are_busy(fail: fn(&LocalCommunicator) -> Outcome) -> (CommError, RunError<Failure>) {
    let seen = Mutex::new(Vec::new());
    let start = Instant::now();
    let ended = run(6, DEFAULT_TIMEOUT, |comm| {
        let outcome = match comm.rank().0 {
            0 => receive(&comm, 5),
            1 => send(&comm, 5),
            2 => comm.barrier().map_err(Failure::from),
            3 => comm.gather(Block::new(vec![1]), Rank(3)).map(|_| ()).map_err(Failure::from),
            4 => compute(&comm),
            _ => {
                sleep(50 * MS);
                return fail(&comm);
            }
        };
        match &outcome {
            Err(Failure::Comm(error)) => seen.lock().unwrap().push(error.clone()),
            Err(Failure::Interrupted(_)) => {}
            other => panic!("rank {}: {other:?}", comm.rank()),
        }
        outcome
    });
    assert!(start.elapsed() < SOON);
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 4);
    assert!(seen.iter().all(|error| *error == seen[0]), "{seen:?}");
    (seen[0].clone(), ended.unwrap_err())
}

fn aborted(culprit: u32, reason: &str) -> CommError {
    CommError::Aborted { culprit: Rank(culprit), reason: reason.to_owned() }
}

#[test]
fn an_error_of_one_rank_ends_all() {
    let (seen, ended) = while_all_are_busy(|_| Err(Failure::DiskFull));
    assert_eq!(seen, aborted(5, "the disk is full"));
    assert!(matches!(ended, RunError::Rank { culprit: Rank(5), error: Failure::DiskFull }));
    assert_eq!(ended.to_string(), "rank 5: the disk is full");
}

#[test]
fn a_panic_of_one_rank_ends_all() {
    let (seen, ended) = while_all_are_busy(|_| panic!("index {} out of range", 9));
    assert_eq!(seen, aborted(5, "panic: index 9 out of range"));
    assert_eq!(ended.to_string(), "rank 5 panicked: index 9 out of range");
    assert_eq!(ended.culprit(), Some(Rank(5)));
}

#[test]
fn an_abort_by_one_rank_ends_all() {
    let (seen, ended) = while_all_are_busy(|comm| {
        comm.abort("digests differ".to_owned());
        Ok(())
    });
    assert_eq!(seen, aborted(5, "digests differ"));
    assert!(matches!(ended, RunError::World(error) if error == seen));
}

#[test]
fn a_rank_that_aborts_and_fails_gives_its_own_error() {
    let (seen, ended) = while_all_are_busy(|comm| {
        comm.abort("writing".to_owned());
        Err(Failure::DiskFull)
    });
    assert_eq!(seen, aborted(5, "writing"));
    assert!(matches!(ended, RunError::Rank { culprit: Rank(5), error: Failure::DiskFull }));
}

#[test]
fn consequences_are_never_the_cause() {
    for culprit in 0..4 {
        let ended = run(4, DEFAULT_TIMEOUT, |comm| {
            if comm.rank().0 == culprit {
                sleep(5 * MS);
                return Err(Failure::DiskFull);
            }
            receive(&comm, culprit)
        });
        let Err(RunError::Rank { culprit: blamed, error: Failure::DiskFull }) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!(blamed, Rank(culprit));
    }
}

#[test]
fn operations_after_an_abort_fail_at_once() {
    let ended = run(1, DEFAULT_TIMEOUT, |comm| {
        let mut request = comm.immediate_receive::<Block>(Rank(0), TAG)?;
        comm.abort("over".to_owned());
        let over = aborted(0, "over");
        assert_eq!(request.test(), Err(over.clone()));
        assert_eq!(comm.immediate_send(Block::new(vec![]), Rank(0), TAG).err(), Some(over.clone()));
        assert_eq!(comm.gather(Block::new(vec![]), Rank(0)), Err(over));
        assert_eq!(comm.progress().advance(), Err(Interrupted));
        Ok::<_, CommError>(())
    });
    assert!(matches!(ended, Err(RunError::World(CommError::Aborted { .. }))));
}

#[test]
fn a_stop_signal_ends_all() {
    let signal = StopSignal::new();
    let start = Instant::now();
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            sleep(50 * MS);
            signal.stop("SIGINT");
        });
        Launch::new(4).stop_signal(&signal).run(|comm| match comm.rank().0 {
            0 => receive(&comm, 3),
            1 => send(&comm, 3),
            2 => Ok(comm.barrier()?),
            _ => compute(&comm),
        })
    });
    let Err(RunError::World(CommError::Stopped { reason })) = ended else { panic!("{ended:?}") };
    assert_eq!(reason, "SIGINT");
    assert!(start.elapsed() < SOON);
    assert_eq!(signal.reason().as_deref(), Some("SIGINT"));

    let again = Launch::new(2).stop_signal(&signal).run(|comm| Ok::<_, Failure>(comm.barrier()?));
    assert!(matches!(again, Err(RunError::World(CommError::Stopped { .. }))), "{again:?}");
}

#[test]
fn a_stop_after_the_results_takes_nothing_away() {
    let signal = StopSignal::new();
    let ended = Launch::new(1).stop_signal(&signal).run(|_| {
        signal.stop("SIGTERM");
        Ok::<_, Failure>(7)
    });
    assert_eq!(ended.unwrap(), [7]);
}

#[test]
fn ranks_that_do_not_end_are_reported() {
    let reports = Mutex::new(Vec::new());
    let launch = Launch::new(3).on_stuck(50 * MS, |cause, ranks| {
        reports.lock().unwrap().push((cause.clone(), ranks.to_vec()));
    });
    let ended = launch.run(|comm| match comm.rank().0 {
        0 => Err(Failure::DiskFull),
        1 => receive(&comm, 2),
        _ => {
            sleep(Duration::from_secs(2));
            Ok(())
        }
    });
    assert!(matches!(ended, Err(RunError::Rank { culprit: Rank(0), .. })));
    let expected = (aborted(0, "the disk is full"), vec![Rank(2)]);
    assert_eq!(*reports.lock().unwrap(), [expected]);
}

#[test]
fn a_failure_among_the_most_ranks_ends_all() {
    let start = Instant::now();
    let ended = run(1024, DEFAULT_TIMEOUT, |comm| match comm.rank().0 {
        700 => Err(Failure::DiskFull),
        _ => Ok(comm.barrier()?),
    });
    assert!(matches!(ended, Err(RunError::Rank { culprit: Rank(700), .. })), "{ended:?}");
    assert!(start.elapsed() < DEFAULT_TIMEOUT);
}

#[test]
fn an_abort_takes_less_than_100_ms() {
    // The quickest of ten, since the machine may be busy: without a wake-up every one of them would
    // last until the waits' next look at their deadline, up to 250 ms.
    let abort = || {
        let failed = Mutex::new(Instant::now());
        let ended = run(8, DEFAULT_TIMEOUT, |comm| match comm.rank().0 {
            7 => {
                sleep(20 * MS);
                *failed.lock().unwrap() = Instant::now();
                Err(Failure::DiskFull)
            }
            6 => compute(&comm),
            rank => receive(&comm, rank + 1),
        });
        assert!(ended.is_err());
        failed.lock().unwrap().elapsed()
    };
    let quickest = (0..10).map(|_| abort()).min();
    assert!(quickest < Some(100 * MS), "{quickest:?}");
}
