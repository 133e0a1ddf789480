//! `config.json` of a Hugging Face folder, in the spellings of transformers 4 and 5.
//!
//! Every field is read, is on the list of harmless ones ([`HARMLESS`]), is null, or is refused by
//! name. Fields that are not given have the defaults of transformers.

use super::fields::Fields;
use super::{Family, ModelConfig, Parts, Presence, limits};
use crate::ModelError;
use crate::error::shorten;
use crate::file::display;
use crate::json::read_object;
use crate::rope::{Rope, RopeScaling};
use ringattn_core::AttentionShape;
use serde_json::{Value, json};
use std::path::Path;

/// Bytes of the largest `config.json` that is read.
const LIMIT: u64 = 1 << 20;

/// Fields that say nothing about the arithmetic of a forward pass: provenance, training, generation,
/// and what the library does with its outputs.
const HARMLESS: &[&str] = &[
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "attention_dropout",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
];

/// Fields with the one value that is computed here.
fn fixed(family: Family) -> Vec<(&'static str, Value)> {
    let mut fields = vec![
        ("hidden_act", json!("silu")),
        ("pretraining_tp", json!(1)),
        ("rope_interleaved", json!(false)),
        ("chunk_size_feed_forward", json!(0)),
        ("is_encoder_decoder", json!(false)),
        ("is_decoder", json!(false)),
        ("add_cross_attention", json!(false)),
        ("tie_encoder_decoder", json!(false)),
        ("pruned_heads", json!({})),
        ("partial_rotary_factor", json!(1)),
    ];
    match family {
        Family::Llama => {}
        Family::Mistral => {
            fields.extend([("attention_bias", json!(false)), ("mlp_bias", json!(false))]);
        }
        Family::Qwen2 => {
            fields.extend([("attention_bias", json!(true)), ("mlp_bias", json!(false))]);
        }
        Family::Qwen3 => fields.push(("mlp_bias", json!(false))),
    }
    fields
}

/// Reads `config.json`.
///
/// # Errors
/// For a file that is no JSON object, for a family or value that is not computed here, and for a
/// field that is unknown.
pub(crate) fn read(path: &Path) -> Result<(ModelConfig, Parts), ModelError> {
    let mut fields = Fields::new(&display(path), "", read_object(path, LIMIT)?);
    let family = family(&mut fields)?;
    for (key, supported) in fixed(family) {
        fields.only(key, &supported)?;
    }
    let size = |fields: &mut Fields, key, limit| {
        let value = fields.count(key, limit)?;
        fields.require(key, value).map(|count| count as usize)
    };
    let hidden_size = size(&mut fields, "hidden_size", limits::WIDTH)?;
    let layers = size(&mut fields, "num_hidden_layers", limits::LAYERS)?;
    let attention = attention(&mut fields, family, hidden_size)?;
    let eps = fields.positive("rms_norm_eps")?;
    let config = ModelConfig {
        family,
        vocab_size: size(&mut fields, "vocab_size", limits::VOCABULARY)?,
        hidden_size,
        intermediate_size: size(&mut fields, "intermediate_size", limits::WIDTH)?,
        layers,
        attention,
        rms_norm_eps: fields.require("rms_norm_eps", eps)?,
        sliding_window: windows(&mut fields, family, layers)?,
        trained_context: fields.count("max_position_embeddings", limits::TOKENS)?,
        rope: Rope::new(1, 1.0, RopeScaling::None),
    };
    let parts = parts(&mut fields, family)?;
    let rope = rope(&mut fields, &config)?;
    fields.finish(HARMLESS)?;
    Ok((ModelConfig { rope, ..config }, parts))
}

