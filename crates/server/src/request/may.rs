//! Optional fields: those that this server implements, and those that it checks like all others
//! and refuses unless they are neutral.

use step::{Bias, TokenId};
use text::Message;

use super::{Endpoint, Input};
use crate::error::{ApiError, ErrorCode, clip};
use crate::fields::{Fields, number, wrong_type};
use crate::json::Json;

/// The fields of this kind that a request set.
#[derive(Debug, Default)]
pub struct May {
    refused: Vec<ApiError>,
    logprobs: bool,
    top_logprobs: bool,
    best_of: Option<i64>,
    biases: Vec<Bias>,
    truncate: Option<usize>,
    continued: bool,
}

/// Reads the fields of this kind.
///
/// # Errors
/// Type and range faults.
pub fn read(endpoint: Endpoint, fields: Fields<'_>, vocab_size: u32) -> Result<May, ApiError> {
    let mut may = May::default();
    match endpoint {
        Endpoint::Completions => {
            may.logprobs = fields.integer("logprobs", 0..=20)?.is_some();
            may.best_of = fields.integer("best_of", 1..=128)?;
        }
        Endpoint::Chat => {
            may.logprobs = fields.boolean("logprobs")?.unwrap_or(false);
            may.top_logprobs = fields.integer("top_logprobs", 0..=20)?.is_some();
            may.continued = fields.boolean("continue_final_message")?.unwrap_or(false);
        }
    }
    if may.logprobs {
        may.refused.push(unsupported("logprobs"));
    }
    may.logit_bias(fields, vocab_size)?;
    for name in ["frequency_penalty", "presence_penalty"] {
        let penalty = fields.number(name, -2.0..=2.0)?.unwrap_or(0.0);
        may.refuse(penalty != 0.0, name, "0");
    }
    // Zero would divide by nothing: the smallest positive number stands for "greater than 0".
    let repetition = fields.number("repetition_penalty", f64::MIN_POSITIVE..=f64::INFINITY)?;
    may.refuse(
        repetition.is_some_and(|penalty| penalty != 1.0),
        "repetition_penalty",
        "1",
    );
    let priority = fields
        .integer("priority", i64::MIN..=i64::MAX)?
        .unwrap_or(0);
    may.refuse(priority != 0, "priority", "0");
    let truncate = fields.integer("truncate_prompt_tokens", 1..=i64::MAX)?;
    may.truncate = truncate.map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX));
    may.response_format(fields)?;
    may.tools(fields)?;
    Ok(may)
}

impl May {
    /// Checks that need more than one field.
    ///
    /// # Errors
    /// The first fault.
    pub fn combinations(&self, echo: bool, n: u32) -> Result<(), ApiError> {
        if self.top_logprobs && !self.logprobs {
            let rest = "needs logprobs to be true";
            return Err(ApiError::field(
                ErrorCode::InvalidValue,
                "top_logprobs",
                rest,
            ));
        }
        if echo && self.logprobs {
            let rest = "is not supported with logprobs: prompts have no exact likelihood here";
            return Err(ApiError::field(ErrorCode::UnsupportedValue, "echo", rest));
        }
        match self.best_of {
            Some(best_of) if best_of < i64::from(n) => {
                let rest = format!("must be at least n ({n}), got {best_of}");
                Err(ApiError::field(ErrorCode::InvalidValue, "best_of", rest))
            }
            Some(best_of) if best_of > i64::from(n) => {
                let rest = format!("is only supported equal to n ({n}), got {best_of}");
                Err(ApiError::field(
                    ErrorCode::UnsupportedValue,
                    "best_of",
                    rest,
                ))
            }
            _ => Ok(()),
        }
    }

