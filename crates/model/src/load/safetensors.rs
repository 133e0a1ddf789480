//! Weights of a Hugging Face folder: one or several safetensors files, mapped.
//!
//! A file is 8 bytes of header length `n` (little-endian), `n` bytes of JSON (tensor name to dtype,
//! shape and byte range), then data that the ranges cover without gap or overlap. The header is
//! parsed as a stream into a list of fixed entries, so that memory is bounded by its length. Knows
//! the tensor names of the families, no arithmetic.

use super::{Norm, Projection, Slot, Tensors, assemble};
use crate::ModelError;
use crate::config::{ModelConfig, Parts};
use crate::error::shorten;
use crate::file::{MappedFile, display};
use crate::json::{parse, read_object};
use crate::weights::{Matrix, Weights, widen};
use ringattn_core::DType;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of the longest header that is read; 100 for a tensor are usual.
const HEADER_LIMIT: u64 = 32 << 20;
/// Bytes of the longest `model.safetensors.index.json` that is read.
const INDEX_LIMIT: u64 = 32 << 20;

/// Loads the weights in `folder`.
///
/// # Errors
/// For unsound files and for tensors that are missing, of another shape or type, or not used.
pub(super) fn load(
    folder: &Path,
    config: &ModelConfig,
    parts: &Parts,
) -> Result<Weights, ModelError> {
    let single = folder.join("model.safetensors");
    let index = folder.join("model.safetensors.index.json");
    let mut shards = Shards { folder: display(folder), tensors: BTreeMap::new() };
    if single.exists() {
        shards.add(&single)?;
    } else if index.exists() {
        shards.add_indexed(folder, &index)?;
    } else {
        return Err(ModelError::MissingFile {
            file: display(&single),
            hint: "weights are read from it or from model.safetensors.index.json",
        });
    }
    assemble(config, parts, shards)
}

/// The tensors of all shards that were not taken yet.
struct Shards {
    folder: String,
    tensors: BTreeMap<String, (Arc<MappedFile>, Entry)>,
}

/// One tensor, checked against the length of its file.
#[derive(Debug)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    /// First byte in the file.
    start: usize,
}

impl Shards {
    fn add(&mut self, path: &Path) -> Result<(), ModelError> {
        let file = Arc::new(MappedFile::open(path)?);
        for (name, entry) in entries(&file, path)? {
            if let Some((other, _)) = self.tensors.get(&name) {
                return Err(ModelError::Malformed {
                    file: file.name.clone(),
                    place: format!("tensor `{}`", shorten(&name)),
                    expected: "each tensor in one file".to_owned(),
                    actual: format!("the same name in {}", other.name),
                });
            }
            self.tensors.insert(name, (Arc::clone(&file), entry));
        }
        Ok(())
    }

