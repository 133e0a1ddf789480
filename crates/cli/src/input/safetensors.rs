//! The safetensors format: 8 bytes of header length `n` (little-endian), `n` bytes of JSON (name to
//! dtype, shape and byte range), then data that the ranges cover without gap or overlap.
//!
//! The header is parsed as a stream into fixed entries, so that memory is bounded by its length.

use super::mapped::{FileBytes, MappedFile};
use super::tensors::FileTensor;
use super::{InputError, shorten};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Bytes of the longest header that is read; 100 for a tensor are usual.
const HEADER_LIMIT: u64 = 8 << 20;

/// All tensors of the file, by name.
pub(crate) fn read(file: &Arc<MappedFile>) -> Result<BTreeMap<String, FileTensor>, InputError> {
    let malformed = |place: &str, expected: String, actual: String| InputError::Malformed {
        file: file.name(),
        place: place.to_owned(),
        expected,
        actual,
    };
    let (header, len) = split(file)?;
    let data = FileBytes::tail(file, len);
    let text = std::str::from_utf8(header).map_err(|error| {
        malformed("the header", "UTF-8".into(), format!("byte {}", error.valid_up_to()))
    })?;
    let mut entries = serde_json::from_str::<Header>(text)
        .map_err(|e| malformed("the header", "a JSON object of tensors".into(), e.to_string()))?
        .0;
    entries.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut end = 0;
    let mut tensors = BTreeMap::new();
    for (name, entry) in entries {
        let place = format!("tensor {}", shorten(&name));
        let (start, stop) = entry.data_offsets;
        let Some(size) = entry.byte_len() else {
            let expected = "a known type and a shape of whole bytes, below 2^64 bits".to_owned();
            let actual = format!("{} of {} dimensions", shorten(&entry.dtype), entry.shape.len());
            return Err(malformed(&place, expected, actual));
        };
        if start != end || start.checked_add(size) != Some(stop) {
            let expected = format!("{size} bytes from {end} on, by shape and type");
            return Err(malformed(&place, expected, format!("bytes {start} to {stop}")));
        }
        end = stop;
        let Some(bytes) = data.part(start, stop) else {
            let actual = format!("{}: the file is truncated", data.len());
            return Err(malformed(&place, format!("{stop} bytes of data"), actual));
        };
        tensors.insert(name, FileTensor { dtype: entry.dtype, shape: entry.shape, bytes });
    }
    if end != data.len() {
        let expected = format!("{end} bytes, as the header says");
        return Err(malformed("the data", expected, data.len().to_string()));
    }
    Ok(tensors)
}

/// The header, and how many bytes of data follow.
fn split(file: &MappedFile) -> Result<(&[u8], u64), InputError> {
    let malformed = |expected: String, actual: String| InputError::Malformed {
        file: file.name(),
        place: "the header length".to_owned(),
        expected,
        actual,
    };
    let Some((length, rest)) = file.bytes().split_first_chunk::<8>() else {
        let actual = format!("a file of {} bytes", file.len());
        return Err(malformed("the 8 bytes that begin a safetensors file".into(), actual));
    };
    let length = u64::from_le_bytes(*length);
    let after = file.len() - 8;
    let most = after.min(HEADER_LIMIT);
    if length == 0 || length > most {
        let limit = if most == HEADER_LIMIT { "the limit" } else { "what the file has" };
        return Err(malformed(format!("1 to {most}, {limit}"), length.to_string()));
    }
    // The mapped part holds the longest header that is read, or all of the file.
    Ok((rest.get(..length as usize).unwrap_or_default(), after - length))
}

/// An entry of the header as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Entry {
    /// Bytes by shape and element type; `None` for an unknown type, a product beyond 64 bits, or
    /// bits that fill no whole number of bytes.
    fn byte_len(&self) -> Option<u64> {
        let size: u64 = match self.dtype.as_str() {
            "F4" => 4,
            "F6_E2M3" | "F6_E3M2" => 6,
            "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E5M2FNUZ"
            | "F8_E4M3FNUZ" => 8,
            "I16" | "U16" | "F16" | "BF16" => 16,
            "I32" | "U32" | "F32" => 32,
            "I64" | "U64" | "F64" | "C64" => 64,
            _ => return None,
        };
        let elements = self.shape.iter().try_fold(1, |product: u64, &n| product.checked_mul(n))?;
        let bits = elements.checked_mul(size)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

/// The header, each name once, without `__metadata__`.
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor).map(Self)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Vec<(String, Entry)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut names = BTreeSet::new();
        let mut entries = Vec::new();
        while let Some(name) = access.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("key {} appears twice", shorten(&name))));
            }
            if name == "__metadata__" {
                access.next_value::<IgnoredAny>()?;
            } else {
                entries.push((name, access.next_value()?));
            }
        }
        Ok(entries)
    }
}
