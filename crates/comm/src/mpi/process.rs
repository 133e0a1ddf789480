//! This process as one rank of an MPI job: start, run, end. Knows no MPI: the link thread does.
//!
//! The ways to end. After success, [`World::finalize`]. After a failure, [`World::abort`] with the
//! exit code: the rank that [`World::speaker`] names has printed the error, waits a moment for the
//! others to clean up, and ends the job (MPI_Abort); the others wait for that end. MPI_Finalize is
//! never called after a failure: it waits for ranks that may not come.

use super::communicator::MpiCommunicator;
use super::desk::{Desk, Order, Run, State};
use super::election::Election;
use super::last_words::{self, LastWords};
use super::library::{Library, NotStarted, share_one_heap};
use super::link::Link;
use super::options::{MAX_PIECE, Options};
use super::peers::Peers;
use super::verdict;
use super::wire::{PROTOCOL, Stage};
use crate::deadline::Deadline;
use crate::stop::Stoppable;
use crate::world::{Cause, Outcome, World as Ranks, run_rank};
use crate::{CommError, RunError, StopSignal};
use ringattn_core::Rank;
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often notices are sent.
const PERIOD: Duration = Duration::from_millis(250);
/// A rank that is not heard for so long is silent.
const SILENCE: Duration = Duration::from_millis(1100);
/// How long ranks wait for each other's word on how a run failed.
const SETTLE: Duration = Duration::from_millis(500);
/// How long whoever wants to report waits until the others have left it to that rank.
const ELECTION: Duration = Duration::from_secs(1);
/// How long the speaker waits until the others have cleaned up.
const CLEAN_UP: Duration = Duration::from_secs(1);
/// How long a last notice may take to its peers, and the error text through the launcher to the user:
/// what a launcher has not read when the job is aborted is lost.
const FAREWELL: Duration = Duration::from_millis(400);
/// How long the others let the end that has begun come to them.
const MERCY: Duration = Duration::from_millis(300);
/// How long the others wait for the speaker to end the job.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long MPI may take to end.
const END: Duration = Duration::from_secs(10);

/// Words of a host's name that ranks tell each other.
const HOST: usize = 8;

/// Why this process is no rank of a job.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// MPI may be started once in a process.
    #[error("MPI has already been started in this process")]
    Already,
    /// The library cannot work in a process with threads.
    #[error("this MPI library grants no thread support (MPI_THREAD_FUNNELED is needed)")]
    SingleThreaded,
    /// It did not come up, or not all ranks did.
    #[error("MPI did not start within {timeout:?}: not all ranks have come up")]
    Late {
        /// How long was waited.
        timeout: Duration,
    },
    /// The system gave no thread to it.
    #[error("the link thread could not be started: {source}")]
    Thread {
        /// The system's words.
        source: io::Error,
    },
    /// The ranks run programs that do not understand each other.
    #[error("rank {rank} speaks protocol {actual:#x}, rank {own} {expected:#x}")]
    Protocol {
        /// This rank.
        own: Rank,
        /// The other one.
        rank: Rank,
        /// This rank's protocol.
        expected: u64,
        /// The other's.
        actual: u64,
    },
    /// The pieces have no possible size.
    #[error("pieces have 1 to {} bytes, not {actual}", MAX_PIECE)]
    Piece {
        /// What was asked for.
        actual: usize,
    },
}

/// Rank, size, number of the job and hosts, by rank.
struct Roll {
    rank: Rank,
    job: u64,
    hosts: Vec<String>,
}

/// This process as a rank of a job (MPI_COMM_WORLD).
pub struct World {
    desk: Arc<Desk>,
    roll: Roll,
    speaker: Rank,
    /// Ranks that did not say how the last run failed.
    lost: Vec<Rank>,
    /// Who ends the job.
    executioner: Executioner,
    timeout: Duration,
}

