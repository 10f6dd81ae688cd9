//! The metadata and the tensors of a GGUF file, as its configuration is read from them.

use super::volumes::{Fields, Volumes, plain};
use crate::LoadError;
use candle_core::quantized::gguf_file::Value as Field;
use serde_json::{Map, Value, json};

/// Metadata and tensors of a file.
pub(super) struct Facts<'a> {
    pub(super) file: &'a str,
    pub(super) fields: &'a Fields,
    pub(super) volumes: &'a Volumes,
}

impl Facts<'_> {
    /// A number or a flag of the metadata.
    pub(super) fn field(&self, key: &str) -> Option<Value> {
        match self.fields.get(key)? {
            Field::Bool(flag) => Some(json!(flag)),
            field => plain(field),
        }
    }

    /// A list of numbers or flags of the metadata; one number counts as `count` equal ones.
    pub(super) fn list(&self, key: &str, count: usize) -> Option<Vec<Value>> {
        match self.fields.get(key)? {
            Field::Array(list) => list
                .iter()
                .map(|field| match field {
                    Field::Bool(flag) => Some(json!(flag)),
                    field => plain(field),
                })
                .collect(),
            field => plain(field).map(|one| vec![one; count]),
        }
    }

    /// True if the file has a tensor.
    pub(super) fn has(&self, tensor: &str) -> bool {
        self.volumes.info(tensor).is_some()
    }

    /// The number of layers. A layer has tensors, so there are no more layers than these.
    pub(super) fn layers(&self, key: &str, map: &Map<String, Value>) -> Result<usize, LoadError> {
        let layers = map.get("num_hidden_layers").and_then(Value::as_u64);
        let most = self.volumes.names().count();
        let layers = layers.and_then(|layers| usize::try_from(layers).ok());
        layers
            .filter(|layers| *layers <= most)
            .ok_or_else(|| self.refuse(key, format!("at most {most}, the number of tensors")))
    }

    /// The error for a field with another value than the expected one.
    pub(super) fn refuse(&self, key: &str, expected: impl Into<String>) -> LoadError {
        let found = match self.fields.get(key) {
            None => "nothing".to_owned(),
            Some(Field::String(text)) => format!("{text:?}"),
            Some(_) => self.field(key).map_or("a list".to_owned(), |value| value.to_string()),
        };
        LoadError::Key {
            file: self.file.to_owned(),
            key: key.to_owned(),
            expected: expected.into(),
            found,
        }
    }

    /// Refuses a field that is present with another value.
    pub(super) fn only(&self, key: &str, supported: &Value) -> Result<(), LoadError> {
        match self.field(key) {
            Some(value) if value != *supported => Err(self.refuse(key, supported.to_string())),
            _ => Ok(()),
        }
    }
}
