//! The error type of this crate.

use std::path::{Path, PathBuf};

/// An error in tokenizer files, templates or text; every message is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// A file cannot be read.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error message.
        reason: String,
    },
    /// A file violates its format.
    #[error("{file}: {reason}")]
    Malformed {
        /// The file's name.
        file: String,
        /// The parser's error message.
        reason: String,
    },
    /// A key of a file has an invalid value.
    #[error("{file}: {key}: expected {expected}, found {found}")]
    Value {
        /// The file's name.
        file: String,
        /// The path of the key, with dots between levels.
        key: String,
        /// The accepted values.
        expected: String,
        /// The value in the file.
        found: String,
    },
    /// A text cannot be encoded.
    #[error("the text cannot be encoded: {0}")]
    Encode(String),
    /// A chat request was sent to a model without a chat template.
    #[error(
        "the model has no chat template: neither chat_template.jinja nor the key chat_template \
         of tokenizer_config.json exists"
    )]
    NoChatTemplate,
    /// The template rejects the messages with `raise_exception`; a client error.
    #[error("the chat template refuses the messages: {0}")]
    Refused(String),
    /// Rendering failed for another reason: an invalid expression, or the instruction limit was
    /// exceeded.
    #[error("the chat template failed: {0}")]
    Render(String),
}

impl TextError {
    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), reason: error.to_string() }
    }

    pub(crate) fn malformed(file: &str, reason: impl ToString) -> Self {
        Self::Malformed { file: file.to_owned(), reason: one_line(&reason.to_string()) }
    }

    pub(crate) fn value(file: &str, key: &str, expected: &str, found: impl ToString) -> Self {
        Self::Value {
            file: file.to_owned(),
            key: key.to_owned(),
            expected: expected.to_owned(),
            found: one_line(&found.to_string()),
        }
    }
}

/// `text` on one line, cut after 200 characters, because errors quote untrusted input.
pub(crate) fn one_line(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((cut, _)) = line.char_indices().nth(200) {
        line.truncate(cut);
        line.push_str("...");
    }
    line
}
