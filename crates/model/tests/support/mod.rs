//! What the tests of loading share: the fixtures, folders made of them, and writers of both formats.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

pub mod gguf;

use half::{bf16, f16};
use ringattn_engine::cpu::dense::PackedMatrix;
use ringattn_model::{Model, Weights};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub const TINY: [&str; 3] = ["tiny-llama3", "tiny-qwen3", "tiny-mistral"];

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

pub fn config(name: &str) -> Map<String, Value> {
    let text = std::fs::read_to_string(fixture(name).join("config.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Shape and f32 values of each tensor.
pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The tensors of a tiny folder, all of which are F32.
pub fn tensors(name: &str) -> Tensors {
    let raw = std::fs::read(fixture(name).join("model.safetensors")).unwrap();
    let length = u64::from_le_bytes(raw[..8].try_into().unwrap()) as usize;
    let header: Map<String, Value> = serde_json::from_slice(&raw[8..8 + length]).unwrap();
    let read = |info: &Value| {
        let shape: Vec<usize> = serde_json::from_value(info["shape"].clone()).unwrap();
        let [start, end]: [usize; 2] =
            serde_json::from_value(info["data_offsets"].clone()).unwrap();
        let data = &raw[8 + length + start..8 + length + end];
        let values = data.chunks_exact(4).map(|raw| f32::from_le_bytes(raw.try_into().unwrap()));
        (shape, values.collect())
    };
    let named = header.iter().filter(|(name, _)| *name != "__metadata__");
    named.map(|(name, info)| (name.clone(), read(info))).collect()
}

/// The bytes of `values` in a type named as safetensors does.
pub fn encode(values: &[f32], dtype: &str) -> Vec<u8> {
    match dtype {
        "F32" => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        "F16" => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
        "BF16" => values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect(),
        "F64" => values.iter().flat_map(|value| f64::from(*value).to_le_bytes()).collect(),
        other => panic!("no such type {other}"),
    }
}

/// `values` as they are after being stored in `dtype`.
pub fn rounded(values: &[f32], dtype: &str) -> Vec<f32> {
    match dtype {
        "F16" => values.iter().map(|value| f16::from_f32(*value).to_f32()).collect(),
        "BF16" => values.iter().map(|value| bf16::from_f32(*value).to_f32()).collect(),
        _ => values.to_vec(),
    }
}

/// A safetensors file. An odd length of the header leaves all data unaligned.
pub fn safetensors(tensors: &Tensors, dtype: &str) -> Vec<u8> {
    let mut header = Map::new();
    let mut data = Vec::new();
    for (name, (shape, values)) in tensors {
        let start = data.len();
        data.extend(encode(values, dtype));
        let info = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(name.clone(), info);
    }
    let mut text = Value::Object(header).to_string();
    if text.len().is_multiple_of(2) {
        text.push(' ');
    }
    raw_safetensors(&text, &data)
}

pub fn raw_safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// A folder with these two files.
pub fn folder(config: &Map<String, Value>, weights: &[u8]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), Value::Object(config.clone()).to_string())
        .unwrap();
    std::fs::write(dir.path().join("model.safetensors"), weights).unwrap();
    dir
}

/// All weights of a model in f32, by their place.
pub fn flat(weights: &Weights) -> BTreeMap<String, Vec<f32>> {
    let mut flat = BTreeMap::new();
    let matrix = |matrix: &PackedMatrix| {
        let mut values = vec![0.0; matrix.rows() * matrix.cols()];
        for (row, to) in values.chunks_exact_mut(matrix.cols()).enumerate() {
            matrix.row(row, to).unwrap();
        }
        values
    };
    flat.insert("embedding".to_owned(), matrix(&weights.embedding));
    flat.insert("final_norm".to_owned(), weights.final_norm.clone());
    if let Some(head) = &weights.head {
        flat.insert("head".to_owned(), matrix(head));
    }
    for (index, layer) in weights.layers.iter().enumerate() {
        let linears = [
            ("q", &layer.q),
            ("k", &layer.k),
            ("v", &layer.v),
            ("o", &layer.o),
            ("gate", &layer.gate),
            ("up", &layer.up),
            ("down", &layer.down),
        ];
        for (name, linear) in linears {
            flat.insert(format!("{index}.{name}"), matrix(&linear.weight));
            if let Some(bias) = &linear.bias {
                flat.insert(format!("{index}.{name}.bias"), bias.clone());
            }
        }
        let norms = [
            ("attention_norm", Some(&layer.attention_norm)),
            ("q_norm", layer.q_norm.as_ref()),
            ("k_norm", layer.k_norm.as_ref()),
            ("feed_forward_norm", Some(&layer.feed_forward_norm)),
        ];
        for (name, norm) in norms {
            if let Some(norm) = norm {
                flat.insert(format!("{index}.{name}"), norm.clone());
            }
        }
    }
    flat
}

pub fn open(path: &Path) -> Model {
    Model::open(path).unwrap_or_else(|error| panic!("{error}"))
}
