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
use std::thread;
use std::time::Duration;

/// A fault of this program is one of integrity; the panic hook has said what it was.
const INTERNAL_FAULT: u8 = 6;

/// How long a process that does not talk lets the one that does.
const COURTESY: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    console::say_panics_in_one_line();
    // Started by mpirun and its like: one process talks, whatever comes of it.
    let rank = run_options::launcher().and_then(|launch| launch.rank);
    if rank.is_some_and(|rank| rank > 0) {
        console::leave_talking_to_others();
    }
    let command = || match args::parse() {
        Ok(command) => commands::run(command),
        Err(stop) => stop.tell(),
    };
    // Nothing is used after an unwinding but the exit code.
    match catch_unwind(AssertUnwindSafe(command)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            if console::talks() {
                console::failure(&failure, None);
            } else {
                // A launcher that sees a process fail ends the one that talks.
                thread::sleep(COURTESY);
            }
            ExitCode::from(failure.exit_code())
        }
        Err(_) => ExitCode::from(INTERNAL_FAULT),
    }
}
