//! `plan` as its users call it: what it says is what a run then counts.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where something is wrong")]

mod support;

use serde_json::Value;
use std::fs;
use support::{Sandbox, Tensor, command, fixture, ringattn, run, safetensors};

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn plan(options: &str) -> Value {
    serde_json::from_str(&ringattn(&words(&format!("plan --json {options}")))).unwrap()
}

/// Names that stand in both reports, for every rank.
const COUNTS: [&str; 7] = [
    "tokens",
    "pairs",
    "resident_kv_bytes",
    "peak_kv_bytes",
    "sent_bytes",
    "received_bytes",
    "hops",
];

fn assert_same_counts(planned: &Value, report: &Value, what: &str) {
    let planned_ranks = planned["layouts"][0]["per_rank"].as_array().unwrap();
    let ranks = report["per_rank"].as_array().unwrap();
    assert_eq!(planned_ranks.len(), ranks.len());
    for (expected, actual) in planned_ranks.iter().zip(ranks) {
        for name in COUNTS {
            assert!(expected[name].is_u64(), "{name} in {expected}");
            assert_eq!(expected[name], actual[name], "{name} of rank {} {what}", actual["rank"]);
        }
    }
    for name in [
        "ranks", "layout", "block", "schedule", "mask", "layers", "tokens", "q_heads", "kv_heads",
        "head_dim", "kv_dtype",
    ] {
        assert_eq!(planned[name], report[name], "{name} {what}");
    }
}

#[test]
fn an_attention_counts_what_was_planned() {
    let sandbox = Sandbox::new();
    for tokens in [1, 37, 96] {
        let [q, k, v] = [[4, 1], [2, 2], [2, 3]]
            .map(|[heads, seed]| Tensor::random(&[heads, tokens, 8], seed as u64));
        let input = sandbox.write("in", safetensors(&[("q", &q), ("k", &k), ("v", &v)]));
        let (out, report) = (sandbox.arg("out"), sandbox.arg("report.json"));
        for ranks in [1, 2, 5] {
            for layout in
                ["contiguous", "striped", "zigzag", "striped --block 3", "zigzag --block 2"]
            {
                for mask in ["full", "causal", "causal --window 9,0", "full --window=-1,4"] {
                    let shared =
                        format!("--ranks {ranks} --layout {layout} --mask {mask} --kv-dtype bf16");
                    let line =
                        format!("attend {input} --out {out} --report {report} --quiet {shared}");
                    ringattn(&words(&line));
                    let measured = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
                    let heads = "--q-heads 4 --kv-heads 2 --head-dim 8";
                    let planned = plan(&format!("{heads} --tokens {tokens} {shared}"));
                    assert_same_counts(&planned, &measured, &shared);
                }
            }
        }
    }
}

/// Layers with and without windows are summed as a run sums them.
#[test]
fn a_document_counts_what_was_planned() {
    let sandbox = Sandbox::new();
    let ids: Vec<_> = (0..150).map(|index| index * 7 % 200).collect();
    let tokens = sandbox.write("ids.json", serde_json::to_vec(&ids).unwrap());
    for model in ["tiny-llama3", "tiny-mistral", "tiny-qwen3"] {
        let path = fixture(model);
        let path = path.to_str().unwrap();
        for layout in ["contiguous", "striped", "zigzag"] {
            let report = sandbox.arg("report.json");
            let shared = format!("--ranks 3 --layout {layout}");
            let line = format!("score {path} --tokens {tokens} --report {report} --quiet {shared}");
            ringattn(&words(&line));
            let measured: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
            let dtype = measured["kv_dtype"].as_str().unwrap();
            let planned = plan(&format!("{path} --tokens 150 --kv-dtype {dtype} {shared}"));
            assert_same_counts(&planned, &measured, &format!("{model} {layout}"));
        }
    }
}