/// Who ends the job after a failure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Executioner {
    /// The speaker, by MPI_Abort.
    Speaker,
    /// The launcher, which has lost a process and tells the others to end. MPI_Abort would only add
    /// an error text that names another rank.
    Launcher,
}

impl World {
    /// Starts MPI, once per process, and waits until all ranks have. `host` is this machine's name.
    ///
    /// # Errors
    /// When MPI does not start, or the ranks run different versions of this protocol.
    pub fn init(options: Options, host: &str) -> Result<Self, StartError> {
        if options.piece == 0 || options.piece > MAX_PIECE {
            return Err(StartError::Piece { actual: options.piece });
        }
        // Before the first thread of a job allocates.
        share_one_heap();
        let (sender, receiver) = mpsc::channel();
        last_words::put_hook_first();
        let host = host.to_owned();
        let life = move || match start(&host) {
            Ok((library, roll)) => {
                let (rank, size) = (roll.rank, library.size());
                let peers = Peers::new(rank, size, SILENCE, Instant::now());
                let desk = Arc::new(Desk::new(roll.job, peers));
                if sender.send(Ok((Arc::clone(&desk), roll))).is_ok() {
                    Link::new(library, desk, options, PERIOD).work();
                }
            }
            Err(error) => drop(sender.send(Err(error))),
        };
        thread::Builder::new()
            .name("link".to_owned())
            .spawn(life)
            .map_err(|source| StartError::Thread { source })?;
        let timeout = options.start_timeout;
        let (desk, roll) =
            receiver.recv_timeout(timeout).map_err(|_| StartError::Late { timeout })??;
        let (speaker, lost, timeout) = (roll.rank, Vec::new(), Duration::ZERO);
        let executioner = Executioner::Speaker;
        Ok(Self { desk, roll, speaker, lost, executioner, timeout })
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.roll.rank
    }

    /// The number of ranks, at least 1.
    pub fn size(&self) -> u32 {
        self.roll.hosts.len() as u32
    }

    /// The machine that `rank` runs on; its first 64 bytes.
    pub fn host(&self, rank: Rank) -> &str {
        self.roll.hosts.get(rank.index()).map_or("", String::as_str)
    }

    /// The machines of all ranks, in rank order.
    pub fn hosts(&self) -> &[String] {
        &self.roll.hosts
    }

    /// The rank that tells the user how the run failed (`verdict.rs` has the rules). Before a run and
    /// after success, each rank speaks for itself.
    pub fn speaker(&self) -> Rank {
        self.speaker
    }

    /// Runs `rank_main` as this process's rank, on the calling thread. All ranks do; none returns a
    /// result before all have one. A rank may stand still for `timeout` while others wait for it.
    ///
    /// # Errors
    /// The first failure of the run, the same on all ranks that hear each other; the culprit gets
    /// its own error.
    pub fn run<T, E: fmt::Display>(
        &mut self,
        timeout: Duration,
        stop: &StopSignal,
        rank_main: impl FnOnce(MpiCommunicator) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        let rank = self.rank();
        let world = Arc::new(Ranks::new(self.size(), timeout));
        let stoppable: Arc<dyn Stoppable> = Arc::clone(&world) as _;
        stop.attach(Arc::downgrade(&stoppable));
        self.timeout = timeout;
        let (comm, last_words) = self.begin(&world);
        let rank_main = || last_words::telling(&last_words, || rank_main(comm));
        let outcome = match run_rank(&world, rank, rank_main) {
            Outcome::Done(value) => match self.leave(&world) {
                Ok(()) => return Ok(value),
                Err(cause) => (Outcome::Done(value), cause),
            },
            other => {
                let unknown = || Cause::Called { culprit: rank, reason: "it failed".to_owned() };
                (other, world.cause().unwrap_or_else(unknown))
            }
        };
        Err(self.settle(outcome))
    }

