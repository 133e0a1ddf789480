//! `config.json` and GGUF metadata, field by field: what changes the model, what is passed over, and
//! what is refused by name.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use ringattn_model::{Model, ModelConfig};
use serde_json::{Value, json};
use support::gguf::{Meta, text, tiny};
use support::*;

/// Opens the tiny folder `name` with `change` merged into its configuration; null removes a field.
fn folder_with(name: &str, change: Value) -> Result<ModelConfig, String> {
    let mut fields = config(name);
    for (key, value) in change.as_object().unwrap() {
        if value == &json!("absent") {
            fields.remove(key);
        } else {
            fields.insert(key.clone(), value.clone());
        }
    }
    let weights = std::fs::read(fixture(name).join("model.safetensors")).unwrap();
    let dir = folder(&fields, &weights);
    Model::open(dir.path()).map(|model| model.config).map_err(|error| error.to_string())
}

fn gguf_with(name: &str, key: &str, value: Meta) -> Result<ModelConfig, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, tiny(name, "F32").set(key, value).bytes()).unwrap();
    Model::open(&path).map(|model| model.config).map_err(|error| error.to_string())
}

#[test]
fn harmless_fields_are_passed_over() {
    let cases = [
        ("tiny-llama3", json!({"torch_dtype": "bfloat16", "is_llama_config": true})),
        ("tiny-llama3", json!({"quantization_config": null, "rope_interleaved": false})),
        ("tiny-llama3", json!({"sliding_window": null, "partial_rotary_factor": 1.0})),
        ("tiny-llama3", json!({"temperature": 0.7, "num_labels_of_nobody": null})),
        ("tiny-llama3", json!({"architectures": "absent"})),
        ("tiny-llama3", json!({"model_type": "absent"})),
        ("tiny-llama3", json!({"layer_types": vec!["full_attention"; 3]})),
        ("tiny-mistral", json!({"attention_bias": false, "mlp_bias": false})),
    ];
    for (name, change) in cases {
        let plain = folder_with(name, json!({})).unwrap();
        assert_eq!(folder_with(name, change.clone()), Ok(plain), "{name} {change}");
    }
}

#[test]
fn old_and_new_spellings_of_rope_agree() {
    let parameters = config("tiny-llama3")["rope_parameters"].clone();
    let mut scaling = parameters.clone();
    scaling.as_object_mut().unwrap().remove("rope_theta");
    let mut older = scaling.clone();
    let kind = older.as_object_mut().unwrap().remove("rope_type").unwrap();
    older["type"] = kind;
    let new = folder_with("tiny-llama3", json!({})).unwrap();
    for scaling in [scaling, older] {
        let old = json!({
            "rope_parameters": "absent", "rope_theta": 500_000, "rope_scaling": scaling
        });
        assert_eq!(folder_with("tiny-llama3", old), Ok(new.clone()));
    }
    let first = |change| folder_with("tiny-mistral", change).unwrap().rope.inverse_frequencies[1];
    let plain = first(json!({"rope_parameters": "absent", "rope_theta": 256}));
    assert!((plain - 0.5).abs() < 1e-15, "{plain}");
    let linear = first(json!({
        "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 256.0}
    }));
    assert!((linear - 0.125).abs() < 1e-15, "{linear}");
    let default = first(json!({"rope_parameters": "absent"}));
    assert!((default - 10f64.powf(-0.5)).abs() < 1e-15, "{default}");
}

#[test]
fn windows_follow_the_family() {
    let windows = |name, change: Value| folder_with(name, change).unwrap().sliding_window;
    let all = |width| vec![width; 3];
    assert_eq!(windows("tiny-mistral", json!({"sliding_window": "absent"})), all(Some(4096)));
    assert_eq!(windows("tiny-mistral", json!({"sliding_window": null})), all(None));
    let kinds = ["sliding_attention", "full_attention", "sliding_attention"];
    let sliding = json!({"layer_types": vec!["sliding_attention"; 3]});
    assert_eq!(windows("tiny-mistral", sliding), all(Some(96)));
    let used = |first: u64, types: Value| {
        json!({"use_sliding_window": true, "sliding_window": 50, "max_window_layers": first,
            "layer_types": types})
    };
    assert_eq!(
        windows("tiny-qwen3", json!({"sliding_window": 50, "layer_types": null})),
        all(None)
    );
    assert_eq!(windows("tiny-qwen3", used(28, Value::Null)), all(None));
    assert_eq!(windows("tiny-qwen3", used(1, Value::Null)), vec![None, Some(50), Some(50)]);
    assert_eq!(windows("tiny-qwen3", used(0, Value::Null)), all(Some(50)));
    let listed = windows("tiny-qwen3", used(28, json!(kinds)));
    assert_eq!(listed, vec![Some(50), None, Some(50)]);
}

