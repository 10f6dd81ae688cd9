//! The words in which questions are put.

use std::fmt::Write;

use text::{Conversation, Message};

use super::Question;

/// Stands for the questions in a chat; no template contains it.
pub const MARK: &str = "\u{F8FF}questions\u{F8FF}";

const ONE: &str = "Answer the question about the text above with the label of one option.";
const SEVERAL: &str = "Answer every question about the text above with the label of one option.";

/// The chat of `input` that ends with a message of the user: the input's last one or a new one, and
/// [`MARK`] behind it.
pub fn marked(input: &Conversation) -> Conversation {
    let mut chat = input.clone();
    match chat.messages.last_mut() {
        Some(last) if last.role == "user" => {
            last.content.push_str("\n\n");
            last.content.push_str(MARK);
        }
        _ => chat.messages.push(Message::new("user", MARK)),
    }
    chat
}

/// The text of `questions`, numbered from 1. Option `i` of a question has the label `labels[i]` after it
/// moved `shift(options)` places.
pub fn text(questions: &[&Question], labels: &[String], shift: impl Fn(usize) -> usize) -> String {
    let mut text = String::from(if questions.len() == 1 { ONE } else { SEVERAL });
    for (question, number) in questions.iter().zip(1..) {
        let _ = write!(text, "\n\n{number}: {}", question.instructions);
        let count = question.options.len();
        for (place, label) in labels.iter().enumerate().take(count) {
            let option = &question.options[(place + shift(count)) % count];
            let _ = write!(text, "\n{label}: {}", option.name);
            if let Some(description) = &option.description {
                let _ = write!(text, " ({description})");
            }
        }
    }
    text
}
