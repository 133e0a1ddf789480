//! Files made to break a loader: one error within a second that says where, no panic, no large
//! allocation on the word of a length field.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use ringattn_model::Model;
use serde_json::{Map, json};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use support::gguf::{Gguf, Meta, Tensor, tiny};
use support::*;

/// The error of opening `path`, which must come soon.
fn refused(path: &Path, case: &str) -> String {
    let start = Instant::now();
    let result = Model::open(path);
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(1), "{case}: took {elapsed:?}");
    match result {
        Ok(_) => panic!("{case}: accepted"),
        Err(error) => error.to_string(),
    }
}

fn check(path: &Path, case: &str, expected: &str) {
    let error = refused(path, case);
    assert!(error.contains(expected), "{case}: {error}, not {expected}");
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(error.contains(name), "{case}: {error} names no file");
}

fn model_file(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name).join("model.safetensors")).unwrap()
}

#[test]
fn safetensors_headers() {
    let sound = tensors("tiny-llama3");
    let good = |extra: &str| {
        let bytes = safetensors(&sound, "F32");
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let text = std::str::from_utf8(&bytes[8..8 + length]).unwrap().trim_end();
        raw_safetensors(&format!("{{{extra}{}", &text[1..]), &bytes[8 + length..])
    };
    let one =
        |info: &str, data: usize| raw_safetensors(&format!("{{\"a\":{info}}}"), &vec![0; data]);
    let with_length = |length: u64| [&length.to_le_bytes()[..], b"{}"].concat();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty file", vec![], "8 bytes"),
        ("seven bytes", vec![0; 7], "8 bytes"),
        ("header length 0", with_length(0), "JSON"),
        ("header length 1", with_length(1), "JSON"),
        ("header length beyond the file", with_length(3), "3 bytes"),
        ("header length 2^64-1", with_length(u64::MAX), "limit"),
        ("header length 2^63", with_length(1 << 63), "limit"),
        ("header of 100 MB announced", with_length(100 << 20), "limit"),
        ("no object", raw_safetensors("[1]", b""), "JSON"),
        ("no tensors", raw_safetensors("{}", b""), "is missing"),
        ("not UTF-8", [&2_u64.to_le_bytes()[..], &[0xff, 0xfe]].concat(), "UTF-8"),
        ("NaN", one("NaN", 0), "JSON"),
        ("deep nesting", raw_safetensors(&"[".repeat(100_000), b""), "JSON"),
        (
            "deep nesting in metadata",
            raw_safetensors(&format!("{{\"__metadata__\":{}", "[".repeat(1 << 20)), b""),
            "JSON",
        ),
        (
            "a key twice",
            good(
                "\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\
            \"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},",
            ),
            "twice",
        ),
        (
            "unknown field",
            one(r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}"#, 4),
            "`x`",
        ),
        ("no dtype", one(r#"{"shape":[1],"data_offsets":[0,4]}"#, 4), "dtype"),
        ("wrong dtype", one(r#"{"dtype":"F33","shape":[1],"data_offsets":[0,4]}"#, 4), "`a`"),
        ("dtype no text", one(r#"{"dtype":3,"shape":[1],"data_offsets":[0,4]}"#, 4), "JSON"),
        ("negative shape", one(r#"{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}"#, 4), "JSON"),
        (
            "fractional shape",
            one(r#"{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}"#, 4),
            "JSON",
        ),
        (
            "shape overflow",
            one(r#"{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}"#, 4),
            "too many",
        ),
        (
            "past the end",
            one(r#"{"dtype":"F32","shape":[9],"data_offsets":[0,36]}"#, 4),
            "truncated",
        ),
        ("gap", one(r#"{"dtype":"F32","shape":[1],"data_offsets":[4,8]}"#, 8), "from 0"),
        ("reversed", one(r#"{"dtype":"F32","shape":[1],"data_offsets":[4,0]}"#, 4), "from 0"),
        ("sizes differ", one(r#"{"dtype":"F32","shape":[2],"data_offsets":[0,4]}"#, 4), "8 bytes"),
        (
            "more data",
            one(r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#, 5),
            "as announced",
        ),
        (
            "offsets near 2^64",
            one(r#"{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,0]}"#, 1),
            "from 0",
        ),
        (
            "overlap",
            raw_safetensors(
                r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                    "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
                &[0; 8],
            ),
            "`b`",
        ),
    ];
    for (case, bytes, expected) in &cases {
        let dir = folder(&config("tiny-llama3"), bytes);
        let error = refused(dir.path(), case);
        assert!(error.contains(expected), "{case}: {error}, not {expected}");
    }
    let dir = folder(&config("tiny-llama3"), &good("\"__metadata__\":{\"format\":\"pt\"},"));
    open(dir.path());
}

#[test]
fn tensors_that_do_not_fit() {
    let base = tensors("tiny-llama3");
    let changed = |change: &dyn Fn(&mut Tensors)| {
        let mut tensors = base.clone();
        change(&mut tensors);
        safetensors(&tensors, "F32")
    };
    let norm = "model.norm.weight";
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("missing", changed(&|all| drop(all.remove(norm))), "`model.norm.weight` is missing"),
        (
            "unexpected",
            changed(&|all| drop(all.insert("model.extra".into(), (vec![1], vec![0.0])))),
            "`model.extra`",
        ),
        (
            "a bias nobody asked for",
            changed(&|all| {
                all.insert("model.layers.0.self_attn.q_proj.bias".into(), (vec![1], vec![0.0]));
            }),
            "q_proj.bias",
        ),
        (
            "shape",
            changed(&|all| drop(all.insert(norm.into(), (vec![32], vec![0.0; 32])))),
            "expected shape [64], found [32]",
        ),
        (
            "rank",
            changed(&|all| drop(all.insert(norm.into(), (vec![64, 1], vec![0.0; 64])))),
            "expected shape [64], found [64, 1]",
        ),
        ("rank 0", changed(&|all| drop(all.insert(norm.into(), (vec![], vec![0.0])))), "found []"),
        (
            "zero size",
            changed(&|all| drop(all.insert(norm.into(), (vec![0], vec![])))),
            "found [0]",
        ),
        (
            "transposed",
            changed(&|all| all.get_mut("model.embed_tokens.weight").unwrap().0.reverse()),
            "expected shape [256, 64], found [64, 256]",
        ),
        ("F64", safetensors(&base, "F64"), "F64"),
    ];
    for (case, bytes, expected) in &cases {
        let dir = folder(&config("tiny-llama3"), bytes);
        let error = refused(dir.path(), case);
        assert!(error.contains(expected), "{case}: {error}, not {expected}");
    }
}

/// Shortens the file at `path` to each byte of its header and 100 lengths behind it, and opens
/// `model` each time.
fn cut_anywhere(path: &Path, header: usize, model: &Path) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    let data = (0..100).map(|i| header + (length - header) * i / 100);
    for cut in (0..header).chain(data).collect::<Vec<_>>().into_iter().rev() {
        file.set_len(cut as u64).unwrap();
        refused(model, &format!("cut at {cut}"));
    }
}

/// Changes each byte of the header of the file at `path` and opens `model`, whatever comes of it.
fn one_wrong_byte(path: &Path, header: usize, model: &Path) {
    let bytes = std::fs::read(path).unwrap();
    let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let mut put = |at: usize, byte: u8| {
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.write_all(&[byte]).unwrap();
    };
    for (at, &sound) in bytes.iter().enumerate().take(header) {
        for wrong in [0xff, sound ^ 1] {
            put(at, wrong);
            let start = Instant::now();
            let _ = Model::open(model);
            assert!(start.elapsed() < Duration::from_secs(1), "byte {at} as {wrong}");
        }
        put(at, sound);
    }
    open(model);
}

#[test]
fn safetensors_damaged_anywhere() {
    let bytes = model_file("tiny-llama3");
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let dir = folder(&config("tiny-llama3"), &bytes);
    let path = dir.path().join("model.safetensors");
    one_wrong_byte(&path, header, dir.path());
    cut_anywhere(&path, header, dir.path());
}

#[test]
fn gguf_damaged_anywhere() {
    let gguf = tiny("tiny-qwen3", "F16");
    let header = gguf.header().len();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, gguf.bytes()).unwrap();
    one_wrong_byte(&path, header, &path);
    cut_anywhere(&path, header, &path);
}

/// The tiny model with the tensor `token_embd.weight` altered.
fn embedding(change: impl FnOnce(&mut Tensor)) -> Vec<u8> {
    tiny("tiny-llama3", "F32").change("token_embd.weight", change).bytes()
}

fn patched(at: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = tiny("tiny-llama3", "F32").bytes();
    bytes[at..at + value.len()].copy_from_slice(value);
    bytes
}

#[test]
fn gguf_headers() {
    let base = || tiny("tiny-llama3", "F32");
    let huge = u64::MAX.to_le_bytes();
    let list = |kind: u32, count: u64| {
        Meta::Raw(9, [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat())
    };
    let align = |size| base().set("general.alignment", Meta::U32(size)).bytes();
    let repeated = |change: fn(&mut Gguf)| {
        let mut gguf = base();
        change(&mut gguf);
        gguf.bytes()
    };
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty file", vec![], "magic"),
        ("another magic", patched(0, b"GGML"), "GGML"),
        ("version 0", patched(4, &[0, 0, 0, 0]), "version"),
        ("version 1", patched(4, &[1, 0, 0, 0]), "version"),
        ("version 4", patched(4, &[4, 0, 0, 0]), "version"),
        ("big-endian", patched(4, &[0, 0, 0, 3]), "big-endian"),
        ("2^64-1 tensors", patched(8, &huge), "tensor count"),
        ("2^17 tensors", patched(8, &(1_u64 << 17).to_le_bytes()), "model.gguf"),
        ("no tensors", patched(8, &[0; 8]), "token_embd"),
        ("2^64-1 metadata", patched(16, &huge), "metadata count"),
        ("65536 metadata", patched(16, &65536_u64.to_le_bytes()), "model.gguf"),
        ("no metadata", patched(16, &[0; 8]), "model.gguf"),
        ("key of 2^64-1 bytes", patched(24, &huge), "length of metadata key"),
        ("key of 1000 bytes, not UTF-8", patched(32, &[0xff]), "UTF-8"),
        ("value type 13", base().set("x", Meta::Raw(13, vec![])).bytes(), "value type"),
        ("boolean 2", base().set("x", Meta::Raw(7, vec![2])).bytes(), "0 or 1"),
        ("text of 2^64-1 bytes", base().set("x", Meta::Raw(8, huge.to_vec())).bytes(), "`x`"),
        ("list of 2^64-1 u64", base().set("x", list(10, u64::MAX)).bytes(), "`x`"),
        ("list of 2^62 u32", base().set("x", list(4, 1 << 62)).bytes(), "`x`"),
        ("list of 2^64-1 u8", base().set("x", list(0, u64::MAX)).bytes(), "`x`"),
        ("list of 2^64-1 texts", base().set("x", list(8, u64::MAX)).bytes(), "`x`"),
        ("list of lists", base().set("x", list(9, 1)).bytes(), "plain values"),
        ("alignment 0", align(0), "general.alignment"),
        ("alignment 1", align(1), "general.alignment"),
        ("alignment 24", align(24), "general.alignment"),
        ("alignment 2^31", align(1 << 31), "general.alignment"),
        (
            "alignment text",
            base().set("general.alignment", Meta::Raw(8, vec![0; 8])).bytes(),
            "general.alignment",
        ),
        ("a key twice", repeated(|gguf| gguf.metadata.push(gguf.metadata[1].clone())), "once"),
        ("a tensor twice", repeated(|gguf| gguf.tensors.push(gguf.tensors[0].clone())), "once"),
        ("rank 0", embedding(|tensor| tensor.dims.clear()), "dimensions"),
        ("rank 5", embedding(|tensor| tensor.dims = vec![1; 5]), "dimensions"),
        ("dimension 0", embedding(|tensor| tensor.dims = vec![0, 256]), "dimensions above 0"),
        (
            "dimension product",
            embedding(|tensor| tensor.dims = vec![1 << 40, 1 << 40]),
            "dimensions",
        ),
        ("2^60 rows", embedding(|tensor| tensor.dims = vec![64, 1 << 54]), "model.gguf"),
        ("size beyond 64 bits", embedding(|tensor| tensor.dims = vec![1 << 62, 1]), "dimensions"),
        (
            "alignment pushes over",
            embedding(|tensor| {
                tensor.kind = 0;
                tensor.dims = vec![(1 << 62) - 1, 1];
            }),
            "64 bits",
        ),
        ("type 99", embedding(|tensor| tensor.kind = 99), "type 99"),
        ("type Q2_K", embedding(|tensor| tensor.kind = 10), "type 10"),
        ("type I32", embedding(|tensor| tensor.kind = 26), "type 26"),
        (
            "block does not divide",
            embedding(|tensor| {
                tensor.kind = 12;
            }),
            "multiple of 256",
        ),
        ("offset past the end", embedding(|tensor| tensor.offset = Some(1 << 40)), "offset"),
        ("offset 2^64-1", embedding(|tensor| tensor.offset = Some(u64::MAX)), "offset"),
        ("offset misaligned", embedding(|tensor| tensor.offset = Some(1)), "offset"),
        ("overlap", embedding(|tensor| tensor.offset = Some(0)), "offset"),
        ("larger than the file", embedding(|tensor| tensor.dims = vec![64, 1 << 40]), "offset"),
        ("another shape", embedding(|tensor| tensor.dims = vec![128, 128]), "shape"),
        (
            "unexpected tensor",
            repeated(|gguf| gguf.tensor("blk.0.extra", &[1], 0, vec![0; 4])),
            "blk.0.extra",
        ),
        (
            "fused qkv",
            repeated(|gguf| gguf.tensors[5].name = "blk.0.attn_qkv.weight".into()),
            "missing",
        ),
        (
            "rope factor 0",
            base().change("rope_freqs.weight", |t| t.data.fill(0)).bytes(),
            "rope_freqs.weight",
        ),
        (
            "rope factors of another length",
            base()
                .change("rope_freqs.weight", |t| {
                    t.dims = vec![4];
                    t.data.truncate(16);
                })
                .bytes(),
            "rope_freqs.weight",
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    for (case, bytes, expected) in &cases {
        std::fs::write(&path, bytes).unwrap();
        check(&path, case, expected);
    }
    let mut qwen = tiny("tiny-qwen3", "F32");
    qwen.tensor("rope_freqs.weight", &[16], 0, vec![0; 64]);
    std::fs::write(&path, qwen.bytes()).unwrap();
    check(&path, "factors that qwen files do not have", "rope_freqs.weight");
}

#[test]
fn many_tensors_take_bounded_time() {
    let mut header = Map::new();
    for index in 0..100_000_u64 {
        let info = json!({"dtype": "U8", "shape": [1], "data_offsets": [index, index + 1]});
        header.insert(format!("tensor.{index}"), info);
    }
    let bytes = raw_safetensors(&serde_json::Value::Object(header).to_string(), &vec![0; 100_000]);
    let dir = folder(&config("tiny-llama3"), &bytes);
    let error = refused(dir.path(), "100k tensors");
    assert!(error.contains("embed_tokens"), "{error}");
    // Every text of the list is there, and empty.
    let mut many = Meta::Raw(9, [&8_u32.to_le_bytes()[..], &3_000_000_u64.to_le_bytes()].concat());
    if let Meta::Raw(_, bytes) = &mut many {
        bytes.resize(bytes.len() + 24_000_000, 0);
    }
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, tiny("tiny-llama3", "F32").set("llama.x", many).bytes()).unwrap();
    check(&path, "3 million texts", "llama.x");
}

#[test]
fn indices_of_shards() {
    let shard = safetensors(&tensors("tiny-llama3"), "F32");
    let one = |file: &str| json!({"weight_map": {"model.norm.weight": file}}).to_string();
    let whole =
        json!({"weight_map": {"model.norm.weight": "a.safetensors", "ghost": "a.safetensors"}});
    let cases = [
        ("no JSON", "{".to_owned(), "JSON"),
        ("no map", "{}".to_owned(), "weight_map"),
        ("map no object", "{\"weight_map\":[]}".to_owned(), "weight_map"),
        ("file no text", "{\"weight_map\":{\"x\":1}}".to_owned(), "file name"),
        ("a key twice", "{\"weight_map\":{\"x\":\"a\",\"x\":\"b\"}}".to_owned(), "twice"),
        ("no shard", one("b.safetensors"), "b.safetensors"),
        ("a path upwards", one("../a.safetensors"), "file name"),
        ("an absolute path", one("/etc/a.safetensors"), "file name"),
        ("another kind of file", one("pytorch_model.bin"), "file name"),
        ("a tensor that no shard has", whole.to_string(), "ghost"),
        ("deep nesting", "[".repeat(1 << 20), "JSON"),
    ];
    let dir = folder(&config("tiny-llama3"), b"");
    std::fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    check_folder(dir.path(), "no weights", "model.safetensors");
    std::fs::write(dir.path().join("a.safetensors"), &shard).unwrap();
    for (case, index, expected) in cases {
        std::fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
        check_folder(dir.path(), case, expected);
    }
    std::fs::write(dir.path().join("b.safetensors"), &shard).unwrap();
    let twice = json!({"weight_map": {"model.norm.weight": "a.safetensors", "x": "b.safetensors"}});
    std::fs::write(dir.path().join("model.safetensors.index.json"), twice.to_string()).unwrap();
    check_folder(dir.path(), "a tensor in two shards", "the same name");
}

fn check_folder(path: &Path, case: &str, expected: &str) {
    let error = refused(path, case);
    assert!(error.contains(expected), "{case}: {error}, not {expected}");
}

#[test]
fn configurations_that_are_no_configuration() {
    let dir = folder(&config("tiny-llama3"), &model_file("tiny-llama3"));
    let path = dir.path().join("config.json");
    let whole = std::fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        check_folder(dir.path(), &format!("cut at {cut}"), "config.json");
    }
    let text = String::from_utf8(whole).unwrap();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("a list", b"[1]".to_vec(), "object"),
        ("NaN", text.replace("0.15", "NaN").into_bytes(), "JSON"),
        ("infinite", text.replace("0.15", "1e999").into_bytes(), "JSON"),
        ("a key twice", text.replacen('{', "{\"vocab_size\":1,", 1).into_bytes(), "twice"),
        ("not UTF-8", [text.as_bytes(), &[0xff]].concat(), "config.json"),
        ("deep nesting", "{\"a\":".repeat(100_000).into_bytes(), "JSON"),
        ("2 MB", [text.as_bytes(), &vec![b' '; 2 << 20]].concat(), "limit"),
        ("a byte order mark", [b"\xef\xbb\xbf", text.as_bytes()].concat(), "JSON"),
    ];
    for (case, bytes, expected) in &cases {
        std::fs::write(&path, bytes).unwrap();
        check_folder(dir.path(), case, expected);
    }
}

#[test]
fn what_is_no_file() {
    let dir = tempfile::tempdir().unwrap();
    check(&dir.path().join("nothing"), "nothing there", "no such file");
    check_folder(dir.path(), "empty folder", "config.json");
    std::fs::create_dir(dir.path().join("config.json")).unwrap();
    check_folder(dir.path(), "config.json is a folder", "a folder");

    let dir = folder(&config("tiny-llama3"), b"");
    let weights = dir.path().join("model.safetensors");
    std::fs::remove_file(&weights).unwrap();
    std::fs::create_dir(&weights).unwrap();
    check_folder(dir.path(), "weights are a folder", "a folder");

    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if made.is_ok_and(|status| status.success()) {
        check(&pipe, "a pipe", "a pipe");
        std::fs::remove_dir(&weights).unwrap();
        std::fs::rename(&pipe, &weights).unwrap();
        check_folder(dir.path(), "weights are a pipe", "a pipe");
        let config = dir.path().join("config.json");
        std::fs::remove_file(&config).unwrap();
        std::fs::rename(&weights, &config).unwrap();
        check_folder(dir.path(), "config.json is a pipe", "a pipe");
    }
    check(Path::new("/dev/zero"), "a device", "device");
    let text = dir.path().join("text.gguf");
    std::fs::write(&text, "just text, no model").unwrap();
    check(&text, "a text", "magic");
}
