//! What a model computes: sizes, heads, windows, rotary frequencies.
//!
//! The sources (`config.json`, GGUF metadata) are read in the modules below, each to the same
//! [`ModelConfig`]. Knows no tensor and no arithmetic. Sizes are capped, so that no later product of
//! two of them overflows and no list is allocated on a hostile file's word.

mod fields;
pub(crate) mod folder;
pub(crate) mod gguf;

use crate::rope::Rope;
use ringattn_core::AttentionShape;

/// A family of decoder-only transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Llama 1 to 3 and what shares its architecture (SmolLM2, ...).
    Llama,
    /// Mistral 7B: llama with a sliding window.
    Mistral,
    /// Qwen2 and 2.5: biases on q, k, v.
    Qwen2,
    /// Qwen3: RMSNorm on each head of q and k.
    Qwen3,
}

/// What the forward pass needs to know besides the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The architecture.
    pub family: Family,
    /// Rows of the embedding: token ids are below it.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward part.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads, key heads, head dimension.
    pub attention: AttentionShape,
    /// Added to the mean square in RMSNorm.
    pub rms_norm_eps: f64,
    /// For each layer, how many keys a query sees at most: itself and the `W - 1` before it.
    /// `None`: all before it.
    pub sliding_window: Vec<Option<u64>>,
    /// Tokens of the longest context in training, if the file says so.
    pub trained_context: Option<u64>,
    /// Rotary frequencies, the same in all layers.
    pub rope: Rope,
}

impl ModelConfig {
    /// Floating-point operations of a token in the matrix products of all layers and of the vocabulary
    /// head, attention itself aside: two per weight. `None` beyond 2^64.
    pub fn dense_flops_per_token(&self) -> Option<u64> {
        let (query, key) = (self.attention.query_width() as u64, self.attention.key_width() as u64);
        let [hidden, inner, vocabulary, layers] =
            [self.hidden_size, self.intermediate_size, self.vocab_size, self.layers]
                .map(|size| size as u64);
        // Q and O, K and V, gate, up and down. The limits keep each product below 2^48.
        let widths = (2 * query + 2 * key).checked_add(3 * inner)?;
        let of_layers = hidden.checked_mul(widths)?.checked_mul(layers)?;
        hidden.checked_mul(vocabulary)?.checked_add(of_layers)?.checked_mul(2)
    }
}

/// Which optional tensors a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It is not used; its tensor would be refused.
    Absent,
    /// It must be there.
    Required,
    /// It is used when it is there.
    Optional,
}

/// The optional tensors of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    pub(crate) qkv_bias: Presence,
    pub(crate) output_bias: Presence,
    pub(crate) feed_forward_bias: Presence,
    pub(crate) head_norm: Presence,
    /// The separate vocabulary head; `Absent` means tied to the embedding.
    pub(crate) head: Presence,
}

/// Largest values that are believed. The largest published dense models stay well below all but the
/// head dimension.
pub(crate) mod limits {
    /// Layers.
    pub(crate) const LAYERS: u64 = 4096;
    /// Hidden size and feed-forward size.
    pub(crate) const WIDTH: u64 = 1 << 20;
    /// Heads of one layer.
    pub(crate) const HEADS: u64 = 1 << 14;
    /// Dimension of one head: what the kernel's tiles hold.
    pub(crate) const HEAD_DIM: u64 = 256;
    /// Vocabulary.
    pub(crate) const VOCABULARY: u64 = 1 << 24;
    /// Windows, contexts and anything else counted in tokens.
    pub(crate) const TOKENS: u64 = 1 << 48;
}
