//! The metadata of a GGUF file, architectures llama, qwen2 and qwen3.
//!
//! Every key of the architecture is read or refused by name. Keys of `general.`, `tokenizer.` and
//! `quantize.` do not change the arithmetic, but for those checked here. Mistral files are written
//! as llama; a window in them holds for all layers.

use super::fields::Fields;
use super::{Family, ModelConfig, Parts, Presence, limits};
use crate::ModelError;
use crate::error::shorten;
use crate::load::GgufHeader;
use crate::rope::{Rope, RopeScaling};
use ringattn_core::AttentionShape;
use serde_json::{Map, Value, json};

/// Reads the configuration.
///
/// # Errors
/// For a family or value that is not computed here and for a key that is unknown.
pub(crate) fn read(header: &GgufHeader<'_>) -> Result<(ModelConfig, Parts), ModelError> {
    check_general(header)?;
    let family = family(header)?;
    let mut fields = architecture_fields(header, family)?;
    check_fixed(&mut fields, family)?;
    let size = |fields: &mut Fields, key, limit| {
        let value = fields.count(key, limit)?;
        fields.require(key, value).map(|count| count as usize)
    };
    let hidden_size = size(&mut fields, "embedding_length", limits::WIDTH)?;
    let layers = size(&mut fields, "block_count", limits::LAYERS)?;
    let attention = attention(&mut fields, hidden_size)?;
    let eps = fields.positive("attention.layer_norm_rms_epsilon")?;
    let window = fields.count("attention.sliding_window", limits::TOKENS)?;
    let config = ModelConfig {
        family,
        vocab_size: vocabulary(header, &mut fields)?,
        hidden_size,
        intermediate_size: size(&mut fields, "feed_forward_length", limits::WIDTH)?,
        layers,
        attention,
        rms_norm_eps: fields.require("attention.layer_norm_rms_epsilon", eps)?,
        sliding_window: vec![window; layers],
        trained_context: fields.count("context_length", limits::TOKENS)?,
        rope: rope(&mut fields, attention.head_dim())?,
    };
    fields.finish(&[])?;
    Ok((config, parts(family)))
}

fn family(header: &GgufHeader<'_>) -> Result<Family, ModelError> {
    const KEY: &str = "general.architecture";
    match header.value(KEY)? {
        Some(Value::String(name)) => match name.as_str() {
            "llama" => Ok(Family::Llama),
            "qwen2" => Ok(Family::Qwen2),
            "qwen3" => Ok(Family::Qwen3),
            _ => Err(ModelError::Family {
                file: header.file.to_owned(),
                actual: format!("`{}`", shorten(&name)),
            }),
        },
        Some(value) => Err(header.refuse(KEY, "a text", &value.to_string())),
        None => {
            let (file, field) = (header.file.to_owned(), KEY.to_owned());
            Err(ModelError::MissingField { file, field })
        }
    }
}

