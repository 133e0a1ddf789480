//! From files to a [`Model`]: which format it is, and which tensor goes where.
//!
//! A format gives its tensors by their role ([`Slot`]); the shapes come from the configuration and
//! every tensor of the file must be used. Formats are in the modules below; no arithmetic here.

mod digest;
mod gguf;
mod safetensors;

pub(crate) use gguf::Header as GgufHeader;

use crate::ModelError;
use crate::config::{ModelConfig, Parts, Presence, folder};
use crate::conventions::{self, TextConventions};
use crate::file::{display, io};
use crate::tokenizer::Tokenizer;
use crate::weights::{LayerWeights, Linear, Matrix, Weights};
use ringattn_engine::cpu::Isa;
use std::path::{Path, PathBuf};

/// A model on disk, loaded: what it computes, its weights, and where its tokenizer is.
#[derive(Debug)]
pub struct Model {
    /// Sizes, heads, windows, rotary frequencies.
    pub config: ModelConfig,
    /// All tensors, packed in memory.
    pub weights: Weights,
    source: Source,
}

/// Where a model came from.
#[derive(Clone, Debug)]
enum Source {
    Folder(PathBuf),
    Gguf(PathBuf),
}

impl Model {
    /// Opens a GGUF file, or a Hugging Face folder with `config.json` and safetensors.
    ///
    /// The files are mapped while they are read and must not be changed meanwhile. Tensors are packed
    /// for this machine's instruction set in the element type of the file; of quantised ones, Q4_0, Q4_1 and
    /// Q8_0 keep codes of 8 bits, others become f32.
    ///
    /// # Errors
    /// For anything unsound or unsupported, before any allocation larger than the file warrants.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        if is_folder(path)? {
            let (config, parts) = folder::read(&config_of_folder(path)?)?;
            let weights = safetensors::load(path, &config, &parts)?;
            return Ok(Self { config, weights, source: Source::Folder(path.to_owned()) });
        }
        let (config, weights) = gguf::load(path)?;
        Ok(Self { config, weights, source: Source::Gguf(path.to_owned()) })
    }

    /// What the model at `path` computes, without its weights: a GGUF file, a Hugging Face folder or its
    /// `config.json`. Factors of rotary frequencies that a GGUF file keeps as a tensor are left out.
    ///
    /// # Errors
    /// For anything unsound or unsupported in the configuration.
    pub fn read_config(path: &Path) -> Result<ModelConfig, ModelError> {
        if is_folder(path)? {
            return Ok(folder::read(&config_of_folder(path)?)?.0);
        }
        if path.extension().is_some_and(|extension| extension == "json") {
            return Ok(folder::read(path)?.0);
        }
        gguf::read_config(path)
    }

    /// The model's own tokenizer: `tokenizer.json` of the folder, or built from GGUF metadata.
    ///
    /// # Errors
    /// When there is none or it cannot be rebuilt faithfully.
    pub fn tokenizer(&self) -> Result<Tokenizer, ModelError> {
        match &self.source {
            Source::Folder(path) => Tokenizer::from_file(&path.join("tokenizer.json")),
            Source::Gguf(path) => gguf::tokenizer(path),
        }
    }

    /// A number that tells the model's files from others: of a folder its configuration and tensors. Reads
    /// all of them.
    ///
    /// # Errors
    /// When a file cannot be read any more.
    pub fn digest(&self) -> Result<u64, ModelError> {
        match &self.source {
            Source::Folder(path) => digest::of_folder(path),
            Source::Gguf(path) => digest::of_files(std::slice::from_ref(path)),
        }
    }

    /// Which tokens end a text, and the chat template.
    ///
    /// # Errors
    /// When the files that say so are unsound.
    pub fn conventions(&self) -> Result<TextConventions, ModelError> {
        match &self.source {
            Source::Folder(path) => conventions::of_folder(path),
            Source::Gguf(path) => gguf::conventions(path),
        }
    }

    /// Bytes of all weights in memory.
    pub fn weight_bytes(&self) -> u64 {
        self.weights.byte_len()
    }

    /// The instruction set that the weights are packed for.
    pub fn isa(&self) -> Isa {
        self.weights.embedding.isa()
    }

    /// Bytes of the weight files at `path`, without reading them: a model takes at least as many.
    ///
    /// # Errors
    /// When there is no such file or folder.
    pub fn stored_bytes(path: &Path) -> Result<u64, ModelError> {
        let len = |path: &Path| std::fs::metadata(path).map_err(|source| io(path, source));
        let metadata = len(path)?;
        if !metadata.is_dir() {
            return Ok(metadata.len());
        }
        let mut bytes = 0_u64;
        for file in tensor_files(path)? {
            bytes = bytes.saturating_add(len(&file)?.len());
        }
        Ok(bytes)
    }
}

/// The safetensors files of a folder, in the order of their names.
fn tensor_files(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let failed = |source| io(folder, source);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|extension| extension == "safetensors") {
            files.push(file);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Whether a model is a folder and not a file.
fn is_folder(path: &Path) -> Result<bool, ModelError> {
    let metadata = std::fs::metadata(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => ModelError::MissingFile {
            file: display(path),
            hint: "expected a GGUF file or a Hugging Face folder",
        },
        _ => io(path, source),
    })?;
    Ok(metadata.is_dir())
}

