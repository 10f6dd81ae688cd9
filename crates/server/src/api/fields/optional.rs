//! Optional fields of both OpenAI endpoints: biases, penalties, truncation, priority, tools.

use std::fmt;

use engine::{Penalties, did_you_mean};
use schemars::JsonSchema;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use step::{Bias, TokenId};

use super::tools;
use super::types::{BiasAmount, Count, Int, List, Members, Object, Penalty, RepetitionPenalty};
use crate::error::{ApiError, ErrorCode, clip};

/// `priority`: lower values start first.
type Priority = Int<{ i32::MIN as i64 }, { i32::MAX as i64 }>;

/// The fields.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct OptionalFields {
    /// Is added to the logits of tokens, by their ids.
    logit_bias: Option<Members<BiasAmount>>,
    /// As OpenAI's.
    frequency_penalty: Option<Penalty>,
    /// As OpenAI's.
    presence_penalty: Option<Penalty>,
    /// As vLLM's; 1 is neutral.
    repetition_penalty: Option<RepetitionPenalty>,
    /// Waiting sequences with lower values start first.
    priority: Option<Priority>,
    /// Keeps only the last tokens of a prompt.
    truncate_prompt_tokens: Option<Count<1>>,
    /// Only an empty list is supported here.
    #[schemars(with = "Option<List<Map<String, Value>>>")]
    tools: Option<List<Object<IgnoredAny>>>,
    /// Only `none` and `auto` are supported here.
    #[schemars(with = "Option<tools::ToolChoice>")]
    tool_choice: Option<ToolChoice>,
}

impl OptionalFields {
    /// The biases of single tokens; 0 is none.
    ///
    /// # Errors
    /// A key that is no token id, or another spelling of one: no id comes twice.
    pub fn biases(&self, vocab_size: u32) -> Result<Vec<Bias>, ApiError> {
        let mut biases = Vec::new();
        for (token, BiasAmount(amount)) in self.logit_bias.iter().flat_map(|given| &given.0) {
            let id = token.parse::<TokenId>().ok();
            let id = id.filter(|id| *id < vocab_size && id.to_string() == *token);
            let Some(id) = id else {
                let param = format!("logit_bias.{}", clip(token));
                let rest = format!("must be a token id in 0..{}", vocab_size.saturating_sub(1));
                return Err(ApiError::field(ErrorCode::InvalidValue, param, rest));
            };
            if *amount != 0.0 {
                biases.push(Bias::add(id, *amount as f32));
            }
        }
        Ok(biases)
    }

    /// The penalties of tokens that occur already.
    pub fn penalties(&self) -> Penalties {
        let penalty = |given: Option<Penalty>| given.map_or(0.0, |given| given.0 as f32);
        Penalties {
            frequency: penalty(self.frequency_penalty),
            presence: penalty(self.presence_penalty),
            repetition: self.repetition_penalty.map_or(1.0, |given| given.0 as f32),
        }
    }

    /// `truncate_prompt_tokens`.
    pub fn truncate(&self) -> Option<usize> {
        let tokens = self.truncate_prompt_tokens.map(Int::get);
        tokens.map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX))
    }

    /// `priority`.
    pub fn priority(&self) -> i32 {
        let priority = self.priority.map_or(0, Int::get);
        i32::try_from(priority).expect("its range is that of 32 bits")
    }

    /// Refuses the fields that this server does not implement, unless they are neutral.
    ///
    /// # Errors
    /// `unsupported_value`.
    pub fn support(&self) -> Result<(), ApiError> {
        let has_tools = self.tools.as_ref().is_some_and(|tools| !tools.0.is_empty());
        let calls = matches!(self.tool_choice, Some(ToolChoice::Called));
        let refused = [
            (has_tools, "tools", "[]"),
            (calls, "tool_choice", "none or auto"),
        ];
        match refused.into_iter().find(|(refused, ..)| *refused) {
            None => Ok(()),
            Some((_, param, neutral)) => {
                let rest = format!("is not supported by this server; only {neutral} is");
                let code = ErrorCode::UnsupportedValue;
                Err(ApiError::field(code, param, rest))
            }
        }
    }
}

/// `tool_choice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToolChoice {
    /// `none` or `auto`: without tools, the model calls none.
    Free,
    /// `required`, or a named tool.
    Called,
}

impl<'de> Deserialize<'de> for ToolChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ToolChoiceVisitor)
    }
}

struct ToolChoiceVisitor;

impl<'de> Visitor<'de> for ToolChoiceVisitor {
    type Value = ToolChoice;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or an object")
    }

    fn visit_str<E: Error>(self, choice: &str) -> Result<ToolChoice, E> {
        match choice {
            "none" | "auto" => Ok(ToolChoice::Free),
            "required" => Ok(ToolChoice::Called),
            other => {
                let hint = did_you_mean(other, ["none", "auto", "required"]);
                let found = clip(other);
                Err(E::custom(format_args!(
                    "must be none, auto, required or an object, got \"{found}\"{hint}"
                )))
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ToolChoice, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(ToolChoice::Called)
    }
}
