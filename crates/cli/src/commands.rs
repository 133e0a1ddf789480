//! One module per command, and what they share: outputs that appear together or not at all.

mod attend;
mod score;

use crate::args::Command;
use crate::failure::{Failure, UsageError};
use crate::output::{Staged, Staging, Target};
use crate::signals::Interrupts;
use std::path::Path;

/// Runs `command`; nothing unfinished is left behind.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    let staging = Staging::default();
    let outcome = Interrupts::watch(&staging).and_then(|interrupts| {
        let session = Session { staging: staging.clone(), interrupts };
        match command {
            Command::Score(args) => score::run(&args, &session),
            Command::Attend(args) => attend::run(&args, &session),
        }
    });
    staging.discard_all();
    outcome
}

/// The outputs and signals of one command.
struct Session {
    staging: Staging,
    interrupts: Interrupts,
}

/// A file that an option names.
#[derive(Clone, Copy, Debug)]
struct Named<'a> {
    option: &'static str,
    path: &'a Path,
}

impl Session {
    /// Opens a temporary for each of `outputs`, which must be different files and no inputs.
    fn stage<const N: usize>(
        &self,
        outputs: [Option<Named<'_>>; N],
        inputs: &[&Path],
    ) -> Result<[Option<Staged>; N], Failure> {
        let mut targets: Vec<(&str, Target)> = Vec::new();
        for Named { option, path } in outputs.iter().flatten() {
            if path.as_os_str() == "-" {
                return Err(UsageError::Dash { option, expected: "file" }.into());
            }
            let target = Target::new(path, inputs)?;
            if let Some((first, _)) = targets.iter().find(|(_, other)| other.path == target.path) {
                return Err(same_output(first, option, target));
            }
            targets.push((option, target));
        }
        let mut targets = targets.into_iter();
        let mut staged = [const { None }; N];
        for (slot, output) in staged.iter_mut().zip(&outputs) {
            if output.is_some() {
                let next = targets.next();
                *slot = next.map(|(_, target)| self.staging.create(target)).transpose()?;
            }
        }
        Ok(staged)
    }

    /// Puts the outputs in place, unless a signal has come.
    fn commit(&self, files: Vec<Staged>) -> Result<(), Failure> {
        self.interrupts.check()?;
        Ok(self.staging.commit(files)?)
    }
}

fn same_output(first: &'static str, second: &'static str, target: Target) -> Failure {
    UsageError::SameOutput { first, second, file: target.name }.into()
}
