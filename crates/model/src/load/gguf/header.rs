//! The header of a GGUF file (versions 2 and 3, little-endian), read without trusting it.
//!
//! `"GGUF"`, version u32, tensor count u64, metadata count u64; then per metadata entry a key, a type
//! u32 and a value; then per tensor a name, the number of dimensions u32, the dimensions u64 (fastest
//! first), a type u32 and an offset u64 into the data, which starts at the next multiple of
//! `general.alignment` (32). Strings are a u64 length and bytes. Every length is checked against what
//! is left of the file before anything is kept; lists and strings stay in the file as byte ranges.
//! Knows no architecture.

use crate::ModelError;
use crate::error::shorten;
use candle_core::quantized::GgmlDType;
use ringattn_core::DType;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const METADATA_LIMIT: u64 = 1 << 16;
const TENSOR_LIMIT: u64 = 1 << 17;
const NAME_LIMIT: u64 = 1 << 10;
const ALIGNMENT_LIMIT: u64 = 1 << 20;
const DEFAULT_ALIGNMENT: u64 = 32;

/// Metadata and tensor list of one file, all offsets checked against its length.
#[derive(Debug)]
pub(crate) struct Header<'a> {
    /// The file, for messages.
    pub(crate) file: &'a str,
    bytes: &'a [u8],
    metadata: BTreeMap<String, Item>,
    /// The tensors in the order of the file.
    pub(crate) tensors: Vec<TensorInfo>,
}

/// One tensor of the file.
#[derive(Clone, Debug)]
pub(crate) struct TensorInfo {
    pub(crate) name: String,
    /// Slowest dimension first, so `[out, in]` for a matrix.
    pub(crate) shape: Vec<u64>,
    pub(crate) storage: Storage,
    /// Where its bytes lie in the file.
    pub(crate) bytes: Range<usize>,
}

/// How a tensor's values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// One by one.
    Plain(DType),
    /// In blocks of 32 or 256 along a row.
    Quantised(GgmlDType),
}

/// A metadata value.
#[derive(Debug)]
enum Item {
    Scalar(Value),
    Text(Range<usize>),
    List { kind: u32, count: usize, bytes: Range<usize> },
}

mod kind {
    pub(super) const I32: u32 = 5;
    pub(super) const F32: u32 = 6;
    pub(super) const TEXT: u32 = 8;
    pub(super) const LIST: u32 = 9;
}

impl<'a> Header<'a> {
    /// Reads the header of `file`, whose whole content is `bytes`.
    ///
    /// # Errors
    /// For anything that is not a sound GGUF file with readable tensor types.
    pub(crate) fn read(file: &'a str, bytes: &'a [u8]) -> Result<Self, ModelError> {
        let mut reader = Reader { file, bytes, at: 0 };
        let (tensor_count, metadata_count) = reader.preamble()?;
        let mut metadata = BTreeMap::new();
        for _ in 0..metadata_count {
            let key = reader.name("metadata key")?;
            let item = reader.item(&key)?;
            if metadata.insert(key.clone(), item).is_some() {
                let place = format!("metadata `{}`", shorten(&key));
                return Err(reader.malformed(&place, "each key once", "the key again"));
            }
        }
        let alignment = alignment(&reader, metadata.get("general.alignment"))?;
        let tensors = reader.tensors(tensor_count, alignment)?;
        Ok(Self { file, bytes, metadata, tensors })
    }