/// Checks what is not of the architecture.
fn check_general(header: &GgufHeader<'_>) -> Result<(), ModelError> {
    let fixed = [
        ("general.type", json!("model"), "a model, not an adapter or projector"),
        ("general.quantization_version", json!(2), "2"),
        ("split.count", json!(1), "a model in one file: merge the parts first"),
        ("split.no", json!(0), "a model in one file: merge the parts first"),
    ];
    for (key, supported, expected) in fixed {
        match header.value(key)? {
            Some(value) if value != supported && !(key == "split.count" && value == json!(0)) => {
                return Err(header.refuse(key, expected, &value.to_string()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The architecture's keys; any other prefix than the known ones is refused.
fn architecture_fields(header: &GgufHeader<'_>, family: Family) -> Result<Fields, ModelError> {
    let prefix = match family {
        Family::Llama | Family::Mistral => "llama.",
        Family::Qwen2 => "qwen2.",
        Family::Qwen3 => "qwen3.",
    };
    let mut map = Map::new();
    for key in header.keys() {
        if let Some(name) = key.strip_prefix(prefix) {
            map.insert(name.to_owned(), header.value(key)?.unwrap_or(Value::Null));
        } else if !["general.", "tokenizer.", "quantize.", "split."]
            .iter()
            .any(|known| key.starts_with(known))
        {
            let value = header.value(key)?.unwrap_or(Value::Null);
            return Err(ModelError::UnknownField {
                file: header.file.to_owned(),
                field: shorten(key),
                actual: shorten(&value.to_string()),
            });
        }
    }
    Ok(Fields::new(header.file, prefix, map))
}

/// Keys with the one value that is computed here.
fn check_fixed(fields: &mut Fields, family: Family) -> Result<(), ModelError> {
    fields.only("expert_count", &json!(0))?;
    fields.only("expert_used_count", &json!(0))?;
    fields.only("attention.causal", &json!(true))?;
    match family {
        // The layout in which rotary pairs are neighbours, which the loader undoes.
        Family::Llama | Family::Mistral => {
            fields.only("tensor_data_layout", &json!("Meta AI original pth"))
        }
        // No reader says which layers of a qwen file a window is for.
        Family::Qwen2 | Family::Qwen3 => fields.only("attention.sliding_window", &json!(0)),
    }
}

fn attention(fields: &mut Fields, hidden_size: usize) -> Result<AttentionShape, ModelError> {
    let heads = fields.count("attention.head_count", limits::HEADS)?;
    let heads = fields.require("attention.head_count", heads)?;
    let key_heads = fields.count("attention.head_count_kv", limits::HEADS)?.unwrap_or(heads);
    let hidden_size = hidden_size as u64;
    let head_dim = match fields.count("attention.key_length", limits::HEAD_DIM)? {
        Some(count) => count,
        None if hidden_size.is_multiple_of(heads) => hidden_size / heads,
        None => {
            let expected = format!("a divisor of embedding_length {hidden_size}");
            return Err(fields.refuse("attention.head_count", &expected, &json!(heads)));
        }
    };
    if head_dim > limits::HEAD_DIM || head_dim % 2 != 0 {
        let expected = format!("an even number from 2 to {}", limits::HEAD_DIM);
        return Err(fields.refuse("attention.key_length", &expected, &json!(head_dim)));
    }
    fields.only("attention.value_length", &json!(head_dim))?;
    fields.only("rope.dimension_count", &json!(head_dim))?;
    AttentionShape::new(heads as usize, key_heads as usize, head_dim as usize).map_err(|_| {
        let expected = format!("a divisor of attention.head_count {heads}");
        fields.refuse("attention.head_count_kv", &expected, &json!(key_heads))
    })
}

/// Rows of the embedding, which `vocab_size` must agree with.
fn vocabulary(header: &GgufHeader<'_>, fields: &mut Fields) -> Result<usize, ModelError> {
    const EMBEDDING: &str = "token_embd.weight";
    let embedding = header.tensors.iter().find(|info| info.name == EMBEDDING);
    let rows = embedding.and_then(|info| info.shape.first()).copied();
    let rows = rows.ok_or_else(|| ModelError::MissingTensor {
        file: header.file.to_owned(),
        tensor: EMBEDDING.to_owned(),
    })?;
    if rows > limits::VOCABULARY {
        return Err(ModelError::TooLarge {
            file: header.file.to_owned(),
            place: format!("the first dimension of tensor `{EMBEDDING}`"),
            limit: limits::VOCABULARY,
            actual: rows,
        });
    }
    fields.only("vocab_size", &json!(rows))?;
    Ok(rows as usize)
}

fn rope(fields: &mut Fields, head_dim: usize) -> Result<Rope, ModelError> {
    let theta = fields.positive("rope.freq_base")?.unwrap_or(10_000.0);
    let kind = fields.text("rope.scaling.type")?;
    let factor = fields.positive("rope.scaling.factor")?;
    let old = fields.positive("rope.scale_linear")?;
    // These say how the model came to be, and are read only by scalings that are refused.
    fields.take("rope.scaling.original_context_length");
    fields.take("rope.scaling.finetuned");
    fields.only("rope.scaling.attn_factor", &json!(1))?;
    let scaling = match (kind.as_deref(), factor.or(old)) {
        (Some("none"), _) | (None, None) => RopeScaling::None,
        (Some("linear") | None, Some(factor)) => RopeScaling::Linear { factor },
        (Some("linear"), None) => fields.require("rope.scaling.factor", None)?,
        (Some(other), _) => {
            return Err(fields.refuse("rope.scaling.type", "none or linear", &json!(other)));
        }
    };
    Ok(Rope::new(head_dim, theta, scaling))
}

/// A GGUF file does not list its optional tensors: they are used where they are there.
fn parts(family: Family) -> Parts {
    let llama = Parts {
        qkv_bias: Presence::Optional,
        output_bias: Presence::Optional,
        feed_forward_bias: Presence::Optional,
        head_norm: Presence::Absent,
        head: Presence::Optional,
    };
    match family {
        Family::Llama | Family::Mistral => llama,
        Family::Qwen2 => Parts {
            qkv_bias: Presence::Required,
            output_bias: Presence::Absent,
            feed_forward_bias: Presence::Absent,
            ..llama
        },
        Family::Qwen3 => {
            Parts { feed_forward_bias: Presence::Absent, head_norm: Presence::Required, ..llama }
        }
    }
}
