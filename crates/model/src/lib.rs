//! Decoder-only transformers: loading, tokens, layers.
//!
//! Loading: a Hugging Face folder or a GGUF file becomes a [`Model`], that is a [`ModelConfig`],
//! [`Weights`] and a [`Tokenizer`]; anything that would change the arithmetic and is not computed
//! here is refused by name.

#![deny(unsafe_code)]

mod config;
mod error;
mod file;
mod forward;
mod json;
mod load;
mod rope;
mod score;
mod tokenizer;
mod weights;

pub use config::{Family, ModelConfig};
pub use error::ModelError;
pub use forward::DensePassError;
pub use load::Model;
pub use rope::{Rope, RopeScaling};
pub use score::{
    LayerPlans, RankScores, ScoreError, ScoreJob, ScoreObserver, TokenScore, score_rank,
};
pub use tokenizer::Tokenizer;
pub use weights::{LayerWeights, Linear, Weights};
