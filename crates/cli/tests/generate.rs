//! `generate` on a tiny model: what stdout holds, where texts end, caches, signals, refusals.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where something is wrong")]

mod support;

use serde_json::Value;
use std::fs;
use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{command, fixture, model_of_words, ringattn, run};

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// The words of the lines that `--out` wrote.
fn words(lines: &str) -> Vec<String> {
    lines.lines().map(|line| format!("w{}", json(line.as_bytes())["token"])).collect()
}

#[test]
fn stdout_holds_the_text_alone() {
    let sandbox = model_of_words();
    let (model, out) = (sandbox.arg("model"), sandbox.arg("tokens.jsonl"));
    let report = sandbox.arg("report.json");
    let text = sandbox.write("prompt.txt", "w7 w80 w255 w7");
    let ids = sandbox.write("ids.json", "[7, 80, 255, 7]");
    let mut texts = Vec::new();
    for source in [["--prompt", "w7 w80 w255 w7"], ["--file", &text], ["--tokens", &ids]] {
        for quiet in [&[][..], &["--quiet"]] {
            let args = ["generate", &model, "-n", "9", "--ranks", "3", "--out", &out];
            let args = [&args[..], &source, &["--report", &report], quiet].concat();
            let (output, _) = run(&mut command(&args));
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(0), "{stderr}");
            assert_eq!(stderr.is_empty(), !quiet.is_empty(), "{stderr}");
            let stdout = String::from_utf8(output.stdout).unwrap();
            let lines = fs::read_to_string(&out).unwrap();
            assert_eq!(stdout.trim_start(), format!("{}\n", words(&lines).join(" ")));
            texts.push(lines);
        }
    }
    assert!(texts.iter().all(|lines| lines == &texts[0]));
    let report = json(&fs::read(&report).unwrap());
    assert_eq!(report["schema"], "ringattn.report/1");
    assert_eq!(report["command"], "generate");
    let result = &report["result"];
    assert_eq!(result["generated_tokens"], 9);
    assert_eq!(result["decode"]["schedule"], "tree-reduce");
    assert_eq!(result["decode"]["rounds_per_layer"], 2);
    assert_eq!(result["decode"]["received_kv_bytes"], 0);
    for number in ["prefill_tokens_per_s", "decode_tokens_per_s", "time_to_first_token_s"] {
        assert!(result[number].as_f64().unwrap() > 0.0, "{number}");
    }
    assert_eq!(result["cache_bytes_per_rank"].as_array().unwrap().len(), 3);
}

#[test]
fn stop_strings_and_templates() {
    let sandbox = model_of_words();
    let model = sandbox.arg("model");
    let prompt = ["generate", &model, "--prompt", "w7 w80", "-n", "12", "--quiet"];
    let all = ringattn(&prompt);
    let words: Vec<_> = all.split_whitespace().collect();
    assert_eq!(words.len(), 12);
    let stop = format!("{} {}", words[5], words[6]);
    let expected = &all[..all.find(&stop).unwrap()];
    assert_eq!(ringattn(&[&prompt[..], &["--stop", &stop]].concat()), format!("{expected}\n"));

    // Word 4 of the text becomes the token that ends it.
    let id: u64 = words[4][1..].parse().unwrap();
    fs::write(
        sandbox.path("model/generation_config.json"),
        format!("{{\"eos_token_id\": [{id}]}}"),
    )
    .unwrap();
    let first = words.iter().position(|word| *word == words[4]).unwrap();
    assert_eq!(ringattn(&prompt).split_whitespace().collect::<Vec<_>>(), words[..first]);
    assert_eq!(ringattn(&[&prompt[..], &["--ignore-eos"]].concat()), all);

    let chat = ["generate", &model, "--prompt", "w80", "--chat", "-n", "12", "--quiet"];
    let chat = [&chat[..], &["--ignore-eos"]].concat();
    let (output, _) = run(&mut command(&chat));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && stderr.contains("no chat template"), "{stderr}");
    let template = r#"{"chat_template": "w7 {{ messages[0]['content'] }}"}"#;
    fs::write(sandbox.path("model/tokenizer_config.json"), template).unwrap();
    assert_eq!(ringattn(&chat), all);
}

