//! Tokenizers rebuilt from GGUF metadata against the ids of the model's own tokenizer.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use ringattn_model::Model;
use serde_json::Value;
use support::gguf::{Gguf, Meta, text, tiny};
use support::*;

fn json(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture(name)).unwrap()).unwrap()
}

fn rows() -> Vec<(String, Vec<u32>)> {
    let rows = json("smollm2-tokens.json");
    let row = |row: &Value| {
        let ids = serde_json::from_value(row["tokens"].clone()).unwrap();
        (row["text"].as_str().unwrap().to_owned(), ids)
    };
    rows.as_array().unwrap().iter().map(row).collect()
}

/// tiny-llama3 with the tokenizer of `smollm2-part.json`.
fn smollm() -> Gguf {
    let part = json("smollm2-part.json");
    let count = part["vocabulary"].as_u64().unwrap() as usize;
    let mut tokens: Vec<String> = (0..count).map(|id| format!("[unused{id}]")).collect();
    let mut types = vec![5; count];
    for (list, kind) in [("control", 3), ("tokens", 1)] {
        for row in part[list].as_array().unwrap() {
            let id = row[0].as_u64().unwrap() as usize;
            tokens[id] = row[1].as_str().unwrap().to_owned();
            types[id] = kind;
        }
    }
    let merges = serde_json::from_value(part["merges"].clone()).unwrap();
    tiny("tiny-llama3", "F32")
        .set("tokenizer.ggml.model", text("gpt2"))
        .set("tokenizer.ggml.pre", text("smollm"))
        .set("tokenizer.ggml.tokens", Meta::Texts(tokens))
        .set("tokenizer.ggml.token_type", Meta::I32s(types))
        .set("tokenizer.ggml.merges", Meta::Texts(merges))
        .set("tokenizer.ggml.bos_token_id", Meta::U32(1))
        .set("tokenizer.ggml.eos_token_id", Meta::U32(2))
        .set("tokenizer.ggml.add_bos_token", Meta::Bool(false))
}

fn load(gguf: &Gguf) -> Result<ringattn_model::Tokenizer, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, gguf.bytes()).unwrap();
    let model = Model::open(&path).map_err(|error| error.to_string())?;
    model.tokenizer().map_err(|error| error.to_string())
}

