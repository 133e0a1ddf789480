//! The MPI communicator under `mpirun`: the suite, faults with their bounds, message sizes, overlap.
//!
//! One program in two roles. Without arguments it is the driver: it starts each case under `mpirun`
//! with itself as the ranks, breaks what is to be broken from outside, and checks the exit code, the
//! one error text, the time it took and that no process is left. `NAME...` runs the cases whose
//! names contain one of these. `heavy` is run only when named: it needs 9 GB of memory.

#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)] // a test fails by panicking
#![allow(clippy::print_stdout, clippy::print_stderr)] // no harness prints for it

mod cases;
mod launch;
mod limit;
mod ranks;

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, case, folder] = &arguments[..]
        && role == launch::RANK
    {
        return ranks::main(case, folder.as_ref());
    }
    let names: Vec<_> = arguments.iter().filter(|name| !name.starts_with('-')).collect();
    let mut failed = 0;
    for case in cases::all() {
        let title = case.title();
        let is_named = names.iter().any(|name| title.contains(name.as_str()));
        if !(is_named || names.is_empty() && !case.is_heavy()) {
            continue;
        }
        let begun = Instant::now();
        let ended = case.check();
        let seconds = begun.elapsed().as_secs_f64();
        match ended {
            Ok(notes) => println!("{title} ... ok ({seconds:.1} s){notes}"),
            Err(why) => {
                failed += 1;
                println!("{title} ... FAILED ({seconds:.1} s)\n{why}");
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
