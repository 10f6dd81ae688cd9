//! Settings of a decoder as a caller names them, checked for type and range.

use step::{Attention, Readout};

use super::Decoding;
use super::field::{FIELDS, Field, FieldKind, Value};
use super::presets::{self, Preset};
use super::resolve::Resolver;

/// Settings as a caller named them, each checked for type and range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecodingSpec {
    set: Vec<(&'static Field, Setting)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Setting {
    Name(&'static str),
    Integer(i64),
    Number(f64),
    Flag(bool),
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {message}")]
pub struct SpecError {
    /// The field's name as the caller wrote it.
    pub field: String,
    /// What kind of fault.
    pub fault: SpecFault,
    /// What is wrong and what is allowed; reads on from the field's name.
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

/// Length of the sub-blocks of Fast-dLLM v2 (arXiv 2509.26328).
const SUB_BLOCK: u32 = 8;

impl DecodingSpec {
    /// Sets `name` to `value`, replacing an earlier value.
    ///
    /// # Errors
    /// Unknown field, wrong type, value out of range.
    pub fn set(&mut self, name: &str, value: Value<'_>) -> Result<(), SpecError> {
        let field = FIELDS
            .iter()
            .find(|field| field.name == name)
            .ok_or_else(|| {
                let known: Vec<_> = FIELDS.iter().map(|field| field.name).collect();
                error(
                    name,
                    SpecFault::Unknown,
                    format!("is not known; known are {}", known.join(", ")),
                )
            })?;
        let setting = check(field, value)?;
        self.set.retain(|(known, _)| known.name != name);
        self.set.push((field, setting));
        Ok(())
    }

    /// Reads `key=value,key=value`; an item without `=` is a preset's name.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let mut spec = Self::default();
        for item in text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            let (name, value) = item.split_once('=').unwrap_or(("preset", item));
            let value = value.trim();
            let parsed = match value {
                "true" => Value::Flag(true),
                "false" => Value::Flag(false),
                _ => value
                    .parse()
                    .map(Value::Integer)
                    .unwrap_or_else(|_| value.parse().map_or(Value::Name(value), Value::Number)),
            };
            spec.set(name.trim(), parsed)?;
        }
        Ok(spec)
    }

    /// What was set, by public name, in the order it was set.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, Value<'static>)> {
        self.set.iter().map(|(field, setting)| {
            let value = match *setting {
                Setting::Name(name) => Value::Name(name),
                Setting::Integer(number) => Value::Integer(number),
                Setting::Number(number) => Value::Number(number),
                Setting::Flag(flag) => Value::Flag(flag),
            };
            (field.name, value)
        })
    }

    /// Puts the settings of `self` over those of `base`.
    pub fn over(&self, base: &Self) -> Self {
        let mut merged = self.clone();
        for (field, setting) in &base.set {
            if merged.get(field.name).is_none() {
                merged.set.push((field, *setting));
            }
        }
        merged
    }

    /// These settings over what suits weights trained with `attention` and read at `readout`: their
    /// preset where none is named, and blocks as long as the model's or, where predictions are read
    /// a row before (Fast-dLLM v2), its sub-blocks of 8.
    #[must_use]
    pub fn suited_to(&self, attention: Attention, readout: Readout) -> Self {
        let mut base = Self::default();
        if self.get("preset").is_none() {
            base.put("preset", Value::Name(presets::default_preset(attention)));
        }
        if let Attention::Blocks(length) = attention
            && self.get("block_length").is_none()
        {
            let length = match readout {
                Readout::Own => length,
                Readout::Previous => length.min(SUB_BLOCK),
            };
            base.put("block_length", Value::Integer(i64::from(length)));
        }
        self.over(&base)
    }

    /// Sets what is known to be valid; a block longer than any request may name stays unnamed.
    fn put(&mut self, name: &str, value: Value<'_>) {
        let done = self.set(name, value);
        debug_assert!(done.is_ok() || name == "block_length", "{done:?}");
    }

    /// The decoder these settings describe. What is not set comes from the preset where it has
    /// the same schedule (and cache), else from the field's default.
    ///
    /// # Errors
    /// A field that the chosen policies do not read, or policies that do not go together.
    pub fn resolve(&self) -> Result<Decoding, SpecError> {
        let name = self.name("preset").unwrap_or(presets::DEFAULT);
        let preset = presets::preset(name).expect("preset names are checked when set");
        Resolver {
            spec: self,
            preset: Self::of_preset(preset),
        }
        .resolve()
    }

    fn of_preset(preset: &Preset) -> Self {
        let mut spec = Self::default();
        for (name, value) in preset.fields {
            spec.set(name, *value)
                .expect("presets hold valid settings, by test");
        }
        spec
    }

    pub(super) fn get(&self, name: &str) -> Option<Setting> {
        self.set
            .iter()
            .find(|(field, _)| field.name == name)
            .map(|(_, setting)| *setting)
    }

    pub(super) fn name(&self, name: &str) -> Option<&'static str> {
        match self.get(name) {
            Some(Setting::Name(value)) => Some(value),
            _ => None,
        }
    }
}

