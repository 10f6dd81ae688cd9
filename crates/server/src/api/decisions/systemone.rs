//! `/v1/systemone` in the types of typesafe-sdk, a translation.

use schemars::{JsonSchema, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use text::Message;

use super::openai::truths;
use super::output::{ReadUsage, best, confidence, expected};
use super::{CHOICES, Facts, Form, LEVELS, SettingsFields, chat, check_count, invalid, sized};
use crate::api::fields::body::{JsonBody, required};
use crate::api::fields::schema::{named, schema};
use crate::api::fields::shared::check_model;
use crate::api::fields::table::Fields;
use crate::api::fields::types::{Members, Object, Required};
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode, clip};
use crate::pipeline::decide::{ChoiceText, Decide, Distribution, Question, QuestionFields};

/// The questions of a request, for its answer.
pub struct SystemOne(Vec<Asked>);

/// The body.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct SystemOneFields {
    /// The served model's name.
    model: Option<String>,
    /// The content that all questions refer to.
    state: Required<JsonText>,
    /// Questions by name, 1 to 400.
    questions: Required<Members<Object<QuestionField>>>,
    /// Not supported: models read text only.
    assets: Option<Value>,
    /// The manner of reading.
    diffusion: Option<Object<SettingsFields>>,
}

/// One question.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "SystemOneQuestion")]
struct QuestionField {
    #[serde(rename = "type")]
    kind: Required<Kind>,
    /// The question; may be absent where the criteria say it.
    instructions: Option<JsonText>,
    /// For a `noul` the meanings of `true` and `false`, for a `choice` the options by name, for a `score` the
    /// levels from the lowest.
    criteria: Option<Value>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Noul,
    Choice,
    Score,
}

named!(Kind { "noul" => Self::Noul, "choice" => Self::Choice, "score" => Self::Score });

/// A text, or an object or list as compact JSON.
#[derive(Clone, Debug)]
struct JsonText(String);

impl JsonText {
    const EXPECTED: &'static str = "must be a string, an object or a list";

    fn new(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self(text.clone())),
            Value::Object(_) | Value::Array(_) => Some(Self(value.to_string())),
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::new(&value).ok_or_else(|| D::Error::custom(Self::EXPECTED))
    }
}

schema!(JsonText, _ => json_schema!({"type": ["string", "object", "array"]}));

/// A question as its answer needs it.
struct Asked {
    name: String,
    options: Options,
}

enum Options {
    Noul,
    Choice(Vec<String>),
    Score(Vec<Value>),
}

/// The options of a question and their texts.
type Read = (Options, Vec<ChoiceText>);

impl QuestionField {
    fn read(self, name: String) -> Result<(Asked, Question), ApiError> {
        let question = format!("questions.{}", clip(&name));
        let list = format!("{question}.criteria");
        let given = self.instructions.map(|JsonText(text)| text);
        let need = |criteria: Option<Value>| criteria.ok_or_else(|| required(&list));
        let ((options, texts), default) = match self.kind.0 {
            Kind::Noul => {
                let has_criteria = self.criteria.as_ref().is_some_and(|given| !given.is_null());
                if given.is_none() && !has_criteria {
                    return Err(required(&format!("{question}.instructions")));
                }
                (noul(self.criteria, &list)?, "Is it so?")
            }
            Kind::Choice => (choice(need(self.criteria)?, &list)?, "Which option applies?"),
            Kind::Score => (score(need(self.criteria)?, &list)?, "Which level applies?"),
        };
        let question = Question {
            instructions: given.unwrap_or_else(|| default.to_owned()),
            options: texts,
            fields: QuestionFields { question, options: list },
        };
        Ok((Asked { name, options }, question))
    }
}

/// The description that a member of the request field `param` has; null = none.
fn described(value: &Value, param: &str) -> Result<Option<String>, ApiError> {
    if value.is_null() {
        return Ok(None);
    }
    match JsonText::new(value) {
        Some(JsonText(text)) => Ok(Some(text)),
        None => Err(ApiError::field(ErrorCode::InvalidType, param, JsonText::EXPECTED)),
    }
}

fn noul(criteria: Option<Value>, param: &str) -> Result<Read, ApiError> {
    let mut texts = truths(["yes", "no"]);
    match criteria {
        None | Some(Value::Null) => {}
        Some(Value::Object(members)) => {
            for (name, value) in members {
                let param = format!("{param}.{}", clip(&name));
                let index = match name.as_str() {
                    "true" => 0,
                    "false" => 1,
                    _ => return Err(invalid(&param, "must be true or false")),
                };
                texts[index].description = described(&value, &param)?;
            }
        }
        Some(_) => return Err(ApiError::field(ErrorCode::InvalidType, param, "must be an object")),
    }
    Ok((Options::Noul, texts))
}

