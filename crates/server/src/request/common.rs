//! The fields both endpoints share and implement in full.

use step::TokenId;

use super::{CHOICES, Endpoint, MAX_SEQUENCES, Output, SamplingFields, Stops, StreamFields};
use crate::error::{ApiError, ErrorCode};
use crate::fields::{Fields, integer, text, wrong_type};
use crate::json::Json;

const MAX_STOPS: usize = 64;
const MAX_STOP_CHARS: usize = 1024;
const MAX_COUNT: i64 = u32::MAX as i64;
/// Budget of a completion that names none.
const COMPLETION_TOKENS: u32 = 16;

/// The shared fields, each checked for type and range.
#[derive(Clone, Debug)]
pub struct Common {
    pub max_tokens: Option<u32>,
    pub max_tokens_field: &'static str,
    pub sampling: SamplingFields,
    pub seed: Option<i64>,
    pub n: u32,
    pub stops: Stops,
    pub output: Output,
    pub stream: bool,
}

/// Reads the shared fields.
///
/// # Errors
/// Type and range faults.
pub fn read(endpoint: Endpoint, fields: Fields<'_>, vocab_size: u32) -> Result<Common, ApiError> {
    let (max_tokens, max_tokens_field) = budget(endpoint, fields)?;
    let sampling = SamplingFields {
        temperature: fields.number("temperature", 0.0..=2.0)?,
        top_p: fields.number("top_p", 0.0..=1.0)?,
        min_p: fields.number("min_p", 0.0..=1.0)?,
        top_k: fields.integer("top_k", -1..=MAX_COUNT)?,
    };
    let seed = fields.integer("seed", i64::MIN..=i64::MAX)?;
    let n = count(fields.integer("n", CHOICES)?.unwrap_or(1));
    let stops = Stops {
        strings: stop_strings(fields)?,
        tokens: stop_tokens(fields, vocab_size)?,
        ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(false),
        min_tokens: count(fields.integer("min_tokens", 0..=MAX_COUNT)?.unwrap_or(0)),
    };
    let output = Output {
        include_stop: fields
            .boolean("include_stop_str_in_output")?
            .unwrap_or(false),
        return_token_ids: fields.boolean("return_token_ids")?.unwrap_or(false),
        skip_special_tokens: fields.boolean("skip_special_tokens")?.unwrap_or(true),
        logprobs: None,
        echo: false,
        stream: None,
    };
    let stream = fields.boolean("stream")?.unwrap_or(false);
    stream_fields(fields)?;
    fields.text("user")?;
    Ok(Common {
        max_tokens,
        max_tokens_field,
        sampling,
        seed,
        n,
        stops,
        output,
        stream,
    })
}

/// How to stream, if at all.
///
/// # Errors
/// `stream_options` without `stream`.
pub fn stream(fields: Fields<'_>, stream: bool) -> Result<Option<StreamFields>, ApiError> {
    match (stream, stream_fields(fields)?) {
        (true, options) => Ok(Some(options.unwrap_or_default())),
        (false, None) => Ok(None),
        (false, Some(_)) => {
            let rest = "is only allowed when stream is true";
            Err(ApiError::field(
                ErrorCode::InvalidValue,
                "stream_options",
                rest,
            ))
        }
    }
}

impl Common {
    /// Checks that need more than one field.
    ///
    /// # Errors
    /// The first fault.
    pub fn combinations(
        &self,
        endpoint: Endpoint,
        prompts: usize,
        best_of: Option<u32>,
    ) -> Result<(), ApiError> {
        let most = self.max_tokens.unwrap_or(match endpoint {
            Endpoint::Completions => COMPLETION_TOKENS,
            Endpoint::Chat => crate::pipeline::encode::MAX_DEFAULT_TOKENS,
        });
        if self.stops.min_tokens > most {
            let min_tokens = self.stops.min_tokens;
            let rest = format!("must be in 0..max_tokens ({most}), got {min_tokens}");
            return Err(ApiError::field(ErrorCode::InvalidValue, "min_tokens", rest));
        }
        let (name, choices) = match best_of {
            Some(best_of) if best_of > self.n => ("best_of", best_of),
            _ => ("n", self.n),
        };
        if prompts * choices as usize > MAX_SEQUENCES {
            let param = if prompts > MAX_SEQUENCES {
                "prompt"
            } else {
                name
            };
            let rest = format!(
                "allows at most {MAX_SEQUENCES} prompts times {name}, got {prompts} x {choices}"
            );
            return Err(ApiError::field(ErrorCode::InvalidValue, param, rest));
        }
        Ok(())
    }
}