    fn begin(&self, world: &Arc<Ranks>) -> (MpiCommunicator, Arc<LastWords>) {
        let (checksum, last_words) = (Arc::default(), Arc::default());
        let (desk, rank, size) = (Arc::clone(&self.desk), self.rank(), self.size());
        self.desk.tell_link(|state| {
            state.number += 1;
            state.stage = Stage::Working;
            state.peers.begin_run();
            state.run = Some(Run {
                world: Arc::clone(world),
                checksum: Arc::clone(&checksum),
                outgoing: Vec::new(),
                posted: BTreeMap::new(),
                last_words: Arc::clone(&last_words),
            });
        });
        (MpiCommunicator::new(Arc::clone(world), rank, size, desk, checksum), last_words)
    }

    /// Waits until every rank has a result, under the deadline of the ranks' own waits.
    fn leave(&self, world: &Ranks) -> Result<(), Cause> {
        let number = self.desk.tell_link(|state| {
            state.stage = Stage::Left;
            state.number
        });
        let mut deadline = Deadline::new(self.timeout);
        let mut looked = Instant::now();
        loop {
            // A stop that comes after the last result takes nothing away.
            let found = self.desk.wait_for(deadline.period(), |state| {
                let working = state.peers.first_working(number);
                match (working, world.cause()) {
                    (None, _) => Some(Ok(())),
                    (Some(_), Some(cause)) => Some(Err(cause)),
                    (Some(_), None) => None,
                }
            });
            if let Some(found) = found {
                if found.is_ok() {
                    self.desk.tell_link(|state| state.run = None);
                }
                return found;
            }
            if let Some(first) = self.desk.lock().peers.first_working(number) {
                world.blame(self.rank(), deadline.look(looked.elapsed(), first, world));
            }
            looked = Instant::now();
        }
    }

    /// Lets all ranks agree on why the run failed and who says so.
    fn settle<T, E>(&mut self, (outcome, first): (Outcome<T, E>, Cause)) -> RunError<E> {
        let cause = self.agree(first);
        verdict::error_of(cause, outcome, self.rank(), &self.lost)
    }

    /// Lets all ranks agree on a cause, of which this one knew `first`, and on who reports it.
    fn agree(&mut self, first: Cause) -> Cause {
        let number = self.desk.tell_link(|state| {
            state.stage = Stage::Settled;
            state.number
        });
        self.desk.wait_for(SETTLE, |state| {
            let peers = &state.peers;
            let all_agree = peers.have_all_settled(number, &[]) && !peers.has_missed_any();
            let one_wants = peers.speaking(number).or(peers.offering(number)).is_some();
            (all_agree || one_wants).then_some(())
        });
        let (cause, chosen) = self.decide(number, first);
        self.speaker = self.elect(number, chosen);
        cause
    }

    /// The cause, and the rank that should report it, by what this rank has heard. One that offers to has
    /// heard enough.
    fn decide(&mut self, number: u64, first: Cause) -> (Cause, Rank) {
        let mut state = self.desk.lock();
        let causes: Vec<_> = state.peers.causes(number).cloned().chain([first.clone()]).collect();
        let cause = verdict::weightiest(&causes).cloned().unwrap_or(first);
        let chosen = || verdict::speaker(&causes, self.roll.rank, &state.peers.presences(number));
        let chosen = state.peers.offering(number).unwrap_or_else(chosen);
        self.lost = state.peers.without_cause(number);
        let is_stopped = matches!(cause, Cause::World(CommError::Stopped { .. }));
        if is_stopped && !self.lost.is_empty() {
            self.executioner = Executioner::Launcher;
        }
        if let Some(run) = &mut state.run {
            run.posted.clear();
        }
        (cause, chosen)
    }

    /// Lets one rank report, which says so before it does.
    fn elect(&self, number: u64, chosen: Rank) -> Rank {
        let mut election = Election::new(self.rank(), number, chosen);
        let elected = self.desk.wait_for(ELECTION, |state| {
            let elected = election.look(&state.peers);
            state.stage = election.stage();
            elected
        });
        elected.unwrap_or_else(|| {
            let speaker = election.end();
            self.desk.tell_link(|state| state.stage = election.stage());
            speaker
        })
    }