    /// The names of all metadata.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.metadata.keys().map(String::as_str)
    }

    /// A metadata value as JSON; a list becomes a text that says what it is.
    pub(crate) fn value(&self, key: &str) -> Result<Option<Value>, ModelError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Item::Scalar(value)) => Ok(Some(value.clone())),
            Some(Item::Text(range)) => Ok(Some(self.utf8(key, &self.bytes[range.clone()])?.into())),
            Some(Item::List { count, .. }) => Ok(Some(format!("a list of {count}").into())),
        }
    }

    /// A list of texts.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>, ModelError> {
        let Some((count, range)) = self.list(key, kind::TEXT, "a list of texts")? else {
            return Ok(None);
        };
        let mut reader = Reader { file: self.file, bytes: self.bytes, at: range.start };
        let mut texts = Vec::with_capacity(count);
        for _ in 0..count {
            let text = reader.text(key, u64::MAX)?;
            texts.push(self.utf8(key, &self.bytes[text])?);
        }
        Ok(Some(texts))
    }

    /// A list of i32.
    pub(crate) fn integers(&self, key: &str) -> Result<Option<Vec<i32>>, ModelError> {
        let list = self.list(key, kind::I32, "a list of i32")?;
        Ok(list.map(|(_, range)| {
            let raw = self.bytes[range].as_chunks::<4>().0;
            raw.iter().map(|&raw| i32::from_le_bytes(raw)).collect()
        }))
    }

    /// A list of f32.
    pub(crate) fn floats(&self, key: &str) -> Result<Option<Vec<f32>>, ModelError> {
        let list = self.list(key, kind::F32, "a list of f32")?;
        Ok(list.map(|(_, range)| {
            let raw = self.bytes[range].as_chunks::<4>().0;
            raw.iter().map(|&raw| f32::from_le_bytes(raw)).collect()
        }))
    }

    /// The error that the metadata at `key` is not what it should be.
    pub(crate) fn refuse(&self, key: &str, expected: &str, actual: &str) -> ModelError {
        ModelError::Field {
            file: self.file.to_owned(),
            field: key.to_owned(),
            expected: expected.to_owned(),
            actual: shorten(actual),
        }
    }

    fn list(
        &self,
        key: &str,
        wanted: u32,
        expected: &str,
    ) -> Result<Option<(usize, Range<usize>)>, ModelError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Item::List { kind, count, bytes }) if *kind == wanted => {
                Ok(Some((*count, bytes.clone())))
            }
            Some(_) => Err(self.refuse(key, expected, "a value of another type")),
        }
    }

    fn utf8(&self, key: &str, bytes: &'a [u8]) -> Result<&'a str, ModelError> {
        std::str::from_utf8(bytes).map_err(|error| self.refuse(key, "UTF-8", &error.to_string()))
    }
}

fn alignment(reader: &Reader<'_>, item: Option<&Item>) -> Result<u64, ModelError> {
    let value = match item {
        None => return Ok(DEFAULT_ALIGNMENT),
        Some(Item::Scalar(value)) => value,
        Some(_) => &Value::Null,
    };
    match value.as_u64() {
        Some(size) if size.is_power_of_two() && (8..=ALIGNMENT_LIMIT).contains(&size) => Ok(size),
        _ => Err(reader.malformed(
            "general.alignment",
            &format!("a power of two from 8 to {ALIGNMENT_LIMIT}"),
            &value.to_string(),
        )),
    }
}

