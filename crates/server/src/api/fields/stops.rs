//! Fields that end an answer early: stop strings, stop tokens, the least number of tokens.

use schemars::{JsonSchema, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::numbers::{Int, MAX_COUNT, TokenNumber};
use super::prompt::token_ids;
use super::schema::schema;
use super::types::{List, text_or_list};
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::generation::Stops;

const MAX_STOPS: usize = 64;
const MAX_STOP_CHARS: usize = 1024;
/// Maximum number of bytes of all stop strings of a request.
const MAX_STOP_BYTES: usize = MAX_STOPS * MAX_STOP_CHARS;

/// The fields.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct StopFields {
    /// The answer ends before these strings.
    stop: Option<StopStrings>,
    /// The answer ends at one of these tokens, at most 64.
    stop_token_ids: Option<List<TokenNumber>>,
    /// Bans the model's end tokens.
    ignore_eos: Option<bool>,
    /// The least number of tokens: nothing ends the answer earlier.
    min_tokens: Option<Int<0, MAX_COUNT>>,
}

impl StopFields {
    /// The stops of a request, without a budget.
    ///
    /// # Errors
    /// Too many stop tokens, one outside `0..vocab_size`.
    pub fn stops(self, vocab_size: u32) -> Result<Stops, ApiError> {
        let List(tokens) = self.stop_token_ids.unwrap_or(List(Vec::new()));
        if tokens.len() > MAX_STOPS {
            return Err(invalid("stop_token_ids", too_many(tokens.len())));
        }
        Ok(Stops {
            keeps_eos: false,
            max_tokens: None,
            default_tokens: None,
            strings: self.stop.map(|StopStrings(stops)| stops).unwrap_or_default(),
            tokens: token_ids(&tokens, vocab_size, "stop_token_ids")?,
            ignore_eos: self.ignore_eos.unwrap_or(false),
            min_tokens: self.min_tokens.map_or(0, Int::count),
        })
    }
}

/// Adds the stop strings `more` of the field `param` to `stops`.
///
/// # Errors
/// Too many, one that is empty or too long.
pub fn add(stops: &mut Vec<String>, param: &str, more: Vec<String>) -> Result<(), ApiError> {
    let found = stops.len() + more.len();
    if found > MAX_STOPS {
        return Err(invalid(param, too_many(found)));
    }
    for (index, stop) in more.into_iter().enumerate() {
        let checked = check_stop(stop);
        stops.push(checked.map_err(|rest| invalid(&format!("{param}[{index}]"), rest))?);
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

fn too_many(found: usize) -> String {
    format!("must have at most {MAX_STOPS} members, got {found}")
}

fn invalid(param: &str, rest: impl AsRef<str>) -> ApiError {
    ApiError::field(ErrorCode::InvalidValue, param, rest)
}

/// `stop`: one string or a list of strings.
#[derive(Clone, Debug)]
struct StopStrings(Vec<String>);

schema!(StopStrings, _ => {
    let one = json!({"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARS});
    json_schema!({"anyOf": [one, {"type": "array", "items": one, "maxItems": MAX_STOPS}]})
});

impl<'de> Deserialize<'de> for StopStrings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a string or a list of strings";
        let one = |stop| Ok(vec![StopString(check_stop(stop)?)]);
        let stops: Vec<StopString> = text_or_list(deserializer, expected, one)?;
        match stops.len() > MAX_STOPS {
            true => Err(D::Error::custom(too_many(stops.len()))),
            false => Ok(Self(stops.into_iter().map(|stop| stop.0).collect())),
        }
    }
}

struct StopString(String);

impl<'de> Deserialize<'de> for StopString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let checked = check_stop(String::deserialize(deserializer)?);
        checked.map(Self).map_err(D::Error::custom)
    }
}

fn check_stop(stop: String) -> Result<String, String> {
    let chars = stop.chars().count();
    match (1..=MAX_STOP_CHARS).contains(&chars) {
        true => Ok(stop),
        false => Err(format!("must have 1..{MAX_STOP_CHARS} characters, got {chars}")),
    }
}
