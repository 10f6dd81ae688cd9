//! The field of `/v1/chat/completions` alone: `messages`.

use text::Message;

use super::Input;
use crate::error::{ApiError, ErrorCode, clip};
use crate::fields::{Fields, text, wrong_type};
use crate::json::Json;

/// The chat, at least one message.
///
/// # Errors
/// Type and range faults, named by position.
pub fn input(fields: Fields<'_>) -> Result<Input, ApiError> {
    let list = match fields.required("messages")? {
        Json::List(list) => list,
        other => {
            return Err(wrong_type(
                "messages".to_owned(),
                "a list of messages",
                other,
            ));
        }
    };
    if list.is_empty() {
        return Err(ApiError::field(
            ErrorCode::InvalidValue,
            "messages",
            "must not be empty",
        ));
    }
    let messages = list
        .iter()
        .enumerate()
        .map(|(index, item)| message(index, item));
    messages.collect::<Result<_, _>>().map(Input::Chat)
}

fn message(index: usize, item: &Json) -> Result<Message, ApiError> {
    let name = format!("messages[{index}]");
    let Json::Object(object) = item else {
        return Err(wrong_type(name, "an object", item));
    };
    let prefix = format!("{name}.");
    let fields = Fields::new(object, &prefix);
    let role = match text(fields.required("role")?, || fields.param("role"))? {
        "developer" => "system",
        role @ ("system" | "user" | "assistant") => role,
        other => {
            let found = clip(other);
            let rest =
                format!("must be one of system, developer, user, assistant, got \"{found}\"");
            return Err(ApiError::field(
                ErrorCode::InvalidValue,
                fields.param("role"),
                rest,
            ));
        }
    };
    let content = match fields.get("content") {
        Some(content) => content_text(fields, content)?,
        None if role == "assistant" => String::new(),
        None => {
            let code = ErrorCode::MissingRequiredParameter;
            return Err(ApiError::field(
                code,
                fields.param("content"),
                "is required",
            ));
        }
    };
    Ok(Message {
        role: role.to_owned(),
        content,
    })
}

/// A string, or text parts joined.
fn content_text(fields: Fields<'_>, content: &Json) -> Result<String, ApiError> {
    let name = fields.param("content");
    let parts = match content {
        Json::Text(text) => return Ok(text.clone()),
        Json::List(parts) => parts,
        other => return Err(wrong_type(name, "a string or a list of text parts", other)),
    };
    if parts.is_empty() {
        return Err(ApiError::field(
            ErrorCode::InvalidValue,
            name,
            "must not be an empty list",
        ));
    }
    let mut joined = String::new();
    for (index, part) in parts.iter().enumerate() {
        let name = format!("{name}[{index}]");
        let Json::Object(object) = part else {
            return Err(wrong_type(name, "an object", part));
        };
        let prefix = format!("{name}.");
        let fields = Fields::new(object, &prefix);
        let kind = text(fields.required("type")?, || fields.param("type"))?;
        if kind != "text" {
            let rest = format!("must be text, got \"{}\"", clip(kind));
            return Err(ApiError::field(
                ErrorCode::InvalidValue,
                fields.param("type"),
                rest,
            ));
        }
        joined.push_str(text(fields.required("text")?, || fields.param("text"))?);
    }
    Ok(joined)
}
