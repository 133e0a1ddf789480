//! Whatever is wrong with an input, an option or an output: one clear error with the right exit
//! code, soon, without a panic or a huge allocation, and the old output as it was.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where something is wrong")]

mod cases;
mod support;

use cases::{Case, SENTINEL};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Sandbox, Tensor, command, fixture, run, safetensors};

/// A second is the aim; a busy machine gets more.
const SOON: Duration = Duration::from_secs(3);

/// What is wrong with the outcome of the case.
fn fault(case: &Case, sandbox: &Sandbox) -> Option<String> {
    // 3 GB of addresses: a length that a file merely claims cannot be allocated unnoticed.
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -v 3000000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_ringattn")])
        .args(&case.args)
        .env("RUST_BACKTRACE", "1")
        .current_dir(sandbox.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (output, elapsed) = run(&mut limited);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let mut faults = Vec::new();
    if output.status.code() != Some(case.code) {
        faults.push(format!("ended with {}, expected code {}", output.status, case.code));
    }
    if !stderr.contains(case.says) {
        faults.push(format!("does not say {:?}", case.says));
    }
    let wordy = stderr.lines().count() > 3 || stderr.len() > 800;
    if wordy || stderr.contains("panicked") || stderr.contains("internal fault") {
        faults.push("is wordy or panicked".to_owned());
    }
    if stderr.lines().filter(|line| line.starts_with("error: ")).count() != 1 {
        faults.push("is not one error".to_owned());
    }
    if elapsed > SOON {
        faults.push(format!("took {elapsed:?}"));
    }
    if !output.stdout.is_empty() {
        faults.push("wrote to stdout".to_owned());
    }
    (!faults.is_empty()).then(|| format!("{}: {}\n{stderr}", case.name, faults.join("; ")))
}

#[test]
fn every_bad_input_is_one_clear_error() {
    let sandbox = Sandbox::new();
    let cases = cases::all(&sandbox);
    assert!(cases.len() >= 60, "only {} cases", cases.len());
    let before = cases::kept_files(&sandbox);
    let half = cases.len() / 2;
    let faults: Vec<_> = std::thread::scope(|scope| {
        let check = |cases: &[Case]| -> Vec<_> {
            cases.iter().filter_map(|case| fault(case, &sandbox)).collect()
        };
        let (left, right) = cases.split_at(half);
        let left = scope.spawn(move || check(left));
        let right = check(right);
        left.join().unwrap().into_iter().chain(right).collect()
    });
    assert!(faults.is_empty(), "{} of {}\n{}", faults.len(), cases.len(), faults.join("\n"));
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
    for (path, bytes) in before {
        assert!(fs::read(&path).unwrap() == bytes, "{} was changed", path.display());
    }
    assert!(!sandbox.path("new-folder").exists());
}

fn small(sandbox: &Sandbox) -> String {
    let tensor = |seed| Tensor::random(&[1, 4096, 16], seed);
    let file = safetensors(&[("q", &tensor(1)), ("k", &tensor(2)), ("v", &tensor(3))]);
    sandbox.write("in.safetensors", file)
}

#[test]
fn a_full_disk_is_an_output_error() {
    let sandbox = Sandbox::new();
    let (input, out) = (small(&sandbox), sandbox.write("out", SENTINEL));
    // The limit is in blocks of 512 or 1024 bytes; the result has 278528 bytes.
    let script = "ulimit -f 100; exec \"$@\"";
    let mut limited = Command::new("sh");
    limited
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_ringattn")])
        .args(["attend", &input, "--out", &out, "--mask", "full"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (output, _) = run(&mut limited);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(9), "{stderr}");
    assert!(stderr.starts_with("error: cannot write"), "{stderr}");
    assert_eq!(fs::read(sandbox.path("out")).unwrap(), SENTINEL);
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
}

#[test]
fn too_little_memory_is_a_memory_error() {
    let sandbox = Sandbox::new();
    let out = sandbox.write("out", SENTINEL);
    let tensor = |heads, seed| Tensor::random(&[heads, 8192, 64], seed).to_bf16();
    let file = safetensors(&[("q", &tensor(48, 1)), ("k", &tensor(1, 2)), ("v", &tensor(1, 3))]);
    let input = sandbox.write("in.safetensors", file);
    // 52 MB of files are mapped; the result, which is f32 until it is written, needs 100 MB more.
    // With MPI, its libraries take 30 MB of address space by themselves.
    let limit = if cfg!(feature = "mpi") { 170_000 } else { 140_000 };
    let script = format!("ulimit -v {limit}; exec \"$@\"");
    let mut limited = Command::new("sh");
    limited
        .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_ringattn")])
        .args(["attend", &input, "--out", &out, "--mask", "full", "--threads", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (output, _) = run(&mut limited);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(8), "{stderr}");
    assert!(stderr.contains("memory"), "{stderr}");
    assert_eq!(fs::read(sandbox.path("out")).unwrap(), SENTINEL);
}

#[test]
fn stdout_that_is_full_or_gone() {
    let sandbox = Sandbox::new();
    let (input, out, report) = (small(&sandbox), sandbox.arg("out"), sandbox.arg("report"));
    let (model, ids) = (fixture("tiny-llama3"), sandbox.write("ids.json", "[1, 2, 3]"));
    let score =
        ["score", model.to_str().unwrap(), "--tokens", &ids, "--quiet", "--report", &report];
    let args = ["attend", &input, "--out", &out, "--mask", "full"];
    for (args, files) in [
        (&args[..], &[&out][..]),
        (&[&args[..], &["--report", &report]].concat(), &[&out, &report]),
        (&score, &[&report]),
        (&[&score[..], &["--out", &out]].concat(), &[&out, &report]),
        (&[&score[..], &["--out", "-"]].concat(), &[&report]),
    ] {
        files.iter().for_each(|file| fs::write(file, SENTINEL).unwrap());
        let kept = |file: &&String| fs::read(file).unwrap() == SENTINEL;
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (output, _) = run(command(args).stdout(full));
        assert_eq!(output.status.code(), Some(9), "{args:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with("error: cannot write stdout"), "{args:?}: {stderr}");
        assert!(files.iter().all(&kept), "{args:?}");
        assert_eq!(sandbox.leftovers(), Vec::<String>::new());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (output, _) = run(command(args).stdout(writer));
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        assert!(!files.iter().any(&kept), "{args:?}");
    }
    // A name of one's own must not matter.
    let (output, _) = run(command(&args).arg0("other"));
    assert_eq!(output.status.code(), Some(0));
}
