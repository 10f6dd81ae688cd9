//! Chat templates: render messages in the text format that a model was trained on.

mod conversation;
mod guard;
mod jinja;
mod meter;
mod methods;
mod program;
mod today;
mod variables;

use std::error::Error as _;

use minijinja::machinery::{eval, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value, context, escape_formatter};

use crate::TextError;
use crate::error::one_line;
use conversation::Scene;
pub use conversation::{Conversation, Message, PastCall};
use program::Program;

/// Maximum number of template instructions per rendering. A simple template takes about 200 per
/// message, checks included.
const MAX_INSTRUCTIONS: u64 = 5_000_000;
/// Maximum bytes of all messages of a chat.
const MAX_MESSAGE_BYTES: usize = 32 << 20;
/// Stack of a thread that compiles or renders, in bytes. The engine recurses over nested tags and
/// calls, both bounded; the system allocates only the pages that are used.
const STACK_BYTES: usize = 128 << 20;

/// The template's name inside the environment.
const NAME: &str = "chat_template";

/// A compiled chat template, in the dialect of Hugging Face's `apply_chat_template`.
#[derive(Debug)]
pub struct ChatTemplate {
    file: String,
    source: String,
    environment: Environment<'static>,
    program: Program,
    /// The template of chats with tools, if it is another one.
    for_tools: Option<Box<ChatTemplate>>,
}

impl ChatTemplate {
    /// Compiles `source` and tries it. `roles` maps names (`bos_token`, ...) to special tokens; the
    /// template can use them as variables. `file` is used in error messages only.
    ///
    /// # Errors
    /// If the template is too large, too deep, not valid, or fails for every chat.
    pub(crate) fn new(
        file: &str,
        source: String,
        roles: &[(&'static str, String)],
    ) -> Result<Self, TextError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|e| TextError::malformed(file, e))?;
        environment.set_syntax(syntax.clone());
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_formatter(|out, state, value| {
            meter::made(value)?;
            escape_formatter(out, state, value)
        });
        environment.set_fuel(Some(MAX_INSTRUCTIONS));
        guard::install(&mut environment);
        environment.add_function("raise_exception", raise_exception);
        for (role, text) in roles {
            environment.add_global(*role, text.as_str());
        }
        let compile = || Program::new(NAME, &source, &syntax).map_err(|e| describe(&e));
        let program = on_own_stack(compile).unwrap_or_else(Err);
        let template = Self {
            program: program.map_err(|reason| TextError::malformed(file, reason))?,
            file: file.to_owned(),
            source,
            environment,
            for_tools: None,
        };
        match template.fault() {
            Some(reason) => Err(TextError::malformed(file, reason)),
            None => Ok(template),
        }
    }

    /// This template for chats without tools, and `other` for those with tools.
    pub(crate) fn with_tools(self, other: Self) -> Self {
        Self { for_tools: Some(Box::new(other)), ..self }
    }

    /// The reason why the template can render no chat. A template that exceeds a limit for the shortest chat does so
    /// for every chat; a template that fails otherwise may need tools or a system text.
    fn fault(&self) -> Option<String> {
        let messages = [Message::new("system", "a"), Message::new("user", "a")];
        let tool = serde_json::json!({
            "type": "function",
            "function": {"name": "f", "description": "a", "parameters": {
                "type": "object", "properties": {"a": {"type": "string", "description": "a"}},
            }},
        });
        let tools = [tool];
        let scenes = [(1, &tools[..0]), (0, &tools[..0]), (1, &tools[..]), (0, &tools[..])];
        let mut fault = None;
        for (first, tools) in scenes {
            let scene = Scene { messages: &messages[first..], tools, variables: &[] };
            match self.attempt(scene, true) {
                Ok(_) | Err(Failure::Refused(_)) => return None,
                Err(Failure::BudgetError(reason)) => return Some(reason),
                Err(Failure::Other(reason)) => fault = fault.or(Some(reason)),
            }
        }
        fault
    }

    /// The template source as stored in the file: of chats without tools.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The template of chats with tools, or without them.
    fn template(&self, tools: bool) -> &Self {
        match &self.for_tools {
            Some(other) if tools => other,
            _ => self,
        }
    }

    /// The source of the template of chats with tools.
    pub fn tool_source(&self) -> &str {
        &self.template(true).source
    }

    /// True if the template of a chat, with tools of its own or without, puts tools and calls into
    /// the text.
    pub fn has_tools(&self, tools: bool) -> bool {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        self.template(tools).source.split(|c| !is_name(c)).any(|word| word == "tools")
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
        let scene = Scene { messages, tools: &[], variables: &[] };
        self.rendered(scene, add_generation_prompt)
    }

