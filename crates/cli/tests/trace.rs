//! The trace of a run: what its format asks for, spans that do not overlap, and sums that are the report's.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use support::{Sandbox, Tensor, fixture, model_of_words, ringattn, safetensors};

/// Runs the command with `--trace` and `--report` and reads both.
fn traced(sandbox: &Sandbox, args: &[&str]) -> (Value, Value) {
    let (trace, report) = (sandbox.arg("trace.json"), sandbox.arg("report.json"));
    let mut all = args.to_vec();
    all.extend(["--trace", &trace, "--report", &report]);
    ringattn(&all);
    let read = |path: &str| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    (read(&trace), read(&report))
}

fn complete(trace: &Value) -> Vec<&Value> {
    let events = trace["traceEvents"].as_array().unwrap();
    events.iter().filter(|event| event["ph"] == "X").collect()
}

/// The JSON object format of the Trace Event Format: names as metadata, complete events with numbers.
fn check_format(trace: &Value, (ranks, steps): (u64, u64)) {
    assert_eq!(trace["displayTimeUnit"], "ns");
    assert_eq!(trace["otherData"]["schema"], "ringattn.trace/1");
    for event in trace["traceEvents"].as_array().unwrap() {
        assert!(event["pid"].as_u64().unwrap() < ranks, "{event}");
        assert!(event["tid"].as_u64().unwrap() < 6, "{event}");
        match event["ph"].as_str().unwrap() {
            "M" => {
                assert!(["process_name", "thread_name"].contains(&event["name"].as_str().unwrap()));
                assert!(!event["args"]["name"].as_str().unwrap().is_empty());
            }
            "X" => {
                let (start, length) =
                    (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
                assert!(start >= 0.0 && length >= 0.0, "{event}");
                assert!(event["args"]["step"].as_u64().unwrap() < steps, "{event}");
            }
            other => panic!("{other}"),
        }
    }
}

/// Nanoseconds, which the file holds as microseconds with three digits.
fn nanoseconds(microseconds: &Value) -> u64 {
    (microseconds.as_f64().unwrap() * 1e3).round() as u64
}

fn check_tracks(trace: &Value) {
    let mut tracks: BTreeMap<_, Vec<(u64, u64)>> = BTreeMap::new();
    for event in complete(trace) {
        let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let start = nanoseconds(&event["ts"]);
        tracks.entry(track).or_default().push((start, start + nanoseconds(&event["dur"])));
    }
    for (track, mut spans) in tracks {
        spans.sort_unstable();
        for pair in spans.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{track:?}: {pair:?}");
        }
    }
}

fn check_sums(trace: &Value, report: &Value) {
    for rank in report["per_rank"].as_array().unwrap() {
        let of_rank: Vec<_> =
            complete(trace).into_iter().filter(|event| event["pid"] == rank["rank"]).collect();
        let named = |name: &'static str| of_rank.iter().filter(move |event| event["name"] == name);
        let waits = |cause: &str| -> u64 {
            named("wait")
                .filter(|event| event["args"]["cause"] == cause)
                .map(|event| nanoseconds(&event["dur"]))
                .sum()
        };
        let report_says = |field: &str| (rank[field].as_f64().unwrap() * 1e9).round() as u64;
        // Each end of a span is cut to a nanosecond by itself.
        let most = 2 * of_rank.len() as u64;
        for (cause, field) in [("peer", "peer_wait_s"), ("transfer", "transfer_wait_s")] {
            assert!(waits(cause).abs_diff(report_says(field)) <= most, "{cause} {rank}");
        }
        let sum = |name: &'static str, field: &str| -> u64 {
            named(name).map(|event| event["args"][field].as_u64().unwrap()).sum()
        };
        assert_eq!(sum("attend", "pairs"), rank["pairs"].as_u64().unwrap());
        assert_eq!(sum("send", "bytes"), rank["sent_bytes"].as_u64().unwrap());
        assert_eq!(sum("receive", "bytes"), rank["received_bytes"].as_u64().unwrap());
        assert_eq!(named("receive").count() as u64, rank["hops"].as_u64().unwrap());
        let heads = report["q_heads"].as_u64().unwrap() * report["head_dim"].as_u64().unwrap();
        assert_eq!(sum("attend", "flops"), 4 * heads * rank["pairs"].as_u64().unwrap());
    }
}

#[test]
fn a_trace_adds_up_to_the_report() {
    let sandbox = Sandbox::new();
    let heads = |heads: usize, seed| Tensor::random(&[heads, 301, 16], seed);
    let (q, k, v) = (heads(4, 1), heads(2, 2), heads(2, 3));
    let input = sandbox.write("in.st", safetensors(&[("q", &q), ("k", &k), ("v", &v)]));
    let out = sandbox.arg("out.st");
    let model = fixture("tiny-llama3");
    let tokens = sandbox.write("tokens.json", format!("{:?}", (0..50).collect::<Vec<_>>()));
    for ranks in ["1", "2", "5"] {
        for layout in ["contiguous", "striped", "zigzag"] {
            let attend = ["attend", &input, "--out", &out, "--mask", "causal"];
            let score = ["score", model.to_str().unwrap(), "--tokens", &tokens];
            for command in [&attend[..], &score[..]] {
                let how = ["--ranks", ranks, "--layout", layout, "--quiet"];
                let (trace, report) = traced(&sandbox, &[command, &how].concat());
                let ranks = ranks.parse().unwrap();
                check_format(&trace, (ranks, ranks));
                check_tracks(&trace);
                check_sums(&trace, &report);
                let layers = report["layers"].as_u64().unwrap();
                let last = complete(&trace).iter().map(|e| e["args"]["layer"].as_u64()).max();
                assert_eq!(last, Some(Some(layers - 1)));
            }
        }
    }
}

/// Queries and states under way at once, and the rounds of a tree.
#[test]
fn a_trace_of_visiting_queries_adds_up_too() {
    let sandbox = model_of_words();
    let tokens = |range: std::ops::Range<u32>| format!("{:?}", range.collect::<Vec<_>>());
    let document = sandbox.write("document.json", tokens(0..150));
    let question = sandbox.write("question.json", tokens(150..190));
    let (model, cache) = (sandbox.arg("model"), sandbox.arg("cache"));
    let generate = ["generate", &model, "--ranks", "4", "--quiet"];
    let save = ["--tokens", &document, "-n", "0", "--save-cache", &cache];
    ringattn(&[&generate[..], &save].concat());
    let load = ["--tokens", &question, "-n", "3", "--load-cache", &cache];
    let (trace, report) = traced(&sandbox, &[&generate[..], &load].concat());
    // One step more than ranks.
    check_format(&trace, (4, 5));
    check_tracks(&trace);
    check_sums(&trace, &report);
    let of = |name: &str| -> Vec<_> {
        complete(&trace).into_iter().filter(|event| event["name"] == name).collect()
    };
    let moves_queries = |event: &&&Value| event["args"]["queries"].is_u64();
    assert_eq!(of("receive").iter().filter(moves_queries).count(), 3 * 4 * 3);
    assert!(of("receive").iter().all(|event| event["args"]["block"].is_null()));
    let visits =
        |event: &&&Value| event["args"]["step"] != 0 && event["args"]["queries"] != event["pid"];
    assert_eq!(of("attend").iter().filter(visits).count(), 3 * 4 * 3);
}