fn choice(criteria: Value, param: &str) -> Result<Read, ApiError> {
    let Value::Object(members) = criteria else {
        return Err(ApiError::field(ErrorCode::InvalidType, param, "must be an object"));
    };
    if !CHOICES.contains(&members.len()) {
        return Err(sized(param, &CHOICES, members.len()));
    }
    let text = |(name, value): (&String, &Value)| {
        let description = described(value, &format!("{param}.{}", clip(name)))?;
        Ok(ChoiceText { name: name.clone(), description })
    };
    let texts = members.iter().map(text).collect::<Result<Vec<_>, ApiError>>()?;
    Ok((Options::Choice(members.into_iter().map(|(name, _)| name).collect()), texts))
}

fn score(criteria: Value, param: &str) -> Result<Read, ApiError> {
    let Value::Array(levels) = criteria else {
        return Err(ApiError::field(ErrorCode::InvalidType, param, "must be a list"));
    };
    if !LEVELS.contains(&levels.len()) {
        return Err(sized(param, &LEVELS, levels.len()));
    }
    let text = |(index, value): (usize, &Value)| {
        let param = format!("{param}[{index}]");
        let name = described(value, &param)?.ok_or_else(|| required(&param))?;
        Ok(ChoiceText { name, description: None })
    };
    let texts = levels.iter().enumerate().map(text).collect::<Result<Vec<_>, ApiError>>()?;
    Ok((Options::Score(levels), texts))
}

impl Form for SystemOne {
    const PATH: &'static str = "/v1/systemone";
    const SUMMARY: &'static str = "Decides questions about a state, in TypeSafe's form.";
    const INPUT: &'static str = "state";
    type Answer = Decided;

    fn fields() -> Fields {
        Fields::new::<SystemOneFields>()
    }

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Decide), ApiError> {
        let fields: SystemOneFields = body.read()?;
        if fields.assets.is_some() {
            let rest = "is not supported: this server's models read text only";
            return Err(ApiError::field(ErrorCode::UnsupportedParameter, "assets", rest));
        }
        let Members(given) = fields.questions.0;
        check_count(given.len())?;
        let read = given.into_iter().map(|(name, Object(question))| question.read(name));
        let (asked, questions) = read.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let Required(JsonText(state)) = fields.state;
        let input = chat(vec![Message::new("user", &state)], backend);
        check_model(fields.model.as_deref(), backend)?;
        let settings = SettingsFields::settings(fields.diffusion);
        Ok((Self(asked), Decide { input, questions, settings }))
    }

    fn answer(self, found: Vec<Distribution>, facts: Facts) -> Decided {
        let answers = self.0.into_iter().zip(found);
        let answers =
            answers.map(|(asked, distribution)| (asked.name, asked.options.answer(&distribution)));
        Decided {
            model: facts.model,
            answers: answers.collect(),
            usage: SystemOneUsage {
                input_tokens: facts.usage.prompt_tokens,
                output_tokens: 0,
                diffusion: facts.read,
            },
        }
    }
}

/// The answer.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SystemOne")]
pub struct Decided {
    /// The served model's name.
    model: String,
    /// By the names of the questions.
    answers: Map<String, Value>,
    usage: SystemOneUsage,
}

/// The cost.
#[derive(Debug, Serialize, JsonSchema)]
struct SystemOneUsage {
    input_tokens: u64,
    output_tokens: u64,
    diffusion: ReadUsage,
}

impl Options {
    fn answer(self, distribution: &Distribution) -> Value {
        let probabilities = &distribution.probabilities;
        let confidence = confidence(probabilities);
        match self {
            Self::Noul => serde_json::json!({"type": "noul", "noul": probabilities[0]}),
            Self::Choice(names) => {
                let choice = names[best(probabilities)].clone();
                let by_name = names.into_iter().zip(probabilities);
                let by_name: Map<String, Value> =
                    by_name.map(|(name, p)| (name, Value::from(*p))).collect();
                serde_json::json!({
                    "type": "choice",
                    "choice": choice,
                    "confidence": confidence,
                    "probabilities": by_name,
                })
            }
            Self::Score(levels) => {
                let by_index = (0..).zip(probabilities);
                let by_index: Map<String, Value> = by_index
                    .map(|(index, p): (usize, _)| (index.to_string(), Value::from(*p)))
                    .collect();
                let legend = levels.into_iter().enumerate();
                let legend: Map<String, Value> =
                    legend.map(|(index, level)| (index.to_string(), level)).collect();
                serde_json::json!({
                    "type": "score",
                    "score": expected(probabilities),
                    "confidence": confidence,
                    "legend": legend,
                    "probabilities": by_index,
                })
            }
        }
    }
}
