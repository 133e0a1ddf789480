//! Tensors of a file before anything is asked of their shapes, and what attention takes of them.

use super::mapped::{Access, FileBytes, MappedFile};
use super::{InputError, npy, safetensors, shorten};
use ringattn::core::DType;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A tensor in the bytes of a file. The product of its shape is its number of elements.
#[derive(Clone, Debug)]
pub(crate) struct FileTensor {
    /// The format's own word for the element type.
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: FileBytes,
}

/// A shape as it is printed: `[2, 8, 4096, 64]`.
#[derive(Debug)]
pub(crate) struct Shape<'a>(pub(crate) &'a [u64]);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, size) in self.0.iter().enumerate() {
            write!(f, "{}{size}", if index == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

/// q, k or v.
#[derive(Clone, Debug)]
pub(crate) struct AttentionTensor {
    pub(crate) name: &'static str,
    /// The file, for messages.
    pub(crate) file: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: FileBytes,
}

/// Positions of the tokens of q or of k.
#[derive(Clone, Debug)]
pub(crate) struct PositionsTensor {
    pub(crate) shape: Vec<u64>,
    pub(crate) positions: Vec<u64>,
}

/// What the inputs of `attend` hold.
#[derive(Debug)]
pub(crate) struct TensorSet {
    pub(crate) q: AttentionTensor,
    pub(crate) k: AttentionTensor,
    pub(crate) v: AttentionTensor,
    pub(crate) q_positions: Option<PositionsTensor>,
    pub(crate) k_positions: Option<PositionsTensor>,
    /// Names of tensors that attention has no use for.
    pub(crate) ignored: Vec<String>,
}

/// The input files of `attend`, mapped.
#[derive(Debug)]
pub(crate) enum InputFiles {
    /// One file with tensors by name.
    Safetensors(Arc<MappedFile>),
    /// q, k and v.
    Npy([Arc<MappedFile>; 3]),
}

impl InputFiles {
    pub(crate) fn one(path: &Path, access: Access) -> Result<Self, InputError> {
        Ok(Self::Safetensors(Arc::new(MappedFile::open(path, access)?)))
    }

    pub(crate) fn three([q, k, v]: [&Path; 3], access: Access) -> Result<Self, InputError> {
        let open = |path| MappedFile::open(path, access).map(Arc::new);
        Ok(Self::Npy([open(q)?, open(k)?, open(v)?]))
    }

    /// Reads the headers; the tensors themselves stay in the files.
    pub(crate) fn tensors(&self) -> Result<TensorSet, InputError> {
        match self {
            Self::Safetensors(file) => from_safetensors(file),
            Self::Npy([q, k, v]) => Ok(TensorSet {
                q: npy_tensor(q, "q")?,
                k: npy_tensor(k, "k")?,
                v: npy_tensor(v, "v")?,
                q_positions: None,
                k_positions: None,
                ignored: Vec::new(),
            }),
        }
    }

    /// An error when a file was changed since it was opened.
    pub(crate) fn ensure_unchanged(&self) -> Result<(), InputError> {
        match self {
            Self::Safetensors(file) => file.ensure_unchanged(),
            Self::Npy(files) => files.iter().try_for_each(|file| file.ensure_unchanged()),
        }
    }
}

fn from_safetensors(file: &Arc<MappedFile>) -> Result<TensorSet, InputError> {
    let mut tensors = safetensors::read(file)?;
    let names: Vec<_> = tensors.keys().map(|name| shorten(name)).collect();
    let mut take = |name: &'static str| match tensors.remove(name) {
        Some(tensor) => attention_tensor(file, name, tensor),
        None => {
            let found = listed(&names);
            Err(InputError::MissingTensor { file: file.name(), tensor: name, found })
        }
    };
    let (q, k, v) = (take("q")?, take("k")?, take("v")?);
    let mut positions =
        |name| tensors.remove(name).map(|tensor| read_positions(file, name, &tensor)).transpose();
    let (q_positions, k_positions) = (positions("q_positions")?, positions("k_positions")?);
    let ignored = tensors.into_keys().map(|name| shorten(&name)).collect();
    Ok(TensorSet { q, k, v, q_positions, k_positions, ignored })
}

fn attention_tensor(
    file: &MappedFile,
    name: &'static str,
    tensor: FileTensor,
) -> Result<AttentionTensor, InputError> {
    let dtype = match tensor.dtype.as_str() {
        "F32" => DType::F32,
        "BF16" => DType::Bf16,
        "F16" => DType::F16,
        _ => {
            return Err(InputError::ElementType {
                file: file.name(),
                tensor: format!("tensor {name}"),
                expected: "F32, BF16 or F16",
                actual: tensor.dtype,
            });
        }
    };
    let FileTensor { shape, bytes, .. } = tensor;
    Ok(AttentionTensor { name, file: file.name(), dtype, shape, bytes })
}

fn npy_tensor(file: &Arc<MappedFile>, name: &'static str) -> Result<AttentionTensor, InputError> {
    let npy::Array { dtype, shape, bytes } = npy::read(file)?;
    Ok(AttentionTensor { name, file: file.name(), dtype, shape, bytes })
}

fn read_positions(
    file: &MappedFile,
    tensor: &'static str,
    found: &FileTensor,
) -> Result<PositionsTensor, InputError> {
    let bytes = found.bytes.read()?;
    let positions = match found.dtype.as_str() {
        "U64" => {
            let values = bytes.as_chunks().0.iter().map(|&b| u64::from_le_bytes(b).into());
            in_range(file, tensor, values)?
        }
        "U32" => bytes.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b).into()).collect(),
        "I64" => {
            let values = bytes.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b).into());
            in_range(file, tensor, values)?
        }
        "I32" => {
            let values = bytes.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b).into());
            in_range(file, tensor, values)?
        }
        other => {
            return Err(InputError::ElementType {
                file: file.name(),
                tensor: format!("tensor {tensor}"),
                expected: "I64, U64, I32 or U32",
                actual: other.to_owned(),
            });
        }
    };
    Ok(PositionsTensor { shape: found.shape.clone(), positions })
}

/// The positions; their range is one, whatever type they are stored in.
fn in_range(
    file: &MappedFile,
    tensor: &'static str,
    values: impl Iterator<Item = i128>,
) -> Result<Vec<u64>, InputError> {
    let position = |(index, actual): (usize, i128)| match i64::try_from(actual) {
        Ok(position @ 0..) => Ok(position.unsigned_abs()),
        _ => Err(InputError::Position { file: file.name(), tensor, index, actual }),
    };
    values.enumerate().map(position).collect()
}

/// The first of `names`, and how many more there are.
pub(crate) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().checked_sub(SHOWN) {
        _ if names.is_empty() => "none".to_owned(),
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}
