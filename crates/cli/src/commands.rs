//! One module per command, and what they share: outputs that appear together or not at all.

mod attend;
mod bench;
mod plan;
mod score;
mod view;

use crate::args::Command;
use crate::failure::{Failure, UsageError};
use crate::output::{OutputError, Staged, Staging, Target};
use crate::signals::Interrupts;
use std::path::Path;

/// Runs `command`; nothing unfinished is left behind.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    let staging = Staging::default();
    let discard = Discard(&staging);
    let outcome = Interrupts::watch(&staging).and_then(|interrupts| {
        let session = Session { staging: staging.clone(), interrupts };
        match command {
            Command::Score(args) => score::run(&args, &session),
            Command::Attend(args) => attend::run(&args, &session),
            Command::Bench(args) => bench::run(&args, &session),
            Command::Plan(args) => plan::run(&args, &session),
            Command::View(args) => view::run(&args, &session),
        }
    });
    drop(discard);
    outcome
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
    /// A place to open outputs in, none of which may be one of `inputs`.
    fn outputs<'a>(&'a self, inputs: Vec<&'a Path>) -> Outputs<'a> {
        Outputs { staging: &self.staging, inputs, targets: Vec::new() }
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
    /// What is open, with the option that named it.
    targets: Vec<(&'static str, Target)>,
}

impl Outputs<'_> {
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
        Ok(self.staging.folder(path)?)
    }
}

/// Refuses `-` where the result is not text.
fn not_stdout(option: &'static str, path: &Path, expected: &'static str) -> Result<(), UsageError> {
    let stdout = path.as_os_str() == "-";
    if stdout { Err(UsageError::Dash { option, expected }) } else { Ok(()) }
}