#[test]
fn smollm2_ids_are_the_models_own() {
    let tokenizer = load(&smollm()).unwrap();
    let rows = rows();
    assert!(rows.len() >= 22);
    for (text, ids) in rows {
        assert_eq!(tokenizer.encode(&text).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    }
}

/// Digits are cut out first, so a run of spaces before one is a piece of its own and not, as GPT-2's
/// rule would have it for a letter, all but the last space. llama.cpp does the same.
#[test]
fn spaces_before_a_digit_stay_together() {
    let tokenizer = load(&smollm()).unwrap();
    assert_eq!(tokenizer.encode("\n\n  0. x").unwrap(), [39892, 32, 30, 1792]);
}

#[test]
fn tokens_around_a_document_only_where_the_file_asks() {
    let bos = "tokenizer.ggml.add_bos_token";
    let eos = "tokenizer.ggml.add_eos_token";
    let ids = |gguf: &Gguf| load(gguf).unwrap().encode(" ring").unwrap();
    assert_eq!(ids(&smollm()), [8233]);
    assert_eq!(ids(&smollm().set(bos, Meta::Bool(true))), [1, 8233]);
    let both = smollm().set(bos, Meta::Bool(true)).set(eos, Meta::Bool(true));
    assert_eq!(ids(&both), [1, 8233, 2]);
    // Empty documents stay empty but for what is put around them.
    assert_eq!(load(&both).unwrap().encode("").unwrap(), [1, 2]);
}

#[test]
fn digits_are_cut_as_the_rule_says() {
    // Single bytes and one merge "1 2": only rules that keep digits together can use it.
    let mut tokens: Vec<String> = (33_u8..127).map(|byte| char::from(byte).to_string()).collect();
    tokens.extend(["12".to_owned(), "Ġ".to_owned()]);
    let types = vec![1; tokens.len()];
    let base = |pre: &str| {
        smollm()
            .set("tokenizer.ggml.pre", text(pre))
            .set("tokenizer.ggml.tokens", Meta::Texts(tokens.clone()))
            .set("tokenizer.ggml.token_type", Meta::I32s(types.clone()))
            .set("tokenizer.ggml.merges", Meta::Texts(vec!["1 2".to_owned()]))
    };
    let (one, joined) = (u32::from(b'1' - 33), 94);
    for (pre, expected) in [
        ("gpt-2", [joined].as_slice()),
        ("llama-bpe", &[joined]),
        ("qwen2", &[one, one + 1]),
        ("smollm", &[one, one + 1]),
    ] {
        assert_eq!(load(&base(pre)).unwrap().encode("12").unwrap(), expected, "{pre}");
    }
}

#[test]
fn sentencepiece_ids_are_its_own() {
    let reference = json("sentencepiece.json");
    let list = |key: &str| serde_json::from_value::<Vec<f64>>(reference[key].clone()).unwrap();
    let tokens = serde_json::from_value(reference["tokens"].clone()).unwrap();
    let scores = list("scores").iter().map(|&score| score as f32).collect();
    let types = list("types").iter().map(|&kind| kind as i32).collect();
    let gguf = tiny("tiny-llama3", "F32")
        .set("tokenizer.ggml.model", text("llama"))
        .set("tokenizer.ggml.tokens", Meta::Texts(tokens))
        .set("tokenizer.ggml.scores", Meta::F32s(scores))
        .set("tokenizer.ggml.token_type", Meta::I32s(types))
        .set("tokenizer.ggml.bos_token_id", Meta::U32(1));
    let with_start = load(&gguf).unwrap();
    let plain = load(&gguf.set("tokenizer.ggml.add_bos_token", Meta::Bool(false))).unwrap();
    let rows = reference["rows"].as_array().unwrap();
    assert!(rows.len() > 25);
    for row in rows {
        let text = row["text"].as_str().unwrap();
        let ids: Vec<u32> = serde_json::from_value(row["tokens"].clone()).unwrap();
        assert_eq!(plain.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(with_start.encode(text).unwrap(), [&[1], &ids[..]].concat(), "{text:?}");
        // The model cannot tell the two kinds of space apart.
        assert_eq!(plain.decode(&ids).unwrap(), text.replace('\u{2581}', " "));
    }
}

#[test]
fn unsound_tokenizers_are_refused() {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let texts = |values: &[&str]| Meta::Texts(values.iter().map(|v| (*v).to_owned()).collect());
    let cases: Vec<(Gguf, &str)> = vec![
        (tiny("tiny-llama3", "F32"), "tokenizer.ggml.model"),
        (smollm().set(&key("model"), text("bert")), "bert"),
        (smollm().set(&key("model"), Meta::U32(3)), "a text"),
        (smollm().set(&key("model"), text("llama")), "tokenizer.ggml.scores"),
        (smollm().set(&key("pre"), text("default")), "default"),
        (smollm().set(&key("pre"), text("tekken")), "tekken"),
        (smollm().set(&key("add_space_prefix"), Meta::Bool(true)), "add_space_prefix"),
        (smollm().set(&key("add_bos_token"), Meta::U32(1)), "true or false"),
        (smollm().set(&key("token_type"), Meta::I32s(vec![1; 3])), "49152 entries"),
        (smollm().set(&key("token_type"), texts(&["a"])), "a list of i32"),
        (smollm().set(&key("tokens"), Meta::I32s(vec![1])), "a list of texts"),
        (smollm().set(&key("merges"), texts(&["Ġt"])), "two tokens"),
        (smollm().set(&key("merges"), texts(&["q zzz"])), "zzz"),
        (
            smollm()
                .set(&key("add_bos_token"), Meta::Bool(true))
                .set(&key("bos_token_id"), Meta::U32(49152)),
            "bos_token_id",
        ),
        (
            smollm()
                .set(&key("tokens"), texts(&["a", "b", "a"]))
                .set(&key("token_type"), Meta::I32s(vec![1; 3])),
            "each token once",
        ),
    ];
    for (gguf, expected) in cases {
        let error = load(&gguf).map(|_| ()).unwrap_err();
        assert!(error.contains(expected), "{error}, not {expected}");
    }
    let tokenizer = load(&smollm()).unwrap();
    assert!(tokenizer.decode(&[5, 49152]).unwrap_err().to_string().contains("49152"));
}

#[test]
fn a_tokenizer_file_is_read_whole_and_never_truncates() {
    let dir = folder(&config("tiny-llama3"), &safetensors(&tensors("tiny-llama3"), "F32"));
    let model = open(dir.path());
    let error = model.tokenizer().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json"), "{error}");
    let file = serde_json::json!({
        "version": "1.0",
        "truncation": {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "a"},
        "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"},
    });
    std::fs::write(dir.path().join("tokenizer.json"), file.to_string()).unwrap();
    assert_eq!(model.tokenizer().unwrap().encode("b a b b a").unwrap(), [1, 0, 1, 1, 0]);
    let template = r#"{"post_processor": {"type": "Sequence", "processors": [{"type":
        "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}],
        "pair": [], "special_tokens": {}}]}}"#;
    let decoder = r#"{"decoder": {"type": "ByteLevel", "trim_offsets": tru}}"#;
    for broken in ["", "{}", "[1, 2", "{\"model\": 3}", template, decoder] {
        std::fs::write(dir.path().join("tokenizer.json"), broken).unwrap();
        let error = model.tokenizer().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("tokenizer.json"), "{error}");
    }
}