/// The family by `model_type`, which `architectures` must agree with.
fn family(fields: &mut Fields) -> Result<Family, ModelError> {
    const FAMILIES: [(&str, &str, Family); 4] = [
        ("llama", "LlamaForCausalLM", Family::Llama),
        ("mistral", "MistralForCausalLM", Family::Mistral),
        ("qwen2", "Qwen2ForCausalLM", Family::Qwen2),
        ("qwen3", "Qwen3ForCausalLM", Family::Qwen3),
    ];
    let unknown = |fields: &Fields, actual: &str| ModelError::Family {
        file: fields.file().to_owned(),
        actual: format!("`{}`", shorten(actual)),
    };
    let architectures = fields.texts("architectures")?;
    let Some(model_type) = fields.text("model_type")? else {
        let names = fields.require("model_type", architectures)?;
        let named = FAMILIES.iter().find(|(_, class, _)| names == [*class]);
        return named.map(|row| row.2).ok_or_else(|| unknown(fields, &names.join(", ")));
    };
    let Some((_, class, family)) = FAMILIES.iter().find(|(name, ..)| *name == model_type) else {
        return Err(unknown(fields, &model_type));
    };
    match architectures {
        Some(names) if names != [*class] => {
            Err(fields.refuse("architectures", &format!("[\"{class}\"]"), &json!(names)))
        }
        _ => Ok(*family),
    }
}

fn attention(
    fields: &mut Fields,
    family: Family,
    hidden_size: usize,
) -> Result<AttentionShape, ModelError> {
    let heads = fields.count("num_attention_heads", limits::HEADS)?;
    let heads = fields.require("num_attention_heads", heads)?;
    let key_heads = match (fields.count("num_key_value_heads", limits::HEADS)?, family) {
        (Some(count), _) => count,
        (None, Family::Llama) => heads,
        (None, _) => fields.require("num_key_value_heads", None)?,
    };
    let head_dim = match (fields.count("head_dim", limits::HEAD_DIM)?, family) {
        (Some(count), _) => count,
        (None, Family::Qwen3) => 128,
        (None, _) if (hidden_size as u64).is_multiple_of(heads) => hidden_size as u64 / heads,
        (None, _) => {
            let expected = format!("a divisor of hidden_size {hidden_size}, or head_dim given");
            return Err(fields.refuse("num_attention_heads", &expected, &json!(heads)));
        }
    };
    if head_dim > limits::HEAD_DIM || head_dim % 2 != 0 || head_dim == 0 {
        let expected = format!("an even number from 2 to {}", limits::HEAD_DIM);
        return Err(fields.refuse("head_dim", &expected, &json!(head_dim)));
    }
    AttentionShape::new(heads as usize, key_heads as usize, head_dim as usize).map_err(|_| {
        let expected = format!("a divisor of num_attention_heads {heads}");
        fields.refuse("num_key_value_heads", &expected, &json!(key_heads))
    })
}

/// The window of each layer.
fn windows(
    fields: &mut Fields,
    family: Family,
    layers: usize,
) -> Result<Vec<Option<u64>>, ModelError> {
    // Transformers takes 4096 where the field is left out, and no window where it is null.
    let default = if fields.names("sliding_window") { None } else { Some(4096) };
    let given = fields.count("sliding_window", limits::TOKENS)?;
    let types = fields.texts("layer_types")?;
    match family {
        Family::Llama if given.is_some() => {
            Err(fields.refuse("sliding_window", "null for llama", &json!(given)))
        }
        Family::Llama => same_layers(fields, types, vec![None; layers]),
        Family::Mistral => same_layers(fields, types, vec![given.or(default); layers]),
        Family::Qwen2 | Family::Qwen3 => {
            let used = fields.flag("use_sliding_window")?;
            let first = match fields.take("max_window_layers") {
                None => 28,
                Some(value) => value
                    .as_u64()
                    .ok_or_else(|| fields.refuse("max_window_layers", "a whole number", &value))?,
            };
            let width = given.or(default).filter(|_| used);
            match types {
                Some(types) => listed_layers(fields, &types, width, layers),
                None => Ok((0..layers as u64).map(|at| width.filter(|_| at >= first)).collect()),
            }
        }
    }
}

/// `windows`, which `layer_types` must say as well if it is given: these families do not read it.
fn same_layers(
    fields: &Fields,
    types: Option<Vec<String>>,
    windows: Vec<Option<u64>>,
) -> Result<Vec<Option<u64>>, ModelError> {
    if let Some(types) = types {
        let width = windows.iter().flatten().next().copied();
        let listed = listed_layers(fields, &types, width, windows.len())?;
        if listed != windows {
            let expected = "the same for all layers, as sliding_window says";
            return Err(fields.refuse("layer_types", expected, &json!(types)));
        }
    }
    Ok(windows)
}

