//! A rank that gets no thread ends those that have one.

use ringattn_comm::{CommError, Communicator, RunError, local};
use std::process::Command;

/// In the shell's words, far less address space than 1024 stacks need, in KiB.
const LIMIT: &str = "ulimit -v 600000 && exec \"$0\" \"$@\"";

#[test]
fn the_ranks_end_or_the_missing_one_is_named() {
    let ended = local::run(1024, local::DEFAULT_TIMEOUT, |comm| comm.barrier());
    match ended {
        Ok(results) => println!("all {} ranks", results.len()),
        Err(error @ RunError::<CommError>::Start { .. }) => println!("{error}"),
        Err(other) => panic!("{other}"),
    }
}

#[test]
#[cfg(target_os = "linux")]
fn ranks_end_when_one_cannot_be_started() {
    let this = std::env::current_exe().unwrap();
    let child = Command::new("sh")
        .args(["-c", LIMIT])
        .arg(this)
        .args(["--exact", "the_ranks_end_or_the_missing_one_is_named", "--nocapture"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{printed}{}", String::from_utf8_lossy(&child.stderr));
    assert!(printed.contains("could not be started"), "{printed}");
}
