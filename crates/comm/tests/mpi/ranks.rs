//! What a rank does in each case.

use ringattn_comm::mpi::{Fault, MpiCommunicator, Options, World};
use ringattn_comm::suite::{self, Block, SuiteError};
use ringattn_comm::{
    CommError, Communicator, ReceiveRequest, RunError, SendRequest, StopSignal, Tag,
};
use ringattn_core::{Interrupted, Progress, Rank};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::panic;
use std::path::Path;
use std::process::ExitCode;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use thiserror::Error;

pub(crate) const TAG: Tag = Tag(1);
/// What a rank prints when it reports a failure.
pub(crate) const REPORT: &str = "REPORT:";
/// The timeout where a case needs a short one.
pub(crate) const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(30);
const MS: Duration = Duration::from_millis(1);

#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Comm(#[from] CommError),
    #[error(transparent)]
    Suite(#[from] SuiteError),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    #[error("the disk is full")]
    DiskFull,
}

type Outcome = Result<(), Failure>;
type Ended = Result<(), RunError<Failure>>;

/// A case's name and its numbers: "panics 2".
fn parse(case: &str) -> (&str, Vec<u32>) {
    let mut words = case.split(' ');
    let name = words.next().unwrap_or_default();
    (name, words.map(|word| word.parse().unwrap()).collect())
}

pub(crate) fn main(case: &str, folder: &Path) -> ExitCode {
    let (name, numbers) = parse(case);
    let first = numbers.first().copied().unwrap_or(0);
    let stop = watch_signals();
    let mut options = Options::default();
    match name {
        "sizes" => options.piece = 1000,
        "damaged" => options.fault = Some(Fault { to: Rank(first), tag: TAG, sequence: 1 }),
        "mourns" => report_panics_after(numbers[1] * MS),
        _ => {}
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut world = World::init(options, &host).unwrap();
    let pid = folder.join(format!("{}.pid", world.rank()));
    std::fs::write(pid, format!("{}\n", std::process::id())).unwrap();
    let own = world.rank().0;
    let ended = match name {
        "suite" => suite_in_many_runs(&mut world, &stop),
        "sizes" => world.run(LONG, &stop, |comm| sizes(&comm, &[0, 1, 999, 1000, 1001, 54_321])),
        "heavy" => world.run(LONG, &stop, |comm| heavy(&comm, 2_200_000_000)),
        "stale" => stale(&mut world, &stop),
        "throughput" => world.run(LONG, &stop, |comm| throughput(&comm)),
        "overlap" => world.run(LONG, &stop, |comm| overlap(&comm)),
        "outside" if own == first => world.abort(7),
        "errors" => world.run(LONG, &stop, |comm| busy(&comm, first, |_| Err(Failure::DiskFull))),
        "panics" => world.run(LONG, &stop, |comm| busy(&comm, first, |_| panic!("index 9"))),
        "mourns" => world.run(SHORT, &stop, |comm| busy(&comm, first, |_| panic!("index 9"))),
        "aborts" => world.run(LONG, &stop, |comm| {
            busy(&comm, first, |comm| {
                comm.abort("digests differ".to_owned());
                Ok(())
            })
        }),
        "leaves" => world.run(LONG, &stop, |comm| {
            if comm.rank().0 == first { Ok(()) } else { receive(&comm, first) }
        }),
        "exits" => world.run(LONG, &stop, |comm| busy(&comm, first, |_| std::process::exit(0))),
        "waits" | "outside" => world.run(LONG, &stop, |comm| busy(&comm, u32::MAX, |_| Ok(()))),
        "ring" => world.run(SHORT, &stop, |comm| ring(&comm)),
        "rounds" => world.run(SHORT, &stop, |comm| rounds(&comm, 400)),
        "late" => late(&mut world, &stop, first),
        "stuck" => world.run(SHORT, &stop, |comm| {
            busy(&comm, first, |_| {
                sleep(60 * SHORT);
                Ok(())
            })
        }),
        "slow" => world.run(SHORT, &stop, |comm| slow(&comm, first)),
        "damaged" => world.run(LONG, &stop, |comm| {
            for _ in 0..3 {
                shift(&comm, Block::new(vec![7; 100_000]))?;
            }
            Ok(())
        }),
        other => panic!("no case {other}"),
    };
    end(world, ended)
}

/// The way that a command ends.
fn end(mut world: World, ended: Ended) -> ExitCode {
    let (code, text, culprit) = match ended {
        Ok(()) => match world.finalize() {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => (code_of(&error), error.to_string(), error.culprit()),
        },
        Err(error) => {
            let code = match &error {
                RunError::Rank { error: Failure::DiskFull, .. } => 9,
                RunError::World(error) => code_of(error),
                _ => 4,
            };
            (code, error.to_string(), error.culprit())
        }
    };
    if world.speaker() == world.rank() {
        let host = culprit.map_or("?", |rank| world.host(rank));
        eprintln!("{REPORT} {text} (host {host}, code {code})");
    }
    world.abort(code)
}

fn code_of(error: &CommError) -> u8 {
    match error {
        CommError::TimedOut { .. } | CommError::Deadlock { .. } => 5,
        CommError::Damaged { .. } => 6,
        CommError::Memory { .. } => 8,
        CommError::Stopped { .. } => 143,
        _ => 4,
    }
}

/// A panic is reported as slowly as one with a long backtrace on a busy machine.
fn report_panics_after(pause: Duration) {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        sleep(pause);
        report(info);
    }));
}

