//! Weights of a GGUF file.
//!
//! Plain tensors stay in the mapped file; quantised ones become codes of 8 bits (module `blocks`) or are
//! widened to f32. Files of the llama
//! architecture hold the rows of Wq and Wk (and their biases) so that the two elements of a rotary
//! pair are neighbours: row `2i + j` of a head there is row `j * d/2 + i` here. Qwen files hold them
//! as they are. `rope_freqs.weight` divides the inverse frequencies. The header is read in the module
//! below; the block formats are candle's.

mod blocks;
mod header;

pub(crate) use header::Header;

use super::{Norm, Projection, Slot, Tensors, assemble};
use crate::ModelError;
use crate::config::{Family, ModelConfig, gguf as config};
use crate::conventions::{self, TextConventions};
use crate::error::shorten;
use crate::file::MappedFile;
use crate::tokenizer::{Tokenizer, gguf as tokens};
use crate::weights::{Matrix, Weights, widen};
use candle_core::CpuStorage;
use candle_core::quantized::GgmlDType;
use header::{Storage, TensorInfo};
use rayon::prelude::*;
use ringattn_core::{AttentionShape, Elements, OutOfMemory, try_filled};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Elements that are widened at a time, a multiple of every block.
const PIECE: usize = 1 << 16;

/// Loads the model in the file at `path`.
///
/// # Errors
/// For unsound files, metadata and tensors that are not supported, and lack of memory.
pub(super) fn load(path: &Path) -> Result<(ModelConfig, Weights), ModelError> {
    let file = Arc::new(MappedFile::open(path)?);
    let header = Header::read(&file.name, file.bytes())?;
    let (mut config, parts) = config::read(&header)?;
    let mut tensors = GgufTensors {
        layout: match config.family {
            Family::Llama | Family::Mistral => Layout::Neighbours(config.attention),
            Family::Qwen2 | Family::Qwen3 => Layout::Halves,
        },
        tensors: header.tensors.iter().map(|info| (info.name.clone(), info.clone())).collect(),
        file: Arc::clone(&file),
    };
    if config.family == Family::Llama && tensors.tensors.contains_key(FACTORS) {
        let factors = tensors.factors(config.attention.head_dim() / 2)?;
        config.rope.divide(&factors);
    }
    let weights = assemble(&config, &parts, tensors)?;
    Ok((config, weights))
}

/// The configuration of the file at `path`, without `rope_freqs.weight`.
pub(super) fn read_config(path: &Path) -> Result<ModelConfig, ModelError> {
    let file = MappedFile::open(path)?;
    Ok(config::read(&Header::read(&file.name, file.bytes())?)?.0)
}

/// Builds the tokenizer of the file at `path`.
pub(super) fn tokenizer(path: &Path) -> Result<Tokenizer, ModelError> {
    let file = MappedFile::open(path)?;
    tokens::build(&Header::read(&file.name, file.bytes())?)
}

/// The text conventions of the file at `path`.
pub(super) fn conventions(path: &Path) -> Result<TextConventions, ModelError> {
    let file = MappedFile::open(path)?;
    conventions::of_gguf(&Header::read(&file.name, file.bytes())?)
}

const FACTORS: &str = "rope_freqs.weight";

/// Where the two elements of a rotary pair stand in a head.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// `i` and `i + d/2`, as the forward pass wants them.
    Halves,
    /// `2i` and `2i + 1`.
    Neighbours(AttentionShape),
}

/// The tensors of the file that were not taken yet.
struct GgufTensors {
    file: Arc<MappedFile>,
    layout: Layout,
    tensors: BTreeMap<String, TensorInfo>,
}

impl GgufTensors {
    fn take(&mut self, tensor: &str, expected: &[usize]) -> Result<TensorInfo, ModelError> {
        let file = || self.file.name.clone();
        let Some(info) = self.tensors.remove(tensor) else {
            return Err(ModelError::MissingTensor { file: file(), tensor: tensor.to_owned() });
        };
        let expected: Vec<u64> = expected.iter().map(|&size| size as u64).collect();
        if info.shape != expected {
            let (tensor, actual) = (tensor.to_owned(), info.shape);
            return Err(ModelError::TensorShape { file: file(), tensor, expected, actual });
        }
        Ok(info)
    }

