//! The command `ringattn`: reads arguments and files, calls the facade, writes results.
//!
//! No arithmetic of attention and no knowledge of ranks is here. Exit codes are in [`failure`].

#![deny(unsafe_code)]

mod args;
mod commands;
mod console;
mod failure;
mod figures;
mod input;
mod output;
mod prices;
mod progress;
mod run_options;
mod serve;
mod signals;
mod summary;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// A fault of this program is one of integrity; the panic hook has said what it was.
const INTERNAL_FAULT: u8 = 6;

fn main() -> ExitCode {
    console::say_panics_in_one_line();
    let command = || match args::parse() {
        Ok(command) => commands::run(command),
        Err(stop) => stop.tell(),
    };
    // Nothing is used after an unwinding but the exit code.
    match catch_unwind(AssertUnwindSafe(command)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            console::failure(&failure);
            ExitCode::from(failure.exit_code())
        }
        Err(_) => ExitCode::from(INTERNAL_FAULT),
    }
}