    fn add_indexed(&mut self, folder: &Path, index: &Path) -> Result<(), ModelError> {
        let malformed = |place: &str, expected: &str, actual: &str| ModelError::Malformed {
            file: display(index),
            place: place.to_owned(),
            expected: expected.to_owned(),
            actual: shorten(actual),
        };
        let map = match read_object(index, INDEX_LIMIT)?.remove("weight_map") {
            Some(Value::Object(map)) => map,
            other => {
                let actual = other.map_or("nothing".to_owned(), |value| value.to_string());
                return Err(malformed("weight_map", "an object", &actual));
            }
        };
        let mut files = BTreeSet::new();
        for (tensor, file) in &map {
            // A shard lies in the folder itself; a path that leads elsewhere is not followed.
            match file.as_str() {
                Some(name) if !name.contains(['/', '\\']) && name.ends_with(".safetensors") => {
                    files.insert(name);
                }
                _ => {
                    let place = format!("weight_map of `{}`", shorten(tensor));
                    return Err(malformed(&place, "a file name", &file.to_string()));
                }
            }
        }
        for name in files {
            self.add(&folder.join(name))?;
        }
        for (tensor, file) in &map {
            let found = self.tensors.get(tensor);
            let path = file.as_str().map(|name| display(&folder.join(name)));
            if found.map(|(shard, _)| &shard.name) != path.as_ref() {
                let file = path.unwrap_or_default();
                return Err(ModelError::MissingTensor { file, tensor: shorten(tensor) });
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        slot: Slot,
        expected: &[usize],
    ) -> Result<(Arc<MappedFile>, DType, usize), ModelError> {
        let tensor = name(slot);
        let Some((file, entry)) = self.tensors.remove(&tensor) else {
            return Err(ModelError::MissingTensor { file: self.folder.clone(), tensor });
        };
        let expected: Vec<u64> = expected.iter().map(|&size| size as u64).collect();
        if entry.shape != expected {
            let file = file.name.clone();
            return Err(ModelError::TensorShape { file, tensor, expected, actual: entry.shape });
        }
        let dtype = match entry.dtype.as_str() {
            "F32" => DType::F32,
            "BF16" => DType::Bf16,
            "F16" => DType::F16,
            other => {
                return Err(ModelError::TensorType {
                    file: file.name.clone(),
                    tensor,
                    expected: "F32, BF16 or F16",
                    actual: other.to_owned(),
                });
            }
        };
        Ok((file, dtype, entry.start))
    }
}

impl Tensors for Shards {
    fn label(&self, slot: Slot) -> (String, String) {
        (self.folder.clone(), name(slot))
    }

    fn holds(&self, slot: Slot) -> bool {
        self.tensors.contains_key(&name(slot))
    }

    fn matrix(&mut self, slot: Slot, shape: [usize; 2]) -> Result<Matrix, ModelError> {
        let (file, dtype, start) = self.take(slot, &shape)?;
        Matrix::mapped(shape, dtype, &file, start).ok_or_else(|| ModelError::MissingTensor {
            file: file.name.clone(),
            tensor: name(slot),
        })
    }

    fn vector(&mut self, slot: Slot, len: usize) -> Result<Vec<f32>, ModelError> {
        let (file, dtype, start) = self.take(slot, &[len])?;
        let mut values = vec![0.0; len];
        widen(&file.bytes()[start..start + len * dtype.size() as usize], dtype, &mut values);
        Ok(values)
    }

    fn finish(self) -> Result<(), ModelError> {
        // Old checkpoints store the rotary frequencies, which the configuration gives as well.
        let unused = |tensor: &&String| !tensor.ends_with("rotary_emb.inv_freq");
        match self.tensors.keys().find(unused) {
            None => Ok(()),
            Some(tensor) => {
                let tensor = shorten(tensor);
                Err(ModelError::UnexpectedTensor { file: self.folder, tensor })
            }
        }
    }
}

/// The tensor's name in the checkpoints of all four families.
fn name(slot: Slot) -> String {
    let projection = |projection| match projection {
        Projection::Q => "self_attn.q_proj",
        Projection::K => "self_attn.k_proj",
        Projection::V => "self_attn.v_proj",
        Projection::O => "self_attn.o_proj",
        Projection::Gate => "mlp.gate_proj",
        Projection::Up => "mlp.up_proj",
        Projection::Down => "mlp.down_proj",
    };
    let norm = |norm| match norm {
        Norm::Attention => "input_layernorm",
        Norm::Q => "self_attn.q_norm",
        Norm::K => "self_attn.k_norm",
        Norm::FeedForward => "post_attention_layernorm",
    };
    match slot {
        Slot::Embedding => "model.embed_tokens.weight".to_owned(),
        Slot::FinalNorm => "model.norm.weight".to_owned(),
        Slot::Head => "lm_head.weight".to_owned(),
        Slot::Weight(layer, part) => format!("model.layers.{layer}.{}.weight", projection(part)),
        Slot::Bias(layer, part) => format!("model.layers.{layer}.{}.bias", projection(part)),
        Slot::Norm(layer, part) => format!("model.layers.{layer}.{}.weight", norm(part)),
    }
}

/// The tensors that the header of `file` announces, all checked.
fn entries(file: &MappedFile, path: &Path) -> Result<Vec<(String, Entry)>, ModelError> {
    let malformed = |place: String, expected: String, actual: String| ModelError::Malformed {
        file: file.name.clone(),
        place,
        expected,
        actual,
    };
    let bytes = file.bytes();
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        let actual = format!("a file of {} bytes", bytes.len());
        return Err(malformed("header length".into(), "8 bytes".into(), actual));
    };
    let length = u64::from_le_bytes(*length);
    if length > HEADER_LIMIT {
        let (file, place) = (file.name.clone(), "the header length".to_owned());
        return Err(ModelError::TooLarge { file, place, limit: HEADER_LIMIT, actual: length });
    }
    let Some((header, data)) = rest.split_at_checked(length as usize) else {
        let actual = format!("{} bytes behind the length", rest.len());
        return Err(malformed("header".into(), format!("{length} bytes"), actual));
    };
    let text = std::str::from_utf8(header)
        .map_err(|error| malformed("header".into(), "UTF-8".into(), error.to_string()))?;
    let mut tensors = parse::<Header>(text, path)?.0;
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    let mut end = 0;
    let mut checked = Vec::new();
    for (name, info) in tensors {
        let size = info.byte_len();
        let (start, stop) = info.data_offsets;
        if size.is_none() || start != end || start.checked_add(size.unwrap_or(0)) != Some(stop) {
            let size = size.map_or("too many".to_owned(), |size| size.to_string());
            let expected = format!("{size} bytes from {end} on, by shape and dtype");
            let actual = format!("bytes {start} to {stop}");
            return Err(malformed(format!("tensor `{}`", shorten(&name)), expected, actual));
        }
        end = stop;
        if end > data.len() as u64 {
            let expected = format!("data up to byte {end}");
            let actual = format!("{} bytes, the file is truncated", data.len());
            return Err(malformed(format!("tensor `{}`", shorten(&name)), expected, actual));
        }
        let start = 8 + length as usize + start as usize;
        checked.push((name, Entry { dtype: info.dtype, shape: info.shape, start }));
    }
    if end != data.len() as u64 {
        let actual = format!("{} bytes", data.len());
        return Err(malformed("data".into(), format!("{end} bytes, as announced"), actual));
    }
    Ok(checked)
}

/// An entry of the header as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Info {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Info {
    /// Bytes by shape and element type; `None` for an unknown type or a product beyond 64 bits.
    fn byte_len(&self) -> Option<u64> {
        let bits = match self.dtype.as_str() {
            "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" => 8,
            "I16" | "U16" | "F16" | "BF16" => 16,
            "I32" | "U32" | "F32" => 32,
            "I64" | "U64" | "F64" | "C64" => 64,
            _ => return None,
        };
        let bits = self.shape.iter().try_fold(bits, |bits: u64, &size| bits.checked_mul(size))?;
        Some(bits / 8)
    }
}

/// The header, each name once, without `__metadata__`.
struct Header(Vec<(String, Info)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor).map(Self)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Vec<(String, Info)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut names = BTreeSet::new();
        let mut tensors = Vec::new();
        while let Some(name) = access.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("key `{}` appears twice", shorten(&name))));
            }
            if name == "__metadata__" {
                access.next_value::<IgnoredAny>()?;
            } else {
                tensors.push((name, access.next_value()?));
            }
        }
        Ok(tensors)
    }
}
