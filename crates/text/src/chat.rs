//! Chat templates: render messages in the text format that a model was trained on.

use std::error::Error as _;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value, context};

use crate::TextError;
use crate::python_json::to_json;

/// Maximum number of template instructions per rendering. A simple template takes about 50 per
/// message.
const FUEL: u64 = 20_000_000;

/// The template's name inside the environment.
const NAME: &str = "chat_template";

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user`, `assistant`, or another role that the template supports.
    pub role: String,
    /// The text of the message.
    pub content: String,
}

/// A compiled chat template, in the dialect of Hugging Face's `apply_chat_template`.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// Compiles `source`. `roles` maps names (`bos_token`, ...) to special tokens; the template
    /// can use them as variables. `file` is used in error messages only.
    pub(crate) fn new(
        file: &str,
        source: String,
        roles: &[(&'static str, String)],
    ) -> Result<Self, TextError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.map_err(|e| TextError::malformed(file, e))?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(FUEL));
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("tojson", tojson);
        for (role, text) in roles {
            environment.add_global(*role, text.as_str());
        }
        environment
            .add_template_owned(NAME, source.clone())
            .map_err(|e| TextError::malformed(file, describe(&e)))?;
        Ok(Self {
            source,
            environment,
        })
    }

    /// The template source as stored in the file.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders `messages`, followed by the header of an assistant turn if
    /// `add_generation_prompt`. Encode the result without adding special tokens: the template
    /// already contains them.
    ///
    /// # Errors
    /// [`TextError::Refused`] if the template rejects the messages, [`TextError::Render`] on any
    /// other failure.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, TextError> {
        let message = |message: &Message| {
            let (role, content) = (message.role.as_str(), message.content.as_str());
            Value::from_pairs([("role", role), ("content", content)])
        };
        let messages: Vec<Value> = messages.iter().map(message).collect();
        let nothing = Value::from(());
        let context = context! {
            messages,
            add_generation_prompt,
            tools => nothing.clone(),
            documents => nothing,
        };
        let template = self.environment.get_template(NAME);
        template
            .and_then(|template| template.render(context))
            .map_err(|e| failure(&e))
    }
}

/// Marks an error as raised by the template's `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: String) -> Result<Value, Error> {
    let error = Error::new(ErrorKind::InvalidOperation, message.clone());
    Err(error.with_source(Raised(message)))
}

fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent = options.get::<Option<usize>>("indent")?;
    options.get::<Option<bool>>("ensure_ascii")?;
    options.assert_all_used()?;
    to_json(value, indent).map_err(|e| Error::new(ErrorKind::InvalidOperation, e.to_string()))
}

fn failure(error: &Error) -> TextError {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return TextError::Refused(message.clone());
        }
        source = cause.source();
    }
    TextError::Render(describe(error))
}

/// The error without template source lines, because clients see it.
fn describe(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}
