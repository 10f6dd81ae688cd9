//! Optional fields: those that this server implements, and those that it checks like all others
//! and refuses unless they are neutral.

use std::ops::RangeInclusive;

use engine::Penalties;
use step::{Bias, TokenId};
use text::Message;

use super::{CHOICES, Endpoint, Input};
use crate::error::{ApiError, ErrorCode, clip};
use crate::fields::{Fields, number, wrong_type};
use crate::json::Json;

/// Range of the counts of most probable tokens.
const TOPS: RangeInclusive<i64> = 0..=20;
/// Weights of `repetition_penalty`, > 0: far enough from it that no logit leaves its number
/// format.
const REPETITION: RangeInclusive<f64> = 0.01..=100.0;

/// The fields of this kind that a request set.
#[derive(Debug, Default)]
pub struct May {
    refused: Vec<ApiError>,
    needs_logprobs: bool,
    /// Log-probabilities, with so many of the most probable tokens.
    pub logprobs: Option<u8>,
    /// Sequences per prompt, of which the `n` best are returned.
    pub best_of: Option<u32>,
    /// Added to the logits of single tokens.
    pub biases: Vec<Bias>,
    /// What tokens that occur already lose.
    pub penalties: Penalties,
    /// Only so many tokens of every prompt are kept.
    pub truncate: Option<usize>,
    /// The final message of a chat is left open.
    pub continued: bool,
}

/// Reads the fields of this kind.
///
/// # Errors
/// Type and range faults.
pub fn read(endpoint: Endpoint, fields: Fields<'_>, vocab_size: u32) -> Result<May, ApiError> {
    let mut may = May::default();
    // Both checked to lie within 0..=255.
    let small = |count: i64| u8::try_from(count).unwrap_or(u8::MAX);
    match endpoint {
        Endpoint::Completions => {
            may.logprobs = fields.integer("logprobs", TOPS)?.map(small);
            let best_of = fields.integer("best_of", CHOICES)?;
            may.best_of = best_of.map(small).map(u32::from);
        }
        Endpoint::Chat => {
            let wanted = fields.boolean("logprobs")?.unwrap_or(false);
            let tops = fields.integer("top_logprobs", TOPS)?;
            may.logprobs = wanted.then(|| tops.map_or(0, small));
            may.needs_logprobs = tops.is_some() && !wanted;
            may.continued = fields.boolean("continue_final_message")?.unwrap_or(false);
        }
    }
    may.logit_bias(fields, vocab_size)?;
    let penalty = |name, range, neutral: f32| {
        let given = fields.number(name, range)?;
        Ok::<_, ApiError>(given.map_or(neutral, |penalty| penalty as f32))
    };
    may.penalties = Penalties {
        frequency: penalty("frequency_penalty", -2.0..=2.0, 0.0)?,
        presence: penalty("presence_penalty", -2.0..=2.0, 0.0)?,
        repetition: penalty("repetition_penalty", REPETITION, 1.0)?,
    };
    let priority = fields
        .integer("priority", i64::MIN..=i64::MAX)?
        .unwrap_or(0);
    may.refuse(priority != 0, "priority", "0");
    let truncate = fields.integer("truncate_prompt_tokens", 1..=i64::MAX)?;
    may.truncate = truncate.map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX));
    may.tools(fields)?;
    Ok(may)
}

impl May {
    /// Checks that need more than one field; `stream` if the answer is one.
    ///
    /// # Errors
    /// The first fault.
    pub fn combinations(&self, echo: bool, n: u32, stream: bool) -> Result<(), ApiError> {
        let invalid =
            |param: &str, rest: &str| Err(ApiError::field(ErrorCode::InvalidValue, param, rest));
        if self.needs_logprobs {
            return invalid("top_logprobs", "needs logprobs to be true");
        }
        if echo && self.logprobs.is_some() {
            let rest = "is not supported with logprobs: prompts have no exact likelihood here";
            return Err(ApiError::field(ErrorCode::UnsupportedValue, "echo", rest));
        }
        match self.best_of {
            Some(best_of) if best_of < n => invalid(
                "best_of",
                &format!("must be at least n ({n}), got {best_of}"),
            ),
            Some(best_of) if best_of > n && stream => {
                let rest = "must be n where stream is true: the best are known only at the end";
                invalid("best_of", rest)
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
                self.biases.push(Bias::add(id, amount));
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
