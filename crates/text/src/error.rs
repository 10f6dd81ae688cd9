//! The one error type of this crate.

use std::path::{Path, PathBuf};

/// What can go wrong with tokenizer files, templates and text; every message is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// A file cannot be read.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A file is not what its format demands.
    #[error("{file}: {reason}")]
    Malformed {
        /// The file's name.
        file: String,
        /// What the parser said.
        reason: String,
    },
    /// A key of a file has a wrong value.
    #[error("{file}: {key}: expected {expected}, found {found}")]
    Value {
        /// The file's name.
        file: String,
        /// The key, with dots between levels.
        key: String,
        /// What is needed.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A text cannot be encoded.
    #[error("the text cannot be encoded: {0}")]
    Encode(String),
    /// Chat was asked of a model without a chat template.
    #[error(
        "the model has no chat template: neither chat_template.jinja nor the key chat_template \
         of tokenizer_config.json is there"
    )]
    NoChatTemplate,
    /// The template itself refuses the messages (`raise_exception`): the caller's fault.
    #[error("the chat template refuses the messages: {0}")]
    Refused(String),
    /// Rendering failed otherwise: a wrong expression, or the limit on its work was met.
    #[error("the chat template failed: {0}")]
    Render(String),
}

impl TextError {
    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        Self::Io {
            path: path.to_path_buf(),
            reason: error.to_string(),
        }
    }

    pub(crate) fn malformed(file: &str, reason: impl ToString) -> Self {
        Self::Malformed {
            file: file.to_owned(),
            reason: one_line(&reason.to_string()),
        }
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

/// `text` on one line, cut after 200 characters: errors quote foreign input.
fn one_line(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((cut, _)) = line.char_indices().nth(200) {
        line.truncate(cut);
        line.push_str("...");
    }
    line
}
