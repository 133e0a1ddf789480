//! The report: every field with its type, and the law for lengths that divide and that do not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where something is wrong")]

mod support;

use serde_json::Value;
use std::fs;
use support::{COUNTS_OF_RANK, Sandbox, Tensor, fixture, ringattn, safetensors};

/// The report of `attend` over so many tokens.
fn attend(tokens: usize, options: &str) -> Value {
    let sandbox = Sandbox::new();
    let [q, k, v] = [[2, 1], [1, 2], [1, 3]]
        .map(|[heads, seed]| Tensor::random(&[heads, tokens, 8], seed as u64));
    let input = sandbox.write("in", safetensors(&[("q", &q), ("k", &k), ("v", &v)]));
    let (out, report) = (sandbox.arg("out"), sandbox.arg("report.json"));
    let args = ["attend", &input, "--out", &out, "--report", &report];
    let stdout = ringattn(&[&args[..], &options.split(' ').collect::<Vec<_>>()].concat());
    assert!(stdout.contains("holds"), "{stdout}");
    serde_json::from_slice(&fs::read(report).unwrap()).unwrap()
}

fn check_fields(report: &Value) {
    let kinds = |value: &Value, path: &str, names: &str, kind: fn(&Value) -> bool| {
        for name in names.split_whitespace() {
            assert!(value.get(name).is_some_and(kind), "{path}{name} in {value}");
        }
    };
    kinds(report, "", "schema command engine layout schedule mask kv_dtype isa", Value::is_string);
    let counts = "ranks block layers tokens q_heads kv_heads head_dim unique_kv_bytes";
    kinds(report, "", counts, Value::is_u64);
    kinds(report, "", "wall_s tokens_per_s", Value::is_f64);
    kinds(report, "", "result law balance overlap", Value::is_object);
    kinds(&report["law"], "law.", "kv_bytes_total_per_layer", Value::is_u64);
    kinds(&report["law"], "law.", "holds", Value::is_boolean);
    let balance = "pairs_max_over_mean compute_max_over_mean";
    kinds(&report["balance"], "balance.", balance, Value::is_f64);
    kinds(&report["overlap"], "overlap.", "transfer_s hidden_fraction", Value::is_f64);
    assert_eq!(report["schema"], "ringattn.report/1");
    let ranks = report["per_rank"].as_array().unwrap();
    assert_eq!(Some(ranks.len() as u64), report["ranks"].as_u64());
    for (index, rank) in ranks.iter().enumerate() {
        assert_eq!(rank["rank"], index);
        kinds(rank, "per_rank.", "host", Value::is_string);
        kinds(rank, "per_rank.", "tokens pairs peak_rss_bytes", Value::is_u64);
        kinds(rank, "per_rank.", "compute_s transfer_wait_s peer_wait_s", Value::is_f64);
        for count in COUNTS_OF_RANK {
            let expected = format!("{count}_expected");
            kinds(rank, "per_rank.", count, Value::is_u64);
            assert_eq!(rank[count], rank[&expected], "{count} of rank {index}");
        }
    }
    assert_eq!(report["law"]["holds"], true);
    let sum: u64 = ranks.iter().filter_map(|rank| rank["tokens"].as_u64()).sum();
    assert_eq!(Some(sum), report["tokens"].as_u64());
}

fn counts(report: &Value, name: &str) -> Vec<u64> {
    let ranks = report["per_rank"].as_array().unwrap();
    ranks.iter().map(|rank| rank[name].as_u64().unwrap()).collect()
}

#[test]
fn the_law_holds_for_every_length() {
    for tokens in [2048, 2047, 5, 1] {
        for layout in ["striped", "zigzag", "contiguous"] {
            let report = attend(tokens, &format!("--mask causal --ranks 4 --layout {layout}"));
            check_fields(&report);
            let whole = report["law"]["kv_bytes_total_per_layer"].as_u64().unwrap();
            assert_eq!(whole, 2 * tokens as u64 * 8 * 4);
            let resident = counts(&report, "resident_kv_bytes");
            assert_eq!(resident.iter().sum::<u64>(), whole);
            if tokens == 2048 {
                assert_eq!(resident, [whole / 4; 4], "{layout}");
                let received = counts(&report, "received_bytes");
                let blocks = if layout == "contiguous" { [0, 1, 2, 3] } else { [3; 4] };
                assert_eq!(received, blocks.map(|blocks| blocks * whole / 4), "{layout}");
                assert_eq!(counts(&report, "hops"), blocks, "{layout}");
            }
        }
    }
}

#[test]
fn the_report_says_what_was_run() {
    let options = "--mask causal --window 9,0 --ranks 2 --layout zigzag --block 4 --kv-dtype bf16 \
                   --engine local --timeout 0.5e1 --memory-limit 1G --threads 2 --softmax-scale 0.5";
    let report = attend(64, options);
    check_fields(&report);
    for (name, expected) in [
        ("command", Value::from("attend")),
        ("engine", "local".into()),
        ("ranks", 2.into()),
        ("layout", "zigzag".into()),
        ("block", 4.into()),
        ("layers", 1.into()),
        ("tokens", 64.into()),
        ("q_heads", 2.into()),
        ("kv_heads", 1.into()),
        ("head_dim", 8.into()),
        ("kv_dtype", "bf16".into()),
    ] {
        assert_eq!(report[name], expected, "{name}");
    }
    assert_eq!(report["law"]["kv_bytes_total_per_layer"], 2 * 64 * 8 * 2);
    assert_eq!(report["result"]["softmax_scale"], 0.5);
    // 10 keys for each of the 64 queries, fewer for the first 9.
    assert_eq!(counts(&report, "pairs").iter().sum::<u64>(), 640 - 45);
}

#[test]
fn score_sums_over_layers() {
    let sandbox = Sandbox::new();
    let model = fixture("tiny-llama3");
    let ids: Vec<_> = (0..40).map(|i| (i * 37 % 256).to_string()).collect();
    let ids = sandbox.write("ids.json", format!("[{}]", ids.join(",")));
    let report = sandbox.arg("report.json");
    let args = ["score", model.to_str().unwrap(), "--tokens", &ids, "--report", &report];
    ringattn(&[&args[..], &["--ranks", "4"]].concat());
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    check_fields(&report);
    assert_eq!((&report["command"], &report["layers"]), (&"score".into(), &3.into()));
    assert_eq!(report["result"]["scored_tokens"], 39);
    assert_eq!(report["result"]["beyond_trained_context"], false);
    assert!(report["result"]["perplexity"].is_f64());
    let whole = 3 * report["law"]["kv_bytes_total_per_layer"].as_u64().unwrap();
    assert_eq!(counts(&report, "resident_kv_bytes"), [whole / 4; 4]);
    assert_eq!(counts(&report, "received_bytes"), [whole / 4 * 3; 4]);
    assert_eq!(counts(&report, "hops"), [9; 4]);
}