    /// All values of a tensor in f32.
    fn values(&self, info: &TensorInfo, len: usize) -> Result<Vec<f32>, ModelError> {
        let mut values = zeros(len, &info.name)?;
        let bytes = &self.file.bytes()[info.bytes.clone()];
        match info.storage {
            Storage::Plain(dtype) => widen(bytes, dtype, &mut values),
            Storage::Quantised(dtype) => {
                dequantise(bytes, dtype, &mut values).map_err(|actual| ModelError::Malformed {
                    file: self.file.name.clone(),
                    place: format!("tensor `{}`", shorten(&info.name)),
                    expected: format!("{dtype:?} blocks"),
                    actual,
                })?;
            }
        }
        Ok(values)
    }

    /// The factors by which the inverse frequencies are divided.
    fn factors(&mut self, pairs: usize) -> Result<Vec<f32>, ModelError> {
        let info = self.take(FACTORS, &[pairs])?;
        let factors = self.values(&info, pairs)?;
        match factors.iter().find(|factor| !(factor.is_finite() && **factor > 0.0)) {
            None => Ok(factors),
            Some(factor) => Err(ModelError::Malformed {
                file: self.file.name.clone(),
                place: format!("tensor `{FACTORS}`"),
                expected: "finite factors above 0".to_owned(),
                actual: factor.to_string(),
            }),
        }
    }

    /// The heads whose rows must be brought into the order of the forward pass.
    fn heads(&self, slot: Slot) -> Option<AttentionShape> {
        match (self.layout, slot) {
            (Layout::Neighbours(shape), Slot::Weight(_, Projection::Q | Projection::K))
            | (Layout::Neighbours(shape), Slot::Bias(_, Projection::Q | Projection::K)) => {
                Some(shape)
            }
            _ => None,
        }
    }
}

impl Tensors for GgufTensors {
    fn label(&self, slot: Slot) -> (String, String) {
        (self.file.name.clone(), name(slot))
    }

    fn holds(&self, slot: Slot) -> bool {
        self.tensors.contains_key(&name(slot))
    }

    fn matrix(&mut self, slot: Slot, [rows, cols]: [usize; 2]) -> Result<Matrix, ModelError> {
        let info = self.take(&name(slot), &[rows, cols])?;
        let heads = self.heads(slot);
        let source = |row| heads.map_or(row, |shape| neighbour(row, shape.head_dim()));
        let bytes = &self.file.bytes()[info.bytes.clone()];
        if let Storage::Quantised(dtype) = info.storage
            && let Some(values) = blocks::codes(dtype, bytes, [rows, cols], source)
        {
            let matrix = values.map(|values| Matrix::quantised([rows, cols], values));
            let bytes = (rows as u64).saturating_mul(cols as u64);
            let what = format!("tensor `{}`", shorten(&info.name));
            let matrix = matrix.map_err(|_| ModelError::Memory { what, bytes })?;
            return matrix.ok_or_else(|| ModelError::MissingTensor {
                file: self.file.name.clone(),
                tensor: info.name.clone(),
            });
        }
        let matrix = match (info.storage, heads) {
            (Storage::Plain(dtype), None) => {
                Matrix::mapped([rows, cols], dtype, &self.file, info.bytes.start)
            }
            (storage, heads) => {
                let mut values = self.values(&info, rows * cols)?;
                if let Some(shape) = heads {
                    values = to_halves(&values, shape.head_dim(), cols, &info.name)?;
                }
                let elements = match storage {
                    // Rounding back what was widened gives the stored value again.
                    Storage::Plain(dtype) => Elements::from_f32(values, dtype),
                    Storage::Quantised(_) => Elements::F32(values),
                };
                Matrix::owned(rows, cols, elements)
            }
        };
        matrix.ok_or_else(|| ModelError::MissingTensor {
            file: self.file.name.clone(),
            tensor: info.name.clone(),
        })
    }

