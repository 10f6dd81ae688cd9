//! `/v1/decisions` in the types of openai-python.

use schemars::JsonSchema;
use serde::Deserialize;

use super::content::Content;
use super::input::Input;
use super::output::{
    Answer, ChoiceProbability, Decision, DecisionUsage, LevelProbability, best, confidence,
    expected,
};
use super::value::OptionValue;
use super::{CHOICES, Facts, Form, LEVELS, SettingsFields, chat, check_count, invalid, sized};
use crate::api::fields::body::{JsonBody, required};
use crate::api::fields::schema::named;
use crate::api::fields::shared::check_model;
use crate::api::fields::table::Fields;
use crate::api::fields::types::{List, Object, Required};
use crate::backend::Backend;
use crate::error::ApiError;
use crate::pipeline::decide::{ChoiceText, Decide, Distribution, Question, QuestionFields};

/// The questions of a request, for its answer.
pub struct Decisions(Vec<Asked>);

/// The body.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct DecisionFields {
    /// The served model's name.
    model: Option<String>,
    /// A text, or a chat with calls and their outputs.
    input: Required<Input>,
    /// Questions about the input, 1 to 400.
    questions: Required<List<Object<QuestionField>>>,
    /// The manner of reading.
    diffusion: Option<Object<SettingsFields>>,
}

/// One question; its type decides which fields it needs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "DecisionQuestion")]
struct QuestionField {
    #[serde(rename = "type")]
    kind: Required<Kind>,
    /// The statement or question.
    instructions: Required<Content>,
    /// Repeated in the answer.
    name: Option<String>,
    /// The options of a `choice`, 2 to 255.
    choices: Option<List<Object<ChoiceField>>>,
    /// The levels of a `score`, 2 to 10, from the lowest.
    levels: Option<List<Object<LevelField>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Predicate,
    Choice,
    Score,
}

named!(Kind {
    "predicate" => Self::Predicate,
    "choice" => Self::Choice,
    "score" => Self::Score,
});

/// An option.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "DecisionChoice")]
struct ChoiceField {
    /// Unique; a text and a boolean differ.
    value: Required<OptionValue>,
    /// A description, for the model.
    description: Option<String>,
}

/// A level.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "DecisionLevel")]
struct LevelField {
    /// Its name.
    label: Required<String>,
    /// A description, for the model.
    description: Option<String>,
}

/// A question as its answer needs it.
struct Asked {
    name: Option<String>,
    options: Options,
}

enum Options {
    Predicate,
    Choice(Vec<OptionValue>),
    Score(Vec<String>),
}

impl QuestionField {
    /// The question of the request field `param`.
    fn read(self, param: String) -> Result<(Asked, Question), ApiError> {
        let field = |name: &str| format!("{param}.{name}");
        let kind = self.kind.0;
        let stray = [
            ("choices", self.choices.is_some() && kind != Kind::Choice),
            ("levels", self.levels.is_some() && kind != Kind::Score),
        ];
        if let Some((name, _)) = stray.into_iter().find(|(_, is_stray)| *is_stray) {
            return Err(invalid(&field(name), "does not go with the type of the question"));
        }
        let (options, texts, list) = match kind {
            Kind::Predicate => (Options::Predicate, truths(["true", "false"]), param.clone()),
            Kind::Choice => {
                let list = field("choices");
                let List(choices) = self.choices.ok_or_else(|| required(&list))?;
                let (values, texts) = choices_of(choices, &list)?;
                (Options::Choice(values), texts, list)
            }
            Kind::Score => {
                let list = field("levels");
                let List(levels) = self.levels.ok_or_else(|| required(&list))?;
                if !LEVELS.contains(&levels.len()) {
                    return Err(sized(&list, &LEVELS, levels.len()));
                }
                let text = |Object(level): Object<LevelField>| ChoiceText {
                    name: level.label.0,
                    description: level.description,
                };
                let texts: Vec<ChoiceText> = levels.into_iter().map(text).collect();
                let labels = texts.iter().map(|text| text.name.clone()).collect();
                (Options::Score(labels), texts, list)
            }
        };
        let question = Question {
            instructions: self.instructions.0.0,
            options: texts,
            fields: QuestionFields { question: param, options: list },
        };
        Ok((Asked { name: self.name, options }, question))
    }
}

/// The options of a question about a truth.
pub fn truths(names: [&str; 2]) -> Vec<ChoiceText> {
    let text = |name: &str| ChoiceText { name: name.to_owned(), description: None };
    names.map(text).into()
}

/// The values of the list `param`, and their texts.
fn choices_of(
    choices: Vec<Object<ChoiceField>>,
    param: &str,
) -> Result<(Vec<OptionValue>, Vec<ChoiceText>), ApiError> {
    if !CHOICES.contains(&choices.len()) {
        return Err(sized(param, &CHOICES, choices.len()));
    }
    let (mut values, mut texts) = (Vec::new(), Vec::new());
    for (index, Object(choice)) in choices.into_iter().enumerate() {
        let value = choice.value.0;
        if let Some(first) = values.iter().position(|known| *known == value) {
            let rest = format!("must be unique, it is that of {param}[{first}]");
            return Err(invalid(&format!("{param}[{index}].value"), rest));
        }
        texts.push(ChoiceText { name: value.to_string(), description: choice.description });
        values.push(value);
    }
    Ok((values, texts))
}

impl Form for Decisions {
    const PATH: &'static str = "/v1/decisions";
    const SUMMARY: &'static str = "Decides questions about an input: the probabilities of options.";
    const INPUT: &'static str = "input";
    type Answer = Decision;

    fn fields() -> Fields {
        Fields::new::<DecisionFields>()
    }

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Decide), ApiError> {
        let fields: DecisionFields = body.read()?;
        let List(given) = fields.questions.0;
        check_count(given.len())?;
        let read = |(index, Object(question)): (usize, Object<QuestionField>)| {
            question.read(format!("questions[{index}]"))
        };
        let read: Result<Vec<_>, _> = given.into_iter().enumerate().map(read).collect();
        let (asked, questions) = read?.into_iter().unzip();
        let input = chat(fields.input.0.messages()?, backend);
        check_model(fields.model.as_deref(), backend)?;
        let settings = SettingsFields::settings(fields.diffusion);
        Ok((Self(asked), Decide { input, questions, settings }))
    }

    fn answer(self, found: Vec<Distribution>, facts: Facts) -> Decision {
        let answers =
            self.0.into_iter().zip(found).map(|(asked, distribution)| asked.answer(&distribution));
        Decision {
            answers: answers.collect(),
            model: facts.model,
            usage: DecisionUsage::new(&facts.usage, facts.read),
        }
    }
}

impl Asked {
    fn answer(self, distribution: &Distribution) -> Answer {
        let (name, probabilities) = (self.name, &distribution.probabilities);
        let confidence = confidence(probabilities);
        match self.options {
            Options::Predicate => Answer::Predicate { name, probability: probabilities[0] },
            Options::Choice(values) => Answer::Choice {
                name,
                choice: values[best(probabilities)].clone(),
                confidence,
                probabilities: values
                    .into_iter()
                    .zip(probabilities)
                    .map(|(value, &probability)| ChoiceProbability { value, probability })
                    .collect(),
            },
            Options::Score(labels) => Answer::Score {
                name,
                score: expected(probabilities),
                confidence,
                probabilities: labels
                    .into_iter()
                    .zip((0..).zip(probabilities))
                    .map(|(label, (value, &probability))| LevelProbability {
                        value,
                        label,
                        probability,
                    })
                    .collect(),
            },
        }
    }
}
