//! The data of the page: equal to what the plan proves and counts, and safe whatever is read.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where something is wrong")]

use ringattn::core::{AttentionShape, DType, Mask, Position};
use ringattn::plan::{Layout, LayoutKind, Plan, Problem, Schedule, check, expect};
use ringattn::view::{MAX_RANKS, MAX_TOKENS, Scene, ViewError, page};
use serde_json::{Value, json};

fn teaching() -> Value {
    serde_json::to_value(Scene::teaching().unwrap()).unwrap()
}

/// The plan of a variant of the teaching mode, made here.
fn plan(variant: &Value) -> Plan {
    let ranks = variant["ranks"].as_u64().unwrap();
    let mask = if variant["mask"] == "causal" { Mask::Causal } else { Mask::Full };
    let shape = AttentionShape::new(32, 8, 128).unwrap();
    let tokens = 4 * ranks;
    let problem = Problem { shape, queries: tokens, keys: tokens, mask, kv_dtype: DType::Bf16 };
    let kinds = [LayoutKind::Contiguous, LayoutKind::Striped, LayoutKind::Zigzag];
    let kind = kinds.into_iter().find(|kind| variant["layout"] == kind.to_string()).unwrap();
    let layout = Layout::new(kind, None, tokens, ranks as u32).unwrap();
    Plan::new(problem, layout, Schedule::RingPassKv).unwrap()
}

fn readout(frame: &Value, id: &str) -> u64 {
    let all = frame["readouts"].as_array().unwrap();
    all.iter().find(|readout| readout["id"] == id).unwrap()["value"].as_u64().unwrap()
}

#[test]
fn every_ring_of_the_teaching_mode_is_there_once() {
    let scene = teaching();
    let variants = scene["variants"].as_array().unwrap();
    let mut names: Vec<_> =
        variants.iter().map(|v| format!("{} {} {}", v["ranks"], v["layout"], v["mask"])).collect();
    assert_eq!(names.len(), 7 * 3 * 2);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 7 * 3 * 2);
}

#[test]
fn the_readouts_end_at_what_the_plan_proves_and_counts() {
    for variant in teaching()["variants"].as_array().unwrap() {
        let plan = plan(variant);
        let (prepared, proof) = (plan.prepare(), check(&plan).unwrap());
        let counts: Vec<_> =
            plan.key_layout().ranks().map(|rank| expect(&prepared, rank)).collect();
        let frames = variant["walk"]["frames"].as_array().unwrap();
        assert_eq!(frames.len(), counts.len() + 1);
        let result = frames.last().unwrap();
        let received: u64 = counts.iter().map(|counts| counts.received_bytes).sum();
        assert_eq!(readout(result, "moved"), received);
        assert_eq!(readout(result, "hops"), counts.iter().map(|c| c.hops).max().unwrap());
        assert_eq!(u128::from(readout(result, "pairs")), proof.pairs);
        let resident = counts.iter().map(|counts| counts.resident_kv_bytes).max().unwrap();
        assert!(frames.iter().all(|frame| readout(frame, "resident") == resident));
        let held = frames.iter().map(|frame| readout(frame, "held")).max().unwrap();
        assert_eq!(held, counts.iter().map(|counts| counts.peak_kv_bytes).max().unwrap());
        for (rank, counts) in counts.iter().enumerate() {
            let pairs = frames.iter().map(|frame| &frame["ranks"][rank]["pairs"]);
            assert_eq!(pairs.map(|pairs| pairs.as_u64().unwrap()).sum::<u64>(), counts.pairs);
        }
    }
}

#[test]
fn the_work_grid_gives_each_visible_pair_to_the_owner_of_its_query() {
    for variant in teaching()["variants"].as_array().unwrap() {
        let (plan, grid) = (plan(variant), &variant["grid"]);
        for query in 0..plan.problem().queries {
            let (rank, _) = plan.query_layout().owner(Position(query)).unwrap();
            assert_eq!(grid["owner"][query as usize], rank.0);
            let seen = plan.problem().mask.visible(Position(query));
            for key in 0..plan.problem().keys {
                let (block, _) = plan.key_layout().owner(Position(key)).unwrap();
                let p = plan.world_size();
                let step = seen.contains(Position(key)).then(|| (rank.0 + p - block.0) % p);
                assert_eq!(grid["steps"][query as usize][key as usize], json!(step));
            }
        }
    }
}

