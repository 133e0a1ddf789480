//! `score` on the tiny models against the log-probabilities of another implementation.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where something is wrong")]

mod support;

use serde_json::Value;
use std::fs;
use support::{Sandbox, command, fixture, ringattn, run};

const MODELS: [&str; 3] = ["tiny-llama3", "tiny-mistral", "tiny-qwen3"];

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Tokens and the log-probability of each but the first.
fn expected(model: &str) -> (Vec<u64>, Vec<f64>) {
    let reference = json(&fs::read(fixture(model).join("reference.json")).unwrap());
    let tokens = reference["tokens"].as_array().unwrap();
    let logprobs = reference["next_token_logprob"].as_array().unwrap();
    (
        tokens.iter().map(|token| token.as_u64().unwrap()).collect(),
        logprobs.iter().map(|logprob| logprob.as_f64().unwrap()).collect(),
    )
}

/// The log-probabilities in `lines`, whose form and order are checked.
fn scores(lines: &str, tokens: &[u64]) -> Vec<f64> {
    let score = |(index, line): (usize, &str)| {
        let line = json(line.as_bytes());
        assert_eq!(line.as_object().unwrap().len(), 3);
        assert_eq!(line["index"], index + 1);
        assert_eq!(line["token"], tokens[index + 1]);
        line["logprob"].as_f64().unwrap()
    };
    lines.lines().enumerate().map(score).collect()
}

/// The arguments to score the reference document of `model`.
fn args(model: &str) -> Vec<String> {
    let folder = fixture(model).to_str().unwrap().to_owned();
    let tokens = format!("{folder}/reference.json");
    ["score", &folder, "--tokens", &tokens].map(str::to_owned).to_vec()
}

fn with<'a>(args: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    args.iter().map(String::as_str).chain(more.iter().copied()).collect()
}

#[test]
fn tiny_models_agree_for_any_number_of_ranks() {
    let sandbox = Sandbox::new();
    for model in MODELS {
        let (tokens, expected) = expected(model);
        assert_eq!(tokens.len(), expected.len() + 1);
        for ranks in ["1", "2", "3", "4", "5"] {
            let layout = ["striped", "zigzag", "contiguous"][ranks.len() % 3];
            let out = sandbox.arg("scores.jsonl");
            let options = ["--ranks", ranks, "--layout", layout, "--out", &out];
            ringattn(&with(&args(model), &options));
            let actual = scores(&fs::read_to_string(out).unwrap(), &tokens);
            let difference = support::max_difference(&actual, &expected);
            assert!(difference < 5e-5, "{model} over {ranks} ranks: {difference}");
        }
    }
}

#[test]
fn stdout_holds_the_lines_alone() {
    let (tokens, expected) = expected("tiny-llama3");
    let args = args("tiny-llama3");
    let (output, _) = run(&mut command(&with(&args, &["--out", "-", "--limit", "100"])));
    assert_eq!(output.status.code(), Some(0));
    let actual = scores(&String::from_utf8(output.stdout).unwrap(), &tokens);
    assert_eq!(actual.len(), 99);
    assert!(support::max_difference(&actual, &expected[..99]) < 5e-5);
    assert!(String::from_utf8(output.stderr).unwrap().contains("perplexity"));
    let options = ["--out", "-", "--limit", "100", "--quiet"];
    let (output, _) = run(&mut command(&with(&args, &options)));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(output.stdout.iter().filter(|&&byte| byte == b'\n').count(), 99);
}

#[test]
fn without_out_there_is_a_summary() {
    let stdout = ringattn(&with(&args("tiny-qwen3"), &["--ranks", "3", "--limit", "50"]));
    for word in ["50 (49 scored)", "perplexity", "tokens/s", "3 ranks", "law", "holds"] {
        assert!(stdout.contains(word), "{word} in {stdout}");
    }
}

#[test]
fn one_token_has_no_lines() {
    let sandbox = Sandbox::new();
    let (out, report) = (sandbox.arg("scores.jsonl"), sandbox.arg("report.json"));
    let options = ["--limit", "1", "--ranks", "4", "--out", &out, "--report", &report];
    ringattn(&with(&args("tiny-mistral"), &options));
    assert_eq!(fs::read(&out).unwrap(), b"");
    let report = json(&fs::read(&report).unwrap());
    assert_eq!(report["result"]["perplexity"], Value::Null);
    assert_eq!(report["result"]["scored_tokens"], 0);
    assert_eq!(report["law"]["holds"], true);
}

#[test]
fn beyond_the_trained_context_there_is_one_warning() {
    let sandbox = Sandbox::new();
    let source = fixture("tiny-llama3");
    let config = fs::read_to_string(source.join("config.json")).unwrap();
    let short = config
        .replace(r#""max_position_embeddings": 8192"#, r#""max_position_embeddings": 20"#)
        .replace(
            r#""original_max_position_embeddings": 256"#,
            r#""original_max_position_embeddings": 8"#,
        );
    assert_ne!(short, config);
    sandbox.write("config.json", short);
    fs::copy(source.join("model.safetensors"), sandbox.path("model.safetensors")).unwrap();
    let ids = sandbox.write("ids.json", format!("{:?}", (1..=21).collect::<Vec<_>>()));
    let (model, report) = (sandbox.arg(""), sandbox.arg("report.json"));
    let args = ["score", &model, "--tokens", &ids, "--report", &report];
    let (output, _) = run(&mut command(&args));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("warning: 21 tokens"), "{stderr}");
    let beyond = || json(&fs::read(&report).unwrap())["result"]["beyond_trained_context"].clone();
    assert_eq!(beyond(), true);
    let (output, _) = run(&mut command(&[&args[..], &["--limit", "20"]].concat()));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(beyond(), false);
}

#[test]
fn text_is_scored_like_its_tokens() {
    let sandbox = Sandbox::new();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture("tiny-llama3").join(file), sandbox.path(file)).unwrap();
    }
    let tokenizer = r#"{"version": "1.0", "added_tokens": [], "normalizer": null,
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,
        "decoder": null, "model": {"type": "WordLevel", "unk_token": "?",
        "vocab": {"?": 0, "the": 7, "ring": 80, "turns": 255}}}"#;
    sandbox.write("tokenizer.json", tokenizer);
    let text = sandbox.write("text.txt", "the ring turns\nthe other ring");
    let ids = sandbox.write("ids.json", "[7, 80, 255, 7, 0, 80]");
    let (model, out) = (sandbox.arg(""), sandbox.arg("scores.jsonl"));
    let score = |option: &str, document: &str, limit: &str| {
        let args = ["score", &model, option, document, "--out", &out, "--limit", limit];
        ringattn(&args);
        fs::read_to_string(&out).unwrap()
    };
    let lines = score("--file", &text, "100");
    assert_eq!(lines, score("--tokens", &ids, "100"));
    assert_eq!(scores(&lines, &[7, 80, 255, 7, 0, 80]).len(), 5);
    let first: Vec<_> = lines.lines().take(3).collect();
    assert_eq!(score("--file", &text, "4").lines().collect::<Vec<_>>(), first);
}

#[test]
fn help_has_an_example() {
    for command in ["score", "attend"] {
        let help = ringattn(&[command, "--help"]);
        assert!(help.contains("Example") && help.contains(&format!("ringattn {command} ")));
    }
    let help = ringattn(&["score", "--help"]);
    assert!(help.contains("a text is tokenized to its end"), "{help}");
    assert!(ringattn(&["--version"]).starts_with("ringattn "));
}
