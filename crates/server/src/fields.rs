//! Typed reading of one JSON object: strict types, ranges, and errors that name the field.

use std::ops::RangeInclusive;

use crate::error::{ApiError, ErrorCode, clip};
use crate::json::{Json, Object};

/// Reads the members of one object. `null` counts as absent everywhere.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    object: &'a Object,
    prefix: &'a str,
}

impl<'a> Fields<'a> {
    /// Reads `object`; its fields are named `prefix` + key in errors.
    pub fn new(object: &'a Object, prefix: &'a str) -> Self {
        Self { object, prefix }
    }

    /// The full name of `name`, as errors give it.
    pub fn param(&self, name: &str) -> String {
        format!("{}{}", self.prefix, clip(name))
    }

    /// The value of `name`, unless absent or `null`.
    pub fn get(&self, name: &str) -> Option<&'a Json> {
        self.object.get(name).filter(|value| **value != Json::Null)
    }

    /// The value of `name`.
    ///
    /// # Errors
    /// `missing_required_parameter`.
    pub fn required(&self, name: &str) -> Result<&'a Json, ApiError> {
        self.get(name).ok_or_else(|| {
            let code = ErrorCode::MissingRequiredParameter;
            ApiError::field(code, self.param(name), "is required")
        })
    }

    /// A boolean.
    ///
    /// # Errors
    /// `invalid_type`.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong_type(self.param(name), "true or false", other)),
        }
    }

    /// A string.
    ///
    /// # Errors
    /// `invalid_type`.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.get(name)
            .map(|value| text(value, || self.param(name)))
            .transpose()
    }

    /// An integer in `range`.
    ///
    /// # Errors
    /// `invalid_type`, `invalid_value`.
    pub fn integer(&self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, ApiError> {
        self.get(name)
            .map(|value| integer(value, &range, || self.param(name)))
            .transpose()
    }

    /// A number in `range`, however written.
    ///
    /// # Errors
    /// `invalid_type`, `invalid_value`.
    pub fn number(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, ApiError> {
        self.get(name)
            .map(|value| number(value, &range, || self.param(name)))
            .transpose()
    }

    /// A list; integers come as [`Json::Integer`] members.
    ///
    /// # Errors
    /// `invalid_type`.
    pub fn list(&self, name: &str) -> Result<Option<Vec<Json>>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::List(items)) => Ok(Some(items.clone())),
            Some(Json::Integers(items)) => {
                Ok(Some(items.iter().copied().map(Json::Integer).collect()))
            }
            Some(other) => Err(wrong_type(self.param(name), "a list", other)),
        }
    }

    /// An object.
    ///
    /// # Errors
    /// `invalid_type`.
    pub fn object(&self, name: &str) -> Result<Option<&'a Object>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::Object(object)) => Ok(Some(object)),
            Some(other) => Err(wrong_type(self.param(name), "an object", other)),
        }
    }
}

/// A string value.
///
/// # Errors
/// `invalid_type`.
pub fn text(value: &Json, param: impl FnOnce() -> String) -> Result<&str, ApiError> {
    match value {
        Json::Text(text) => Ok(text),
        other => Err(wrong_type(param(), "a string", other)),
    }
}

/// An integer value in `range`.
///
/// # Errors
/// `invalid_type`, `invalid_value`.
pub fn integer(
    value: &Json,
    range: &RangeInclusive<i64>,
    param: impl FnOnce() -> String,
) -> Result<i64, ApiError> {
    match value {
        Json::Integer(value) if range.contains(value) => Ok(*value),
        Json::Integer(value) => Err(out_of_range(param(), &integers(range), *value)),
        // Integers beyond 64 bits arrive as floating point; no range here holds them.
        Json::Number(value) if value.fract() == 0.0 && value.abs() >= 2f64.powi(63) => {
            Err(out_of_range(param(), &integers(range), *value))
        }
        other => Err(wrong_type(param(), &integers(range), other)),
    }
}

/// A number in `range`.
///
/// # Errors
/// `invalid_type`, `invalid_value`.
pub fn number(
    value: &Json,
    range: &RangeInclusive<f64>,
    param: impl FnOnce() -> String,
) -> Result<f64, ApiError> {
    let number = match value {
        Json::Integer(value) => *value as f64,
        Json::Number(value) => *value,
        other => return Err(wrong_type(param(), "a number", other)),
    };
    if range.contains(&number) {
        return Ok(number);
    }
    let allowed = match (range.start(), range.end()) {
        (start, end) if end.is_infinite() => format!("at least {start}"),
        (start, end) => format!("in {start}..{end}"),
    };
    Err(out_of_range(param(), &allowed, number))
}

/// `invalid_type`: `param` must be `expected`.
pub fn wrong_type(param: String, expected: &str, found: &Json) -> ApiError {
    let rest = format!("must be {expected}, got {}", found.kind());
    ApiError::field(ErrorCode::InvalidType, param, rest)
}

fn out_of_range(param: String, allowed: &str, found: impl ToString) -> ApiError {
    let rest = format!("must be {allowed}, got {}", clip(&found.to_string()));
    ApiError::field(ErrorCode::InvalidValue, param, rest)
}

fn integers(range: &RangeInclusive<i64>) -> String {
    match (*range.start(), *range.end()) {
        (i64::MIN, i64::MAX) => "a 64-bit integer".to_owned(),
        (start, end) if end >= i64::from(u32::MAX) => format!("an integer of at least {start}"),
        (start, end) => format!("an integer in {start}..{end}"),
    }
}
