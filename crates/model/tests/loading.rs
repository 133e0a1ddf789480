//! Models that must load, and what they hold then: folders against GGUF files made of them, all
//! element types, shards, biases, tied heads.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use ringattn_core::AttentionShape;
use ringattn_model::{Family, Model};
use serde_json::{Map, Value, json};
use std::path::Path;
use support::gguf::{Gguf, Meta, of_folder, tiny};
use support::*;

fn write(dir: &Path, name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn with(mut config: Map<String, Value>, fields: Value) -> Map<String, Value> {
    config.extend(fields.as_object().unwrap().clone());
    config
}

/// As many values as `shape` asks for, none like another.
fn values(shape: &[usize], seed: usize) -> (Vec<usize>, Vec<f32>) {
    let count: usize = shape.iter().product();
    (shape.to_vec(), (0..count).map(|i| ((i * 37 + seed * 101) % 1009) as f32 / 64.0).collect())
}

#[test]
fn folders_load() {
    let shape = |d| AttentionShape::new(4, 2, d).unwrap();
    let expected = [
        ("tiny-llama3", Family::Llama, shape(16), None, false),
        ("tiny-qwen3", Family::Qwen3, shape(32), None, true),
        ("tiny-mistral", Family::Mistral, shape(16), Some(96), true),
    ];
    for (name, family, attention, window, head) in expected {
        let model = open(&fixture(name));
        let config = &model.config;
        assert_eq!(config.family, family);
        assert_eq!(config.attention, attention);
        assert_eq!(config.sliding_window, vec![window; 3]);
        assert_eq!((config.vocab_size, config.hidden_size), (256, 64));
        assert_eq!((config.intermediate_size, config.layers), (160, 3));
        assert_eq!((config.rms_norm_eps, config.trained_context), (1e-5, Some(8192)));
        assert_eq!(model.weights.head.is_some(), head);
        assert_eq!(model.weights.layers[0].q_norm.is_some(), family == Family::Qwen3);
        let bytes: usize = tensors(name).values().map(|(_, values)| values.len() * 4).sum();
        assert_eq!(model.weight_bytes(), bytes as u64);
        let flat = flat(&model.weights);
        let tensors = tensors(name);
        assert_eq!(flat.len(), tensors.len());
        assert_eq!(flat["embedding"], tensors["model.embed_tokens.weight"].1);
        assert_eq!(flat["2.k"], tensors["model.layers.2.self_attn.k_proj.weight"].1);
        assert_eq!(flat["1.down"], tensors["model.layers.1.mlp.down_proj.weight"].1);
    }
}

#[test]
fn a_gguf_file_holds_what_its_folder_holds() {
    let dir = tempfile::tempdir().unwrap();
    for name in TINY {
        let from_folder = open(&fixture(name));
        for dtype in ["F32", "F16", "BF16"] {
            let path = write(dir.path(), "model.gguf", &tiny(name, dtype).bytes());
            let from_gguf = open(&path);
            let (a, b) = (flat(&from_folder.weights), flat(&from_gguf.weights));
            assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
            for (place, values) in &a {
                let expected =
                    if place.contains("norm") { values.clone() } else { rounded(values, dtype) };
                assert!(b[place] == expected, "{name} {dtype} {place}");
            }
            let (a, b) = (&from_folder.config, &from_gguf.config);
            assert_eq!(a.sliding_window, b.sliding_window);
            assert_eq!((a.attention, a.trained_context), (b.attention, b.trained_context));
            let pairs = a.rope.inverse_frequencies.iter().zip(&b.rope.inverse_frequencies);
            assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-7 * a), "{name}");
            assert_eq!(pairs.count(), a.attention.head_dim() / 2);
        }
    }
}

#[test]
fn every_stored_type_is_widened_exactly() {
    for name in TINY {
        for dtype in ["F32", "F16", "BF16"] {
            let dir = folder(&config(name), &safetensors(&tensors(name), dtype));
            let (a, b) = (flat(&open(&fixture(name)).weights), flat(&open(dir.path()).weights));
            for (place, values) in &a {
                assert!(b[place] == rounded(values, dtype), "{name} {dtype} {place}");
            }
        }
    }
}

#[test]
fn shards_are_joined() {
    let all = tensors("tiny-llama3");
    let mut parts = [Tensors::new(), Tensors::new(), Tensors::new()];
    let mut map = Map::new();
    for (index, (name, tensor)) in all.iter().enumerate() {
        parts[index % 3].insert(name.clone(), tensor.clone());
        map.insert(name.clone(), json!(format!("model-{}-of-3.safetensors", index % 3 + 1)));
    }
    let dir = folder(&config("tiny-llama3"), b"");
    std::fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    for (index, part) in parts.iter().enumerate() {
        let name = format!("model-{}-of-3.safetensors", index + 1);
        write(dir.path(), &name, &safetensors(part, "BF16"));
    }
    let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
    write(dir.path(), "model.safetensors.index.json", index.to_string().as_bytes());
    let whole = folder(&config("tiny-llama3"), &safetensors(&all, "BF16"));
    assert!(flat(&open(dir.path()).weights) == flat(&open(whole.path()).weights));
}