    /// Ends MPI after success, once every rank wants to (MPI_Finalize). A rank that does something
    /// else before, for instance writes the results, is waited for as long as its process is heard.
    ///
    /// # Errors
    /// When a rank ends the job, is lost or stops; then [`World::abort`] is left.
    pub fn finalize(&mut self) -> Result<(), CommError> {
        self.desk.tell_link(|state| state.stage = Stage::Finished);
        let failure = loop {
            let timeout = self.timeout;
            let found = self.desk.wait_for(PERIOD, |state| {
                if state.peers.have_all_finished() {
                    state.order = Some(Order::Finalize);
                    return Some(None);
                }
                let stopped = || CommError::Stopped { reason: "the launcher has ended".to_owned() };
                let gone = || state.launcher_is_gone.then(|| Cause::World(stopped()));
                let failure = state.peers.failed(state.number, timeout).or_else(gone);
                state.cause.clone_from(&failure);
                failure.map(Some)
            });
            if let Some(found) = found {
                break found;
            }
        };
        if let Some(first) = failure {
            return Err(self.agree(first).to_error());
        }
        let ended = |state: &mut State| state.has_ended.then_some(());
        let late = || CommError::Transport {
            rank: self.rank(),
            reason: format!("MPI_Finalize did not return within {END:?}"),
        };
        self.desk.wait_for(END, ended).ok_or_else(late)
    }

    /// Ends this process, and the job with it, after a failure (MPI_Abort). The exit code of the
    /// job is the speaker's `code`.
    pub fn abort(self, code: u8) -> ! {
        if self.rank() == self.speaker {
            let number = self.desk.tell_link(|state| {
                state.stage = Stage::Ending(code);
                state.number
            });
            self.desk.wait_for(CLEAN_UP, |state| {
                state.peers.have_all_settled(number, &self.lost).then_some(())
            });
            // So that the others hear of the end before it comes.
            thread::sleep(FAREWELL);
            if self.executioner == Executioner::Launcher {
                std::process::exit(i32::from(code));
            }
        } else {
            let ending = |state: &mut State| state.peers.ending();
            if let Some((_, code)) = self.desk.wait_for(PATIENCE, ending) {
                // The launcher ends this process, or it ends itself: some launchers take a second.
                thread::sleep(MERCY);
                std::process::exit(i32::from(code));
            }
        }
        self.desk.tell_link(|state| state.order = Some(Order::Abort(code)));
        thread::sleep(PATIENCE);
        std::process::exit(i32::from(code))
    }
}

/// Starts MPI on the calling thread and lets the ranks introduce themselves.
fn start(host: &str) -> Result<(Library, Roll), StartError> {
    let library = Library::start().map_err(|reason| match reason {
        NotStarted::Already => StartError::Already,
        NotStarted::SingleThreaded => StartError::SingleThreaded,
    })?;
    // A number that other jobs do not have, in case that a launcher mixes them; runs count up.
    let job = RandomState::new().hash_one(host) >> 16;
    let mut own = vec![PROTOCOL, job];
    let mut name = host.as_bytes().to_vec();
    name.resize(8 * HOST, 0);
    own.extend(name.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
    let all = library.all_gather(&own);
    let rank = library.rank();
    let mut hosts = Vec::new();
    for (other, words) in (0..).map(Rank).zip(all.chunks(own.len())) {
        let (expected, actual) = (PROTOCOL, words[0]);
        if actual != expected {
            return Err(StartError::Protocol { own: rank, rank: other, expected, actual });
        }
        let name: Vec<u8> = words[2..].iter().flat_map(|word| word.to_le_bytes()).collect();
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        hosts.push(String::from_utf8_lossy(&name[..end]).into_owned());
    }
    Ok((library, Roll { rank, job: all[1], hosts }))
}
