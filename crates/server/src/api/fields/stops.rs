//! What ends an answer early: stop strings and stop tokens.

use std::fmt;

use schemars::json_schema;
use serde::de::{Error, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use step::TokenId;

use super::prompt::token_ids;
use super::schema::schema;
use super::types::{List, TokenNumber};
use crate::error::{ApiError, ErrorCode};

const MAX_STOPS: usize = 64;
const MAX_STOP_CHARS: usize = 1024;
/// Most bytes of all stop strings of a request.
const MAX_STOP_BYTES: usize = MAX_STOPS * MAX_STOP_CHARS;

/// `stop`: one string or a list of strings.
#[derive(Clone, Debug, Default)]
pub struct StopStrings(pub Vec<String>);

/// Adds the stop strings `more` of the field `param` to `stops`.
///
/// # Errors
/// Too many, one that is empty or too long.
pub fn add(stops: &mut Vec<String>, param: &str, more: &[String]) -> Result<(), ApiError> {
    let found = stops.len() + more.len();
    if found > MAX_STOPS {
        return Err(invalid(param, too_many(found)));
    }
    for (index, stop) in more.iter().enumerate() {
        let checked = check_stop::<serde_json::Error>(stop.clone());
        let checked =
            checked.map_err(|error| invalid(&format!("{param}[{index}]"), error.to_string()))?;
        stops.push(checked);
    }
    Ok(())
}

/// Checks the bytes of all stop strings together.
///
/// # Errors
/// Too many bytes.
pub fn check_size(stops: &[String]) -> Result<(), ApiError> {
    let bytes: usize = stops.iter().map(String::len).sum();
    if bytes <= MAX_STOP_BYTES {
        return Ok(());
    }
    let rest = format!("must have at most {MAX_STOP_BYTES} bytes in all, got {bytes}");
    Err(invalid("stop", rest))
}

/// `stop_token_ids`.
///
/// # Errors
/// Too many, one outside `0..vocab_size`.
pub fn stop_tokens(
    given: Option<&List<TokenNumber>>,
    vocab_size: u32,
) -> Result<Vec<TokenId>, ApiError> {
    let Some(List(numbers)) = given else {
        return Ok(Vec::new());
    };
    if numbers.len() > MAX_STOPS {
        return Err(invalid("stop_token_ids", too_many(numbers.len())));
    }
    token_ids(numbers, vocab_size, "stop_token_ids")
}

fn too_many(found: usize) -> String {
    format!("must have at most {MAX_STOPS} members, got {found}")
}

fn invalid(param: &str, rest: impl AsRef<str>) -> ApiError {
    ApiError::field(ErrorCode::InvalidValue, param, rest)
}

schema!(StopStrings, _ => {
    let one = json!({"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARS});
    json_schema!({"anyOf": [one, {"type": "array", "items": one, "maxItems": MAX_STOPS}]})
});

impl<'de> Deserialize<'de> for StopStrings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StopStringsVisitor).map(Self)
    }
}

/// One stop string.
struct StopString(String);

impl<'de> Deserialize<'de> for StopString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        check_stop(String::deserialize(deserializer)?).map(Self)
    }
}

fn check_stop<E: Error>(stop: String) -> Result<String, E> {
    let chars = stop.chars().count();
    match (1..=MAX_STOP_CHARS).contains(&chars) {
        true => Ok(stop),
        false => Err(E::custom(format_args!(
            "must have 1..{MAX_STOP_CHARS} characters, got {chars}"
        ))),
    }
}

struct StopStringsVisitor;

impl<'de> Visitor<'de> for StopStringsVisitor {
    type Value = Vec<String>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or a list of strings")
    }

    fn visit_str<E: Error>(self, stop: &str) -> Result<Vec<String>, E> {
        check_stop(stop.to_owned()).map(|stop| vec![stop])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
        let mut stops = Vec::new();
        while stops.len() < MAX_STOPS {
            match list.next_element::<StopString>()? {
                Some(StopString(stop)) => stops.push(stop),
                None => return Ok(stops),
            }
        }
        let mut found = MAX_STOPS;
        while list.next_element::<IgnoredAny>()?.is_some() {
            found += 1;
        }
        match found > MAX_STOPS {
            true => Err(A::Error::custom(too_many(found))),
            false => Ok(stops),
        }
    }
}
