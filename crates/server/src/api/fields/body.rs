//! Reading a JSON body into request structs: strict syntax first, then typed fields by path.
//!
//! A body is scanned once. Several structs may then read it, each the fields that it declares, so that
//! every value is parsed once too. A fault of a field becomes an [`ApiError`] here: serde's own words name the wrong types, the words of
//! [`super::types`] the wrong values, `serde_path_to_error` the field.

use std::collections::HashSet;
use std::fmt;

use engine::did_you_mean;
use serde::de::value::MapDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::value::RawValue;
use serde_path_to_error::{Path, Segment};

use super::types::{Members, REQUIRED};
use crate::error::{ApiError, ErrorCode, clip};

/// Maximum number of values of a body, not counting the members of integer lists.
pub(super) const MAX_VALUES: usize = 1 << 18;
/// Maximum number of members of all integer lists of a body.
const MAX_INTEGERS: usize = 1 << 21;

/// The bytes of one JSON object: valid syntax, no key twice in an object, at most 128 levels deep,
/// at most 2^18 values and 2^21 more in lists of integers.
#[derive(Clone, Debug)]
pub struct JsonBody<'a>(Vec<(String, &'a RawValue)>);

impl<'a> JsonBody<'a> {
    /// Checks the syntax of `bytes`.
    ///
    /// # Errors
    /// `invalid_json`.
    pub fn new(bytes: &'a [u8]) -> Result<Self, ApiError> {
        let invalid = |problem: String| {
            let message = format!("the body is not valid JSON: {problem}");
            ApiError::new(ErrorCode::InvalidJson, message)
        };
        if bytes.is_empty() {
            return Err(invalid("it is empty".to_owned()));
        }
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        let mut left = ValueBudget { values: MAX_VALUES, integers: MAX_INTEGERS };
        let kind = Walk(&mut left)
            .deserialize(&mut reader)
            .and_then(|kind| reader.end().map(|()| kind))
            .map_err(|error| invalid(reason(&error)))?;
        match kind {
            Kind::Object => {
                let members: Members<&RawValue> =
                    serde_json::from_slice(bytes).map_err(|error| invalid(reason(&error)))?;
                Ok(Self(members.0))
            }
            other => {
                let message = format!("the body must be a JSON object, got {}", other.name());
                Err(ApiError::new(ErrorCode::InvalidJson, message))
            }
        }
    }

    /// Reads the fields that `T` declares; all others are ignored.
    ///
    /// # Errors
    /// `missing_required_parameter`, `invalid_type`, `invalid_value`; `param` is the field's path.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let names = names::<T>();
        let fields = self.fields().filter(|(name, _)| names.contains(name));
        serde_path_to_error::deserialize(MapDeserializer::new(fields))
            .map_err(|error| fault("", &error))
    }

    /// All fields that are not null.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        let fields = self.0.iter().map(|(name, value)| (name.as_str(), *value));
        fields.filter(|(_, value)| value.get() != "null")
    }
}

/// The names of the fields that the struct `T` reads.
pub(super) fn names<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // The struct is never made: the names come first.
    let _ = T::deserialize(Names(&mut names));
    names
}

/// Notes the names of the fields of a struct, and ends.
struct Names<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("no struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(Self::Error::custom("only the names are read"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Reads the fields that `T` declares from the object `value` of the field `prefix`.
///
/// # Errors
/// As [`JsonBody::read`]; paths begin with `prefix`.
pub fn read_value<T: DeserializeOwned>(
    prefix: &str,
    value: serde_json::Value,
) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| fault(prefix, &error))
}

/// The reason why a text is no JSON, with the position.
pub(super) fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // The library's words for what only its source explains.
    let plain = [
        ("expected ident", "expected true, false or null"),
        ("recursion limit exceeded", "more than 128 levels"),
        ("EOF while parsing", "the end came while parsing"),
    ];
    let known = plain.iter().find(|(words, _)| text.starts_with(words));
    known.map_or(text.clone(), |(words, plain)| text.replacen(words, plain, 1))
}

