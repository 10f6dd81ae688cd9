//! Decisions: the probabilities of the options of questions about an input, read in one forward pass of
//! each canvas.

mod labels;
mod plan;
mod read;
mod wording;

pub use labels::Labels;
pub(crate) use plan::plan;
pub use plan::{Plan, Planner};
pub use read::read;

use text::Conversation;

/// Questions about an input.
#[derive(Clone, Debug)]
pub struct Decide {
    /// The input as a chat.
    pub input: Conversation,
    /// The questions, at least one.
    pub questions: Vec<Question>,
    /// The manner of reading.
    pub settings: ReadSettings,
}

impl Decide {
    /// The request field of question `index`.
    fn field_of(&self, index: usize) -> &str {
        &self.questions[index].fields.question
    }
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its text.
    pub instructions: String,
    /// The options, at least two.
    pub options: Vec<ChoiceText>,
    /// The request field of the question and, in it, that of its options.
    pub fields: QuestionFields,
}

/// The request fields of a question, for errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionFields {
    /// The question.
    pub question: String,
    /// Its options.
    pub options: String,
}

/// One option as the model sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChoiceText {
    /// Its name.
    pub name: String,
    /// A description; may be absent.
    pub description: Option<String>,
}

/// The manner of reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadSettings {
    /// Together or apart; `None` = together where the weights allow.
    pub manner: Option<Manner>,
    /// Number of orders of the options whose probabilities are averaged, at least 1.
    pub orders: u32,
    /// Number of drawn canvases of noise whose probabilities are averaged, at least 1.
    pub draws: u32,
    /// The divisor of log-probabilities, positive.
    pub temperature: f64,
    /// The seed of the noise.
    pub seed: i64,
}

/// The canvases of several questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// One canvas for all.
    Joint,
    /// A canvas for each.
    Apart,
}

impl Manner {
    /// The name in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Joint => "joint",
            Self::Apart => "apart",
        }
    }
}

/// The probabilities of one question.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// One per option, in order; they sum to 1.
    pub probabilities: Vec<f64>,
    /// The probability of all labels of its options among all tokens, averaged over the readings.
    pub mass: f64,
}
