//! The benchmark: the figures hold their contract, and what cannot be measured is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringattn::bench::{BenchOptions, BenchSize, bench};
use ringattn::engine::cpu::Isa;
use ringattn::{Error, ErrorKind, RunOptions};
use serde_json::Value;

fn figures(filter: &str, run: &RunOptions) -> Result<Value, Error> {
    let (size, commit) = (BenchSize::Smallest, "0123456789ab".to_owned());
    let options = BenchOptions { size, filter: filter.to_owned(), commit };
    bench(&options, run).map(|report| serde_json::to_value(report).unwrap())
}

fn options(isa: Isa, threads: usize) -> RunOptions {
    RunOptions { isa, threads: Some(threads), ..RunOptions::new(3) }
}

fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0 && number.is_finite())
}

/// The names and values that programs outside this repository read.
fn check_row(row: &Value) {
    for (name, values) in [
        ("what", &["forward", "decode", "ring", "dense"][..]),
        ("dtype", &["f32", "bf16", "f16", "q8", "q4"]),
        ("mask", &["full", "causal", "causal+window", "striped-shard"]),
    ] {
        assert!(row[name].as_str().is_some_and(|value| values.contains(&value)), "{name} in {row}");
    }
    for name in ["head_dim", "tokens", "threads", "ranks"] {
        assert!(row[name].as_u64().is_some_and(|value| value > 0), "{name} in {row}");
    }
    let reads = row["what"] == "decode" || (row["what"] == "dense" && row["tokens"] == 1);
    let (speed, other) = if reads { ("gb_s", "gflops") } else { ("gflops", "gb_s") };
    assert!(positive(&row[speed]) && row.get(other).is_none(), "{row}");
    let percent = row["percent_of_limit"].as_f64().unwrap();
    assert!(percent > 0.0 && percent <= 100.0, "{row}");
}

#[test]
fn the_figures_hold_their_contract_on_every_instruction_set() {
    for isa in Isa::available() {
        let report = figures("", &options(isa, 2)).unwrap();
        assert!(report["machine"].as_str().unwrap().contains(&isa.to_string()), "{report}");
        assert_eq!(report["commit"], "0123456789ab");
        assert!(positive(&report["peak_gflops"]) && positive(&report["read_gb_s"]), "{report}");
        let rows = report["rows"].as_array().unwrap();
        rows.iter().for_each(check_row);
        for what in ["forward", "decode", "ring", "dense"] {
            assert!(rows.iter().any(|row| row["what"] == what), "no {what} in {report}");
        }
        let rings: Vec<_> = rows.iter().filter(|row| row["what"] == "ring").collect();
        assert!(rings[0]["ranks"] == 1 && rings[0].get("cpu_vs_one_rank").is_none());
        let (one, three) = (&rings[0]["seconds"], &rings[1]["seconds"]);
        let ratio = three.as_f64().unwrap() / one.as_f64().unwrap();
        assert_eq!((&rings[1]["ranks"], &rings[1]["threads"]), (&3.into(), &1.into()));
        // One rank on as many processors as the ring may have; both per second of one processor.
        assert_eq!(rings[0]["threads"], 2);
        let peak = report["limits"][0]["peak_gflops"].as_f64().unwrap();
        for ring in &rings {
            let expected = 100.0 * ring["gflops"].as_f64().unwrap() / peak;
            assert!((ring["percent_of_limit"].as_f64().unwrap() - expected).abs() < 1e-9, "{ring}");
        }
        assert_eq!(rings[1]["cpu_vs_one_rank"].as_f64(), Some(ratio));
    }
}

#[test]
fn a_percentage_compares_a_row_with_the_limit_of_its_threads() {
    let report = figures("forward", &options(Isa::detect(), 2)).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let several = rows.iter().filter(|row| row["threads"] == 2).count();
    assert!(several == 1 && rows.len() == 6, "{report}");
    for row in rows {
        let limit = &report["limits"][usize::from(row["threads"] == 2)];
        assert_eq!(limit["threads"], row["threads"]);
        let expected =
            100.0 * row["gflops"].as_f64().unwrap() / limit["peak_gflops"].as_f64().unwrap();
        assert!((row["percent_of_limit"].as_f64().unwrap() - expected).abs() < 1e-9, "{row}");
    }
    // A causal row of 100 queries sees 5050 pairs, a full one 10000.
    for (row, pairs) in rows.iter().zip([10_000.0, 5050.0]) {
        let flops = 4.0 * 64.0 * pairs;
        let speed = flops / row["seconds"].as_f64().unwrap() / 1e9;
        assert!((row["gflops"].as_f64().unwrap() / speed - 1.0).abs() < 1e-9, "{row}");
    }
}

/// One token's products read the packed weights of a layer of SmolLM2-135M once.
#[test]
fn a_dense_row_of_one_token_is_compared_with_the_bandwidth_of_its_threads() {
    let report = figures("L=1 ", &options(Isa::detect(), 2)).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let weights = f64::from(2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536);
    let expected = [("f32", 4.0), ("bf16", 2.0), ("q8", 1.125), ("q4", 0.625)];
    let expected = [1, 2].into_iter().flat_map(|threads| expected.map(|of| (threads, of)));
    assert_eq!(rows.len(), 8, "{report}");
    for (row, (threads, (dtype, bytes))) in rows.iter().zip(expected) {
        assert_eq!((&row["dtype"], &row["threads"]), (&dtype.into(), &threads.into()), "{row}");
        let speed = bytes * weights / row["seconds"].as_f64().unwrap() / 1e9;
        assert!((row["gb_s"].as_f64().unwrap() / speed - 1.0).abs() < 1e-9, "{row}");
        let limit = &report["limits"][threads - 1];
        assert_eq!(limit["threads"], row["threads"]);
        let percent = 100.0 * speed / limit["read_gb_s"].as_f64().unwrap();
        assert!((row["percent_of_limit"].as_f64().unwrap() - percent).abs() < 1e-9, "{row}");
    }
    // A part of the text chooses one.
    let report = figures("dense q4 heads=9/3 d=64 L=1 ", &options(Isa::detect(), 1)).unwrap();
    assert_eq!(report["rows"].as_array().unwrap().len(), 1);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let run = options(Isa::Scalar, 1);
    let error = figures("no such row", &run).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().contains("no such row"), "{error}");
    let foreign = if cfg!(target_arch = "aarch64") { Isa::Avx2 } else { Isa::Neon };
    assert_eq!(figures("", &options(foreign, 1)).unwrap_err().kind(), ErrorKind::Usage);
    run.stop.stop("enough");
    assert_eq!(figures("", &run).unwrap_err().kind(), ErrorKind::Stopped);
}
