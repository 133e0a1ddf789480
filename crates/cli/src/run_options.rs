//! From the command line to the options of a run.

use crate::args::{Engine, RunArgs};
use crate::console;
use crate::failure::{Failure, UsageError};
use crate::signals::Interrupts;
use ringattn::RunOptions;
use ringattn::comm::{CommError, RunError};
use ringattn::core::Rank;
use ringattn::plan::Layout;
use std::sync::Arc;

/// The options that `args` ask for, stopped by `interrupts`.
pub(crate) fn run_options(args: &RunArgs, interrupts: &Interrupts) -> Result<RunOptions, Failure> {
    match args.engine {
        Engine::Auto | Engine::Local => (),
        Engine::Mpi => return Err(UsageError::NoMpi.into()),
    }
    // A layout that cannot be is known before any file is read.
    Layout::new(args.layout.kind(), args.block, 1, args.ranks).map_err(ringattn::Error::from)?;
    let mut options = watched(args.ranks, interrupts);
    options.threads = args.threads;
    options.affinity = args.affinity();
    options.layout = args.layout.kind();
    options.block = args.block;
    if let Some(timeout) = args.timeout {
        options.timeout = timeout;
    }
    options.memory_limit = args.memory_limit;
    options.non_finite = args.non_finite();
    Ok(options)
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
