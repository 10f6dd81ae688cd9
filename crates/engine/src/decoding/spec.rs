//! Settings of a decoder as a caller names them, checked for type and range.

use decode::{AttentionKind, Mismatch, Value};
use step::{Attention, LogitShift};

use super::presets::{self, Preset};
use super::registry::Registry;
use super::weights::WeightKind;
use crate::nearest::did_you_mean;

/// Settings as a caller named them, each checked for type and range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecodingSpec {
    registry: Registry,
    /// The attention of the weights, where it is known.
    attention: Option<AttentionKind>,
    set: Vec<Entry>,
}

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    name: &'static str,
    value: Value<'static>,
    /// The caller named it. A value that [`DecodingSpec::suited_to`] adds is ignored where no chosen
    /// member reads it.
    named: bool,
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {message}")]
pub struct SpecError {
    /// The field's name as the caller wrote it.
    pub field: String,
    /// The kind of fault.
    pub fault: SpecFault,
    /// The fault and the allowed values; the text continues the field's name.
    pub message: String,
}

/// The kinds of fault of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecFault {
    /// No such field.
    Unknown,
    /// The wrong type.
    Type,
    /// A value outside the allowed ones.
    Value,
    /// The chosen policies do not read it, or do not go together.
    Combination,
}

/// The preset whose window is as long as a drafter's blocks.
const DRAFTING: &str = "self_speculation";

/// Length of the sub-blocks of Fast-dLLM v2 (arXiv 2509.26328).
const SUB_BLOCK: u32 = 8;

impl Registry {
    /// Reads `key=value,key=value`; an item without `=` is a preset's name.
    ///
    /// # Errors
    /// As [`DecodingSpec::set`].
    pub fn parse(&self, text: &str) -> Result<DecodingSpec, SpecError> {
        let mut spec = DecodingSpec::new(self.clone());
        spec.read(text)?;
        Ok(spec)
    }
}

impl DecodingSpec {
    /// No settings yet; names are those of `registry`.
    pub fn new(registry: Registry) -> Self {
        Self { registry, attention: None, set: Vec::new() }
    }

    /// No settings yet, for the same registry and the same weights.
    #[must_use]
    pub fn blank(&self) -> Self {
        Self { registry: self.registry.clone(), attention: self.attention, set: Vec::new() }
    }

    /// The members and fields that names refer to.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Sets `name` to `value`, replacing an earlier value.
    ///
    /// # Errors
    /// Unknown field, wrong type, value out of range.
    pub fn set(&mut self, name: &str, value: Value<'_>) -> Result<(), SpecError> {
        let Some(field) = self.registry.field(name) else {
            let fields = self.registry.fields().iter();
            let known: Vec<_> = fields.map(|field| field.name).collect();
            let hint = did_you_mean(name, known.iter().copied());
            let message = format!("is not known{hint}; known are {}", known.join(", "));
            return Err(error(name, SpecFault::Unknown, message));
        };
        let value = match value {
            Value::Name(text) if name == "preset" => Value::Name(presets::current(text)),
            other => other,
        };
        let checked = field.kind.check(value).map_err(|mismatch| {
            let fault = match mismatch {
                Mismatch::Type => SpecFault::Type,
                Mismatch::Range => SpecFault::Value,
            };
            let hint = match value {
                Value::Name(text) => did_you_mean(text, field.kind.names().iter().copied()),
                _ => String::new(),
            };
            let (expected, found) = (field.kind.describe(), value.in_words());
            error(name, fault, format!("must be {expected}, got {found}{hint}"))
        });
        let (name, value, named) = (field.name, checked?, true);
        self.set.retain(|known| known.name != name);
        self.set.push(Entry { name, value, named });
        Ok(())
    }