/// The API's error for `error`, whose path begins below the field `prefix`.
fn fault(prefix: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> ApiError {
    let param = param(prefix, error.path());
    let (inner, text) = (error.inner(), error.inner().to_string());
    let position = format!(" at line {} column {}", inner.line(), inner.column());
    let text = text.strip_suffix(&position).unwrap_or(&text);
    let missing = text.strip_prefix("missing field `");
    if let Some(field) = missing.and_then(|rest| rest.strip_suffix('`')) {
        return required(&join(param, field));
    }
    if text == REQUIRED {
        return required(&param);
    }
    if let Some(rest) = unknown_key(error.path(), text) {
        return ApiError::field(ErrorCode::UnknownParameter, param, rest);
    }
    let wrong_type = text.strip_prefix("invalid type: ");
    match wrong_type.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((found, expected)) => {
            let rest = format!("must be {expected}, got {}", kind_of(found));
            ApiError::field(ErrorCode::InvalidType, param, rest)
        }
        None => ApiError::field(ErrorCode::InvalidValue, param, text),
    }
}

/// The fault of a key at `path` that an object of known keys lacks, if serde's `text` tells one.
fn unknown_key(path: &Path, text: &str) -> Option<String> {
    let (_, known) = text.strip_prefix("unknown field `")?.rsplit_once("`, expected ")?;
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    let hint = match path.iter().next_back() {
        Some(Segment::Map { key }) => did_you_mean(key, known.iter().copied()),
        _ => String::new(),
    };
    Some(format!("is not known{hint}; known are {}", known.join(", ")))
}

/// `missing_required_parameter` of the field `param`.
pub fn required(param: &str) -> ApiError {
    ApiError::field(ErrorCode::MissingRequiredParameter, param, REQUIRED)
}

/// `prefix` and `path` as errors name a field: `messages[0].content`.
fn param(prefix: &str, path: &Path) -> String {
    path.iter().fold(prefix.to_owned(), |param, segment| match segment {
        Segment::Seq { index } => format!("{param}[{index}]"),
        Segment::Map { key } | Segment::Enum { variant: key } => join(param, key),
        Segment::Unknown => param,
    })
}

fn join(parent: String, key: &str) -> String {
    match parent.as_str() {
        "" => clip(key),
        _ => format!("{parent}.{}", clip(key)),
    }
}

/// The type that serde found. The value is left out: it may be long or secret.
fn kind_of(found: &str) -> &'static str {
    const KINDS: [(&str, Kind); 7] = [
        ("null", Kind::Null),
        ("boolean", Kind::Bool),
        ("integer", Kind::Integer),
        ("floating point", Kind::Number),
        ("string", Kind::Text),
        ("sequence", Kind::List),
        ("map", Kind::Object),
    ];
    let kind = KINDS.iter().find(|(word, _)| found.starts_with(word));
    kind.map_or("another type", |(_, kind)| kind.name())
}

/// The type of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Null,
    Bool,
    Integer,
    Number,
    Text,
    List,
    Object,
}

impl Kind {
    /// With an article, for messages.
    fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Text => "a string",
            Self::List => "a list",
            Self::Object => "an object",
        }
    }
}

/// Numbers of values that a body may still have.
struct ValueBudget {
    values: usize,
    integers: usize,
}

/// Walks one value without keeping it; counts its parts against what is left.
struct Walk<'a>(&'a mut ValueBudget);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Kind;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Kind;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Kind, E> {
        Ok(Kind::Bool)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Kind, E> {
        Ok(Kind::Integer)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Kind, E> {
        Ok(Kind::Integer)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Kind, E> {
        Ok(Kind::Number)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Kind, E> {
        Ok(Kind::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Kind, A::Error> {
        let (mut integers, mut mixed) = (0, false);
        while let Some(kind) = list.next_element_seed(Walk(self.0))? {
            if kind == Kind::Integer && !mixed {
                integers += 1;
                take(&mut self.0.integers, 1)?;
            } else {
                take(&mut self.0.values, 1 + std::mem::take(&mut integers))?;
                mixed = true;
            }
        }
        Ok(Kind::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            take(&mut self.0.values, 1)?;
            if keys.contains(&key) {
                let key = clip(&key);
                return Err(A::Error::custom(format_args!("the key \"{key}\" twice")));
            }
            keys.insert(key);
            map.next_value_seed(Walk(self.0))?;
        }
        Ok(Kind::Object)
    }
}

fn take<E: Error>(left: &mut usize, count: usize) -> Result<(), E> {
    *left = left.checked_sub(count).ok_or_else(|| E::custom("too many values"))?;
    Ok(())
}

#[cfg(test)]
mod tests;