fn config_of_folder(path: &Path) -> Result<PathBuf, ModelError> {
    let config = path.join("config.json");
    if config.exists() {
        return Ok(config);
    }
    Err(ModelError::MissingFile {
        file: display(&config),
        hint: "a Hugging Face folder holds one; a GGUF file is named itself",
    })
}

/// A matrix of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Projection {
    Q,
    K,
    V,
    O,
    Gate,
    Up,
    Down,
}

/// A vector of one layer that scales a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norm {
    Attention,
    Q,
    K,
    FeedForward,
}

/// The role of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Embedding,
    FinalNorm,
    Head,
    Weight(usize, Projection),
    Bias(usize, Projection),
    Norm(usize, Norm),
}

/// A file's tensors, each handed out once.
pub(crate) trait Tensors {
    /// The file and the tensor's name in it.
    fn label(&self, slot: Slot) -> (String, String);
    /// Whether the file has the tensor.
    fn holds(&self, slot: Slot) -> bool;
    /// Takes a matrix of shape `[out, in]`.
    fn matrix(&mut self, slot: Slot, shape: [usize; 2]) -> Result<Matrix, ModelError>;
    /// Takes a vector of `len` values, widened to f32.
    fn vector(&mut self, slot: Slot, len: usize) -> Result<Vec<f32>, ModelError>;
    /// The first tensor that was not taken and is not known to be harmless is an error.
    fn finish(self) -> Result<(), ModelError>;
}

/// Takes every tensor that `config` and `parts` ask for.
pub(crate) fn assemble<T: Tensors>(
    config: &ModelConfig,
    parts: &Parts,
    mut tensors: T,
) -> Result<Weights, ModelError> {
    let vocabulary = [config.vocab_size, config.hidden_size];
    let embedding = tensors.matrix(Slot::Embedding, vocabulary)?;
    let isa = Isa::detect();
    let layers = (0..config.layers)
        .map(|layer| assemble_layer(config, parts, layer, &mut tensors))
        .collect::<Result<_, _>>()?;
    let final_norm = tensors.vector(Slot::FinalNorm, config.hidden_size)?;
    let head = if wanted(parts.head, &tensors, Slot::Head) {
        Some(tensors.matrix(Slot::Head, vocabulary)?.pack(isa)?)
    } else if tensors.holds(Slot::Head) {
        // Tied, and yet stored: a copy of the same values is harmless. Of another matrix nobody
        // could say which one is meant (versions of transformers differ).
        let copy = tensors.matrix(Slot::Head, vocabulary)?;
        if !copy.same_values(&embedding) {
            let (file, tensor) = tensors.label(Slot::Head);
            return Err(ModelError::Malformed {
                file,
                place: format!("tensor `{tensor}`"),
                expected: "the values of the embedding, to which the head is tied".to_owned(),
                actual: "other values".to_owned(),
            });
        }
        None
    } else {
        None
    };
    tensors.finish()?;
    Ok(Weights { embedding: embedding.pack(isa)?, layers, final_norm, head })
}

fn assemble_layer<T: Tensors>(
    config: &ModelConfig,
    parts: &Parts,
    layer: usize,
    tensors: &mut T,
) -> Result<LayerWeights, ModelError> {
    let hidden = config.hidden_size;
    let (query, key) = (config.attention.query_width(), config.attention.key_width());
    let feed_forward = config.intermediate_size;
    let (head_dim, isa) = (config.attention.head_dim(), Isa::detect());
    let mut linear = |projection, shape: [usize; 2], bias| {
        let slot = Slot::Bias(layer, projection);
        let weight = tensors.matrix(Slot::Weight(layer, projection), shape)?.pack(isa)?;
        let wanted = wanted(bias, tensors, slot);
        let bias = wanted.then(|| tensors.vector(slot, shape[0])).transpose()?;
        Ok::<_, ModelError>(Linear { weight, bias })
    };
    let q = linear(Projection::Q, [query, hidden], parts.qkv_bias)?;
    let k = linear(Projection::K, [key, hidden], parts.qkv_bias)?;
    let v = linear(Projection::V, [key, hidden], parts.qkv_bias)?;
    let o = linear(Projection::O, [hidden, query], parts.output_bias)?;
    let gate = linear(Projection::Gate, [feed_forward, hidden], parts.feed_forward_bias)?;
    let up = linear(Projection::Up, [feed_forward, hidden], parts.feed_forward_bias)?;
    let down = linear(Projection::Down, [hidden, feed_forward], parts.feed_forward_bias)?;
    let mut norm = |norm, len| tensors.vector(Slot::Norm(layer, norm), len);
    let head_norm = parts.head_norm == Presence::Required;
    Ok(LayerWeights {
        attention_norm: norm(Norm::Attention, hidden)?,
        q,
        k,
        v,
        o,
        q_norm: head_norm.then(|| norm(Norm::Q, head_dim)).transpose()?,
        k_norm: head_norm.then(|| norm(Norm::K, head_dim)).transpose()?,
        feed_forward_norm: norm(Norm::FeedForward, hidden)?,
        gate,
        up,
        down,
    })
}

fn wanted<T: Tensors>(presence: Presence, tensors: &T, slot: Slot) -> bool {
    match presence {
        Presence::Absent => false,
        Presence::Required => true,
        Presence::Optional => tensors.holds(slot),
    }
}
