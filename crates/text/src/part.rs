//! A part of an answer: reasoning, text or a call of a function.

/// A part of an answer. The joined parts are the whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// The beginning of a call.
    Call {
        /// Index among the calls of the answer.
        index: usize,
        /// The id, unique.
        id: String,
        /// The function.
        name: String,
    },
    /// More arguments of the last call, a piece of a JSON object.
    Arguments {
        /// Index of the call.
        index: usize,
        /// The piece.
        text: String,
    },
}