    /// Renders `conversation` as [`Self::render`] does, with its tools and variables. A template
    /// without tools must be given a conversation without tools and calls:
    /// [`plain_conversation`](crate::plain_conversation) makes one.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn render_conversation(
        &self,
        conversation: &Conversation,
        add_generation_prompt: bool,
    ) -> Result<String, TextError> {
        let variables = conversation.variables.iter();
        let variables: Vec<_> = variables.map(|(name, value)| (name.as_str(), value)).collect();
        let scene = Scene {
            messages: &conversation.messages,
            tools: &conversation.tools,
            variables: &variables,
        };
        self.rendered(scene, add_generation_prompt)
    }

    fn rendered(&self, scene: Scene<'_>, prompt: bool) -> Result<String, TextError> {
        let template = self.template(!scene.tools.is_empty());
        let made = template.attempt(scene, prompt);
        made.map_err(|failure| match failure {
            Failure::Refused(reason) => TextError::Refused(one_line(&reason)),
            Failure::BudgetError(reason) | Failure::Other(reason) => {
                TextError::Render(format!("{}: {}", template.file, one_line(&reason)))
            }
        })
    }

    fn attempt(&self, scene: Scene<'_>, prompt: bool) -> Result<String, Failure> {
        let bytes = scene.bytes();
        if bytes > MAX_MESSAGE_BYTES {
            let reason =
                format!("expected messages of at most {MAX_MESSAGE_BYTES} bytes, found {bytes}");
            return Err(Failure::Refused(reason));
        }
        let rendered = on_own_stack(|| {
            meter::start(bytes);
            self.evaluate(scene, prompt).map_err(|error| failure(&error))
        });
        rendered.unwrap_or_else(|reason| Err(Failure::BudgetError(reason)))
    }

    fn evaluate(&self, scene: Scene<'_>, add_generation_prompt: bool) -> Result<String, Error> {
        let messages: Vec<Value> = scene.messages.iter().map(Message::variable).collect();
        let nothing = Value::from(());
        let tools = match scene.tools {
            [] => nothing.clone(),
            tools => Value::from(Serde(tools)),
        };
        let (fixed, given): (Vec<_>, Vec<_>) =
            (scene.variables.iter().copied()).partition(|(name, _)| *name == today::FIELD);
        let fixed = fixed.first().map(|(_, value)| *value);
        let strftime_now = today::function(fixed).map_err(raised)?;
        let given = given.into_iter();
        let given = given.map(|(name, value)| (name, Value::from(Serde(value))));
        let given = Value::from_pairs(given);
        let context = context! {
            messages,
            add_generation_prompt,
            tools,
            documents => nothing,
            strftime_now,
            ..given
        };
        let mut text = String::new();
        let Program { instructions, blocks } = &self.program;
        let mut output = make_string_output(&mut text);
        let escape = AutoEscape::None;
        eval(&self.environment, instructions, context, blocks, &mut output, escape)?;
        Ok(text)
    }
}

/// Runs `work` on a thread with a stack of [`STACK_BYTES`] bytes.
///
/// # Errors
/// If the thread cannot start, or panics.
fn on_own_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new()
            .name("template".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work);
        let done = worker.map_err(|error| error.to_string())?.join();
        done.map_err(|_| "the template engine failed".to_owned())
    })
}

/// Marks an error as raised by the template's `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct TemplateException(String);

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(raised(message))
}

/// The error of a request that a template, or its variables, refuse.
fn raised(message: String) -> Error {
    let error = Error::new(ErrorKind::InvalidOperation, message.clone());
    error.with_source(TemplateException(message))
}

/// The reason why a rendering failed.
enum Failure {
    /// The template, or a limit on messages, refuses them.
    Refused(String),
    /// The template made too much, or ran too long.
    BudgetError(String),
    Other(String),
}

fn failure(error: &Error) -> Failure {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(TemplateException(message)) = cause.downcast_ref() {
            return Failure::Refused(message.clone());
        }
        if cause.is::<meter::BudgetError>() {
            return Failure::BudgetError(cause.to_string());
        }
        source = cause.source();
    }
    match error.kind() {
        ErrorKind::OutOfFuel => Failure::BudgetError(describe(error)),
        _ => Failure::Other(describe(error)),
    }
}

/// The error with its line and without template source lines, because clients see it.
fn describe(error: &Error) -> String {
    let line = error.line().filter(|line| *line > 0);
    let line = line.map_or(String::new(), |line| format!("line {line}: "));
    match error.detail() {
        Some(detail) => format!("{line}{}: {detail}", error.kind()),
        None => format!("{line}{}", error.kind()),
    }
}