/// As [`DecodingSpec::parse`] reads it, the preset first.
impl std::fmt::Display for DecodingSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let preset = self.name("preset");
        f.write_str(preset.unwrap_or(presets::DEFAULT))?;
        for (name, value) in self.settings().filter(|(name, _)| *name != "preset") {
            match value {
                Value::Name(text) => write!(f, ",{name}={text}")?,
                Value::Integer(number) => write!(f, ",{name}={number}")?,
                Value::Number(number) => write!(f, ",{name}={number}")?,
                Value::Flag(flag) => write!(f, ",{name}={flag}")?,
            }
        }
        Ok(())
    }
}

fn check(field: &Field, value: Value<'_>) -> Result<Setting, SpecError> {
    let fault = |fault, found: String| {
        Err(error(
            field.name,
            fault,
            format!("must be {}, got {found}", field.kind.describe()),
        ))
    };
    let find = |names: &[&'static str], text: &str| names.iter().copied().find(|n| *n == text);
    match (field.kind, value) {
        (FieldKind::Name(names) | FieldKind::NameOrInteger(names, ..), Value::Name(text)) => {
            match find(names, text) {
                Some(name) => Ok(Setting::Name(name)),
                None => fault(SpecFault::Value, format!("\"{}\"", clip(text))),
            }
        }
        (
            FieldKind::Integer(min, max) | FieldKind::NameOrInteger(_, min, max),
            Value::Integer(n),
        ) => {
            if (min..=max).contains(&n) {
                Ok(Setting::Integer(n))
            } else {
                fault(SpecFault::Value, n.to_string())
            }
        }
        (FieldKind::Number(min, max), Value::Integer(_) | Value::Number(_)) => {
            let number = match value {
                Value::Integer(n) => n as f64,
                Value::Number(n) => n,
                Value::Name(_) | Value::Flag(_) => f64::NAN,
            };
            if (min..=max).contains(&number) {
                Ok(Setting::Number(number))
            } else {
                fault(SpecFault::Value, number.to_string())
            }
        }
        (FieldKind::Flag, Value::Flag(flag)) => Ok(Setting::Flag(flag)),
        (_, Value::Name(text)) => fault(SpecFault::Type, format!("\"{}\"", clip(text))),
        (_, Value::Integer(n)) => fault(SpecFault::Type, n.to_string()),
        (_, Value::Number(n)) => fault(SpecFault::Type, n.to_string()),
        (_, Value::Flag(flag)) => fault(SpecFault::Type, flag.to_string()),
    }
}

/// At most 64 characters of a caller's text may come back in a message.
fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}

pub(super) fn error(field: &str, fault: SpecFault, message: String) -> SpecError {
    SpecError {
        field: clip(field),
        fault,
        message,
    }
}
