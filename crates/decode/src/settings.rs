//! Settings that a schedule, commit rule or cache policy reads: name, type, range, default, value.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::numbers::to_double;

/// One setting, as the file that reads it declares it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SettingInfo {
    /// Name in the `diffusion` object of a request and in configuration files.
    pub name: &'static str,
    /// Type and allowed values. Every reader of a setting declares the same.
    pub kind: SettingKind,
    /// The value if neither the caller nor the preset names one. Readers may differ in it.
    pub default: SettingDefault,
    /// The effect of the setting, in one line.
    pub summary: &'static str,
}

/// Type and allowed values of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SettingKind {
    /// One of these names.
    Name(&'static [&'static str]),
    /// An integer in an inclusive range.
    Integer(i64, i64),
    /// A finite number in an inclusive range.
    Number(f64, f64),
    /// A boolean.
    Flag,
    /// One of these names, or an integer in an inclusive range.
    NameOrInteger(&'static [&'static str], i64, i64),
}

/// The default of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SettingDefault {
    /// This value.
    Value(Value<'static>),
    /// No value: the reader derives what it needs, as these words say.
    Derived(&'static str),
}

/// A value of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A string.
    Name(&'a str),
    /// An integer literal; it counts as a number too.
    Integer(i64),
    /// A number that is no integer literal.
    Number(f64),
    /// A boolean.
    Flag(bool),
}

/// The fault of a value that a setting does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The wrong type.
    Type,
    /// The right type outside the allowed values.
    Range,
}

/// The upper end of integer settings without a bound of their own.
pub const UNBOUNDED: i64 = (1 << u32::BITS) - 1;

/// Characters of a caller's text that a message repeats at most.
const CLIP: usize = 64;

impl SettingInfo {
    /// A number in `range`.
    pub const fn number(name: &'static str, range: RangeInclusive<f64>, default: f64) -> Self {
        let kind = SettingKind::Number(*range.start(), *range.end());
        Self::new(name, kind, Value::Number(default))
    }

    /// An integer in `range`, within `0..=UNBOUNDED`.
    pub const fn integer(name: &'static str, range: RangeInclusive<i64>, default: i64) -> Self {
        let kind = SettingKind::Integer(*range.start(), *range.end());
        Self::new(name, kind, Value::Integer(default))
    }

    /// One of `names`.
    pub const fn name(
        name: &'static str,
        names: &'static [&'static str],
        default: &'static str,
    ) -> Self {
        Self::new(name, SettingKind::Name(names), Value::Name(default))
    }

    /// True or false.
    pub const fn flag(name: &'static str, default: bool) -> Self {
        Self::new(name, SettingKind::Flag, Value::Flag(default))
    }

    /// A setting of any kind, without a summary.
    pub const fn new(name: &'static str, kind: SettingKind, default: Value<'static>) -> Self {
        Self { name, kind, default: SettingDefault::Value(default), summary: "" }
    }

    /// With no default value: `words` say what the reader takes instead.
    #[must_use]
    pub const fn derived(self, words: &'static str) -> Self {
        Self { default: SettingDefault::Derived(words), ..self }
    }

    /// With a summary.
    #[must_use]
    pub const fn says(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }
}

impl SettingKind {
    /// The allowed values in words, for messages and documents.
    pub fn describe(&self) -> String {
        match self {
            Self::Name(names) => format!("one of {}", names.join(", ")),
            Self::Integer(min, UNBOUNDED) => format!("an integer >= {min}"),
            Self::Integer(min, max) => format!("an integer in {min}..{max}"),
            Self::Number(f64::MIN_POSITIVE, f64::MAX) => "a number > 0".to_owned(),
            Self::Number(min, f64::MAX) => format!("a number >= {min}"),
            Self::Number(min, max) => format!("a number in {min}..{max}"),
            Self::Flag => "true or false".to_owned(),
            Self::NameOrInteger(names, min, _) => {
                format!("one of {}, or an integer >= {min}", names.join(", "))
            }
        }
    }

