//! Numbers in request fields: each type knows its range.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::schema::schema;
use crate::error::clip;

/// Maximum of a count; larger ones exceed every limit of a model anyway.
pub const MAX_COUNT: i64 = u32::MAX as i64;

/// An integer in `MIN..=MAX`; `1.0` is one, `1.5` is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int<const MIN: i64, const MAX: i64>(i64);

/// A count of at least `MIN`; what exceeds 32 bits counts as the largest of them.
pub type Count<const MIN: i64> = Int<MIN, { i64::MAX }>;

impl<const MIN: i64, const MAX: i64> Int<MIN, MAX> {
    /// The integer.
    pub fn get(self) -> i64 {
        self.0
    }

    /// The integer as a byte: 0 if negative, at most 255.
    pub fn byte(self) -> u8 {
        u8::try_from(self.0.max(0)).unwrap_or(u8::MAX)
    }

    /// The integer as a count: 0 if negative, at most `u32::MAX`.
    pub fn count(self) -> u32 {
        u32::try_from(self.0.max(0)).unwrap_or(u32::MAX)
    }
}

impl<'de, const MIN: i64, const MAX: i64> Deserialize<'de> for Int<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = IntVisitor { min: MIN, max: MAX, words: None };
        deserializer.deserialize_any(visitor).map(Self)
    }
}

impl<const MIN: i64, const MAX: i64> JsonSchema for Int<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Int_{MIN}_{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = json_schema!({"type": "integer"});
        if MIN > i64::MIN {
            schema.insert("minimum".to_owned(), MIN.into());
        }
        if MAX < MAX_COUNT {
            schema.insert("maximum".to_owned(), MAX.into());
        }
        schema
    }
}

impl<const MAX: i64> Default for Int<0, MAX> {
    fn default() -> Self {
        Self(0)
    }
}

/// A number where a token id belongs; the vocabulary is checked later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenNumber(pub i64);

schema!(TokenNumber, _ => json_schema!({"type": "integer", "minimum": 0}));

impl TokenNumber {
    const VISITOR: IntVisitor =
        IntVisitor { min: i64::MIN, max: i64::MAX, words: Some("a token id") };

    /// `number`.
    ///
    /// # Errors
    /// More than 63 bits.
    pub fn new<E: Error>(number: u64) -> Result<Self, E> {
        Self::VISITOR.visit_u64(number).map(Self)
    }

    /// `number`.
    ///
    /// # Errors
    /// No integer, or one of more than 53 bits.
    pub fn float<E: Error>(number: f64) -> Result<Self, E> {
        Self::VISITOR.visit_f64(number).map(Self)
    }
}

impl<'de> Deserialize<'de> for TokenNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self::VISITOR).map(Self)
    }
}

struct IntVisitor {
    min: i64,
    max: i64,
    /// The expected value in words, if the range does not say it.
    words: Option<&'static str>,
}

impl IntVisitor {
    /// The fault of an integer above the range, whose end it names.
    fn above<E: Error>(&self, found: &dyn fmt::Display) -> E {
        match (self.words, self.min) {
            (None, min) if min > i64::MIN => {
                outside(&format_args!("an integer in {min}..{}", self.max), found)
            }
            _ => outside(&Expected(self), found),
        }
    }
}

impl<'de> Visitor<'de> for IntVisitor {
    type Value = i64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(words) = self.words {
            return formatter.write_str(words);
        }
        match (self.min, self.max) {
            (i64::MIN, i64::MAX) => formatter.write_str("a 64-bit integer"),
            (min, max) if max >= MAX_COUNT => write!(formatter, "an integer of at least {min}"),
            (min, max) => write!(formatter, "an integer in {min}..{max}"),
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<i64, E> {
        match (self.min..=self.max).contains(&value) {
            true => Ok(value),
            false if value > self.max => Err(self.above(&value)),
            false => Err(outside(&Expected(&self), &value)),
        }
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<i64, E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => Err(self.above(&value)),
        }
    }

    /// Integers beyond 64 bits arrive here too; no range holds them.
    fn visit_f64<E: Error>(self, value: f64) -> Result<i64, E> {
        match integer(value) {
            Some(value) => self.visit_i64(value),
            None if value >= 2f64.powi(63) => Err(self.above(&value)),
            None if value <= -2f64.powi(63) => Err(outside(&Expected(&self), &value)),
            None => Err(E::invalid_type(Unexpected::Float(value), &self)),
        }
    }
}

/// The integer that `number` is, up to 2^53: a larger one may have been rounded when it was read.
pub fn integer(number: f64) -> Option<i64> {
    let is_exact = number.fract() == 0.0 && number.abs() <= 2f64.powi(53);
    is_exact.then_some(number as i64)
}

/// The expected value of a visitor, in words.
struct Expected<'a, V>(&'a V);

impl<'de, V: Visitor<'de>> fmt::Display for Expected<'_, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }
}

fn outside<E: Error>(expected: &dyn fmt::Display, found: &dyn fmt::Display) -> E {
    let found = clip(&found.to_string());
    E::custom(format_args!("must be {expected}, got {found}"))
}

/// Declares a newtype of numbers in a range, however they are written.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident: $range:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name(pub f64);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(NumberVisitor($range)).map(Self)
            }
        }

        schema!($name, _ => json_schema!({
            "type": "number",
            "minimum": $range.start(),
            "maximum": $range.end(),
        }));
    };
}

number!(
    /// `temperature`; 0 is greedy.
    Temperature: 0.0..=2.0
);
number!(
    /// The divisor of the log-probabilities of options.
    ReadTemperature: 0.01..=100.0
);
number!(
    /// A share of probability.
    Share: 0.0..=1.0
);
number!(
    /// `frequency_penalty` and `presence_penalty`, in logits.
    Penalty: -2.0..=2.0
);
number!(
    /// `repetition_penalty`: far enough from 0 that no logit leaves its number format.
    RepetitionPenalty: 0.01..=100.0
);
number!(
    /// An amount of `logit_bias`, in logits.
    BiasAmount: -100.0..=100.0
);

struct NumberVisitor(RangeInclusive<f64>);

impl<'de> Visitor<'de> for NumberVisitor {
    type Value = f64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
        let (start, end) = (self.0.start(), self.0.end());
        match self.0.contains(&value) {
            true => Ok(value),
            false => Err(outside(&format_args!("in {start}..{end}"), &value)),
        }
    }
}