fn watch_signals() -> StopSignal {
    let stop = StopSignal::new();
    let (mut signals, told) = (Signals::new([SIGINT, SIGTERM]).unwrap(), stop.clone());
    thread::spawn(move || {
        for signal in signals.forever() {
            told.stop(if signal == SIGTERM { "SIGTERM" } else { "SIGINT" });
        }
    });
    stop
}

fn suite_in_many_runs(world: &mut World, stop: &StopSignal) -> Ended {
    for (name, check) in suite::checks::<MpiCommunicator>() {
        let named = |error| {
            eprintln!("{name}: {error}");
            Failure::from(error)
        };
        world.run(LONG, stop, |comm| check(&comm).map_err(named))?;
    }
    world.run(LONG, stop, |comm| Ok(suite::all(&comm)?))
}

fn receive(comm: &MpiCommunicator, from: u32) -> Outcome {
    comm.immediate_receive::<Block>(Rank(from), TAG)?.wait()?;
    Ok(())
}

fn send(comm: &MpiCommunicator, to: u32) -> Outcome {
    Ok(comm.immediate_send(Block::new(vec![0]), Rank(to), TAG)?.wait()?)
}

fn compute(comm: &MpiCommunicator) -> Outcome {
    let watch = comm.progress();
    loop {
        sleep(MS);
        watch.advance()?;
    }
}

fn around(comm: &MpiCommunicator) -> (Rank, Rank) {
    let (rank, size) = (comm.rank().0, comm.size());
    (Rank((rank + 1) % size), Rank((rank + size - 1) % size))
}

fn shift(comm: &MpiCommunicator, block: Block) -> Result<Block, CommError> {
    let (next, previous) = around(comm);
    let receive = comm.immediate_receive::<Block>(previous, TAG)?;
    let send = comm.immediate_send(block, next, TAG)?;
    let block = receive.wait()?;
    send.wait()?;
    Ok(block)
}

/// `culprit` works for a moment and does `fail`; the others wait for it in different ways, or
/// compute.
fn busy(
    comm: &MpiCommunicator,
    culprit: u32,
    fail: impl FnOnce(&MpiCommunicator) -> Outcome,
) -> Outcome {
    let rank = comm.rank().0;
    if rank == culprit {
        sleep(300 * MS);
        return fail(comm);
    }
    let awaited = if culprit < comm.size() { culprit } else { (rank + 1) % comm.size() };
    match (rank + comm.size() - awaited) % comm.size() % 3 {
        1 => receive(comm, awaited),
        2 if comm.size() == 3 => compute(comm),
        2 => send(comm, awaited),
        _ => compute(comm),
    }
}

/// Blocks go round for ever.
fn ring(comm: &MpiCommunicator) -> Outcome {
    loop {
        rounds(comm, 1000)?;
    }
}

/// Blocks go round so many steps, with a moment of compute at each.
fn rounds(comm: &MpiCommunicator, steps: usize) -> Outcome {
    let watch = comm.progress();
    for _ in 0..steps {
        shift(comm, Block::new(vec![1; 50_000]))?;
        sleep(5 * MS);
        watch.advance()?;
    }
    Ok(())
}

/// After a run, one rank does something for two timeouts while the others want to end.
fn late(world: &mut World, stop: &StopSignal, late: u32) -> Ended {
    world.run(SHORT, stop, |comm| rounds(&comm, 1))?;
    if world.rank().0 == late {
        sleep(2 * SHORT);
    }
    Ok(())
}

/// One rank's step takes three timeouts, during which it counts.
fn slow(comm: &MpiCommunicator, slow: u32) -> Outcome {
    let watch = comm.progress();
    if comm.rank().0 == slow {
        for _ in 0..20 {
            sleep(3 * SHORT / 20);
            watch.advance()?;
        }
    }
    shift(comm, Block::new(vec![1; 10]))?;
    Ok(comm.barrier()?)
}

/// The byte `i` of a message from `rank`.
fn byte(rank: Rank, i: usize) -> u8 {
    (i % 251) as u8 ^ rank.0 as u8
}

fn patterned(rank: Rank, length: usize) -> Block {
    Block::new((0..length).map(|i| byte(rank, i)).collect())
}

