//! The fields of `/v1/completions` alone: the four forms of `prompt`, `echo`, `suffix`.

use step::TokenId;

use super::Input;
use crate::error::{ApiError, ErrorCode};
use crate::fields::{Fields, integer, text, wrong_type};
use crate::json::Json;

const FORMS: &str = "a string, a list of strings, a list of token ids or a list of such lists";

/// The prompts, none of them empty as a list; texts may still encode to nothing.
///
/// # Errors
/// Type and range faults, named by position.
pub fn input(fields: Fields<'_>, vocab_size: u32) -> Result<Input, ApiError> {
    let items = match fields.required("prompt")? {
        Json::Text(prompt) => return Ok(Input::Texts(vec![prompt.clone()])),
        Json::Integers(list) => {
            let ids = ids(list, vocab_size, "prompt")?;
            return Ok(Input::Ids(vec![ids]));
        }
        Json::List(items) => items,
        other => return Err(wrong_type("prompt".to_owned(), FORMS, other)),
    };
    let name = |index: usize| format!("prompt[{index}]");
    let numbered = items.iter().enumerate();
    match items.first() {
        None => Err(empty("prompt".to_owned())),
        Some(Json::Text(_)) => numbered
            .map(|(index, item)| text(item, || name(index)).map(str::to_owned))
            .collect::<Result<_, _>>()
            .map(Input::Texts),
        Some(Json::Integer(_)) => {
            let range = 0..=i64::from(vocab_size) - 1;
            let list = numbered
                .map(|(index, item)| integer(item, &range, || name(index)))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Input::Ids(vec![ids(&list, vocab_size, "prompt")?]))
        }
        Some(Json::Integers(_) | Json::List(_)) => numbered
            .map(|(index, item)| match item {
                Json::Integers(list) => ids(list, vocab_size, &name(index)),
                Json::List(items) if items.is_empty() => Err(empty(name(index))),
                other => Err(wrong_type(name(index), "a list of token ids", other)),
            })
            .collect::<Result<_, _>>()
            .map(Input::Ids),
        Some(other) => Err(wrong_type(
            name(0),
            "a string or a list of token ids",
            other,
        )),
    }
}

/// `echo`, and what stands behind the generation if anything does.
///
/// # Errors
/// Type faults.
pub fn extras(fields: Fields<'_>) -> Result<(bool, Option<String>), ApiError> {
    let echo = fields.boolean("echo")?.unwrap_or(false);
    let suffix = fields.text("suffix")?.filter(|suffix| !suffix.is_empty());
    Ok((echo, suffix.map(str::to_owned)))
}

fn ids(list: &[i64], vocab_size: u32, param: &str) -> Result<Vec<TokenId>, ApiError> {
    let check = |(index, value): (usize, &i64)| {
        TokenId::try_from(*value)
            .ok()
            .filter(|id| *id < vocab_size)
            .ok_or_else(|| {
                let rest = format!("must be a token id in 0..{}, got {value}", vocab_size - 1);
                ApiError::field(ErrorCode::InvalidValue, format!("{param}[{index}]"), rest)
            })
    };
    list.iter().enumerate().map(check).collect()
}

fn empty(param: String) -> ApiError {
    ApiError::field(ErrorCode::InvalidValue, param, "must not be empty")
}