    /// `value` as this kind holds it: an integer for a number becomes one.
    ///
    /// # Errors
    /// A value of another type, or outside the allowed ones.
    pub fn check(&self, value: Value<'_>) -> Result<Value<'static>, Mismatch> {
        let allowed = match (*self, value) {
            (Self::Name(names) | Self::NameOrInteger(names, ..), Value::Name(text)) => {
                let found = names.iter().find(|name| **name == text);
                found.map(|name| Value::Name(name))
            }
            (
                Self::Integer(min, max) | Self::NameOrInteger(_, min, max),
                Value::Integer(integer),
            ) => (min..=max).contains(&integer).then_some(Value::Integer(integer)),
            (Self::Number(min, max), Value::Integer(_) | Value::Number(_)) => {
                let number = value.as_number().filter(|number| (min..=max).contains(number));
                number.map(Value::Number)
            }
            (Self::Flag, Value::Flag(flag)) => Some(Value::Flag(flag)),
            _ => return Err(Mismatch::Type),
        };
        allowed.ok_or(Mismatch::Range)
    }
}

impl Value<'_> {
    /// As messages repeat it: strings quoted and cut to 64 characters.
    pub fn in_words(&self) -> String {
        match self {
            Self::Name(text) => format!("\"{}\"", text.chars().take(CLIP).collect::<String>()),
            other => format!("{other}"),
        }
    }

    /// The number, if it is one.
    pub fn as_number(&self) -> Option<f64> {
        match *self {
            Self::Integer(integer) => Some(to_double(integer)),
            Self::Number(number) => Some(number),
            Self::Name(_) | Self::Flag(_) => None,
        }
    }

    /// The integer, if it is one in `0..=u32::MAX`.
    pub fn as_count(&self) -> Option<u32> {
        match *self {
            Self::Integer(integer) => u32::try_from(integer).ok(),
            _ => None,
        }
    }
}

/// As configuration files and the command line write it.
impl core::fmt::Display for Value<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Name(name) => name.fmt(out),
            Self::Integer(integer) => integer.fmt(out),
            Self::Number(number) => number.fmt(out),
            Self::Flag(flag) => flag.fmt(out),
        }
    }
}

macro_rules! values {
    ($($kind:ty => $value:expr),+) => {
        $(impl From<$kind> for Value<'_> {
            fn from(value: $kind) -> Self {
                $value(value.into())
            }
        })+
    };
}

values!(f64 => Self::Number, u32 => Self::Integer, bool => Self::Flag);

impl<'a> From<&'a str> for Value<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

/// The values of the settings that one schedule, commit rule or cache policy declares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    values: Vec<(&'static str, Option<Value<'static>>)>,
}

impl Settings {
    /// The defaults of `declared`.
    pub fn defaults(declared: &[SettingInfo]) -> Self {
        let default = |setting: &SettingInfo| match setting.default {
            SettingDefault::Value(value) => (setting.name, Some(value)),
            SettingDefault::Derived(_) => (setting.name, None),
        };
        Self { values: declared.iter().map(default).collect() }
    }

    /// Replaces the value of `name`; false if no such setting is declared. The range is not
    /// checked: [`SettingKind::check`] does that for values from outside.
    pub fn set(&mut self, name: &str, value: Value<'static>) -> bool {
        let found = self.values.iter_mut().find(|(known, _)| *known == name);
        found.map(|(_, stored)| *stored = Some(value)).is_some()
    }

    /// The value of `name`, if it is declared and has one.
    pub fn get(&self, name: &str) -> Option<Value<'static>> {
        let found = self.values.iter().find(|(known, _)| *known == name);
        found.and_then(|(_, value)| *value)
    }

    /// Every declared setting that has a value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Value<'static>)> {
        let set = |(name, value): &(_, Option<_>)| value.map(|value| (*name, value));
        self.values.iter().filter_map(set)
    }

    /// The value of a number setting; 0 if it has none.
    pub fn number(&self, setting: &SettingInfo) -> f64 {
        self.value(setting).and_then(|value| value.as_number()).unwrap_or(0.0)
    }

    /// The value of an integer setting; 0 if it has none.
    pub fn count(&self, setting: &SettingInfo) -> u32 {
        self.value(setting).and_then(|value| value.as_count()).unwrap_or(0)
    }

    /// The value of a flag; false if it has none.
    pub fn flag(&self, setting: &SettingInfo) -> bool {
        self.value(setting) == Some(Value::Flag(true))
    }

    /// The value of a name setting; empty if it has none.
    pub fn name(&self, setting: &SettingInfo) -> &'static str {
        match self.value(setting) {
            Some(Value::Name(name)) => name,
            _ => "",
        }
    }

    /// The value of a setting, if it has one.
    pub fn value(&self, setting: &SettingInfo) -> Option<Value<'static>> {
        debug_assert!(
            self.values.iter().any(|(known, _)| *known == setting.name),
            "{} is not declared",
            setting.name
        );
        self.get(setting.name)
    }
}
