//! SIGINT and SIGTERM end a long run soon, with their exit code and without a trace.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where something is wrong")]

mod support;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Sandbox, Tensor, command, safetensors};

/// What is in the output before the command runs.
const OLD: &str = "old output";

fn kill(signal: &str, pid: u32) {
    let killed = Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status();
    assert!(killed.unwrap().success());
}

/// Whether the process has opened an output: a file without a name, or one with a temporary name.
fn has_temporary(pid: u32, sandbox: &Sandbox) -> bool {
    let folder = sandbox.path("").canonicalize().unwrap();
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    let nameless = targets.any(|target| {
        target.starts_with(&folder) && target.to_string_lossy().ends_with("(deleted)")
    });
    nameless || !sandbox.leftovers().is_empty()
}

/// Starts an `attend` of minutes, sends the signals, and checks that it ends with `code`.
fn stopped_by(signals: &[&str], code: i32) {
    let sandbox = Sandbox::new();
    let tensor = |seed| Tensor::random(&[1, 400_000, 8], seed);
    let file = safetensors(&[("q", &tensor(1)), ("k", &tensor(2)), ("v", &tensor(3))]);
    let (input, out) = (sandbox.write("in", file), sandbox.write("out", OLD));
    let args = ["attend", &input, "--out", &out, "--mask", "full", "--ranks", "2"];
    ends(&args, &sandbox, signals, code);
}

/// Starts the command, which writes to `out`, sends the signals, and checks that it ends with `code`.
fn ends(args: &[&str], sandbox: &Sandbox, signals: &[&str], code: i32) {
    let mut child = command(args).spawn().unwrap();
    let start = Instant::now();
    while !has_temporary(child.id(), sandbox) {
        if start.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("no temporary file appears");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    for signal in signals {
        kill(signal, child.id());
    }
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(10) {
            child.kill().unwrap();
            panic!("does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let elapsed = start.elapsed();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(elapsed < Duration::from_secs(2), "took {elapsed:?}");
    assert!(stderr.starts_with("error: stopped by SIG"), "{stderr}");
    // Of what was written the signal knows nothing.
    assert!(!stderr.contains("written"), "{stderr}");
    assert_eq!(fs::read_to_string(sandbox.path("out")).unwrap(), OLD);
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
}

#[test]
fn sigint() {
    stopped_by(&["INT"], 130);
}

#[test]
fn sigterm() {
    stopped_by(&["TERM"], 143);
}

#[test]
fn twice() {
    stopped_by(&["INT", "INT"], 130);
}

#[test]
fn bench() {
    let sandbox = Sandbox::new();
    let out = sandbox.write("out", OLD);
    ends(&["bench", "--json", &out], &sandbox, &["INT"], 130);
}
