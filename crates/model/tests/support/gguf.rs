//! A writer of GGUF files, sound ones and, by its public fields, others.

use super::{Tensors, config, encode, tensors};
use serde_json::{Map, Value};
use std::f64::consts::TAU;

#[derive(Clone)]
pub enum Meta {
    U32(u32),
    U64(u64),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    /// A type number and its bytes.
    Raw(u32, Vec<u8>),
}

#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    /// Fastest dimension first.
    pub dims: Vec<u64>,
    pub kind: u32,
    pub data: Vec<u8>,
    /// Another offset than the sound one.
    pub offset: Option<u64>,
}

#[derive(Clone)]
pub struct Gguf {
    pub metadata: Vec<(String, Meta)>,
    pub tensors: Vec<Tensor>,
    pub alignment: usize,
}

pub fn text(value: &str) -> Meta {
    Meta::Text(value.to_owned())
}

fn string(out: &mut Vec<u8>, value: &str) {
    out.extend((value.len() as u64).to_le_bytes());
    out.extend(value.as_bytes());
}

impl Meta {
    fn write(&self, out: &mut Vec<u8>) {
        let mut plain = |kind: u32, bytes: &[u8]| {
            out.extend(kind.to_le_bytes());
            out.extend(bytes);
        };
        let list = |kind: u32, count: usize| {
            [&kind.to_le_bytes()[..], &(count as u64).to_le_bytes()].concat()
        };
        match self {
            Self::U32(value) => plain(4, &value.to_le_bytes()),
            Self::U64(value) => plain(10, &value.to_le_bytes()),
            Self::F32(value) => plain(6, &value.to_le_bytes()),
            Self::Bool(value) => plain(7, &[u8::from(*value)]),
            Self::Raw(kind, bytes) => plain(*kind, bytes),
            Self::Text(value) => {
                let mut bytes = Vec::new();
                string(&mut bytes, value);
                plain(8, &bytes);
            }
            Self::Texts(values) => {
                let mut bytes = list(8, values.len());
                values.iter().for_each(|value| string(&mut bytes, value));
                plain(9, &bytes);
            }
            Self::I32s(values) => {
                let mut bytes = list(5, values.len());
                values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
                plain(9, &bytes);
            }
            Self::F32s(values) => {
                let mut bytes = list(6, values.len());
                values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
                plain(9, &bytes);
            }
        }
    }
}

impl Gguf {
    pub fn new(architecture: &str) -> Self {
        let metadata = vec![("general.architecture".to_owned(), text(architecture))];
        Self { metadata, tensors: Vec::new(), alignment: 32 }
    }

    /// Sets or replaces a metadata value.
    pub fn set(mut self, key: &str, value: Meta) -> Self {
        self.metadata.retain(|(name, _)| name != key);
        self.metadata.push((key.to_owned(), value));
        self
    }

    pub fn tensor(&mut self, name: &str, shape: &[usize], kind: u32, data: Vec<u8>) {
        let dims = shape.iter().rev().map(|&size| size as u64).collect();
        self.tensors.push(Tensor { name: name.to_owned(), dims, kind, data, offset: None });
    }

    /// Lets `change` alter the tensor named `name`.
    pub fn change(mut self, name: &str, change: impl FnOnce(&mut Tensor)) -> Self {
        change(self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap());
        self
    }

    /// Everything before the data, without the padding.
    pub fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            string(&mut out, key);
            value.write(&mut out);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            string(&mut out, &tensor.name);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|size| out.extend(size.to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(offset).to_le_bytes());
            offset += tensor.data.len().next_multiple_of(self.alignment) as u64;
        }
        out
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(&tensor.data);
        }
        out
    }
}

/// A tiny folder as llama.cpp's converter would write it, with matrices in F32, F16 or BF16.
pub fn tiny(name: &str, dtype: &str) -> Gguf {
    of_folder(&config(name), &tensors(name), dtype)
}

