//! A document as token ids: a JSON array of them, or an object with a `tokens` array.

use super::InputError;
use super::mapped::MappedFile;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// The ids in the file.
pub(crate) fn read(file: &MappedFile) -> Result<Vec<u32>, InputError> {
    serde_json::from_slice::<Document>(file.bytes())
        .map(|document| document.0)
        .map_err(|error| InputError::Tokens { file: file.name(), reason: error.to_string() })
}

/// Either form.
#[derive(Debug)]
struct Document(Vec<u32>);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DocumentVisitor).map(Self)
    }
}

struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = Vec<u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<Self::Value, A::Error> {
        IdsVisitor.visit_seq(access)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut tokens = None;
        while let Some(key) = access.next_key::<String>()? {
            if key != "tokens" {
                access.next_value::<IgnoredAny>()?;
            } else if tokens.replace(access.next_value::<Ids>()?.0).is_some() {
                return Err(A::Error::duplicate_field("tokens"));
            }
        }
        tokens.ok_or_else(|| A::Error::missing_field("tokens"))
    }
}

/// An array of ids.
struct Ids(Vec<u32>);

impl<'de> Deserialize<'de> for Ids {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(IdsVisitor).map(Self)
    }
}

struct IdsVisitor;

impl<'de> Visitor<'de> for IdsVisitor {
    type Value = Vec<u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of token ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut ids = Vec::new();
        while let Some(value) = access.next_element::<Value>()? {
            let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
            ids.push(id.ok_or_else(|| not_an_id(ids.len(), &value))?);
        }
        Ok(ids)
    }
}

fn not_an_id<E: Error>(index: usize, value: &Value) -> E {
    let value = super::shorten(&value.to_string());
    E::custom(format!("entry {index} is {value}, not an id from 0 to {}", u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        for text in ["[1, 2]", r#"{"text": "x", "tokens": [1, 2], "more": {"tokens": 0}}"#] {
            let document: Document = serde_json::from_str(text).unwrap();
            assert_eq!(document.0, [1, 2]);
        }
    }

    #[test]
    fn errors_name_the_entry() {
        for (text, reason) in [
            ("[1, -2]", "entry 1 is -2"),
            ("[1.5]", "entry 0 is 1.5"),
            ("[1, 2, 4294967296]", "entry 2 is 4294967296"),
            ("[\"a\"]", "entry 0 is \\\"a\\\""),
            ("{}", "missing field `tokens`"),
            (r#"{"tokens": [1], "tokens": [2]}"#, "duplicate field `tokens`"),
            ("7", "expected an array or an object"),
            ("[1,", "EOF"),
        ] {
            let error = serde_json::from_str::<Document>(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
