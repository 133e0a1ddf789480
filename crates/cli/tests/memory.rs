//! What `attend` holds in memory: its outputs, and of its inputs no copy.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where something is wrong")]

mod support;

use std::fs;
use std::time::Duration;
use support::{Sandbox, Tensor, command, safetensors};

const SHAPE: [usize; 3] = [8, 8192, 64];

/// Bytes of anonymous memory of a process; `None` when it has ended.
fn anonymous(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The most anonymous memory that a run of four ranks over the file is seen to have.
fn peak(file: Vec<u8>) -> u64 {
    let sandbox = Sandbox::new();
    let (input, out) = (sandbox.write("in", file), sandbox.arg("out"));
    let args = ["attend", &input, "--out", &out, "--mask", "causal", "--ranks", "4"];
    let mut child = command(&[&args[..], &["--threads", "1", "--quiet"]].concat()).spawn().unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(anonymous(child.id()).unwrap_or_default());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(child.wait().unwrap().success());
    peak
}

#[test]
fn a_mapped_file_is_read_in_place() {
    let [q, k, v] = [1, 2, 3].map(|seed| Tensor::random(&SHAPE, seed));
    let elements = SHAPE.iter().product::<usize>() as u64;
    let (inputs, outputs) = (3 * 4 * elements, 4 * (elements + elements / SHAPE[2] as u64));
    // Beside the outputs there are about 3 MB of tiles for each of the four ranks, and the program.
    let limit = outputs + inputs / 2;
    let aligned = safetensors(&[("q", &q), ("k", &k), ("v", &v)]);
    let seen = peak(aligned.clone());
    assert!(outputs <= seen && seen <= limit, "{seen} bytes, at least {outputs}, at most {limit}");
    // Rows that are not aligned are copied once, by the rank that owns them.
    let limit = inputs + outputs + inputs / 2;
    let seen = peak(support::misaligned(&aligned));
    assert!(inputs <= seen && seen <= limit, "{seen} bytes, at least {inputs}, at most {limit}");
}
