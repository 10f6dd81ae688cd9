//! The parts of an answer: reasoning, text and calls of functions.

use text::{CallPart, CallStream, ReasoningPart, ReasoningStream};

use crate::pipeline::ids::mixed;

/// A part of one choice. The joined parts are its whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// A call begins.
    Call {
        /// Its place among the calls of the choice.
        index: usize,
        /// Its id, unique.
        id: String,
        /// The function.
        name: String,
    },
    /// More of the arguments of the last call, a piece of a JSON object.
    Arguments {
        /// The place of the call.
        index: usize,
        /// The piece.
        text: String,
    },
}

/// A whole call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Its id, unique.
    pub id: String,
    /// The function.
    pub name: String,
    /// A JSON object, or the beginning of one if the budget ended.
    pub arguments: String,
}

/// The whole parts of one choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The text outside calls.
    pub text: String,
    /// The reasoning.
    pub reasoning: String,
    /// The calls.
    pub calls: Vec<Call>,
}

impl Said {
    /// The join of `parts`.
    pub fn of(parts: &[Part]) -> Self {
        let mut said = Self::default();
        for part in parts {
            match part {
                Part::Text(text) => said.text.push_str(text),
                Part::Reasoning(text) => said.reasoning.push_str(text),
                Part::Call { id, name, .. } => said.calls.push(Call {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                }),
                Part::Arguments { text, .. } => {
                    if let Some(call) = said.calls.last_mut() {
                        call.arguments.push_str(text);
                    }
                }
            }
        }
        said
    }
}

/// Splits the text of one choice into its parts.
#[derive(Clone, Debug)]
pub struct Splitter {
    reasoning: Option<ReasoningStream>,
    calls: Option<CallStream>,
    /// Calls that began.
    count: usize,
    /// The ids of calls are made from it.
    seed: u64,
}

impl Splitter {
    /// The splitter of a choice with reasoning, calls or both; `seed` is unique.
    pub fn new(reasoning: Option<ReasoningStream>, calls: Option<CallStream>, seed: u64) -> Self {
        Self {
            reasoning,
            calls,
            count: 0,
            seed,
        }
    }

    /// Whether a call began.
    pub fn has_calls(&self) -> bool {
        self.count > 0
    }

    /// The parts that `text` completes; all that were held back if it `ends` the choice.
    pub fn take(&mut self, text: &str, ends: bool) -> Vec<Part> {
        let mut parts = Vec::new();
        let Some(reasoning) = &mut self.reasoning else {
            self.said(text, ends, &mut parts);
            return parts;
        };
        let mut read = reasoning.push(text);
        if ends {
            read.extend(reasoning.finish());
        }
        for part in read {
            match part {
                ReasoningPart::Reasoning(text) => parts.push(Part::Reasoning(text)),
                ReasoningPart::Text(text) => self.said(&text, false, &mut parts),
            }
        }
        if ends {
            self.said("", true, &mut parts);
        }
        parts
    }

    /// Takes text after the reasoning.
    fn said(&mut self, text: &str, ends: bool, parts: &mut Vec<Part>) {
        let Some(calls) = &mut self.calls else {
            if !text.is_empty() {
                parts.push(Part::Text(text.to_owned()));
            }
            return;
        };
        let mut read = calls.push(text);
        if ends {
            read.extend(calls.finish());
        }
        for part in read {
            parts.push(match part {
                CallPart::Text(text) => Part::Text(text),
                CallPart::Start(name) => {
                    self.count += 1;
                    let id = format!("call_{:016x}", mixed(self.seed, self.count as u64));
                    let index = self.count - 1;
                    Part::Call { index, id, name }
                }
                CallPart::Arguments(text) => Part::Arguments {
                    index: self.count.saturating_sub(1),
                    text,
                },
            });
        }
    }
}