    /// Only an answer can be continued.
    ///
    /// # Errors
    /// `continue_final_message` where the final message is not the assistant's.
    pub fn continuation(&self, input: &Input) -> Result<(), ApiError> {
        let is_answer = |messages: &[Message]| {
            let last = messages.last();
            last.is_some_and(|message| message.role == "assistant")
        };
        match input {
            Input::Chat(messages) if self.continued && !is_answer(messages) => {
                let rest = "needs a final message of the assistant";
                let code = ErrorCode::InvalidValue;
                Err(ApiError::field(code, "continue_final_message", rest))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what is not neutral.
    ///
    /// # Errors
    /// The first field that is not.
    pub fn support(&self) -> Result<(), ApiError> {
        self.refused
            .first()
            .map_or(Ok(()), |error| Err(error.clone()))
    }

    /// `logit_bias`, `truncate_prompt_tokens` and `continue_final_message`.
    pub fn into_parts(self) -> (Vec<Bias>, Option<usize>, bool) {
        (self.biases, self.truncate, self.continued)
    }

    fn refuse(&mut self, refused: bool, name: &str, neutral: &str) {
        if refused {
            let rest = format!("is not supported by this server; only {neutral} is");
            self.refused
                .push(ApiError::field(ErrorCode::UnsupportedValue, name, rest));
        }
    }

    fn logit_bias(&mut self, fields: Fields<'_>, vocab_size: u32) -> Result<(), ApiError> {
        let Some(biases) = fields.object("logit_bias")? else {
            return Ok(());
        };
        for (token, bias) in biases {
            let param = || format!("logit_bias.{}", clip(token));
            // One spelling per id, so that no id comes twice.
            let id = token.parse::<TokenId>().ok();
            let id = id.filter(|id| *id < vocab_size && id.to_string() == *token);
            let Some(id) = id else {
                let rest = format!("must be a token id in 0..{}", vocab_size - 1);
                return Err(ApiError::field(ErrorCode::InvalidValue, param(), rest));
            };
            let amount = number(bias, &(-100.0..=100.0), param)? as f32;
            if amount != 0.0 {
                self.biases.push(Bias { token: id, amount });
            }
        }
        Ok(())
    }

    fn response_format(&mut self, fields: Fields<'_>) -> Result<(), ApiError> {
        let Some(object) = fields.object("response_format")? else {
            return Ok(());
        };
        let inner = Fields::new(object, "response_format.");
        inner.required("type")?;
        match inner.text("type")?.unwrap_or_default() {
            "text" => {}
            "json_object" => self.refuse(true, "response_format", "type text"),
            "json_schema" => {
                let schema = inner.object("json_schema")?;
                if schema
                    .is_none_or(|schema| !matches!(schema.get("schema"), Some(Json::Object(_))))
                {
                    let param = "response_format.json_schema.schema";
                    let code = ErrorCode::MissingRequiredParameter;
                    return Err(ApiError::field(
                        code,
                        param,
                        "is required and must be an object",
                    ));
                }
                self.refuse(true, "response_format", "type text");
            }
            other => {
                let found = clip(other);
                let rest =
                    format!("must be one of text, json_object, json_schema, got \"{found}\"");
                return Err(ApiError::field(
                    ErrorCode::InvalidValue,
                    "response_format.type",
                    rest,
                ));
            }
        }
        Ok(())
    }

    fn tools(&mut self, fields: Fields<'_>) -> Result<(), ApiError> {
        let tools = fields.list("tools")?.unwrap_or_default();
        for (index, tool) in tools.iter().enumerate() {
            if !matches!(tool, Json::Object(_)) {
                return Err(wrong_type(format!("tools[{index}]"), "an object", tool));
            }
        }
        self.refuse(!tools.is_empty(), "tools", "[]");
        match fields.get("tool_choice") {
            None => {}
            Some(Json::Text(choice)) => match choice.as_str() {
                "none" | "auto" => {}
                "required" => self.refuse(true, "tool_choice", "none or auto"),
                other => {
                    let found = clip(other);
                    let rest =
                        format!("must be none, auto, required or an object, got \"{found}\"");
                    return Err(ApiError::field(
                        ErrorCode::InvalidValue,
                        "tool_choice",
                        rest,
                    ));
                }
            },
            Some(Json::Object(_)) => self.refuse(true, "tool_choice", "none or auto"),
            Some(other) => {
                return Err(wrong_type(
                    "tool_choice".to_owned(),
                    "a string or an object",
                    other,
                ));
            }
        }
        Ok(())
    }
}

fn unsupported(name: &str) -> ApiError {
    ApiError::field(
        ErrorCode::UnsupportedParameter,
        name,
        "is not supported by this server",
    )
}