/// Walks the file's bytes.
struct Reader<'a> {
    file: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn malformed(&self, place: &str, expected: &str, actual: &str) -> ModelError {
        ModelError::Malformed {
            file: self.file.to_owned(),
            place: format!("{place} (byte {})", self.at),
            expected: expected.to_owned(),
            actual: shorten(actual),
        }
    }

    fn skip(&mut self, size: u64, place: &str) -> Result<Range<usize>, ModelError> {
        let left = self.bytes.len() - self.at;
        if size > left as u64 {
            let (expected, actual) = (format!("{size} more bytes"), format!("{left}"));
            return Err(self.malformed(place, &expected, &actual));
        }
        let start = self.at;
        self.at += size as usize;
        Ok(start..self.at)
    }

    fn take<const N: usize>(&mut self, place: &str) -> Result<[u8; N], ModelError> {
        let mut raw = [0; N];
        let range = self.skip(N as u64, place)?;
        raw.copy_from_slice(&self.bytes[range]);
        Ok(raw)
    }

    fn u32(&mut self, place: &str) -> Result<u32, ModelError> {
        self.take(place).map(u32::from_le_bytes)
    }

    fn u64(&mut self, place: &str) -> Result<u64, ModelError> {
        self.take(place).map(u64::from_le_bytes)
    }

    fn text(&mut self, place: &str, limit: u64) -> Result<Range<usize>, ModelError> {
        let length = self.u64(place)?;
        self.limited(&format!("the length of {place}"), limit, length)?;
        self.skip(length, place)
    }

    fn name(&mut self, place: &str) -> Result<String, ModelError> {
        let range = self.text(place, NAME_LIMIT)?;
        let text = std::str::from_utf8(&self.bytes[range]);
        text.map(str::to_owned).map_err(|error| self.malformed(place, "UTF-8", &error.to_string()))
    }

    fn limited(&self, place: &str, limit: u64, actual: u64) -> Result<(), ModelError> {
        if actual <= limit {
            return Ok(());
        }
        let (file, place) = (self.file.to_owned(), place.to_owned());
        Err(ModelError::TooLarge { file, place, limit, actual })
    }

    /// The counts of tensors and of metadata.
    fn preamble(&mut self) -> Result<(u64, u64), ModelError> {
        let magic: [u8; 4] = self.take("magic")?;
        if &magic != b"GGUF" {
            let actual = format!("{:?}", String::from_utf8_lossy(&magic));
            return Err(self.malformed("magic", "a GGUF file", &actual));
        }
        match self.u32("version")? {
            2 | 3 => {}
            version if version.swap_bytes() <= 3 => {
                return Err(self.malformed("version", "little-endian", "a big-endian file"));
            }
            version => return Err(self.malformed("version", "2 or 3", &version.to_string())),
        }
        let tensors = self.u64("tensor count")?;
        self.limited("the tensor count", TENSOR_LIMIT, tensors)?;
        let metadata = self.u64("metadata count")?;
        self.limited("the metadata count", METADATA_LIMIT, metadata)?;
        Ok((tensors, metadata))
    }

    fn item(&mut self, key: &str) -> Result<Item, ModelError> {
        let place = format!("metadata `{}`", shorten(key));
        match self.u32(&place)? {
            kind::TEXT => self.text(&place, u64::MAX).map(Item::Text),
            kind::LIST => self.list(&place),
            other => self.scalar(other, &place).map(Item::Scalar),
        }
    }

    fn scalar(&mut self, kind: u32, place: &str) -> Result<Value, ModelError> {
        // JSON has no NaN: as a text it is refused where a number is wanted.
        let float = |value: f64| {
            serde_json::Number::from_f64(value)
                .map_or(Value::String(value.to_string()), Value::from)
        };
        Ok(match kind {
            0 => u8::from_le_bytes(self.take(place)?).into(),
            1 => i8::from_le_bytes(self.take(place)?).into(),
            2 => u16::from_le_bytes(self.take(place)?).into(),
            3 => i16::from_le_bytes(self.take(place)?).into(),
            4 => self.u32(place)?.into(),
            5 => i32::from_le_bytes(self.take(place)?).into(),
            6 => float(f32::from_le_bytes(self.take(place)?).into()),
            7 => match self.take::<1>(place)? {
                [0] => false.into(),
                [1] => true.into(),
                [other] => return Err(self.malformed(place, "0 or 1", &other.to_string())),
            },
            10 => self.u64(place)?.into(),
            11 => i64::from_le_bytes(self.take(place)?).into(),
            12 => float(f64::from_le_bytes(self.take(place)?)),
            _ => return Err(self.malformed(place, "a value type", &kind.to_string())),
        })
    }

    fn list(&mut self, place: &str) -> Result<Item, ModelError> {
        let kind = self.u32(place)?;
        let count = self.u64(place)?;
        let start = self.at;
        let size = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            10..=12 => 8,
            kind::TEXT => {
                // Each text has at least its length, so a count beyond the file ends early.
                for _ in 0..count {
                    self.text(place, u64::MAX)?;
                }
                0
            }
            _ => return Err(self.malformed(place, "a list of plain values", &kind.to_string())),
        };
        let bytes = count.saturating_mul(size);
        self.skip(bytes, place)?;
        Ok(Item::List { kind, count: count as usize, bytes: start..self.at })
    }

    /// The tensor list, and the check that the tensors lie one behind the other.
    fn tensors(&mut self, count: u64, alignment: u64) -> Result<Vec<TensorInfo>, ModelError> {
        let mut names = BTreeSet::new();
        let mut tensors = Vec::new();
        let mut end = 0;
        for _ in 0..count {
            let name = self.name("tensor name")?;
            let place = format!("tensor `{}`", shorten(&name));
            if !names.insert(name.clone()) {
                return Err(self.malformed(&place, "each name once", "the name again"));
            }
            let (shape, storage, size) = self.tensor_type(&name, &place)?;
            let offset = self.u64(&place)?;
            // Without this, two tensors could share bytes or leave some that nobody reads.
            if offset != end {
                let (expected, actual) = (format!("offset {end}"), format!("{offset}"));
                return Err(self.malformed(&place, &expected, &actual));
            }
            end = offset
                .checked_add(size)
                .and_then(|end| end.checked_next_multiple_of(alignment))
                .ok_or_else(|| self.malformed(&place, "a size within 64 bits", "more"))?;
            tensors.push((name, shape, storage, offset, size));
        }
        let data = (self.at as u64).next_multiple_of(alignment);
        let mut checked = Vec::new();
        for (name, shape, storage, offset, size) in tensors {
            let stop = data.checked_add(offset).and_then(|start| start.checked_add(size));
            let length = self.bytes.len();
            let Some(stop) = stop.filter(|&stop| stop <= length as u64) else {
                let place = format!("tensor `{}`", shorten(&name));
                let expected = format!("{size} bytes at offset {offset} of the data");
                let actual = format!("a file of {length} bytes, it is truncated");
                return Err(self.malformed(&place, &expected, &actual));
            };
            let bytes = (stop - size) as usize..stop as usize;
            checked.push(TensorInfo { name, shape, storage, bytes });
        }
        Ok(checked)
    }

    /// Shape, storage and bytes of a tensor.
    fn tensor_type(
        &mut self,
        name: &str,
        place: &str,
    ) -> Result<(Vec<u64>, Storage, u64), ModelError> {
        let rank = self.u32(place)?;
        if !(1..=4).contains(&rank) {
            return Err(self.malformed(place, "1 to 4 dimensions", &rank.to_string()));
        }
        let mut shape = Vec::new();
        for _ in 0..rank {
            shape.push(self.u64(place)?);
        }
        let id = self.u32(place)?;
        let storage = storage(id).ok_or_else(|| ModelError::TensorType {
            file: self.file.to_owned(),
            tensor: shorten(name),
            expected: "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K",
            actual: id.to_string(),
        })?;
        let (block, bytes) = storage.block();
        let elements = shape.iter().try_fold(1, |product: u64, &size| product.checked_mul(size));
        let size = elements
            .filter(|&elements| elements > 0 && shape[0].is_multiple_of(block))
            .and_then(|elements| (elements / block).checked_mul(bytes));
        let Some(size) = size else {
            let expected = format!("dimensions above 0, the first a multiple of {block}");
            return Err(self.malformed(place, &expected, &format!("{shape:?}")));
        };
        shape.reverse();
        Ok((shape, storage, size))
    }
}

impl Storage {
    /// Elements and bytes of a block.
    fn block(self) -> (u64, u64) {
        match self {
            Self::Plain(dtype) => (1, dtype.size()),
            Self::Quantised(dtype) => (dtype.block_size() as u64, dtype.type_size() as u64),
        }
    }
}

/// The storage with ggml's number `id`.
fn storage(id: u32) -> Option<Storage> {
    Some(match id {
        0 => Storage::Plain(DType::F32),
        1 => Storage::Plain(DType::F16),
        30 => Storage::Plain(DType::Bf16),
        2 => Storage::Quantised(GgmlDType::Q4_0),
        3 => Storage::Quantised(GgmlDType::Q4_1),
        6 => Storage::Quantised(GgmlDType::Q5_0),
        7 => Storage::Quantised(GgmlDType::Q5_1),
        8 => Storage::Quantised(GgmlDType::Q8_0),
        12 => Storage::Quantised(GgmlDType::Q4K),
        13 => Storage::Quantised(GgmlDType::Q5K),
        14 => Storage::Quantised(GgmlDType::Q6K),
        _ => return None,
    })
}
