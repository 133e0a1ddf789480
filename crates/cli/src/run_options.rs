//! From the command line and the launcher to the options of a run.

use crate::args::{EngineName, RunArgs};
use crate::console;
use crate::failure::{Failure, UsageError};
use crate::signals::Interrupts;
use ringattn::comm::{Checksum, CommError, Environment, RunError, environment};
use ringattn::core::Rank;
use ringattn::plan::Layout;
use ringattn::{Engine, RunOptions};
use std::sync::Arc;
#[cfg(feature = "mpi")]
use std::time::Duration;

/// The options that `args` ask for, stopped by `interrupts`.
pub(crate) fn run_options(args: &RunArgs, interrupts: &Interrupts) -> Result<RunOptions, Failure> {
    let launch = launcher();
    let size = launch.and_then(|launch| launch.size);
    let joins = match args.engine {
        EngineName::Local => false,
        EngineName::Auto => launch.is_some_and(|launch| launch.size != Some(1) || CAN_JOIN),
        EngineName::Mpi => true,
    };
    // Before MPI starts, where the launcher says the size; else when the job does.
    if let (true, Some(size)) = (joins, size) {
        check_size(args.ranks, size)?;
    }
    // A layout that cannot be is known before any file is read.
    let ranks = args.ranks.unwrap_or(1);
    Layout::new(args.layout.kind(), args.block, 1, ranks).map_err(ringattn::Error::from)?;
    let engine = match (joins, args.checksum()) {
        (true, _) => join(args, interrupts)?,
        (false, Checksum::Verified) => Engine::Local,
        (false, Checksum::Off) => return Err(UsageError::NoMessages.into()),
    };
    let ranks = match &engine {
        Engine::Local => ranks,
        Engine::Mpi(job) => {
            check_size(args.ranks, job.size())?;
            job.size()
        }
    };
    let mut options = watched(ranks, interrupts);
    options.engine = engine;
    options.threads = args.threads;
    options.affinity = args.affinity();
    options.layout = args.layout.kind();
    options.block = args.block;
    if let Some(timeout) = args.timeout {
        options.timeout = timeout;
    }
    options.memory_limit = args.memory_limit;
    options.non_finite = args.non_finite();
    options.recording = args.recording();
    options.overlap = args.overlap();
    #[cfg(feature = "fault-injection")]
    options.fault.clone_from(&args.fault);
    Ok(options)
}

/// Refuses a number of ranks that the job does not have.
fn check_size(asked: Option<u32>, size: u32) -> Result<(), UsageError> {
    match asked {
        Some(ranks) if ranks != size => Err(UsageError::WorldSize { ranks, size }),
        _ => Ok(()),
    }
}

/// Who started this process as one of several, if anybody did.
pub(crate) fn launcher() -> Option<Environment> {
    environment(|name| std::env::var_os(name))
}

/// Whether this build has MPI.
const CAN_JOIN: bool = cfg!(feature = "mpi");

/// The least that MPI may take to start, whatever `--timeout` says: processes of a job do not begin at once.
#[cfg(feature = "mpi")]
const SHORTEST_START: Duration = Duration::from_secs(10);

/// Becomes a rank of the job that the launcher has started.
#[cfg(feature = "mpi")]
fn join(args: &RunArgs, interrupts: &Interrupts) -> Result<Engine, Failure> {
    let mut options =
        ringattn::comm::mpi::Options { checksum: args.checksum(), ..Default::default() };
    if let Some(timeout) = args.timeout {
        options.start_timeout = timeout.max(SHORTEST_START);
    }
    #[cfg(feature = "fault-injection")]
    if let Some(fault) = &args.fault
        && fault.misdeed == ringattn::fault::Misdeed::Damage
    {
        let (to, tag) = (fault.rank, ringattn::comm::Tag(1));
        let sequence = u64::from(fault.step);
        options.fault = Some(ringattn::comm::mpi::Fault { to, tag, sequence });
    }
    let job = ringattn::Job::start(options)?;
    if !job.is_root() {
        console::leave_talking_to_others();
    }
    interrupts.join(&job);
    Ok(Engine::Mpi(job))
}

/// Without MPI nobody can be joined; several processes that each do everything help nobody either.
#[cfg(not(feature = "mpi"))]
fn join(_: &RunArgs, _: &Interrupts) -> Result<Engine, Failure> {
    Err(UsageError::NoMpi.into())
}

/// A run of `ranks` ranks, stopped by `interrupts`, everything else at its default.
pub(crate) fn watched(ranks: u32, interrupts: &Interrupts) -> RunOptions {
    let mut options = RunOptions::new(ranks);
    options.stop = interrupts.stop.clone();
    let interrupts = interrupts.clone();
    options.on_stuck = Some(Arc::new(move |cause: &CommError, ranks: &[Rank]| {
        leave_stuck_ranks(&interrupts, cause, ranks);
    }));
    options
}

/// Ranks that do not end although the run has: nothing but the end of the process helps.
fn leave_stuck_ranks(interrupts: &Interrupts, cause: &CommError, ranks: &[Rank]) {
    let cause = ringattn::Error::Attend(RunError::World(cause.clone()));
    let stuck: Vec<_> = ranks.iter().take(8).map(Rank::to_string).collect();
    console::stderr_line(&format!("note: ranks that did not end: {}", stuck.join(", ")));
    interrupts.exit(&interrupts.failure(cause))
}