#[test]
fn every_layout_is_priced_and_one_is_recommended() {
    let shape = "--q-heads 32 --kv-heads 8 --head-dim 128 --layers 32";
    let planned = plan(&format!("{shape} --tokens 1Mi --ranks 8 --machine a100-nvlink"));
    assert_eq!(planned["schema"], "ringattn.plan/1");
    let layouts = planned["layouts"].as_array().unwrap();
    let names: Vec<_> = layouts.iter().map(|layout| layout["layout"].as_str().unwrap()).collect();
    assert_eq!(names, ["contiguous", "striped", "zigzag"]);
    assert_eq!(planned["layout"], "zigzag");
    assert_eq!(planned["recommended"]["block"], 65_536);
    let reason = planned["recommended"]["reason"].as_str().unwrap();
    assert!(reason.contains("contiguous takes 1.87 times as long"), "{reason}");
    let zigzag = &layouts[2];
    // 3 blocks of 2^17 tokens of 2^12 bytes, and 33152 bytes of work a token.
    assert_eq!(zigzag["peak_kv_bytes"], 3_u64 << 29);
    assert_eq!(zigzag["memory"]["one_layer_bytes"], (3_u64 << 29) + 33_152 * 131_072);
    assert_eq!(zigzag["memory"]["one_layer_fits"], true);
    assert_eq!(zigzag["received_bytes"], 32 * (7_u64 << 29));
    let seconds = zigzag["attention_s"].as_f64().unwrap();
    assert!((seconds - 115.477).abs() < 1e-3, "{seconds}");
    assert_eq!(planned["smallest_block"]["tokens"], 930);
}

#[test]
fn numbers_override_the_machine_s() {
    let shape = "--q-heads 4 --head-dim 8 --tokens 64";
    let all = plan(&format!("{shape} --flops 8e10 --bandwidth 1G --latency 1e-6 --memory 80G"));
    let machine = &all["machine"];
    assert_eq!(machine["name"], Value::Null);
    assert_eq!(machine["flops"].as_f64(), Some(8e10));
    assert_eq!(machine["bandwidth"].as_f64(), Some(1e9));
    assert_eq!(machine["latency"].as_f64(), Some(1e-6));
    assert_eq!(machine["memory"].as_u64(), Some(80_000_000_000));
    let one = plan(&format!("{shape} --machine cpu-1gbe --bandwidth 1G"));
    assert_eq!(one["machine"]["name"], "cpu-1gbe");
    assert_eq!(one["machine"]["flops"].as_f64(), Some(1.6e12));
    let source = one["machine"]["source"].as_str().unwrap();
    assert!(source.ends_with("; --bandwidth as given"), "{source}");
    let unnamed = plan(shape);
    assert_eq!(unnamed["machine"]["name"], "h100-nvlink");
}

#[test]
fn this_machine_is_measured() {
    let shape = "--q-heads 2 --head-dim 64 --tokens 512 --kv-dtype f32 --ranks 2";
    let planned = plan(&format!("{shape} --measure --threads 1 --quiet"));
    let machine = &planned["machine"];
    for name in ["flops", "bandwidth", "latency", "memory"] {
        assert!(machine[name].as_f64().unwrap() > 0.0, "{name} in {machine}");
    }
    let source = machine["source"].as_str().unwrap();
    assert!(source.contains("forward f32 heads=1/1 d=64 L=256 causal"), "{source}");
}

