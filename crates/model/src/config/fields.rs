//! Reading named fields so that none is left unread.
//!
//! Taking a field removes it; what remains at the end must be on a list of names that cannot change
//! the arithmetic. A field that is null counts as not given. Serves `config.json` and, converted to
//! the same values, GGUF metadata.

use crate::ModelError;
use crate::error::shorten;
use serde_json::{Map, Value};

/// The fields that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Fields {
    file: String,
    prefix: String,
    map: Map<String, Value>,
}

impl Fields {
    /// Fields of `file` whose names there start with `prefix`; the keys of `map` leave it out.
    pub(crate) fn new(file: &str, prefix: &str, map: Map<String, Value>) -> Self {
        Self { file: file.to_owned(), prefix: prefix.to_owned(), map }
    }

    /// The file, for messages.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// The raw value.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key).filter(|value| !value.is_null())
    }

    /// Whether the field is there at all, null or not.
    pub(crate) fn names(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// A whole number from 1 to `limit`.
    pub(crate) fn count(&mut self, key: &str, limit: u64) -> Result<Option<u64>, ModelError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match value.as_u64() {
            Some(count) if (1..=limit).contains(&count) => Ok(Some(count)),
            _ => Err(self.refuse(key, &format!("a whole number from 1 to {limit}"), &value)),
        }
    }

    /// A finite number above 0.
    pub(crate) fn positive(&mut self, key: &str) -> Result<Option<f64>, ModelError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if number.is_finite() && number > 0.0 => Ok(Some(number)),
            _ => Err(self.refuse(key, "a finite number above 0", &value)),
        }
    }

    /// True or false; false when it is not given.
    pub(crate) fn flag(&mut self, key: &str) -> Result<bool, ModelError> {
        let Some(value) = self.take(key) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.refuse(key, "true or false", &value))
    }

    /// A text.
    pub(crate) fn text(&mut self, key: &str) -> Result<Option<String>, ModelError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(self.refuse(key, "a text", &value)),
        }
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, key: &str) -> Result<Option<Vec<String>>, ModelError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let texts = value.as_array().and_then(|values| {
            values.iter().map(|value| value.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        texts.map(Some).ok_or_else(|| self.refuse(key, "a list of texts", &value))
    }

    /// A field of which only one value is computed here; not given means that value.
    pub(crate) fn only(&mut self, key: &str, supported: &Value) -> Result<(), ModelError> {
        let Some(value) = self.take(key) else { return Ok(()) };
        let same_number = value.as_f64().is_some() && value.as_f64() == supported.as_f64();
        if same_number || value == *supported {
            return Ok(());
        }
        Err(self.refuse(key, &supported.to_string(), &value))
    }

    /// The value, or the error that it is missing.
    pub(crate) fn require<T>(&self, key: &str, value: Option<T>) -> Result<T, ModelError> {
        value.ok_or_else(|| ModelError::MissingField {
            file: self.file.clone(),
            field: format!("{}{key}", self.prefix),
        })
    }

    /// The error that a field's value is not supported.
    pub(crate) fn refuse(&self, key: &str, expected: &str, actual: &Value) -> ModelError {
        ModelError::Field {
            file: self.file.clone(),
            field: format!("{}{}", self.prefix, shorten(key)),
            expected: expected.to_owned(),
            actual: shorten(&actual.to_string()),
        }
    }

    /// Refuses the first field that was not taken, is not null and is not in `harmless`.
    pub(crate) fn finish(self, harmless: &[&str]) -> Result<(), ModelError> {
        for (key, value) in &self.map {
            if !value.is_null() && !harmless.contains(&key.as_str()) {
                return Err(ModelError::UnknownField {
                    file: self.file,
                    field: format!("{}{}", self.prefix, shorten(key)),
                    actual: shorten(&value.to_string()),
                });
            }
        }
        Ok(())
    }
}
