//! The grammar of an answer with calls, in llguidance's dialect of Lark.

use serde_json::{Value, json};

use super::normal::{Omission, normalize};
use super::rules::{followed, inline, line, quoted};
use super::{gemma, tags};
use crate::ToolFormat;
use crate::tools::{FUNCTION_END, Marks};

/// Maximum calls of one answer.
const MAX_CALLS: usize = 16;

/// A function that an answer may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name: `A-Z a-z 0-9 _ . -`.
    pub name: String,
    /// The schema of its arguments, an object.
    pub parameters: Value,
    /// The strictness with which the arguments follow the schema.
    pub follow: Follow,
}

/// The strictness with which the arguments of a call follow their schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// Wholly: a keyword that cannot be followed is an error.
    #[default]
    Wholly,
    /// Without the keywords that cannot be followed.
    AsFarAsPossible,
    /// Not at all: any arguments.
    Not,
}

impl Tool {
    /// The keywords of the schema that calls do not follow, by their paths; all of it is the name of the
    /// function alone.
    pub fn left_out(&self) -> Vec<String> {
        match self.follow {
            Follow::Wholly => Vec::new(),
            Follow::Not => vec![self.name.clone()],
            Follow::AsFarAsPossible => {
                let left_out = normalize(&mut self.parameters.clone());
                let path = |out: &Omission| format!("{}.{}", self.name, out.path);
                left_out.iter().map(path).collect()
            }
        }
    }

    /// The schema that calls follow.
    fn followed(&self) -> Result<Value, String> {
        match self.follow {
            Follow::Wholly => followed(&self.parameters, false),
            Follow::Not => Ok(json!({"type": "object"})),
            Follow::AsFarAsPossible => {
                let mut schema = self.parameters.clone();
                normalize(&mut schema);
                Ok(schema)
            }
        }
    }
}

/// The place of calls in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolUse {
    /// Free text until a call begins; the call follows its schema; then free text again.
    Auto,
    /// Calls only, at least one.
    Required,
}

/// The grammar of an answer that may call functions.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolGrammar {
    /// The format of the calls.
    pub format: ToolFormat,
    /// The functions, at least one, with different names.
    pub tools: Vec<Tool>,
    /// True if the answer must call.
    pub mode: ToolUse,
    /// Permits more than one call, at most 16.
    pub parallel: bool,
    /// The schema of an answer without calls; free text if there is none. Only with
    /// [`ToolUse::Auto`] and a format with tags.
    pub answer: Option<Value>,
}

/// The source of `grammar`. Its schemas are within the limits of a specification.
///
/// # Errors
/// A schema that the format cannot follow, or an answer's schema beside a format without tags.
pub(super) fn source(grammar: &ToolGrammar) -> Result<String, String> {
    let marks = grammar.format.marks();
    let calls = if grammar.parallel { MAX_CALLS } else { 1 };
    let more = calls - 1;
    let mut source = String::new();
    let lead = match grammar.format {
        ToolFormat::Gemma => "call:",
        ToolFormat::Qwen3Coder => "\n<function=",
        ToolFormat::Hermes | ToolFormat::Llada2 => "\n{\"name\": \"",
        ToolFormat::Llama3Json | ToolFormat::Json => "{\"name\": \"",
    };
    let open = marks.open.unwrap_or_default();
    let first = quoted(&format!("{open}{lead}"));
    let next = quoted(&format!("{}{open}{lead}", marks.between));
    let enforced = match more {
        0 => format!("{first} one"),
        _ => format!("{first} one ({next} one){{0,{more}}}"),
    };
    match (grammar.mode, marks.open, &grammar.answer) {
        (ToolUse::Required, ..) => line(&mut source, "start", &enforced),
        (ToolUse::Auto, Some(_), Some(answer)) => {
            line(&mut source, "start", &format!("{enforced} | answer"));
            line(&mut source, "answer", &inline(&followed(answer, true)?));
        }
        (ToolUse::Auto, None, Some(_)) => {
            return Err("the model's format of calls allows free text only".to_owned());
        }
        (ToolUse::Auto, Some(open), None) => {
            // The first rule ends at the first mark of a beginning, the second one never contains
            // it. Text has no mark of an end: without a beginning it ends no call.
            line(&mut source, "start", &format!("(until one){{0,{calls}}} rest?"));
            line(&mut source, "until", &format!("before {}", quoted(lead)));
            let text = format!("before[suffix={}]", quoted(open));
            line(&mut source, &text, "BEFORE");
            line(&mut source, "rest", "REST");
            let without = |mark: &str| format!("~/(?s:.*){}(?s:.*)/", escaped(mark));
            let (no_open, no_close) = (without(open), without(marks.close.trim_start()));
            line(&mut source, "BEFORE", &format!("/(?s:.*)/ & {no_close}"));
            let rest = format!("/(?s:.+)/ & {no_open} & {no_close}");
            line(&mut source, "REST", &rest);
        }
        (ToolUse::Auto, None, None) => {
            line(&mut source, "start", &format!("({enforced} | rest)?"));
            line(&mut source, "rest", "REST");
            line(&mut source, "REST", "/(?s:.+)/ & ~/\\{\"name\":(?s:.*)/");
        }
    }
    functions(&mut source, grammar, marks)?;
    Ok(source)
}

/// The rule of one call after its beginning: name, arguments and end of each function.
fn functions(source: &mut String, grammar: &ToolGrammar, marks: Marks) -> Result<(), String> {
    let end = quoted(&match grammar.format {
        ToolFormat::Gemma => marks.close.to_owned(),
        ToolFormat::Qwen3Coder => format!("{FUNCTION_END}{}", marks.close),
        _ => format!("}}{}", marks.close),
    });
    let is_plain = matches!(grammar.format, ToolFormat::Gemma | ToolFormat::Qwen3Coder);
    // Arguments of any kind in a format that is not JSON: all up to the end.
    let is_free = |tool: &Tool| is_plain && tool.follow == Follow::Not;
    let one = |(index, tool): (usize, &Tool)| {
        let head = match grammar.format {
            ToolFormat::Gemma => quoted(&tool.name),
            ToolFormat::Qwen3Coder => quoted(&format!("{}>\n", tool.name)),
            _ => quoted(&format!("{}\", \"{}\": ", tool.name, marks.arguments)),
        };
        match is_free(tool) {
            true => format!("{head} args_{index}"),
            false => format!("{head} args_{index} {end}"),
        }
    };
    let all: Vec<String> = grammar.tools.iter().enumerate().map(one).collect();
    line(source, "one", &all.join(" | "));
    for (index, tool) in grammar.tools.iter().enumerate() {
        let name = format!("args_{index}");
        let schema = tool.followed()?;
        match grammar.format {
            _ if is_free(tool) => {
                line(source, &format!("{name}[suffix={end}]"), "/(?s:.*)/");
            }
            ToolFormat::Gemma => gemma::rules(source, &name, &schema)?,
            ToolFormat::Qwen3Coder => tags::rules(source, &name, &schema)?,
            _ => line(source, &name, &inline(&object(&schema))),
        }
    }
    Ok(())
}

/// `schema` for objects alone.
fn object(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Value::Object(members) = &mut schema {
        members.insert("type".to_owned(), json!("object"));
    }
    schema
}

/// `text` inside a regex between slashes.
fn escaped(text: &str) -> String {
    let special = |c: char| !(c.is_alphanumeric() || "<>_\" ".contains(c));
    let mut regex = String::new();
    for c in text.chars() {
        if special(c) {
            regex.push('\\');
        }
        regex.push(c);
    }
    regex
}