    fn vector(&mut self, slot: Slot, len: usize) -> Result<Vec<f32>, ModelError> {
        let info = self.take(&name(slot), &[len])?;
        let values = self.values(&info, len)?;
        match self.heads(slot) {
            None => Ok(values),
            Some(shape) => to_halves(&values, shape.head_dim(), 1, &info.name),
        }
    }

    fn finish(self) -> Result<(), ModelError> {
        match self.tensors.into_keys().next() {
            None => Ok(()),
            Some(tensor) => {
                let file = self.file.name.clone();
                Err(ModelError::UnexpectedTensor { file, tensor: shorten(&tensor) })
            }
        }
    }
}

/// The tensor's name in llama.cpp's conventions.
fn name(slot: Slot) -> String {
    let projection = |projection| match projection {
        Projection::Q => "attn_q",
        Projection::K => "attn_k",
        Projection::V => "attn_v",
        Projection::O => "attn_output",
        Projection::Gate => "ffn_gate",
        Projection::Up => "ffn_up",
        Projection::Down => "ffn_down",
    };
    let norm = |norm| match norm {
        Norm::Attention => "attn_norm",
        Norm::Q => "attn_q_norm",
        Norm::K => "attn_k_norm",
        Norm::FeedForward => "ffn_norm",
    };
    match slot {
        Slot::Embedding => "token_embd.weight".to_owned(),
        Slot::FinalNorm => "output_norm.weight".to_owned(),
        Slot::Head => "output.weight".to_owned(),
        Slot::Weight(layer, part) => format!("blk.{layer}.{}.weight", projection(part)),
        Slot::Bias(layer, part) => format!("blk.{layer}.{}.bias", projection(part)),
        Slot::Norm(layer, part) => format!("blk.{layer}.{}.weight", norm(part)),
    }
}

fn zeros(len: usize, what: &str) -> Result<Vec<f32>, ModelError> {
    try_filled(len, 0.0).map_err(|OutOfMemory { bytes }| ModelError::Memory {
        what: format!("tensor `{}`", shorten(what)),
        bytes,
    })
}

/// The row of the file, neighbours in pairs, that is row `row` here: of a head's `j * d/2 + i`, `2i + j`.
fn neighbour(row: usize, head_dim: usize) -> usize {
    let (head, within) = (row / head_dim, row % head_dim);
    head * head_dim + within % (head_dim / 2) * 2 + within / (head_dim / 2)
}

/// Rows of `cols` values: row `2i + j` of each head becomes row `j * d/2 + i`.
fn to_halves(
    values: &[f32],
    head_dim: usize,
    cols: usize,
    what: &str,
) -> Result<Vec<f32>, ModelError> {
    let mut halves = zeros(values.len(), what)?;
    let head_size = head_dim * cols;
    for (from, to) in values.chunks_exact(head_size).zip(halves.chunks_exact_mut(head_size)) {
        for (row, values) in from.chunks_exact(cols).enumerate() {
            let target = row % 2 * (head_dim / 2) + row / 2;
            to[target * cols..(target + 1) * cols].copy_from_slice(values);
        }
    }
    Ok(halves)
}

/// Widens whole blocks, in pieces on the threads of the current pool.
fn dequantise(bytes: &[u8], dtype: GgmlDType, out: &mut [f32]) -> Result<(), String> {
    let piece_bytes = PIECE / dtype.block_size() * dtype.type_size();
    let pieces = out.par_chunks_mut(PIECE).zip(bytes.par_chunks(piece_bytes));
    pieces.try_for_each(|(values, bytes)| {
        let blocks = dtype.from_data(Cow::Borrowed(bytes));
        match blocks.dequantize(values.len()) {
            Ok(CpuStorage::F32(widened)) if widened.len() == values.len() => {
                values.copy_from_slice(&widened);
                Ok(())
            }
            Ok(_) => Err("values of another type".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    })
}