#[test]
fn fields_of_a_folder_are_refused_by_name() {
    let huge = 1_u64 << 60;
    let cases = [
        ("tiny-llama3", json!({"model_type": "gemma"}), "gemma"),
        ("tiny-llama3", json!({"model_type": "mixtral"}), "mixtral"),
        ("tiny-llama3", json!({"model_type": 3}), "`model_type`"),
        ("tiny-llama3", json!({"model_type": "absent", "architectures": null}), "`model_type`"),
        ("tiny-llama3", json!({"model_type": "absent", "architectures": ["X"]}), "family `X`"),
        ("tiny-llama3", json!({"architectures": ["LlamaModel"]}), "`architectures`"),
        ("tiny-llama3", json!({"hidden_act": "gelu"}), "`hidden_act`"),
        ("tiny-llama3", json!({"pretraining_tp": 2}), "`pretraining_tp`"),
        ("tiny-llama3", json!({"partial_rotary_factor": 0.5}), "`partial_rotary_factor`"),
        ("tiny-llama3", json!({"quantization_config": {"bits": 4}}), "`quantization_config`"),
        ("tiny-llama3", json!({"attn_logit_softcapping": 50.0}), "`attn_logit_softcapping`"),
        ("tiny-llama3", json!({"logit_scale": 0.5}), "`logit_scale`"),
        ("tiny-llama3", json!({"num_local_experts": 8}), "`num_local_experts`"),
        ("tiny-llama3", json!({"auto_map": {"AutoModel": "x"}}), "`auto_map`"),
        ("tiny-llama3", json!({"rope_interleaved": true}), "`rope_interleaved`"),
        ("tiny-llama3", json!({"sliding_window": 96}), "`sliding_window`"),
        ("tiny-llama3", json!({"pruned_heads": {"0": [1]}}), "`pruned_heads`"),
        ("tiny-llama3", json!({"surprise": 1}), "`surprise`"),
        ("tiny-llama3", json!({"layer_types": ["full_attention"]}), "`layer_types`"),
        ("tiny-llama3", json!({"layer_types": vec!["chunked_attention"; 3]}), "chunked"),
        ("tiny-llama3", json!({"layer_types": vec!["sliding_attention"; 3]}), "sliding"),
        ("tiny-llama3", json!({"vocab_size": 0}), "`vocab_size`"),
        ("tiny-llama3", json!({"vocab_size": -5}), "`vocab_size`"),
        ("tiny-llama3", json!({"vocab_size": huge}), "`vocab_size`"),
        ("tiny-llama3", json!({"vocab_size": 1e300}), "`vocab_size`"),
        ("tiny-llama3", json!({"vocab_size": 256.5}), "`vocab_size`"),
        ("tiny-llama3", json!({"vocab_size": "absent"}), "`vocab_size` is missing"),
        ("tiny-llama3", json!({"hidden_size": 0}), "`hidden_size`"),
        ("tiny-llama3", json!({"hidden_size": huge}), "`hidden_size`"),
        ("tiny-llama3", json!({"hidden_size": "64"}), "`hidden_size`"),
        ("tiny-llama3", json!({"intermediate_size": huge}), "`intermediate_size`"),
        ("tiny-llama3", json!({"num_hidden_layers": 1_000_000_000}), "`num_hidden_layers`"),
        ("tiny-llama3", json!({"num_hidden_layers": 0}), "`num_hidden_layers`"),
        ("tiny-llama3", json!({"num_hidden_layers": 4}), "model.layers.3."),
        ("tiny-llama3", json!({"num_hidden_layers": 2}), "model.layers.2."),
        ("tiny-llama3", json!({"num_attention_heads": 0}), "`num_attention_heads`"),
        ("tiny-llama3", json!({"num_attention_heads": huge}), "`num_attention_heads`"),
        ("tiny-llama3", json!({"num_attention_heads": 3, "head_dim": null}), "heads"),
        ("tiny-llama3", json!({"num_key_value_heads": 3}), "`num_key_value_heads`"),
        ("tiny-llama3", json!({"num_key_value_heads": 8}), "`num_key_value_heads`"),
        ("tiny-llama3", json!({"num_key_value_heads": null}), "k_proj"),
        ("tiny-mistral", json!({"num_key_value_heads": null}), "`num_key_value_heads`"),
        ("tiny-llama3", json!({"head_dim": 15}), "`head_dim`"),
        ("tiny-llama3", json!({"head_dim": 1 << 30}), "`head_dim`"),
        ("tiny-llama3", json!({"head_dim": 32}), "q_proj"),
        ("tiny-llama3", json!({"rms_norm_eps": -1.0}), "`rms_norm_eps`"),
        ("tiny-llama3", json!({"rms_norm_eps": "absent"}), "`rms_norm_eps`"),
        ("tiny-llama3", json!({"max_position_embeddings": 0}), "`max_position_embeddings`"),
        ("tiny-llama3", json!({"attention_bias": true}), "q_proj.bias"),
        ("tiny-llama3", json!({"attention_bias": 1}), "`attention_bias`"),
        ("tiny-llama3", json!({"mlp_bias": true}), "gate_proj.bias"),
        ("tiny-llama3", json!({"tie_word_embeddings": false}), "lm_head.weight"),
        ("tiny-mistral", json!({"tie_word_embeddings": true}), "lm_head.weight"),
        ("tiny-mistral", json!({"attention_bias": true}), "`attention_bias`"),
        ("tiny-mistral", json!({"sliding_window": 0}), "`sliding_window`"),
        ("tiny-mistral", json!({"layer_types": vec!["full_attention"; 3]}), "`layer_types`"),
        ("tiny-qwen3", json!({"mlp_bias": true}), "`mlp_bias`"),
        ("tiny-qwen3", json!({"max_window_layers": -1}), "`max_window_layers`"),
        ("tiny-qwen3", json!({"use_sliding_window": "yes"}), "`use_sliding_window`"),
        ("tiny-qwen3", json!({"attention_bias": true}), "q_proj.bias"),
        ("tiny-llama3", json!({"rope_theta": 1.0}), "rope_theta"),
        ("tiny-llama3", json!({"rope_scaling": {"factor": 2}}), "`rope_scaling`"),
        ("tiny-llama3", json!({"rope_parameters": []}), "`rope_parameters`"),
        ("tiny-llama3", json!({"rope_parameters": {"rope_type": "yarn"}}), "yarn"),
        ("tiny-llama3", json!({"rope_parameters": {"rope_type": "linear"}}), "factor"),
        ("tiny-llama3", json!({"rope_parameters": {"rope_type": "llama3"}}), "factor"),
        ("tiny-llama3", json!({"rope_parameters": {"full_attention": {}}}), "full_attention"),
        ("tiny-llama3", json!({"rope_parameters": {"partial_rotary_factor": 0.5}}), "rotary"),
        ("tiny-llama3", json!({"rope_parameters": {"rope_theta": 0}}), "rope_theta"),
        (
            "tiny-llama3",
            json!({"rope_parameters": {"type": "linear", "rope_type": "default"}}),
            "type",
        ),
        (
            "tiny-llama3",
            json!({"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                "high_freq_factor": 4, "original_max_position_embeddings": 256}}),
            "high_freq_factor",
        ),
    ];
    for (name, change, expected) in &cases {
        let error = folder_with(name, change.clone()).map(|_| ()).unwrap_err();
        assert!(error.contains(expected), "{change}: {error}, not {expected}");
    }
}

#[test]
fn metadata_is_refused_by_name() {
    let nan = Meta::F32(f32::NAN);
    let cases = [
        ("general.architecture", text("gemma3"), "gemma3"),
        ("general.architecture", Meta::U32(1), "general.architecture"),
        ("general.type", text("adapter"), "general.type"),
        ("general.quantization_version", Meta::U32(1), "quantization_version"),
        ("split.count", Meta::U32(2), "split.count"),
        ("adapter.type", text("lora"), "adapter.type"),
        ("llama.block_count", Meta::U32(0), "block_count"),
        ("llama.block_count", Meta::U32(1_000_000_000), "block_count"),
        ("llama.block_count", Meta::U32(2), "blk.2."),
        ("llama.block_count", Meta::U32(4), "blk.3."),
        ("llama.block_count", text("3"), "block_count"),
        ("llama.embedding_length", Meta::U64(1 << 60), "embedding_length"),
        ("llama.embedding_length", Meta::U32(128), "token_embd"),
        ("llama.feed_forward_length", Meta::I32s(vec![160; 3]), "a list of 3"),
        ("llama.attention.head_count", Meta::U32(0), "head_count"),
        ("llama.attention.head_count_kv", Meta::U32(3), "head_count_kv"),
        ("llama.attention.key_length", Meta::U32(17), "key_length"),
        ("llama.attention.value_length", Meta::U32(8), "value_length"),
        ("llama.attention.layer_norm_rms_epsilon", nan.clone(), "epsilon"),
        ("llama.attention.scale", Meta::F32(0.1), "attention.scale"),
        ("llama.attention.causal", Meta::Bool(false), "causal"),
        ("llama.attention.clamp_kqv", Meta::F32(1.0), "clamp_kqv"),
        ("llama.rope.freq_base", nan, "freq_base"),
        ("llama.rope.freq_base", Meta::F32(f32::INFINITY), "freq_base"),
        ("llama.rope.dimension_count", Meta::U32(8), "dimension_count"),
        ("llama.rope.scaling.type", text("yarn"), "yarn"),
        ("llama.rope.scaling.type", text("linear"), "rope.scaling.factor"),
        ("llama.rope.scaling.attn_factor", Meta::F32(2.0), "attn_factor"),
        ("llama.logit_scale", Meta::F32(0.5), "logit_scale"),
        ("llama.final_logit_softcapping", Meta::F32(30.0), "softcapping"),
        ("llama.expert_count", Meta::U32(8), "expert_count"),
        ("llama.vocab_size", Meta::U32(255), "vocab_size"),
        ("llama.tensor_data_layout", text("reference"), "tensor_data_layout"),
        ("llama.surprise", Meta::U32(1), "llama.surprise"),
    ];
    for (key, value, expected) in cases {
        let error = gguf_with("tiny-llama3", key, value).map(|_| ()).unwrap_err();
        assert!(error.contains(expected), "{key}: {error}, not {expected}");
    }
    let error = gguf_with("tiny-qwen3", "qwen3.attention.sliding_window", Meta::U32(9));
    assert!(error.unwrap_err().contains("sliding_window"));
}

#[test]
fn metadata_that_changes_nothing_is_passed_over() {
    let plain = gguf_with("tiny-llama3", "general.name", text("x")).unwrap();
    let same = [
        ("general.file_type", Meta::U32(0)),
        ("general.tags", Meta::Texts(vec!["a".to_owned()])),
        ("quantize.imatrix.entries_count", Meta::U32(7)),
        ("llama.expert_count", Meta::U32(0)),
        ("llama.vocab_size", Meta::U64(256)),
        ("llama.rope.scaling.type", text("none")),
        ("llama.tensor_data_layout", text("Meta AI original pth")),
    ];
    for (key, value) in same {
        assert_eq!(gguf_with("tiny-llama3", key, value), Ok(plain.clone()), "{key}");
    }
    let linear = gguf_with("tiny-llama3", "llama.rope.scaling.factor", Meta::F32(2.0)).unwrap();
    let pairs = plain.rope.inverse_frequencies.iter().zip(&linear.rope.inverse_frequencies);
    assert!(pairs.into_iter().all(|(a, b)| (a / 2.0 - b).abs() < 1e-15));
}

/// The configuration is the loaded model's, whatever names it, and no weight is needed for it.
#[test]
fn a_configuration_is_read_without_weights() {
    let folder = fixture("tiny-llama3");
    let loaded = Model::open(&folder).unwrap().config;
    assert_eq!(Model::read_config(&folder).unwrap(), loaded);
    assert_eq!(Model::read_config(&folder.join("config.json")).unwrap(), loaded);
    let alone = tempfile::tempdir().unwrap();
    std::fs::copy(folder.join("config.json"), alone.path().join("config.json")).unwrap();
    assert_eq!(Model::read_config(alone.path()).unwrap(), loaded);
    let file = alone.path().join("model.gguf");
    std::fs::write(&file, tiny("tiny-qwen3", "F32").bytes()).unwrap();
    assert_eq!(Model::read_config(&file).unwrap(), Model::open(&file).unwrap().config);
    let missing = Model::read_config(&alone.path().join("nothing")).unwrap_err().to_string();
    assert!(missing.contains("GGUF file or a Hugging Face folder"), "{missing}");
}

#[test]
fn dense_products_are_counted() {
    // Three layers of 64 x (64 + 64 + 32 + 32 + 3 * 160) weights, a head of 64 x 256, two FLOPs each.
    let config = Model::read_config(&fixture("tiny-llama3")).unwrap();
    assert_eq!(config.dense_flops_per_token(), Some(2 * (3 * 64 * 672 + 64 * 256)));
}