    /// As [`Registry::parse`], of the builtin registry.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        Registry::builtin().parse(text)
    }

    /// Sets every item of `text`: see [`Registry::parse`].
    pub(super) fn read(&mut self, text: &str) -> Result<(), SpecError> {
        let items = text.split(',').map(str::trim);
        for item in items.filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').unwrap_or(("preset", item));
            self.set(name.trim(), presets::read(value.trim()))?;
        }
        Ok(())
    }

    /// The settings by public name, in the order in which they were set.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, Value<'static>)> {
        self.set.iter().map(|entry| (entry.name, entry.value))
    }

    /// Returns true if nothing was set.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// The names that the caller set.
    pub(super) fn named(&self) -> impl Iterator<Item = &'static str> {
        let named = self.set.iter().filter(|entry| entry.named);
        named.map(|entry| entry.name)
    }

    /// Puts the settings of `self` over those of `base`.
    pub fn over(&self, base: &Self) -> Self {
        let mut merged = self.clone();
        merged.attention = self.attention.or(base.attention);
        for entry in &base.set {
            if merged.get(entry.name).is_none() {
                merged.set.push(*entry);
            }
        }
        merged
    }

    /// These settings over what suits weights of a kind: their preset where none is named, and blocks
    /// as long as the model's or, where predictions are read a row before (Fast-dLLM v2), its
    /// sub-blocks of 8.
    #[must_use]
    pub fn suited_to(&self, weights: WeightKind) -> Self {
        let mut base = self.blank();
        base.attention = Some(weights.attention.kind());
        if self.get("preset").is_none() {
            base.put("preset", Value::Name(weights.default_preset()));
        }
        let length = match weights.attention {
            Attention::Blocks(length) => match weights.logit_shift {
                LogitShift::None => Some(length),
                LogitShift::One => Some(length.min(SUB_BLOCK)),
            },
            Attention::BlocksAfterPrompt(length)
            | Attention::OpenBlock(length)
            | Attention::Canvas(length) => Some(length),
            Attention::Full | Attention::Causal => None,
        };
        if let Some(length) = length
            && self.get("block_length").is_none()
        {
            base.put("block_length", Value::Integer(i64::from(length)));
        }
        let preset = self.name("preset").unwrap_or_else(|| weights.default_preset());
        if let Some(length) = weights.drafted_block()
            && preset == DRAFTING
        {
            base.put("window", Value::Integer(i64::from(length)));
        }
        self.suggested(&base)
    }

    /// These settings, and those of `published` that are not among them. Where no chosen member reads
    /// a published one, it is ignored.
    #[must_use]
    pub fn suggested(&self, published: &Self) -> Self {
        let mut published = published.clone();
        for entry in &mut published.set {
            entry.named = false;
        }
        self.over(&published)
    }

    /// Sets what is known to be valid; a block longer than any request may name stays unnamed.
    fn put(&mut self, name: &str, value: Value<'_>) {
        let done = self.set(name, value);
        debug_assert!(done.is_ok() || name == "block_length", "{done:?}");
    }

    pub(super) fn of_preset(&self, preset: &Preset) -> Self {
        let mut spec = self.blank();
        for (name, value) in preset.settings() {
            let set = spec.set(name, value);
            set.expect("presets hold valid settings, by test");
        }
        spec
    }

    pub(super) fn get(&self, name: &str) -> Option<Value<'static>> {
        let found = self.set.iter().find(|entry| entry.name == name);
        found.map(|entry| entry.value)
    }

    pub(super) fn name(&self, name: &str) -> Option<&'static str> {
        match self.get(name) {
            Some(Value::Name(value)) => Some(value),
            _ => None,
        }
    }

    pub(super) fn attention(&self) -> Option<AttentionKind> {
        self.attention
    }
}

/// As [`DecodingSpec::parse`] reads it, the preset first.
impl std::fmt::Display for DecodingSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let preset = self.name("preset");
        f.write_str(preset.unwrap_or(presets::DEFAULT))?;
        for (name, value) in self.settings().filter(|(name, _)| *name != "preset") {
            write!(f, ",{name}={value}")?;
        }
        Ok(())
    }
}

/// At most 64 characters of a caller's text may come back in a message.
fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}

pub(super) fn error(field: &str, fault: SpecFault, message: String) -> SpecError {
    SpecError { field: clip(field), fault, message }
}
