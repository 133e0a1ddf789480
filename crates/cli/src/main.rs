//! The command `ringattn`: reads arguments and files, calls the facade, writes results.
//!
//! No arithmetic of attention and no knowledge of ranks is here. Exit codes are in [`failure`].

#![deny(unsafe_code)]

mod args;
mod commands;
mod console;
mod failure;
mod input;
mod output;
mod progress;
mod run_options;
mod signals;
mod summary;

use std::process::ExitCode;

fn main() -> ExitCode {
    console::say_panics_in_one_line();
    let outcome = match args::parse() {
        Ok(command) => commands::run(command),
        Err(stop) => stop.tell(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}
