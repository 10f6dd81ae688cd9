//! Calls of functions in the text of an answer: how models write them, and their reading.

mod gemma;
mod head;
mod plain;
mod stream;
mod tags;

use crate::{TokenId, Tokenizer};
pub(crate) use gemma::QUOTE;
pub use plain::plain_conversation;
pub use stream::CallStream;
pub(crate) use tags::{FUNCTION_END, Kinds, PARAMETER, VALUE_END, resolved};

/// The format in which a family of models writes calls in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFormat {
    /// `<tool_call>\n{"name": "f", "arguments": {..}}\n</tool_call>`: models based on Qwen, such as
    /// Dream, WeDLM and SDAR.
    Hermes,
    /// `{"name": "f", "parameters": {..}}` as the whole answer; `; ` between two calls.
    Llama3Json,
    /// LLaDA 2: the tags and the JSON of [`Self::Hermes`].
    Llada2,
    /// `<|tool_call>call:f{key:value}<tool_call|>`: Gemma 4, with texts in `<|"|>`.
    Gemma,
    /// `{"name": "f", "arguments": {..}}` as the whole answer; a line break between two calls.
    Json,
    /// `<tool_call>\n<function=f>\n<parameter=x>\nvalue\n</parameter>\n</function>\n</tool_call>`:
    /// Qwen3-Coder and Nemotron 3.
    Qwen3Coder,
}

/// Marks of calls in formats that are not written here.
const UNSUPPORTED_MARKS: [&str; 14] = [
    "<function=",
    "[TOOL_CALLS]",
    "<｜tool▁call▁begin｜>",
    "<|tool_call|>",
    "<|tool_call_begin|>",
    "<|tool_call_start|>",
    "<arg_key>",
    "<TOOLCALL>",
    "<toolcall>",
    "<|START_ACTION|>",
    "<invoke name=",
    "<tool_calls>",
    "functools[",
    "Action:",
];

impl ToolFormat {
    /// The formats by their names.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("hermes", Self::Hermes),
        ("llama3_json", Self::Llama3Json),
        ("llada2", Self::Llada2),
        ("gemma", Self::Gemma),
        ("json", Self::Json),
        ("qwen3_coder", Self::Qwen3Coder),
    ];

    /// The format called `name`.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, format)| *format)
    }

    /// The format that the source of a chat template shows; [`Self::Hermes`] if it shows none.
    ///
    /// # Errors
    /// The mark of a format that is not written here.
    pub fn of_template(source: &str) -> Result<Self, &'static str> {
        let has = |text: &str| source.contains(text);
        Ok(if has("<|tool_call>") {
            Self::Gemma
        } else if has("<function=") && has("<parameter=") {
            Self::Qwen3Coder
        } else if let Some(mark) = UNSUPPORTED_MARKS.iter().find(|mark| has(mark)) {
            return Err(mark);
        } else if has("<tool_call>") && has("<role>") {
            Self::Llada2
        } else if has("<tool_call>") {
            Self::Hermes
        } else if has("\"parameters\"") && (has("<|python_tag|>") || has("ipython")) {
            Self::Llama3Json
        } else {
            Self::Hermes
        })
    }

    /// The texts around calls.
    pub(crate) fn marks(self) -> Marks {
        let json = |open, close, between, arguments| Marks { open, close, between, arguments };
        match self {
            Self::Hermes | Self::Llada2 => {
                json(Some("<tool_call>"), "\n</tool_call>", "\n", "arguments")
            }
            Self::Gemma => json(Some("<|tool_call>"), "<tool_call|>", "", ""),
            Self::Qwen3Coder => json(Some("<tool_call>"), "\n</tool_call>", "\n", ""),
            Self::Llama3Json => json(None, "", "; ", "parameters"),
            Self::Json => json(None, "", "\n", "arguments"),
        }
    }

    /// The special tokens of `tokenizer` that are part of calls: an answer with calls shows them,
    /// and its grammar allows them.
    pub fn special_tokens(self, tokenizer: &Tokenizer) -> Vec<TokenId> {
        let texts: &[&str] = match self {
            Self::Hermes | Self::Llada2 | Self::Qwen3Coder => &["<tool_call>", "</tool_call>"],
            Self::Gemma => &["<|tool_call>", "<tool_call|>", "<|\"|>"],
            Self::Llama3Json | Self::Json => &[],
        };
        let ids = texts.iter().filter_map(|text| tokenizer.token_to_id(text));
        ids.filter(|id| tokenizer.is_special(*id)).collect()
    }
}

/// The texts around calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// The mark before a call; without it, a call is recognised by its first key.
    pub(crate) open: Option<&'static str>,
    /// The mark at the end of a call, after its arguments.
    pub(crate) close: &'static str,
    /// The text between two enforced calls.
    pub(crate) between: &'static str,
    /// The key of the arguments.
    pub(crate) arguments: &'static str,
}
