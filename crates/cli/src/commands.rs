//! One module per command, and what they share: outputs that appear together or not at all.

mod attend;
mod bench;
mod generate;
mod plan;
mod score;
mod view;

use crate::args::Command;
use crate::failure::{Failure, UsageError};
use crate::output::{OutputError, Staged, Staging, Target};
use crate::signals::Interrupts;
use crate::{INTERNAL_FAULT, console};
use ringattn::{Engine, RunOptions};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// Runs `command`; nothing unfinished is left behind.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    let staging = Staging::default();
    let discard = Discard(&staging);
    let outcome = Interrupts::watch(&staging).and_then(|interrupts| {
        let session = Session { staging: staging.clone(), interrupts };
        let work = || match command {
            Command::Score(args) => score::run(&args, &session),
            Command::Generate(args) => generate::run(&args, &session),
            Command::Attend(args) => attend::run(&args, &session),
            Command::Bench(args) => bench::run(&args, &session),
            Command::Plan(args) => plan::run(&args, &session),
            Command::View(args) => view::run(&args, &session),
        };
        // Nothing is used after an unwinding but the exit code, which the job must get.
        let outcome = match (catch_unwind(AssertUnwindSafe(work)), session.interrupts.job()) {
            (Ok(outcome), _) => outcome,
            (Err(_), Some(job)) => job.abort(INTERNAL_FAULT),
            (Err(fault), None) => resume_unwind(fault),
        };
        if outcome.is_err() {
            staging.discard_all();
        }
        end_job(&session.interrupts, outcome)
    });
    drop(discard);
    outcome
}

/// Ends the job that this process is in, if it is in one. Does not return after a failure: the whole
/// job ends then, and one rank says why.
fn end_job(interrupts: &Interrupts, outcome: Result<(), Failure>) -> Result<(), Failure> {
    let Some(job) = interrupts.job() else { return outcome };
    let outcome = outcome.and_then(|()| Ok(job.finish().map_err(ringattn::Error::Peer)?));
    let Err(failure) = outcome else { return Ok(()) };
    interrupts.leave_the_end_to_others();
    if job.speaks() {
        let place = match failure.culprit() {
            Some(rank) => format!("rank {rank} is on {}", job.host(rank)),
            None => format!("on rank {}, {}", job.rank(), job.host(job.rank())),
        };
        console::failure(&failure, Some(place));
    }
    job.abort(failure.exit_code())
}

/// Discards what is unfinished, also when a fault unwinds past it.
struct Discard<'a>(&'a Staging);

impl Drop for Discard<'_> {
    fn drop(&mut self) {
        self.0.discard_all();
    }
}

/// The outputs and signals of one command.
struct Session {
    staging: Staging,
    interrupts: Interrupts,
}

impl Session {
    /// Reads inputs and opens outputs, which every process of a job does by itself.
    fn together<T>(
        &self,
        options: &RunOptions,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        options.engine.together(&options.stop, work).map_err(|failure| match failure {
            Failure::Run(error) => self.interrupts.failure(error),
            other => other,
        })
    }

    /// A place to open the outputs of a run in, none of which may be one of `inputs`.
    fn outputs<'a>(&'a self, inputs: Vec<&'a Path>, engine: &Engine) -> Outputs<'a> {
        let writer = if engine.is_root() { Writer::Here } else { Writer::AnotherProcess };
        Outputs { staging: &self.staging, inputs, writer, targets: Vec::new() }
    }

    /// Lets `tell` write to stdout, then puts the outputs in place, unless a signal has come.
    fn commit(
        &self,
        mut files: Vec<Staged>,
        tell: impl FnOnce() -> Result<(), OutputError>,
    ) -> Result<(), Failure> {
        // A full disk shows here, a full stdout in `tell`: both while the old outputs are in place.
        files.iter_mut().try_for_each(Staged::make_durable)?;
        self.interrupts.check()?;
        tell()?;
        self.interrupts.check()?;
        Ok(self.staging.commit(files)?)
    }
}

/// The outputs of a command, opened one by one before anything is computed.
struct Outputs<'a> {
    staging: &'a Staging,
    inputs: Vec<&'a Path>,
    writer: Writer,
    /// What is open, with the option that named it.
    targets: Vec<(&'static str, Target)>,
}

/// Who writes the outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Here,
    AnotherProcess,
}

impl Outputs<'_> {
    /// Opens a temporary for the file that `option` names, where there is one and it is this process
    /// that writes it.
    fn open_if(
        &mut self,
        option: &'static str,
        path: Option<&Path>,
    ) -> Result<Option<Staged>, Failure> {
        let path = path.filter(|_| self.writer == Writer::Here);
        path.map(|path| self.open(option, path)).transpose()
    }

    /// Opens a temporary for the file that `option` names.
    fn open(&mut self, option: &'static str, path: &Path) -> Result<Staged, Failure> {
        not_stdout(option, path, "file")?;
        let target = Target::new(path, &self.inputs)?;
        if let Some((first, _)) = self.targets.iter().find(|(_, other)| other.path == target.path) {
            let file = target.name;
            return Err(UsageError::SameOutput { first, second: option, file }.into());
        }
        self.targets.push((option, target.clone()));
        Ok(self.staging.create(target)?)
    }

    /// Makes sure of the folder that `option` names.
    fn folder(&self, option: &'static str, path: &Path) -> Result<(), Failure> {
        not_stdout(option, path, "folder")?;
        match self.writer {
            Writer::Here => Ok(self.staging.folder(path)?),
            Writer::AnotherProcess => Ok(()),
        }
    }
}

/// Refuses `-` where the result is not text.
fn not_stdout(option: &'static str, path: &Path, expected: &'static str) -> Result<(), UsageError> {
    let stdout = path.as_os_str() == "-";
    if stdout { Err(UsageError::Dash { option, expected }) } else { Ok(()) }
}
