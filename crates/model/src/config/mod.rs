//! Typed access to the keys of `config.json`, with errors that name the key.

mod autoregressive;
mod dflash;
mod gemma;
mod llada;
mod moe;
mod nemotron;
mod qwen;
mod rope;
mod spec;
mod transformer;

pub(crate) use autoregressive::{llama, qwen2, qwen3, qwen3_moe};
pub(crate) use dflash::{DrafterSpec, OBJECT as DRAFTER};
pub(crate) use gemma::diffusion_gemma;
pub(crate) use llada::llada;
pub(crate) use moe::{llada_moe, llada2};
pub(crate) use nemotron::nemotron;
pub(crate) use qwen::{a2d, coda, dream, fast_dllm, rnd1, sdar, stable_diffcoder, wedlm};
pub(crate) use spec::{CanvasSpec, ExpertSpec, RopeSpec, RouterSpec, Spec};

use crate::{LoadError, strict_json};
pub(crate) use kernels::RouterFunction;
use serde_json::{Map, Value};

/// Maximum number of positions. Bounds the table of rotary angles, which is built before any
/// weight is read.
const MOST_POSITIONS: usize = 1 << 20;

/// Maximum of every count: sizes, lengths and numbers of parts. The product of any two of them, and
/// the bytes of such a product, have 64 bits.
const MOST: usize = 1 << 24;
/// Maximum bytes of a configuration.
const MOST_BYTES: usize = 16 << 20;
/// Maximum number of rotary angles, which are computed before any weight is read: positions times
/// the width of a head.
pub(crate) const MAX_ROPE_ANGLES: usize = 1 << 28;

/// The object of a JSON file. A key whose value is null, or no finite number, counts as absent.
pub(crate) struct Keys {
    file: String,
    map: Map<String, Value>,
}

impl Keys {
    pub(crate) fn parse(file: &str, text: &[u8]) -> Result<Self, LoadError> {
        let corrupt = |reason: String| LoadError::Corrupt { file: file.to_owned(), reason };
        if text.len() > MOST_BYTES {
            let found = text.len();
            return Err(corrupt(format!("expected at most {MOST_BYTES} bytes, found {found}")));
        }
        match serde_json::from_slice(&strict_json(text)) {
            Ok(Value::Object(map)) => Ok(Self { file: file.to_owned(), map }),
            Ok(_) => Err(corrupt("expected a JSON object".to_owned())),
            Err(error) => Err(corrupt(error.to_string())),
        }
    }

    /// The keys of a file that is not JSON.
    pub(crate) fn new(file: &str, map: Map<String, Value>) -> Self {
        let file = file.to_owned();
        Self { file, map }
    }

    /// The object under a key.
    pub(crate) fn nested(&self, key: &str) -> Result<Self, LoadError> {
        match self.get(key) {
            Some(Value::Object(map)) => {
                Ok(Self { file: format!("{}: {key}", self.file), map: map.clone() })
            }
            _ => Err(self.refuse(key, "an object")),
        }
    }

    /// The error for an invalid value.
    pub(crate) fn refuse(&self, key: &str, expected: impl Into<String>) -> LoadError {
        LoadError::Key {
            file: self.file.clone(),
            key: key.to_owned(),
            expected: expected.into(),
            found: self.get(key).map_or_else(|| "nothing".to_owned(), Value::to_string),
        }
    }

    /// The file's name.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// The names of all keys.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.map.keys().map(String::as_str)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// A whole number of at most 32 bits, `None` if the key is absent.
    pub(crate) fn whole(&self, key: &str) -> Result<Option<usize>, LoadError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_u64().and_then(|n| u32::try_from(n).ok()) {
            Some(n) => Ok(Some(n as usize)),
            None => Err(self.refuse(key, "a whole number")),
        }
    }

    /// A positive whole number of at most `MOST`, `None` if the key is absent.
    pub(crate) fn optional_count(&self, key: &str) -> Result<Option<usize>, LoadError> {
        match self.whole(key) {
            Ok(Some(n)) if n > MOST => {
                Err(self.refuse(key, format!("a positive whole number of at most {MOST}")))
            }
            Ok(n) if n != Some(0) => Ok(n),
            _ => Err(self.refuse(key, "a positive whole number")),
        }
    }

    /// A positive whole number of at most `MOST`.
    pub(crate) fn count(&self, key: &str) -> Result<usize, LoadError> {
        self.optional_count(key)?.ok_or_else(|| self.refuse(key, "a positive whole number"))
    }

    /// A positive number, `None` if the key is absent.
    pub(crate) fn optional_number(&self, key: &str) -> Result<Option<f64>, LoadError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(x) if x > 0.0 && x.is_finite() => Ok(Some(x)),
            _ => Err(self.refuse(key, "a positive number")),
        }
    }

    /// A flag, or `default` if the key is absent.
    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool, LoadError> {
        let Some(value) = self.get(key) else {
            return Ok(default);
        };
        value.as_bool().ok_or_else(|| self.refuse(key, "true or false"))
    }

    /// A token id below `limit`, or `default` if the key is absent.
    pub(crate) fn token(&self, key: &str, default: u32, limit: usize) -> Result<u32, LoadError> {
        let ids = self.tokens(key, default, limit)?;
        match ids.as_slice() {
            &[id] => Ok(id),
            _ => Err(self.refuse(key, "one token id")),
        }
    }

    /// One token id or a list of token ids, each below `limit`, or `default` if the key is absent.
    pub(crate) fn tokens(
        &self,
        key: &str,
        default: u32,
        limit: usize,
    ) -> Result<Vec<u32>, LoadError> {
        let refuse = || self.refuse(key, format!("a token id below {limit}"));
        let id = |value: &Value| {
            let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
            id.filter(|&id| (id as usize) < limit).ok_or_else(refuse)
        };
        match self.get(key) {
            None if (default as usize) < limit => Ok(vec![default]),
            None => Err(refuse()),
            Some(Value::Array(list)) if !list.is_empty() => list.iter().map(id).collect(),
            Some(value) => Ok(vec![id(value)?]),
        }
    }

    /// Refuses a key that is present with a value other than the only supported one.
    pub(crate) fn only(&self, key: &str, supported: &Value) -> Result<(), LoadError> {
        match self.get(key) {
            Some(value) if value != supported => Err(self.refuse(key, supported.to_string())),
            _ => Ok(()),
        }
    }
}
