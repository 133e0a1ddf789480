//! `bench` as its users call it; figures that mean something need a release build.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where something is wrong")]

mod support;

use serde_json::Value;
use std::fs;
use std::process::Command;
use support::{Sandbox, command, ringattn, run};

#[test]
fn figures_go_to_a_file_or_to_stdout_and_the_table_to_the_person() {
    let sandbox = Sandbox::new();
    let json = sandbox.arg("figures.json");
    let args = ["bench", "--quick", "--filter", "L=512", "--json"];
    let table = ringattn(&[&args[..], &[&json]].concat());
    let figures: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(figures["rows"].as_array().unwrap().len(), 2);
    let commit = figures["commit"].as_str().unwrap();
    let hexadecimal = commit.trim_end_matches('+').bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(commit == "unknown" || hexadecimal, "{commit}");
    let first = format!("{}, commit {commit}\n\n| what ", figures["machine"].as_str().unwrap());
    assert!(table.starts_with(&first), "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with("| dense ")).count(), 2, "{table}");
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());

    let (output, _) = run(&mut command(&[&args[..], &["-"]].concat()));
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(figures["rows"].as_array().unwrap().len(), 2);
    assert!(String::from_utf8(output.stderr).unwrap().contains("\n| what "));
}

/// Percent of the peak that forward rows must reach. The machines that run this are shared, and other
/// work on them has been seen to halve a row for seconds while the peak, a matter of registers,
/// hardly moves.
const GATE: f64 = 40.0;
const TRIES: usize = 4;

/// Whether all rows that the contract promises are there; and the slowest of them.
fn slowest_forward(figures: &Value) -> f64 {
    let rows = figures["rows"].as_array().unwrap();
    let mut slowest = f64::INFINITY;
    for head_dim in [64, 128] {
        for mask in ["full", "causal"] {
            let promised = |row: &&Value| {
                (&row["what"], &row["dtype"]) == (&"forward".into(), &"f32".into())
                    && (&row["threads"], &row["tokens"]) == (&1.into(), &4096.into())
                    && (&row["head_dim"], &row["mask"]) == (&head_dim.into(), &mask.into())
            };
            let row = rows.iter().find(promised).unwrap();
            slowest = row["percent_of_limit"].as_f64().unwrap().min(slowest);
        }
    }
    slowest
}

#[test]
#[ignore = "measures the release build named by RINGATTN_BIN"]
fn the_release_build_is_fast() {
    let program = std::env::var_os("RINGATTN_BIN").unwrap();
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let output = Command::new(&program).args(["bench", "--quick", "--json", "-"]).output();
        let figures: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        seen.push(slowest_forward(&figures));
        if seen.iter().any(|&slowest| slowest >= GATE) {
            return;
        }
    }
    panic!("forward rows reach {seen:?} % of the peak, expected {GATE} %");
}