fn check_pattern(block: &Block, from: Rank, length: usize) {
    let differs = (0..length).find(|&i| block.bytes()[i] != byte(from, i));
    assert_eq!((block.bytes().len(), differs), (length, None));
}

/// Messages of these lengths round the ring, two of each under way at a time.
fn sizes(comm: &MpiCommunicator, lengths: &[usize]) -> Outcome {
    let (next, previous) = around(comm);
    for &length in lengths {
        let send = || comm.immediate_send(patterned(comm.rank(), length), next, TAG);
        let sends = [send()?, send()?];
        for _ in 0..2 {
            let block = comm.immediate_receive::<Block>(previous, TAG)?.wait()?;
            check_pattern(&block, previous, length);
        }
        sends.into_iter().try_for_each(SendRequest::wait)?;
    }
    Ok(())
}

/// One message of more than 2^31 bytes.
fn heavy(comm: &MpiCommunicator, length: usize) -> Outcome {
    if comm.rank() == Rank(0) {
        comm.immediate_send(patterned(Rank(0), length), Rank(1), TAG)?.wait()?;
    } else {
        let block = comm.immediate_receive::<Block>(Rank(0), TAG)?.wait()?;
        eprintln!("NOTE {length} bytes: {:?}", comm.counters());
        check_pattern(&block, Rank(0), length);
    }
    Ok(comm.barrier()?)
}

/// A message that nobody receives in its run is never received in the next.
fn stale(world: &mut World, stop: &StopSignal) -> Ended {
    for round in 0..5_u8 {
        world.run(LONG, stop, |comm| {
            let (next, previous) = around(&comm);
            drop(comm.immediate_send(Block::new(vec![100 + round; 5000]), next, Tag(2))?);
            let send = comm.immediate_send(Block::new(vec![round]), next, TAG)?;
            let block = comm.immediate_receive::<Block>(previous, TAG)?.wait()?;
            assert_eq!(block.bytes(), [round]);
            send.wait()?;
            // The one before this run's own on the tag is the stale one.
            if round % 2 == 1 {
                let block = comm.immediate_receive::<Block>(previous, Tag(2))?.wait()?;
                assert_eq!(block.bytes()[0], 100 + round);
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn throughput(comm: &MpiCommunicator) -> Outcome {
    for length in [1_usize << 10, 64 << 10, 4 << 20, 64 << 20] {
        let rounds = if length > 1 << 22 { 6 } else { 20 };
        let mut times = Vec::new();
        let before = comm.counters();
        for _ in 0..rounds {
            comm.barrier()?;
            let block = Block::new(vec![1; length]);
            let begun = Instant::now();
            shift(comm, block)?;
            times.push(begun.elapsed());
        }
        times.sort();
        let spent = comm.counters().since(&before);
        if comm.rank() == Rank(0) {
            eprintln!(
                "NOTE {length} bytes: ring step best {:.3} ms, median {:.3} ms, checksums {:.3} ms a step",
                times[0].as_secs_f64() * 1e3,
                times[times.len() / 2].as_secs_f64() * 1e3,
                spent.checksum.as_secs_f64() * 1e3 / f64::from(rounds),
            );
        }
    }
    Ok(())
}

/// Pure compute while a message is under way, then the wait for it.
fn overlap(comm: &MpiCommunicator) -> Outcome {
    let (next, previous) = around(comm);
    for (length, compute) in [(4_usize << 20, 50), (4 << 20, 150), (64 << 20, 400)] {
        let mut waits = Vec::new();
        let before = comm.counters();
        for _ in 0..8 {
            let block = Block::new(vec![1; length]);
            comm.barrier()?;
            let receive = comm.immediate_receive::<Block>(previous, TAG)?;
            let send = comm.immediate_send(block, next, TAG)?;
            let begun = Instant::now();
            let mut sum = 1.0_f64;
            while begun.elapsed() < compute * MS {
                (0..1000).for_each(|i| sum = std::hint::black_box(sum * 1.000_001 + f64::from(i)));
            }
            let begun = Instant::now();
            send.wait()?;
            let waited = begun.elapsed();
            drop(receive.wait()?);
            waits.push((waited, begun.elapsed()));
        }
        waits.sort_by_key(|wait| wait.1);
        let spent = comm.counters().since(&before);
        if comm.rank() == Rank(0) {
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let hidden = 1.0 - spent.transfer_wait.as_secs_f64() / spent.transfer.as_secs_f64();
            eprintln!(
                "NOTE {} MiB, {compute} ms compute: send wait median {:.3} ms, with receive and copy median {:.3}; \
                 transfer {:.1} ms, in wait {:.3} ms a step, hidden {hidden:.4}",
                length >> 20,
                ms(waits[4].0),
                ms(waits[4].1),
                ms(spent.transfer) / 8.0,
                ms(spent.transfer_wait) / 8.0,
            );
        }
    }
    Ok(())
}