#[test]
fn simulations_and_charts_are_added() {
    let shape = "--q-heads 4 --head-dim 32 --tokens 4096 --ranks 4 --machine cpu-10gbe";
    let planned = plan(&format!("{shape} --slow-rank 2:3 --jitter 1e-6 --seed 9 --charts --grid"));
    let simulation = planned["simulation"].as_array().unwrap();
    assert_eq!(simulation.len(), 3);
    for layout in simulation {
        let compute: Vec<_> =
            layout["compute_s"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
        let end = layout["end_s"].as_f64().unwrap();
        assert!(compute.iter().all(|&seconds| seconds <= end), "{layout}");
    }
    // In zigzag all compute the same: only rank 2, three times slower, is waited for.
    let zigzag = &simulation[2];
    let compute = zigzag["compute_s"].as_array().unwrap();
    let ratio = compute[2].as_f64().unwrap() / compute[0].as_f64().unwrap();
    assert!((ratio - 3.0).abs() < 1e-3, "{ratio}");
    assert_eq!(zigzag["waits"][0]["peer"], 2, "{zigzag}");
    let again = plan(&format!("{shape} --slow-rank 2:3 --jitter 1e-6 --seed 9"));
    assert_eq!(again["simulation"], planned["simulation"]);
    let throughput = planned["charts"]["throughput"].as_array().unwrap();
    assert_eq!(throughput.len(), 3 * 5);
    let spikes = planned["charts"]["latency_spike"].as_array().unwrap();
    assert_eq!(spikes.len(), 3 * 7);
    assert!(planned["grids"][0]["text"].as_str().unwrap().contains("rank |"));
    assert!(plan(shape).get("simulation").is_none());
}

/// Side by side what the next token costs: by hand, for SmolLM2's shape behind 8192 tokens on 8 ranks.
#[test]
fn the_next_token_is_planned_by_every_schedule() {
    let shape = "--q-heads 9 --kv-heads 3 --head-dim 64 --layers 30";
    let machine = "--flops 1e12 --bandwidth 1G --latency 1e-4 --memory 64G";
    let line = format!("{shape} --tokens 8192 --ranks 8 --layout striped {machine} --decode");
    let planned = plan(&line);
    let decode = planned["decode"].as_array().unwrap();
    // A state of 9 (64 + 2) f32; a shard of 1024 tokens, and once the new one.
    let (state, token) = (2376, 2 * 3 * 64 * 2);
    let others = 7 * 1024 * token;
    // 7 shards pass on to the new token's rank 0: the next one's over 7 links, the last one's over 1.
    let hops = 28 * 1024 * token;
    for (step, schedule, rounds, received, moved) in [
        (&decode[0], "tree-reduce", 3, 3 * state, 7 * state),
        (&decode[1], "tree", 3, 3 * state, 24 * state),
        (&decode[2], "ring-pass-kv", 7, others, hops),
        (&decode[3], "gather", 7, others, others),
    ] {
        assert_eq!(step["schedule"], schedule);
        assert_eq!(step["rounds_per_layer"], rounds);
        assert_eq!(step["hops"], 30 * rounds);
        assert_eq!(step["received_bytes"], 30 * received, "{step}");
        assert_eq!(step["moved_bytes"], 30 * moved, "{step}");
    }
    let seconds = |index: usize| decode[index]["simulated_s"].as_f64().unwrap();
    let pairs = |keys: u64| (4 * keys * 9 * 64) as f64 / 1e12;
    let tree = 30.0 * (pairs(1025) + 3.0 * (1e-4 + state as f64 / 1e9));
    assert!((seconds(0) - tree).abs() < 1e-6, "{} {tree}", seconds(0));
    assert!((seconds(1) - tree).abs() < 1e-6, "{} {tree}", seconds(1));
    let ring = 30.0 * (7.0 * (1e-4 + 1024.0 * token as f64 / 1e9) + pairs(1024));
    assert!((seconds(2) - ring).abs() < 1e-6, "{} {ring}", seconds(2));
    assert!(seconds(0) < seconds(2) && seconds(0) < seconds(3));
    assert!(plan(&format!("{shape} --tokens 8192 {machine}")).get("decode").is_none());
    let table = ringattn(&words(&format!("plan {line}")));
    for text in [
        "The next token's attention, 30 layers, striped:",
        "| tree-reduce ",
        "| tree ",
        "| gather ",
    ] {
        assert!(table.contains(text), "{text} in {table}");
    }
}

#[test]
fn a_layout_without_a_closed_form_is_left_out_of_a_comparison() {
    let planned = plan("--q-heads 4 --head-dim 8 --tokens 1Mi --ranks 2048 --window 100,0");
    assert_eq!(planned["layouts"].as_array().unwrap().len(), 2);
    assert_eq!(planned["unpriced"][0]["layout"], "zigzag");
    assert_eq!(planned["smallest_block"], Value::Null);
    assert!(planned["layouts"][0].get("per_rank").is_none());
}

#[test]
fn json_is_one_object_on_stdout_and_a_table_stands_beside_a_file() {
    let sandbox = Sandbox::new();
    let file = sandbox.arg("plan.json");
    let line = format!("plan --q-heads 4 --head-dim 8 --tokens 4096 --ranks 2 --out {file} --grid");
    let (output, _) = run(&mut command(&words(&line)));
    let table = String::from_utf8(output.stdout).unwrap();
    for text in ["plan ", "machine ", "| layout ", "| zigzag ", "take ", "context ", "rank |"] {
        assert!(table.contains(text), "{text} in {table}");
    }
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let written: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let printed: Value =
        serde_json::from_str(&ringattn(&words(&format!("{line} --json")))).unwrap();
    assert_eq!(written, printed);
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
}