#[test]
fn tiles_hold_the_pairs_of_their_step() {
    let scene = teaching();
    let tile_loop = &scene["tile_loop"];
    assert_eq!((&tile_loop["query_tile"], &tile_loop["key_tile"]), (&json!(96), &json!(512)));
    for variant in scene["variants"].as_array().unwrap() {
        let ranks = variant["ranks"].as_u64().unwrap();
        let total: f64 = variant["tiles"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|steps| steps.as_array().unwrap())
            .filter_map(Value::as_u64)
            .flat_map(|pattern| {
                tile_loop["patterns"][pattern as usize]["visits"].as_array().unwrap().clone()
            })
            .map(|visit| {
                // The last query tile of 2048 rows holds 32.
                let rows = if visit["query"] == 21 { 32.0 } else { 96.0 };
                visit["visible"].as_f64().unwrap() * rows * 512.0
            })
            .sum();
        let tokens = (2048 * ranks) as f64;
        let all = if variant["mask"] == "causal" {
            tokens * (tokens + 1.0) / 2.0
        } else {
            tokens * tokens
        };
        // The sum of some thousand products, each rounded to 2^-53 of itself.
        assert!((total - all).abs() < 1e-9 * all, "{ranks} {total} {all}");
    }
}

fn headline() -> Value {
    json!({
        "command": "attend", "ranks": 2, "layout": "zigzag", "block": 2, "schedule": "ring-pass-kv",
        "mask": "causal+window(5,0)", "layers": 1, "tokens": 8, "q_heads": 2, "kv_heads": 1,
        "head_dim": 4, "kv_dtype": "f32",
    })
}

fn with(mut value: Value, fields: Value) -> Value {
    value.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    value
}

fn plan_file() -> Value {
    let machine =
        json!({"name": "x", "flops": 1e12, "bandwidth": 1e9, "latency": 1e-6, "memory": 1});
    with(headline(), json!({"schema": "ringattn.plan/1", "machine": machine}))
}

fn report_file() -> Value {
    let rank = |rank: u32| {
        let mut entry = json!({
            "rank": rank, "attention_s": 0.5, "transfer_wait_s": 0.0, "peer_wait_s": 0.25,
        });
        for name in ["pairs", "resident_kv_bytes", "peak_kv_bytes", "received_bytes", "hops"] {
            entry[name] = json!(7);
            entry[format!("{name}_expected")] = json!(7);
        }
        entry
    };
    with(
        headline(),
        json!({
            "schema": "ringattn.report/1", "threads": 1, "overlap": {"transfer_s": 0.5},
            "per_rank": [rank(0), rank(1)],
        }),
    )
}

fn trace_file() -> Value {
    let event = |name: &str, pid: u32, (ts, dur): (f64, f64), args: Value| json!({"ph": "X", "name": name, "pid": pid, "tid": 1, "ts": ts, "dur": dur, "args": args});
    json!({
        "displayTimeUnit": "ns",
        "otherData": with(headline(), json!({"schema": "ringattn.trace/1"})),
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "rank 0"}},
            event("attend", 0, (5.0, 2.5), json!({"step": 0, "block": 0, "pairs": 3, "flops": 96})),
            event("send", 0, (5.0, 1.0), json!({"step": 0, "block": 0, "peer": 1, "bytes": 64})),
            event("receive", 1, (6.0, 1.0), json!({"step": 0, "block": 0, "peer": 0, "bytes": 64})),
            event("wait", 1, (8.0, 1.0), json!({"step": 0, "peer": 0, "cause": "peer"})),
            event("merge", 1, (9.0, 1.0), json!({"step": 1, "peer": 0})),
        ],
    })
}

fn read(file: &Value) -> Result<Scene, ViewError> {
    Scene::from_json(&serde_json::to_vec(file).unwrap())
}