#[test]
fn several_questions_over_one_cached_document() {
    let sandbox = model_of_words();
    let (model, cache) = (sandbox.arg("model"), sandbox.arg("cache"));
    let document = (0..60).map(|i| format!("w{} ", i * 7 % 256)).collect::<String>();
    let file = sandbox.write("document.txt", &document);
    let save = ["generate", &model, "--file", &file, "-n", "0", "--ranks", "3"];
    let stdout = ringattn(&[&save[..], &["--save-cache", &cache, "--quiet"]].concat());
    assert_eq!(stdout, "\n");
    for question in ["w9", "w10 w200 w3"] {
        let options = ["-n", "8", "--ranks", "2", "--layout", "zigzag", "--quiet"];
        let load = ["generate", &model, "--load-cache", &cache, "--prompt", question];
        let whole = format!("{document}{question}");
        let direct = ["generate", &model, "--prompt", &whole];
        let answer = ringattn(&[&load[..], &options].concat());
        assert_eq!(answer, ringattn(&[&direct[..], &options].concat()));
    }
    // Nothing was left to do, so that without a question there is nothing to go on with.
    let (output, _) = run(&mut command(&["generate", &model, "--load-cache", &cache]));
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn what_cannot_be_done_is_refused() {
    let sandbox = model_of_words();
    let model = sandbox.arg("model");
    let bare = fixture("tiny-llama3").to_str().unwrap().to_owned();
    let ids = sandbox.write("ids.json", "[1, 2]");
    let empty = sandbox.write("empty.txt", "");
    fs::create_dir(sandbox.path("bystander")).unwrap();
    fs::write(sandbox.path("bystander/letter.txt"), "dear").unwrap();
    let (bystander, missing) = (sandbox.arg("bystander"), sandbox.arg("missing"));
    let cases: [(&[&str], i32, &str); 13] = [
        (&[], 2, "required"),
        (&["--prompt", "w1", "--file", &empty], 2, "cannot be used with"),
        (&["--tokens", &ids, "--chat"], 2, "cannot be used with"),
        (&["--file", &empty], 3, "nothing to continue"),
        (&["--prompt", "w1", "--temperature", "-1"], 2, "temperature"),
        (&["--prompt", "w1", "--top-p", "0"], 2, "top-p"),
        (&["--prompt", "w1", "--min-p", "2"], 2, "min-p"),
        (&["--prompt", "w1", "--top-k", "0"], 2, "top-k"),
        (&["--prompt", "w1", "--stop", ""], 2, "--stop"),
        (&["--prompt", "w1", "--cache-dtype", "f64"], 2, "f64"),
        (&["--prompt", "w1", "--load-cache", &missing], 3, "manifest.json"),
        (&["--prompt", "w1", "--save-cache", &bystander], 9, "letter.txt"),
        (&["--load-cache", &bystander, "--chat"], 2, "--chat"),
    ];
    for (options, code, says) in cases {
        let args = [&["generate", &model][..], options].concat();
        let (output, _) = run(&mut command(&args));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{options:?}: {stderr}");
        assert!(stderr.contains(says), "{options:?}: {stderr}");
        assert!(stderr.lines().count() <= 2, "{stderr}");
    }
    // Without a tokenizer ids can be continued into a file, and nothing else.
    let (output, _) = run(&mut command(&["generate", &bare, "--tokens", &ids, "-n", "2"]));
    assert_eq!(output.status.code(), Some(3));
    let out = sandbox.arg("tokens.jsonl");
    ringattn(&["generate", &bare, "--tokens", &ids, "-n", "2", "--out", &out, "--quiet"]);
    assert_eq!(fs::read_to_string(&out).unwrap().lines().count(), 2);
}

#[test]
fn a_signal_keeps_what_was_printed_and_saves_the_cache() {
    let sandbox = model_of_words();
    let (model, cache) = (sandbox.arg("model"), sandbox.arg("cache"));
    let args = ["generate", &model, "--prompt", "w7 w80", "-n", "1000000", "--ranks", "2"];
    let args = [&args[..], &["--save-cache", &cache, "--quiet"]].concat();
    let mut child = command(&args).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut text = vec![0; 64];
    stdout.read_exact(&mut text).unwrap();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    stdout.read_to_end(&mut text).unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(20), "does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with('\n'));
    let count = text.split_whitespace().count();
    // The text goes on where it was left.
    let load = ["generate", &model, "--load-cache", &cache, "-n", "5", "--quiet"];
    let more = ringattn(&load);
    let total = (count + 5).to_string();
    let whole = ringattn(&["generate", &model, "--prompt", "w7 w80", "-n", &total, "--quiet"]);
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!([words(&text), words(&more)].concat(), words(&whole));
}

#[test]
fn help_has_an_example() {
    let help = ringattn(&["generate", "--help"]);
    assert!(help.contains("Example") && help.contains("ringattn generate "));
}