/// The tensors of tiny-llama3 with a bias on each of `parts`.
fn biased(parts: &[(&str, usize)]) -> Tensors {
    let mut all = tensors("tiny-llama3");
    for layer in 0..3 {
        for (index, (part, rows)) in parts.iter().enumerate() {
            let name = format!("model.layers.{layer}.{part}.bias");
            all.insert(name, values(&[*rows], layer * 7 + index));
        }
    }
    all
}

#[test]
fn biases_are_read_where_the_family_has_them() {
    let qkv = [("self_attn.q_proj", 64), ("self_attn.k_proj", 32), ("self_attn.v_proj", 32)];
    let output = [("self_attn.o_proj", 64)];
    let feed_forward = [("mlp.gate_proj", 160), ("mlp.up_proj", 160), ("mlp.down_proj", 64)];
    let llama = config("tiny-llama3");
    let attention = with(llama.clone(), json!({"attention_bias": true}));
    let qwen2 = json!({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]});
    let mut qwen2 = with(llama.clone(), qwen2);
    qwen2.remove("attention_bias");
    qwen2["rope_parameters"] = json!({"rope_type": "default", "rope_theta": 1e6});
    let cases = [
        (attention.clone(), [&qkv[..], &output].concat()),
        (with(llama, json!({"mlp_bias": true})), feed_forward.to_vec()),
        (with(attention, json!({"mlp_bias": true})), [&qkv[..], &output, &feed_forward].concat()),
        (qwen2, qkv.to_vec()),
    ];
    for (config, parts) in cases {
        let all = biased(&parts);
        let dir = folder(&config, &safetensors(&all, "F32"));
        let expected = flat(&open(dir.path()).weights);
        for (part, _) in &parts {
            let place = format!("1.{}.bias", part.split(['.', '_']).rev().nth(1).unwrap());
            assert_eq!(expected[&place], all[&format!("model.layers.1.{part}.bias")].1, "{part}");
        }
        let biases = expected.keys().filter(|place| place.ends_with("bias")).count();
        assert_eq!(biases, 3 * parts.len());
        let path = write(dir.path(), "model.gguf", &of_folder(&config, &all, "F32").bytes());
        assert!(flat(&open(&path).weights) == expected, "{:?}", config["model_type"]);
    }
}

#[test]
fn a_tied_head_may_be_stored_as_a_copy() {
    let mut all = tensors("tiny-llama3");
    all.insert("lm_head.weight".to_owned(), all["model.embed_tokens.weight"].clone());
    all.insert("model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(), values(&[8], 1));
    let dir = folder(&config("tiny-llama3"), &safetensors(&all, "F32"));
    assert!(open(dir.path()).weights.head.is_none());
    all.insert("lm_head.weight".to_owned(), values(&[256, 64], 1));
    let dir = folder(&config("tiny-llama3"), &safetensors(&all, "F32"));
    let error = Model::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("lm_head.weight") && error.contains("tied"), "{error}");
}

#[test]
fn another_alignment_and_version_2_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut gguf = tiny("tiny-qwen3", "F16").set("general.alignment", Meta::U32(256));
    gguf.alignment = 256;
    let mut bytes = gguf.bytes();
    bytes[4] = 2;
    let model = open(&write(dir.path(), "model.gguf", &bytes));
    assert_eq!(model.config.family, Family::Qwen3);
}

