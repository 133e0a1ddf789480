//! JSON whose objects name each key once.
//!
//! `serde_json` keeps the last of two equal keys; two readers may then see two different models, so
//! here the second one is an error. Nesting beyond 128 levels, NaN and infinities are refused by
//! `serde_json` itself.

use crate::ModelError;
use crate::error::shorten;
use crate::file::{display, read_text};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;
use std::path::Path;

/// The object in the JSON file at `path`, which holds at most `limit` bytes.
pub(crate) fn read_object(path: &Path, limit: u64) -> Result<Map<String, Value>, ModelError> {
    let text = read_text(path, limit)?;
    match parse::<Strict>(&text, path)?.0 {
        Value::Object(map) => Ok(map),
        other => Err(ModelError::Malformed {
            file: display(path),
            place: "the top level".to_owned(),
            expected: "a JSON object".to_owned(),
            actual: shorten(&other.to_string()),
        }),
    }
}

/// Parses `text` as `T`.
pub(crate) fn parse<'a, T: Deserialize<'a>>(text: &'a str, path: &Path) -> Result<T, ModelError> {
    serde_json::from_str(text).map_err(|error| ModelError::Malformed {
        file: display(path),
        place: "JSON".to_owned(),
        expected: "a sound document".to_owned(),
        actual: error.to_string(),
    })
}

/// Any JSON value with distinct keys.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = access.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, Strict(value))) = access.next_entry::<String, Strict>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("key `{}` appears twice", shorten(&key))));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