#[test]
fn what_cannot_be_drawn_is_named() {
    let broken = |file: Value, pointer: &str, value: Value| {
        let mut file = file;
        *file.pointer_mut(pointer).unwrap() = value;
        read(&file).unwrap_err().to_string()
    };
    for (error, expected) in [
        (broken(plan_file(), "/schema", json!("x/1")), "found x/1"),
        (broken(plan_file(), "/ranks", json!(0)), "ranks: expected at least 1, found 0"),
        (broken(plan_file(), "/ranks", json!(MAX_RANKS + 1)), "ranks: 33 are more than the 32"),
        (broken(plan_file(), "/tokens", json!(MAX_TOKENS + 1)), "tokens: 2147483649 are more"),
        (broken(plan_file(), "/layout", json!("spiral")), "layout: expected contiguous, striped"),
        (broken(plan_file(), "/block", json!(0)), "a block must hold at least one token"),
        (broken(plan_file(), "/schedule", json!("x")), "schedule: expected ring-pass-kv, found x"),
        (broken(plan_file(), "/mask", json!("documents(3)")), "mask: expected full, causal"),
        (broken(plan_file(), "/kv_dtype", json!("f64")), "kv_dtype: expected f32, bf16 or f16"),
        (broken(plan_file(), "/q_heads", json!(0)), "at least one head"),
        (broken(plan_file(), "/q_heads", json!(-1)), "expected a plan: invalid value"),
        (broken(plan_file(), "/machine/flops", json!(0)), "flops is 0"),
        (broken(report_file(), "/per_rank", json!([])), "per_rank: expected 2 entries, found 0"),
        (broken(report_file(), "/per_rank/0/rank", json!(1)), "per_rank.rank: expected 0, found 1"),
        (
            broken(report_file(), "/per_rank/1/peer_wait_s", json!(-1.0)),
            "peer_wait_s: expected sec",
        ),
        (broken(trace_file(), "/traceEvents/1/pid", json!(2)), "pid: expected 0 to 1, found 2"),
        (broken(trace_file(), "/traceEvents/1/ts", json!(-1)), "ts: expected microseconds"),
        (broken(trace_file(), "/traceEvents/1/dur", json!(1e300)), "ts + dur: expected micro"),
        (broken(trace_file(), "/traceEvents/1/args/step", json!(2)), "args.step: expected 0 to 1"),
        (broken(trace_file(), "/traceEvents/1/args/block", json!(null)), "args.block: expected a"),
        (broken(trace_file(), "/traceEvents/4/args/cause", json!("x")), "args.cause: expected tra"),
        (broken(trace_file(), "/traceEvents/3/args/peer", json!(9)), "args.peer: expected 0 to 1"),
        (Scene::from_json(b"").unwrap_err().to_string(), "expected a JSON object"),
        (Scene::from_json(b"[1]").unwrap_err().to_string(), "expected a JSON object"),
        (Scene::from_json(b"{}").unwrap_err().to_string(), "found no schema"),
        (Scene::from_json(&[b'['; 1 << 16]).unwrap_err().to_string(), "expected a JSON object"),
    ] {
        assert!(error.contains(expected), "{error} lacks {expected}");
        assert!(!error.contains('\n'), "{error}");
    }
    let twice = trace_file()["traceEvents"][1].clone();
    let mut overlapping = trace_file();
    overlapping["traceEvents"].as_array_mut().unwrap().push(twice);
    assert!(read(&overlapping).unwrap_err().to_string().contains("rank 0, track compute"));
}

/// Every place in a value.
fn places(value: &Value, at: String, found: &mut Vec<String>) {
    let inside: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, v)| (key.clone(), v)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
        _ => Vec::new(),
    };
    for (key, value) in inside {
        let place = format!("{at}/{key}");
        places(value, place.clone(), found);
        found.push(place);
    }
}

#[test]
fn a_file_with_any_value_anywhere_is_drawn_or_refused() {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e308),
        json!(0.5),
        json!(""),
        json!("</script>"),
        json!([]),
        json!({}),
        json!("window(9223372036854775807,-9223372036854775808)"),
        json!(4_294_967_295_u32),
        json!(2_147_483_648_u32),
        json!("striped"),
        json!("contiguous"),
        json!(31),
    ];
    let (mut drawn, mut refused) = (0, 0);
    for file in [plan_file(), report_file(), trace_file()] {
        assert!(read(&file).is_ok(), "{}", read(&file).unwrap_err());
        let mut found = Vec::new();
        places(&file, String::new(), &mut found);
        for place in found {
            for value in &values {
                let mut changed = file.clone();
                *changed.pointer_mut(&place).unwrap() = value.clone();
                match read(&changed).and_then(|scene| page(&scene)) {
                    Ok(text) => {
                        assert_eq!(text.matches("</script>").count(), 2, "{place} {value}");
                        drawn += 1;
                    }
                    Err(error) => {
                        assert!(!error.to_string().contains('\n'), "{error}");
                        refused += 1;
                    }
                }
            }
        }
    }
    // Neither outcome hides the other.
    assert!(drawn > 100 && refused > 100, "{drawn} drawn, {refused} refused");
}

#[test]
fn the_page_is_one_file_with_its_data() {
    let scene = Scene::teaching().unwrap();
    let text = page(&scene).unwrap();
    for mark in ["/*STYLE*/", "/*CODE*/", "/*DATA*/"] {
        assert!(!text.contains(mark), "{mark} is left");
    }
    let data = text.split(r#"<script type="application/json" id="data">"#).nth(1).unwrap();
    let data: Value = serde_json::from_str(data.split("</script>").next().unwrap()).unwrap();
    // Read back the same way, as reading a float may round it.
    let plain: Value = serde_json::from_str(&serde_json::to_string(&scene).unwrap()).unwrap();
    assert!(data == plain, "the data of the page is not that of the scene");
}