/// Widens one block of `kind` as ggml's documentation gives the formula; halves are little-endian.
fn widen(kind: u32, block: &[u8]) -> Vec<f32> {
    let half = |at: usize| half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    let nibble = |at: usize, i: usize| {
        let byte = block[at + i % 16];
        f32::from(if i < 16 { byte & 15 } else { byte >> 4 })
    };
    let fifth = |at: usize, i: usize| f32::from((block[at + i / 8] >> (i % 8)) & 1) * 16.0;
    // Scale and minimum of sub-block j in the K types: 6 bits each, packed in 12 bytes.
    let scales = |j: usize| {
        let s = &block[4..16];
        let (scale, min) = if j < 4 {
            (s[j] & 63, s[j + 4] & 63)
        } else {
            ((s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4)
        };
        (half(0) * f32::from(scale), half(2) * f32::from(min))
    };
    let k_nibble = |at: usize, i: usize| {
        let byte = block[at + i / 64 * 32 + i % 32];
        f32::from(if i % 64 < 32 { byte & 15 } else { byte >> 4 })
    };
    let q6 = |i: usize| {
        let (part, i) = (i / 128, i % 128);
        let low = block[part * 64 + i % 64];
        let low = if i < 64 { low & 15 } else { low >> 4 };
        let high = block[128 + part * 32 + i % 32] >> (i / 32 * 2) & 3;
        let scale = block[192 + part * 8 + i / 16] as i8;
        half(208) * f32::from(scale) * (f32::from(low | high << 4) - 32.0)
    };
    match kind {
        2 => (0..32).map(|i| half(0) * (nibble(2, i) - 8.0)).collect(),
        3 => (0..32).map(|i| half(0) * nibble(4, i) + half(2)).collect(),
        6 => (0..32).map(|i| half(0) * (nibble(6, i) + fifth(2, i) - 16.0)).collect(),
        7 => (0..32).map(|i| half(0) * (nibble(8, i) + fifth(4, i)) + half(2)).collect(),
        8 => (0..32).map(|i| half(0) * f32::from(block[2 + i] as i8)).collect(),
        12 => (0..256).map(|i| scales(i / 32).0 * k_nibble(16, i) - scales(i / 32).1).collect(),
        13 => {
            let high = |i: usize| f32::from(block[16 + i % 32] >> (i / 32) & 1) * 16.0;
            let value = |i| scales(i / 32).0 * (k_nibble(48, i) + high(i)) - scales(i / 32).1;
            (0..256).map(value).collect()
        }
        14 => (0..256).map(q6).collect(),
        _ => panic!("no such type"),
    }
}

#[test]
fn quantised_blocks_follow_their_formulas() {
    // (type, elements and bytes of a block, where its halves are)
    let kinds: [(u32, usize, usize, &[usize]); 8] = [
        (2, 32, 18, &[0]),
        (3, 32, 20, &[0, 2]),
        (6, 32, 22, &[0]),
        (7, 32, 24, &[0, 2]),
        (8, 32, 34, &[0]),
        (12, 256, 144, &[0, 2]),
        (13, 256, 176, &[0, 2]),
        (14, 256, 210, &[208]),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (kind, elements, size, halves) in kinds {
        let mut config = config("tiny-qwen3");
        config.extend([("hidden_size".into(), json!(256)), ("vocab_size".into(), json!(300))]);
        let mut gguf = of_folder(&config, &Tensors::new(), "F32");
        let mut expected = Vec::new();
        let mut state = kind;
        let mut quantised = |gguf: &mut Gguf, name: &str, shape: &[usize; 2]| {
            let mut data = Vec::new();
            let mut widened = Vec::new();
            for _ in 0..shape[0] * shape[1] / elements {
                let mut block = vec![0; size];
                for byte in &mut block {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    *byte = (state >> 24) as u8;
                }
                for &at in halves {
                    let value = half::f16::from_f32(f32::from(block[at]) / 1024.0 - 0.1);
                    block[at..at + 2].copy_from_slice(&value.to_le_bytes());
                }
                widened.extend(widen(kind, &block));
                data.extend(block);
            }
            gguf.tensor(name, shape, kind, data);
            expected.push(widened);
        };
        quantised(&mut gguf, "token_embd.weight", &[300, 256]);
        let plain = |gguf: &mut Gguf, name: &str, shape: &[usize]| {
            gguf.tensor(name, shape, 0, encode(&values(shape, 3).1, "F32"));
        };
        plain(&mut gguf, "output_norm.weight", &[256]);
        for layer in 0..3 {
            for (part, shape) in [
                ("attn_norm", &[256][..]),
                ("ffn_norm", &[256]),
                ("attn_q_norm", &[32]),
                ("attn_k_norm", &[32]),
                ("attn_q", &[128, 256]),
                ("attn_k", &[64, 256]),
                ("attn_v", &[64, 256]),
                ("attn_output", &[256, 128]),
                ("ffn_gate", &[160, 256]),
                ("ffn_down", &[256, 160]),
            ] {
                plain(&mut gguf, &format!("blk.{layer}.{part}.weight"), shape);
            }
            quantised(&mut gguf, &format!("blk.{layer}.ffn_up.weight"), &[160, 256]);
        }
        let model = open(&write(dir.path(), "model.gguf", &gguf.bytes()));
        let flat = flat(&model.weights);
        for (place, expected) in ["embedding", "0.up", "1.up", "2.up"].iter().zip(&expected) {
            let worst = flat[*place].iter().zip(expected).map(|(a, b)| (a - b).abs());
            let worst = worst.fold(0.0, f32::max);
            let largest = expected.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
            assert!(worst <= 2e-7 * largest, "type {kind} {place}: off by {worst} of {largest}");
        }
    }
}