/// The windows where `layer_types` lists what each layer does.
fn listed_layers(
    fields: &Fields,
    types: &[String],
    width: Option<u64>,
    layers: usize,
) -> Result<Vec<Option<u64>>, ModelError> {
    if types.len() != layers {
        let expected = format!("one entry for each of {layers} layers");
        return Err(fields.refuse("layer_types", &expected, &json!(types.len())));
    }
    let windows = types.iter().map(|kind| match (kind.as_str(), width) {
        ("full_attention", _) => Ok(None),
        ("sliding_attention", Some(width)) => Ok(Some(width)),
        _ => {
            let expected = "full_attention, or sliding_attention with a window that is in use";
            Err(fields.refuse("layer_types", expected, &json!(kind)))
        }
    });
    windows.collect()
}

fn parts(fields: &mut Fields, family: Family) -> Result<Parts, ModelError> {
    let presence = |given| if given { Presence::Required } else { Presence::Absent };
    let attention = match family {
        Family::Llama | Family::Qwen3 => presence(fields.flag("attention_bias")?),
        Family::Mistral | Family::Qwen2 => Presence::Absent,
    };
    let qkv_bias = if family == Family::Qwen2 { Presence::Required } else { attention };
    let feed_forward = family == Family::Llama && fields.flag("mlp_bias")?;
    Ok(Parts {
        qkv_bias,
        output_bias: attention,
        feed_forward_bias: presence(feed_forward),
        head_norm: presence(family == Family::Qwen3),
        head: presence(!fields.flag("tie_word_embeddings")?),
    })
}

/// Rotary frequencies from `rope_parameters`, or from `rope_theta` and `rope_scaling`.
fn rope(fields: &mut Fields, config: &ModelConfig) -> Result<Rope, ModelError> {
    let outer = fields.positive("rope_theta")?;
    let new = fields.take("rope_parameters");
    let old = fields.take("rope_scaling");
    let (key, value) = match (new, old) {
        (Some(_), Some(value)) => {
            return Err(fields.refuse("rope_scaling", "null beside rope_parameters", &value));
        }
        (Some(value), None) => ("rope_parameters", value),
        (None, Some(value)) => ("rope_scaling", value),
        (None, None) => ("rope_scaling", json!({})),
    };
    let Value::Object(map) = value else {
        return Err(fields.refuse(key, "an object", &value));
    };
    let mut inner = Fields::new(fields.file(), &format!("{key}."), map);
    inner.only("partial_rotary_factor", &json!(1))?;
    let theta = match (outer, inner.positive("rope_theta")?) {
        (Some(outer), Some(inner_theta)) if outer != inner_theta => {
            return Err(inner.refuse("rope_theta", &outer.to_string(), &json!(inner_theta)));
        }
        (outer, inner) => inner.or(outer).unwrap_or(10_000.0),
    };
    let scaling = scaling(&mut inner, config.trained_context)?;
    inner.finish(&[])?;
    Ok(Rope::new(config.attention.head_dim(), theta, scaling))
}

fn scaling(inner: &mut Fields, context: Option<u64>) -> Result<RopeScaling, ModelError> {
    let (new, old) = (inner.text("rope_type")?, inner.text("type")?);
    if let (Some(new), Some(old)) = (&new, &old)
        && new != old
    {
        return Err(inner.refuse("type", new, &json!(old)));
    }
    let kind = new.or(old).unwrap_or_else(|| "default".to_owned());
    let positive = |inner: &mut Fields, key| {
        let value = inner.positive(key)?;
        inner.require(key, value)
    };
    match kind.as_str() {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: positive(inner, "factor")? }),
        "llama3" => {
            let factor = positive(inner, "factor")?;
            let low = positive(inner, "low_freq_factor")?;
            let high = positive(inner, "high_freq_factor")?;
            if high <= low {
                let expected = format!("more than low_freq_factor {low}");
                return Err(inner.refuse("high_freq_factor", &expected, &json!(high)));
            }
            let key = "original_max_position_embeddings";
            let original = inner.count(key, limits::TOKENS)?.or(context);
            let original_context = inner.require(key, original)? as f64;
            Ok(RopeScaling::Llama3 { factor, low, high, original_context })
        }
        _ => Err(inner.refuse("rope_type", "default, linear or llama3", &json!(kind))),
    }
}
