//! Models and documents that cannot be scored.

use super::Table;
use crate::support::fixture;
use std::fs;

pub(crate) fn add(table: &mut Table<'_>) {
    documents(table);
    folders(table);
    gguf(table);
}

fn documents(table: &mut Table<'_>) {
    let sandbox = table.sandbox;
    let model = fs::canonicalize(fixture("tiny-llama3")).unwrap();
    let model = model.to_str().unwrap();
    sandbox.write("ids.json", "[1, 2, 3]");
    let ids = [
        ("not JSON", "tokens: 1 2 3", "expected a JSON array"),
        ("cut", "[1, 2", "EOF"),
        ("empty file", "", "EOF"),
        ("no tokens", "[]", "no tokens"),
        ("no tokens in object", r#"{"tokens": []}"#, "no tokens"),
        ("no field", r#"{"ids": [1]}"#, "missing field `tokens`"),
        ("field twice", r#"{"tokens": [1], "tokens": [2]}"#, "duplicate field"),
        ("negative", "[1, -2]", "entry 1 is -2"),
        ("fractional", "[1, 2.5]", "entry 1 is 2.5"),
        ("large", "[4294967296]", "entry 0 is 4294967296"),
        ("huge", "[1e400]", "expected a JSON array"),
        ("text", r#"["one"]"#, "entry 0"),
        ("nested", "[[1]]", "entry 0"),
        ("outside the vocabulary", "[1, 2, 256]", "token 256 at index 2"),
        ("a number", "7", "an array or an object"),
        ("text behind", "[1] [2]", "trailing"),
    ];
    for (name, text, says) in ids {
        let file = format!("{name}.json").replace(' ', "-");
        sandbox.write(&file, text);
        table.add(&format!("score {model} --tokens {file} --out OUT"), 3, says);
    }
    let deep = "[".repeat(100_000);
    sandbox.write("deep.json", deep);
    table.add(&format!("score {model} --tokens deep.json --out OUT"), 3, "recursion");

    sandbox.write("latin.txt", b"caf\xe9");
    sandbox.write("plain.txt", "plain");
    for (options, code, says) in [
        ("--tokens missing.json", 3, "missing.json"),
        ("--tokens a-folder", 3, "found a folder"),
        ("--tokens a-pipe", 3, "found a pipe"),
        ("--file missing.txt", 3, "missing.txt"),
        ("--file a-pipe", 3, "found a pipe"),
        ("--file latin.txt", 3, "byte 3 is not"),
        ("--file plain.txt", 3, "tokenizer.json"),
        ("--file plain.txt --tokens ids.json", 2, "cannot be used with"),
        ("--tokens ids.json --limit 0", 3, "no tokens"),
        ("--tokens ids.json --limit -3", 2, "--limit"),
        ("--tokens ids.json --limit many", 2, "expected a number"),
        ("--tokens ids.json --memory-limit 1000", 8, "the memory limit is 1000"),
        ("--tokens ids.json --ranks 0", 2, "1 to 1024"),
        ("--tokens ids.json --block 3 --layout contiguous", 2, "no block size"),
        #[cfg(not(feature = "mpi"))]
        ("--tokens ids.json --engine mpi", 2, "no MPI engine"),
        ("--tokens ids.json --report none/report", 9, "the folder none"),
        ("--tokens ids.json --report ids.json", 9, "it is an input"),
    ] {
        table.add(&format!("score {model} {options} --out OUT"), code, says);
    }
    table.add(&format!("score {model} --tokens ids.json --out none/scores"), 9, "the folder none");
    let line = format!("score {model} --tokens ids.json --out {model}/config.json");
    table.add(&line, 9, "it is an input");
}

fn folders(table: &mut Table<'_>) {
    let sandbox = table.sandbox;
    let source = fixture("tiny-llama3");
    let config = fs::read_to_string(source.join("config.json")).unwrap();
    let weights = fs::read(source.join("model.safetensors")).unwrap();
    let mut add = |name: &str, config: Option<&str>, weights: Option<&[u8]>, says| {
        let folder = sandbox.path(name);
        fs::create_dir(&folder).unwrap();
        if let Some(config) = config {
            fs::write(folder.join("config.json"), config).unwrap();
        }
        if let Some(weights) = weights {
            fs::write(folder.join("model.safetensors"), weights).unwrap();
        }
        table.add(&format!("score {name} --tokens ids.json --out OUT"), 3, says);
    };
    let edited = |from: &str, to: &str| {
        assert!(config.contains(from), "{from}");
        config.replace(from, to)
    };
    add("model-empty", None, None, "config.json: no such file");
    add("model-no-json", Some("hello"), Some(&weights), "config.json");
    add("model-array", Some("[]"), Some(&weights), "config.json");
    add("model-no-fields", Some("{}"), Some(&weights), "config.json");
    let family = edited(r#""model_type": "llama""#, r#""model_type": "gpt2""#);
    add("model-family", Some(&family), Some(&weights), "gpt2");
    let layers =
        |count| edited(r#""num_hidden_layers": 3"#, &format!(r#""num_hidden_layers": {count}"#));
    for (name, count) in [
        ("model-no-layers", "0"),
        ("model-huge-layers", "18446744073709551615"),
        ("model-many-layers", "1e300"),
        ("model-negative-layers", "-1"),
        ("model-text-layers", "\"three\""),
    ] {
        add(name, Some(&layers(count)), Some(&weights), "num_hidden_layers");
    }
    add("model-four-layers", Some(&layers("4")), Some(&weights), "model.layers.3");
    let heads = edited(r#""num_attention_heads": 4"#, r#""num_attention_heads": 0"#);
    add("model-no-heads", Some(&heads), Some(&weights), "num_attention_heads");
    let heads = edited(r#""num_key_value_heads": 2"#, r#""num_key_value_heads": 3"#);
    add("model-heads", Some(&heads), Some(&weights), "heads");
    let vocabulary = edited(r#""vocab_size": 256"#, r#""vocab_size": 257"#);
    add("model-vocabulary", Some(&vocabulary), Some(&weights), "expected shape [257, 64]");
    let deep = format!("{{\"a\": {}", "[".repeat(100_000));
    add("model-deep", Some(&deep), Some(&weights), "config.json");
    let nan = edited(r#""rms_norm_eps": 1e-05"#, r#""rms_norm_eps": NaN"#);
    add("model-nan", Some(&nan), Some(&weights), "config.json");
    add("model-no-weights", Some(&config), None, "model.safetensors: no such file");
    add("model-cut", Some(&config), Some(&weights[..weights.len() / 2]), "truncated");
    add("model-cut-header", Some(&config), Some(&weights[..100]), "model.safetensors");
    let hostile = [&u64::MAX.to_le_bytes()[..], &weights[8..]].concat();
    add("model-hostile", Some(&config), Some(&hostile), "header length");
    add("model-empty-weights", Some(&config), Some(b""), "model.safetensors");
}

fn gguf(table: &mut Table<'_>) {
    let string = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let entry =
        |key: &str, value: &str| [&string(key)[..], &8_u32.to_le_bytes(), &string(value)].concat();
    let start = |version: u32, tensors: u64, entries: u64| {
        let counts = [tensors.to_le_bytes(), entries.to_le_bytes()].concat();
        [b"GGUF" as &[u8], &version.to_le_bytes(), &counts].concat()
    };
    let architecture = entry("general.architecture", "llama");
    let whole = [start(3, 1, 1), architecture.clone()].concat();
    let mut add = |name: &str, bytes: &[u8], says| {
        table.sandbox.write(name, bytes);
        table.add(&format!("score {name} --tokens ids.json --out OUT"), 3, says);
    };
    add("empty.gguf", b"", "empty.gguf");
    add("magic.gguf", &[b"GGML" as &[u8], &whole[4..]].concat(), "magic.gguf");
    add("version.gguf", &[start(99, 1, 1), architecture.clone()].concat(), "version.gguf");
    add("cut-magic.gguf", &whole[..3], "cut-magic.gguf");
    add("cut-counts.gguf", &whole[..20], "cut-counts.gguf");
    add("cut-key.gguf", &whole[..40], "cut-key.gguf");
    add("cut-value.gguf", &whole[..whole.len() - 2], "cut-value.gguf");
    add("cut-tensors.gguf", &whole, "cut-tensors.gguf");
    add("huge-entries.gguf", &[start(3, 1, u64::MAX), architecture.clone()].concat(), "huge");
    add("huge-tensors.gguf", &[start(3, 1 << 62, 1), architecture.clone()].concat(), "huge");
    let mut long = whole.clone();
    long[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
    add("long-key.gguf", &long, "long-key.gguf");
    let array = [&string("a")[..], &9_u32.to_le_bytes(), &4_u32.to_le_bytes(), &[0xff; 8]].concat();
    add("long-array.gguf", &[start(3, 0, 1), array].concat(), "long-array.gguf");
    let nested = [9_u32.to_le_bytes().to_vec(), 1_u64.to_le_bytes().to_vec()].concat();
    let nested = [string("a"), 9_u32.to_le_bytes().to_vec(), nested.repeat(100_000)].concat();
    add("deep-array.gguf", &[start(3, 0, 1), nested].concat(), "deep-array.gguf");
    let other = [start(3, 0, 1), entry("general.architecture", "mamba")].concat();
    add("other.gguf", &other, "mamba");
    let bare = [start(3, 0, 1), architecture].concat();
    add("bare.gguf", &bare, "bare.gguf");
    for (model, says) in [("none.gguf", "none.gguf: no such file"), ("a-pipe", "a pipe")] {
        table.add(&format!("score {model} --tokens ids.json --out OUT"), 3, says);
    }
}