fn budget(endpoint: Endpoint, fields: Fields<'_>) -> Result<(Option<u32>, &'static str), ApiError> {
    match endpoint {
        Endpoint::Completions => {
            let tokens = fields
                .integer("max_tokens", 0..=i64::MAX)?
                .map_or(COMPLETION_TOKENS, count);
            Ok((Some(tokens), "max_tokens"))
        }
        Endpoint::Chat => {
            let old = fields.integer("max_tokens", 1..=i64::MAX)?;
            let new = fields.integer("max_completion_tokens", 1..=i64::MAX)?;
            let name = if new.is_some() {
                "max_completion_tokens"
            } else {
                "max_tokens"
            };
            Ok((new.or(old).map(count), name))
        }
    }
}

fn stop_strings(fields: Fields<'_>) -> Result<Vec<String>, ApiError> {
    let items = match fields.get("stop") {
        None => return Ok(Vec::new()),
        Some(Json::Text(stop)) => vec![check_stop(stop, || "stop".to_owned())?],
        Some(Json::List(items)) => {
            at_most(items.len(), "stop")?;
            let name = |index| format!("stop[{index}]");
            let check = |(index, item)| {
                text(item, || name(index)).and_then(|stop| check_stop(stop, || name(index)))
            };
            items
                .iter()
                .enumerate()
                .map(check)
                .collect::<Result<_, _>>()?
        }
        Some(other) => {
            return Err(wrong_type(
                "stop".to_owned(),
                "a string or a list of strings",
                other,
            ));
        }
    };
    Ok(items)
}

fn check_stop(stop: &str, param: impl FnOnce() -> String) -> Result<String, ApiError> {
    let chars = stop.chars().count();
    if (1..=MAX_STOP_CHARS).contains(&chars) {
        return Ok(stop.to_owned());
    }
    let rest = format!("must have 1..{MAX_STOP_CHARS} characters, got {chars}");
    Err(ApiError::field(ErrorCode::InvalidValue, param(), rest))
}

fn stop_tokens(fields: Fields<'_>, vocab_size: u32) -> Result<Vec<TokenId>, ApiError> {
    let items = fields.list("stop_token_ids")?.unwrap_or_default();
    at_most(items.len(), "stop_token_ids")?;
    let range = 0..=i64::from(vocab_size) - 1;
    let check = |(index, item): (usize, &Json)| {
        integer(item, &range, || format!("stop_token_ids[{index}]")).map(count)
    };
    items.iter().enumerate().map(check).collect()
}

fn at_most(found: usize, param: &str) -> Result<(), ApiError> {
    if found <= MAX_STOPS {
        return Ok(());
    }
    let rest = format!("must have at most {MAX_STOPS} members, got {found}");
    Err(ApiError::field(ErrorCode::InvalidValue, param, rest))
}

fn stream_fields(fields: Fields<'_>) -> Result<Option<StreamFields>, ApiError> {
    let Some(object) = fields.object("stream_options")? else {
        return Ok(None);
    };
    let inner = Fields::new(object, "stream_options.");
    let include_usage = inner.boolean("include_usage")?;
    let continuous = inner.boolean("continuous_usage_stats")?.unwrap_or(false);
    Ok(Some(StreamFields {
        include_usage: include_usage.unwrap_or(false) || continuous,
        continuous,
    }))
}

/// An integer that was checked to be >= 0; what exceeds 32 bits exceeds every limit anyway.
fn count(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