/// As [`tiny`], of any folder's configuration and tensors.
pub fn of_folder(config: &Map<String, Value>, tensors: &Tensors, dtype: &str) -> Gguf {
    let model_type = config["model_type"].as_str().unwrap();
    let architecture = if model_type == "mistral" { "llama" } else { model_type };
    let number = |key: &str| config[key].as_u64().unwrap() as u32;
    let heads = (number("num_attention_heads"), number("num_key_value_heads"));
    let head_dim = number("head_dim");
    let rope = config["rope_parameters"].as_object().unwrap();
    let mut gguf = Gguf::new(architecture);
    let mut set = |key: &str, value| gguf.metadata.push((format!("{architecture}.{key}"), value));
    set("block_count", Meta::U32(number("num_hidden_layers")));
    set("context_length", Meta::U32(number("max_position_embeddings")));
    set("embedding_length", Meta::U32(number("hidden_size")));
    set("feed_forward_length", Meta::U32(number("intermediate_size")));
    set("attention.head_count", Meta::U32(heads.0));
    set("attention.head_count_kv", Meta::U32(heads.1));
    set("attention.key_length", Meta::U32(head_dim));
    set("attention.value_length", Meta::U32(head_dim));
    set("rope.dimension_count", Meta::U32(head_dim));
    set("rope.freq_base", Meta::F32(rope["rope_theta"].as_f64().unwrap() as f32));
    let eps = config["rms_norm_eps"].as_f64().unwrap();
    set("attention.layer_norm_rms_epsilon", Meta::F32(eps as f32));
    if let Some(window) = config.get("sliding_window").and_then(Value::as_u64) {
        set("attention.sliding_window", Meta::U32(window as u32));
    }
    if rope["rope_type"] == "llama3" {
        let factors = llama3_factors(rope, head_dim as usize);
        gguf.tensor("rope_freqs.weight", &[factors.len()], 0, encode(&factors, "F32"));
    }
    for (name, (shape, values)) in tensors {
        let heads = match name {
            name if architecture == "llama" && name.contains("q_proj") => heads.0,
            name if architecture == "llama" && name.contains("k_proj") => heads.1,
            _ => 0,
        };
        let values = neighbours(values, heads as usize, shape);
        let dtype = if shape.len() == 1 { "F32" } else { dtype };
        let kind = [("F32", 0), ("F16", 1), ("BF16", 30)].iter().find(|row| row.0 == dtype);
        gguf.tensor(&rename(name), shape, kind.unwrap().1, encode(&values, dtype));
    }
    gguf
}

/// Row `j * d/2 + i` of each head becomes row `2i + j`; no head: unchanged.
fn neighbours(values: &[f32], heads: usize, shape: &[usize]) -> Vec<f32> {
    if heads == 0 {
        return values.to_vec();
    }
    let cols = shape.get(1).copied().unwrap_or(1);
    let half = shape[0] / heads / 2;
    let mut out = Vec::new();
    for head in 0..heads {
        for i in 0..half {
            for j in 0..2 {
                let row = head * 2 * half + j * half + i;
                out.extend(&values[row * cols..(row + 1) * cols]);
            }
        }
    }
    out
}

fn rename(name: &str) -> String {
    let pairs = [
        ("model.embed_tokens.", "token_embd."),
        ("model.norm.", "output_norm."),
        ("lm_head.", "output."),
        ("model.layers.", "blk."),
        ("self_attn.q_proj.", "attn_q."),
        ("self_attn.k_proj.", "attn_k."),
        ("self_attn.v_proj.", "attn_v."),
        ("self_attn.o_proj.", "attn_output."),
        ("self_attn.q_norm.", "attn_q_norm."),
        ("self_attn.k_norm.", "attn_k_norm."),
        ("input_layernorm.", "attn_norm."),
        ("post_attention_layernorm.", "ffn_norm."),
        ("mlp.gate_proj.", "ffn_gate."),
        ("mlp.up_proj.", "ffn_up."),
        ("mlp.down_proj.", "ffn_down."),
    ];
    pairs.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

fn llama3_factors(rope: &Map<String, Value>, head_dim: usize) -> Vec<f32> {
    let number = |key: &str| rope[key].as_f64().unwrap();
    let (factor, context) = (number("factor"), number("original_max_position_embeddings"));
    let (low, high) = (number("low_freq_factor"), number("high_freq_factor"));
    let one = |pair: usize| {
        let length = TAU * number("rope_theta").powf(2.0 * pair as f64 / head_dim as f64);
        if length < context / high {
            1.0
        } else if length > context / low {
            factor
        } else {
            let smooth = (context / length - low) / (high - low);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    (0..head_dim / 2).map(|pair| one(pair) as f32).collect()
}
