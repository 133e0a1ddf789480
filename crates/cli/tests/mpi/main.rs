//! The command under mpirun: the same values as between threads, and a table of faults, each with the
//! time it may take, the exit code, and the words that name the culprit.
//!
//! Needs an MPI library; `scripts/check_mpi.sh` runs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

#[path = "../support/mod.rs"]
mod support;

mod job;
#[path = "../../../comm/tests/mpi/limit.rs"]
mod limit;
mod truncation;

use job::{Ended, Job};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::thread;
use std::time::Duration;
use support::{COUNTS_OF_RANK, Sandbox, Tensor, fixture, model_of_words, ringattn, safetensors};

/// Enough for a whole small job, with its start, on a loaded machine.
const SMALL: Duration = Duration::from_secs(30);
/// What a failing job may take: its start, the fault, and a second or two.
const FAULT: Duration = Duration::from_secs(10);

/// A folder with inputs.
fn inputs() -> Sandbox {
    let sandbox = Sandbox::new();
    let heads = |heads: usize, seed| Tensor::random(&[heads, 97, 16], seed);
    let (q, k, v) = (heads(4, 1), heads(2, 2), heads(2, 3));
    sandbox.write("in.safetensors", safetensors(&[("q", &q), ("k", &k), ("v", &v)]));
    for (name, tensor) in [("q.npy", &q), ("k.npy", &k), ("v.npy", &v)] {
        sandbox.write(name, tensor.npy());
    }
    let heads = |seed| Tensor::random(&[1, 2000, 32], seed);
    sandbox.write(
        "long.safetensors",
        safetensors(&[("q", &heads(4)), ("k", &heads(5)), ("v", &heads(6))]),
    );
    sandbox.write("tokens.json", format!("{:?}", (0..61).map(|i| i * 7 % 199).collect::<Vec<_>>()));
    sandbox
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// `attend` on the long input; the output is `out.safetensors`.
fn long(sandbox: &Sandbox, more: &str) -> Vec<String> {
    let (input, out) = (sandbox.arg("long.safetensors"), sandbox.arg("out.safetensors"));
    words(&format!("attend {input} --out {out} --mask causal --threads 1 {more}"))
}

fn mpirun(sandbox: &Sandbox, ranks: u32, args: Vec<String>, limit: Duration) -> Ended {
    Job::start(sandbox.path("").to_str().unwrap(), &[(ranks, args)]).end(limit)
}

fn succeeded(ended: &Ended) {
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn attend_gives_the_bits_of_the_local_engine() {
    let sandbox = inputs();
    let (input, out) = (sandbox.arg("in.safetensors"), sandbox.arg("mpi.safetensors"));
    let npy = ["q.npy", "k.npy", "v.npy"].map(|name| sandbox.arg(name)).join(" ");
    let cases = [
        "--mask causal --layout striped",
        "--mask causal --layout zigzag --kv-dtype bf16",
        "--mask causal --layout contiguous",
        "--mask full --window 9,-2 --layout striped --block 3",
        "--mask causal --cu-seqlens 3,20,20,90 --kv-dtype f16",
    ];
    for ranks in 1..=4 {
        for case in cases {
            let local = sandbox.arg("local.safetensors");
            let args = words(&format!("attend {input} --out {local} --ranks {ranks} {case}"));
            ringattn(&args.iter().map(String::as_str).collect::<Vec<_>>());
            let report = sandbox.arg("report.json");
            let args = words(&format!("attend {input} --out {out} --report {report} {case}"));
            let ended = mpirun(&sandbox, ranks, args, SMALL);
            succeeded(&ended);
            assert_eq!(ended.stdout.matches("tokens ").count(), 1, "{}", ended.stdout);
            assert!(fs::read(&local).unwrap() == fs::read(&out).unwrap(), "{ranks} ranks, {case}");
            check_report(&report, ranks);
        }
        let folder = sandbox.arg(&format!("npy{ranks}"));
        succeeded(&mpirun(
            &sandbox,
            ranks,
            words(&format!("attend {npy} --out {folder} --mask causal")),
            SMALL,
        ));
        let local = sandbox.arg(&format!("local{ranks}"));
        let args = words(&format!("attend {npy} --out {local} --mask causal --ranks {ranks}"));
        ringattn(&args.iter().map(String::as_str).collect::<Vec<_>>());
        for name in ["out.npy", "lse.npy"] {
            let read = |folder: &str| fs::read(format!("{folder}/{name}")).unwrap();
            assert!(read(&folder) == read(&local), "{ranks} ranks, {name}");
        }
    }
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
}

fn check_report(path: &str, ranks: u32) {
    let report: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!((&report["engine"], &report["ranks"]), (&"mpi".into(), &ranks.into()));
    assert_eq!(report["law"]["holds"], true);
    let of_ranks = report["per_rank"].as_array().unwrap();
    assert_eq!(of_ranks.len(), ranks as usize);
    for (rank, found) in of_ranks.iter().enumerate() {
        assert_eq!(found["rank"], rank);
        assert!(found["peak_rss_bytes"].as_u64().unwrap() > 1 << 20, "{found}");
        for count in COUNTS_OF_RANK {
            assert_eq!(found[count], found[format!("{count}_expected")], "{count}");
        }
        let sends = found["sent_bytes"].as_u64().unwrap() > 0;
        assert!(!sends || found["checksum_s"].as_f64().unwrap() > 0.0, "{found}");
    }
}

#[test]
fn score_gives_the_bits_of_the_local_engine() {
    let sandbox = inputs();
    let (model, tokens) = (fixture("tiny-llama3"), sandbox.arg("tokens.json"));
    for ranks in 1..=4 {
        for layout in ["striped", "zigzag", "contiguous"] {
            let (local, mpi) = (sandbox.arg("local.jsonl"), sandbox.arg("mpi.jsonl"));
            let score = |out: &str| {
                let model = model.display();
                words(&format!("score {model} --tokens {tokens} --out {out} --layout {layout}"))
            };
            let mut args = score(&local);
            args.extend(words(&format!("--ranks {ranks}")));
            ringattn(&args.iter().map(String::as_str).collect::<Vec<_>>());
            succeeded(&mpirun(&sandbox, ranks, score(&mpi), SMALL));
            assert_eq!(fs::read(&local).unwrap(), fs::read(&mpi).unwrap(), "{ranks} {layout}");
        }
    }
}

/// 40 tokens behind a saved cache of 150: queries and partial states travel between the processes.
#[test]
fn generate_gives_the_tokens_of_the_local_engine() {
    let sandbox = model_of_words();
    let tokens = |range: std::ops::Range<u32>| range.map(|i| i * 7 % 199).collect::<Vec<_>>();
    sandbox.write("document.json", format!("{:?}", tokens(0..150)));
    sandbox.write("question.json", format!("{:?}", tokens(150..190)));
    let [model, cache] = ["model", "cache"].map(|name| sandbox.arg(name));
    let [document, question] = ["document.json", "question.json"].map(|name| sandbox.arg(name));
    let first = format!("generate {model} --tokens {document} -n 0 --ranks 3 --save-cache {cache}");
    ringattn(&first.split_whitespace().collect::<Vec<_>>());
    let [local, mpi, report] = ["local.jsonl", "mpi.jsonl", "report.json"].map(|n| sandbox.arg(n));
    for ranks in 2..=4 {
        let second = |out: &str| {
            let tokens = format!("--tokens {question} --load-cache {cache} -n 6 --out {out}");
            format!("generate {model} {tokens} --report {report} --quiet")
        };
        let here = format!("{} --ranks {ranks}", second(&local));
        ringattn(&here.split_whitespace().collect::<Vec<_>>());
        succeeded(&mpirun(&sandbox, ranks, words(&second(&mpi)), SMALL));
        assert_eq!(fs::read(&local).unwrap(), fs::read(&mpi).unwrap(), "{ranks}");
        let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
        for rank in report["per_rank"].as_array().unwrap() {
            assert_eq!(rank["peak_kv_bytes"], rank["resident_kv_bytes"], "no block visits");
            assert!(rank["received_bytes"].as_u64().unwrap() > 0);
        }
    }
}

/// Runs a job that must fail: with one of these codes, one error line of the command that holds all
/// the words, no output, and the output of before as it was.
fn fails(
    sandbox: &Sandbox,
    programs: &[(u32, Vec<String>)],
    codes: &[i32],
    culprit: &[&str],
    limit: Duration,
) -> Ended {
    sandbox.write("out.safetensors", "old");
    let ended = Job::start(sandbox.path("").to_str().unwrap(), programs).end(limit);
    let text = format!("{programs:?}\n{ended:#?}");
    assert!(codes.contains(&ended.code), "code {codes:?} {text}");
    assert!(ended.errors().len() <= 1, "one error line {text}");
    let said = if culprit.is_empty() { String::new() } else { ended.errors().join("\n") };
    for word in culprit {
        assert!(said.contains(word), "{word:?} {text}");
    }
    assert_eq!(fs::read_to_string(sandbox.path("out.safetensors")).unwrap(), "old", "{text}");
    assert_eq!(sandbox.leftovers(), Vec::<String>::new(), "{text}");
    ended
}

#[test]
fn a_rank_killed_in_any_step_ends_the_job() {
    let sandbox = inputs();
    for ranks in 2..=4 {
        for (rank, step) in (0..ranks).flat_map(|rank| (0..ranks).map(move |step| (rank, step))) {
            let args = long(&sandbox, &format!("--fault kill@{rank}:{step}"));
            // The launcher's own code: 128 + 9.
            let culprit = format!("rank {rank}");
            fails(&sandbox, &[(ranks, args)], &[137], &[&culprit], FAULT);
        }
    }
}

#[test]
fn what_goes_wrong_is_told_by_code_and_culprit() {
    let sandbox = inputs();
    let cases: [(u32, &str, i32, &[&str]); 11] = [
        (2, "--fault panic@0:1", 4, &["rank 0 panicked"]),
        (4, "--fault panic@3:2", 4, &["rank 3 panicked"]),
        (3, "--timeout 1 --fault stop@0:1", 5, &["rank 0 made no progress for 1s"]),
        (4, "--timeout 1 --fault stop@2:0", 5, &["rank 2 made no progress for 1s"]),
        (3, "--timeout 1 --fault stick@1:1", 5, &["rank 1 made no progress for 1s"]),
        (2, "--timeout 1 --fault stick@0:0", 5, &["rank 0 made no progress for 1s"]),
        (2, "--fault damage@1:0", 6, &["rank 0 to rank 1", "damaged"]),
        (4, "--fault damage@0:2", 6, &["rank 3 to rank 0", "damaged"]),
        (2, "--ranks 3", 2, &["--ranks 3: the MPI job has 2"]),
        (3, "--memory-limit 10k", 8, &["the memory limit is 10000"]),
        (2, "--layout contiguous --block 3", 2, &["block"]),
    ];
    for (ranks, more, code, culprit) in cases {
        let args = long(&sandbox, more);
        fails(&sandbox, &[(ranks, args)], &[code], culprit, FAULT);
    }
}

#[test]
fn ranks_that_differ_are_told_before_data_moves() {
    let sandbox = inputs();
    let shorter = Tensor::random(&[1, 1999, 32], 4);
    let tensors = [("q", &shorter), ("k", &shorter), ("v", &shorter)];
    sandbox.write("short.safetensors", safetensors(&tensors));
    let out = sandbox.arg("out.safetensors");
    let other = |input: &str, more: &str| {
        let input = sandbox.arg(input);
        words(&format!("attend {input} --out {out} --mask causal --threads 1 {more}"))
    };
    let cases: [(Vec<String>, i32, &[&str]); 5] = [
        (other("short.safetensors", ""), 7, &["rank 1 has", "1999", "rank 0 has", "2000"]),
        (other("long.safetensors", "--kv-dtype bf16"), 7, &["rank 1 has", "bf16", "f32"]),
        (other("long.safetensors", "--layout zigzag"), 7, &["rank 1 has", "zigzag", "striped"]),
        (other("long.safetensors", "--softmax-scale 0.5"), 7, &["softmax scale", "5e-1"]),
        (other("none.safetensors", ""), 3, &["none.safetensors"]),
    ];
    for (args, code, culprit) in cases {
        let programs = [(1, long(&sandbox, "")), (1, args)];
        fails(&sandbox, &programs, &[code], culprit, FAULT);
    }
    let score = |model: &str, out: &str| {
        let (model, tokens) = (fixture(model), sandbox.arg("tokens.json"));
        let (model, out) = (model.display(), sandbox.arg(out));
        words(&format!("score {model} --tokens {tokens} --out {out}"))
    };
    let programs = [(2, score("tiny-llama3", "a.jsonl")), (1, score("tiny-mistral", "a.jsonl"))];
    let culprit = ["rank 2 has a model with the digest", "rank 0 has"];
    fails(&sandbox, &programs, &[7], &culprit, FAULT);
    assert!(!sandbox.path("a.jsonl").exists());
}

#[test]
fn signals_to_the_launcher_end_every_rank() {
    let sandbox = inputs();
    for signal in [Signal::INT, Signal::TERM] {
        sandbox.write("out.safetensors", "old");
        let args = long(&sandbox, "--fault stick@1:0");
        let job = Job::start(sandbox.path("").to_str().unwrap(), &[(3, args)]);
        thread::sleep(Duration::from_secs(2));
        job.signal(signal);
        let ended = job.end(FAULT);
        assert_ne!(ended.code, 0, "{ended:?}");
        assert_eq!(fs::read_to_string(sandbox.path("out.safetensors")).unwrap(), "old");
        assert_eq!(sandbox.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn a_full_disk_is_the_writers_failure_and_everybodys_end() {
    let sandbox = inputs();
    sandbox.write("out.safetensors", "old");
    // A limit on the size of files acts like a disk without room.
    let limited = format!(
        "ulimit -f 100; exec {} {}",
        env!("CARGO_BIN_EXE_ringattn"),
        long(&sandbox, "").join(" ")
    );
    let ended = Job::shell(sandbox.path("").to_str().unwrap(), 3, &limited).end(FAULT);
    assert_eq!((ended.code, ended.errors().len()), (9, 1), "{ended:?}");
    assert_eq!(fs::read_to_string(sandbox.path("out.safetensors")).unwrap(), "old");
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
}

#[test]
fn a_rank_that_is_a_hundred_times_slower_is_no_failure() {
    let sandbox = inputs();
    // Four ranks on whatever cores there are; the others wait for rank 2 for several timeouts.
    let timeout = Duration::from_secs(1);
    let heads = |seed| Tensor::random(&[2, 8000, 64], seed);
    let tensors = [("q", &heads(4)), ("k", &heads(5)), ("v", &heads(6))];
    sandbox.write("slow.safetensors", safetensors(&tensors));
    let (input, out) = (sandbox.arg("slow.safetensors"), sandbox.arg("slow-out.safetensors"));
    let args = format!("attend {input} --out {out} --mask causal --threads 1 --timeout 1");
    let args = words(&format!("{args} --fault slow100@2:0"));
    let ended = mpirun(&sandbox, 4, args, 8 * SMALL);
    succeeded(&ended);
    assert!(ended.elapsed > 3 * timeout, "{ended:?}");
}
