//! Models from the repository's fixtures, and the real one where it is at hand.

use ringattn_model::Model;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn token_rows() -> Vec<(String, Vec<u32>)> {
    let text = std::fs::read_to_string(fixture("smollm2-tokens.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    let ids = |row: &Value| serde_json::from_value(row["tokens"].clone()).unwrap();
    rows.iter().map(|row| (row["text"].as_str().unwrap().to_owned(), ids(row))).collect()
}

#[test]
fn folders_load() {
    for name in ["tiny-llama3", "tiny-qwen3", "tiny-mistral"] {
        let model = Model::open(&fixture(name)).unwrap();
        println!("{:?}", model.config);
        println!("{}", model.weight_bytes());
    }
}

#[test]
#[ignore = "needs the SmolLM2 GGUF file, its path in RINGATTN_SMOLLM2"]
fn the_real_model_has_its_own_tokens() {
    let model = Model::open(Path::new(&std::env::var("RINGATTN_SMOLLM2").unwrap())).unwrap();
    println!("{:?} {}", model.config, model.weight_bytes());
    let tokenizer = model.tokenizer().unwrap();
    for (text, ids) in token_rows() {
        assert_eq!(tokenizer.encode(&text).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    }
}
