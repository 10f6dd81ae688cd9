//! From the prompts of a request to token ids, within the model's context.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Given, Limits};
use step::{Attention, TokenId};
use text::{Conversation, Message, ReasoningFormat, TextError, Tokenizer, ToolFormat};

use crate::error::{ApiError, ErrorCode};
use crate::pipeline::chat_text::{Ending, chat_text};
use crate::pipeline::code::is_code_shaped;
use crate::pipeline::generation::{Generation, Input};
use crate::pipeline::pools::Interest;
use crate::pipeline::written::{self, Written, written};

/// Text of at most this many bytes is always encoded where the number of its tokens is not limited
/// by the context: by `/tokenize`, and if the request asks for truncation. (Cutting it before it is
/// encoded could change its tokens.)
pub const FREE_BYTES: usize = 1 << 20;
/// Bytes per token that are assumed of a tokenizer whose tokens have no greatest length.
const UNKNOWN_TOKEN_BYTES: usize = 512;

/// One encoded prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its ids, at least one.
    pub ids: Arc<[TokenId]>,
    /// The given ids in and after the generation.
    pub written: Arc<Written>,
    /// Its text; empty without `echo`.
    pub echo: String,
    /// True if it asks for code.
    pub code: bool,
    /// True if its answers begin inside of reasoning.
    pub reasoning: bool,
    /// Budget of its choices.
    pub max_tokens: u32,
}

impl Prompt {
    /// Its number of tokens for `usage`, a suffix included.
    pub fn tokens(&self) -> u64 {
        let suffix = self.written.given.suffix.len() - self.written.tail().len();
        (self.ids.len() + suffix) as u64
    }
}

/// The prompts of `request` as ids, each with the budget of its choices. A text with more bytes
/// than the longest tokens of a full context have is refused before it is encoded. Ends between two
/// prompts once nobody has an interest in the request.
///
/// # Errors
/// Prompts without tokens, or that do not fit the context with their budget; faults of the chat
/// template.
pub(crate) fn prompts(
    tokenizer: &Tokenizer,
    request: &Generation,
    limits: Limits,
    interest: &Interest,
) -> Result<Vec<Prompt>, ApiError> {
    let room = Room::new(tokenizer, limits);
    let encoder = Encoder {
        tokenizer,
        request,
        limits,
        room,
        written: Arc::new(written_of(tokenizer, request, limits, &room)?),
        has_code_suffix: request.prompts.suffix.as_deref().is_some_and(is_code_shaped),
    };
    match &request.prompts.input {
        Input::Texts(texts) => {
            let special = request.prompts.add_special_tokens;
            let ids = |text: &str| tokenizer.encode(text, special);
            let prompt = |text: &String| {
                interest.check()?;
                encoder.prompt(encoder.ids(text, ids)?, Some(text.clone()))
            };
            texts.iter().map(prompt).collect()
        }
        Input::Ids(lists) => {
            let prompt = |ids: &Vec<TokenId>| {
                interest.check()?;
                encoder.prompt(ids.clone(), None)
            };
            lists.iter().map(prompt).collect()
        }
        Input::Chat(chat) => {
            let text = conversation(tokenizer, request, chat)?;
            interest.check()?;
            let ids = encoder.ids(&text, |text| tokenizer.encode_chat(text))?;
            let text = tokenizer.unmarked(&text).into_owned();
            Ok(vec![encoder.prompt(ids, Some(text))?])
        }
    }
}

/// Encodes the prompts of one request.
struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    request: &'a Generation,
    limits: Limits,
    room: Room,
    written: Arc<Written>,
    has_code_suffix: bool,
}

impl Encoder<'_> {
    /// The ids of `text` by `encode`.
    fn ids(
        &self,
        text: &str,
        encode: impl Fn(&str) -> Result<Vec<TokenId>, TextError>,
    ) -> Result<Vec<TokenId>, ApiError> {
        let field = self.request.names.prompt;
        let is_cut = self.request.prompts.truncate.is_some();
        self.room.check(text, field, is_cut)?;
        encode(text).map_err(|error| ApiError::from_text(error, field))
    }

    /// The prompt of `ids`, and of `text` where they have one.
    fn prompt(&self, mut ids: Vec<TokenId>, text: Option<String>) -> Result<Prompt, ApiError> {
        let truncate = self.request.prompts.truncate;
        let cut = truncate.map_or(0, |kept| ids.len().saturating_sub(kept));
        ids.drain(..cut);
        let max_tokens = budget(self.request, ids.len(), &self.written, self.limits)?;
        let text = text
            .filter(|_| cut == 0)
            .unwrap_or_else(|| text_of(self.tokenizer, self.request, &ids));
        let is_open = |format: ReasoningFormat| format.is_open(&text);
        Ok(Prompt {
            written: Arc::clone(&self.written),
            code: self.has_code_suffix || is_code_shaped(&text),
            reasoning: self.request.format.reasoning.is_some_and(is_open),
            echo: match self.request.text.echo {
                true => text,
                false => String::new(),
            },
            ids: ids.into(),
            max_tokens,
        })
    }
}

/// The text of `ids`, with special tokens if the answer shows them.
fn text_of(tokenizer: &Tokenizer, request: &Generation, ids: &[TokenId]) -> String {
    let mut detokenizer = tokenizer.detokenizer(request.text.detokenizer());
    detokenizer.push(ids) + &detokenizer.finish()
}

/// The text of a chat, open at its end if its last message is continued.
fn conversation(
    tokenizer: &Tokenizer,
    request: &Generation,
    chat: &Conversation,
) -> Result<String, ApiError> {
    let ending = match request.prompts.is_continued {
        true => Ending::Continued,
        false => Ending::Answer,
    };
    let text = chat_text(tokenizer, chat, request.format.calls, ending);
    text.map_err(|error| ApiError::from_text(error, request.names.prompt))
}

/// The ids in and after the generation. A suffix is a canvas whose only given piece is its last.
fn written_of(
    tokenizer: &Tokenizer,
    request: &Generation,
    limits: Limits,
    room: &Room,
) -> Result<Written, ApiError> {
    if let Some(pieces) = &request.prompts.canvas {
        let edits = request.decoding.decoder.commit.name() == "edit"
            || matches!(limits.attention, Attention::Canvas(_));
        return written(tokenizer, limits, pieces, edits);
    }
    if let Some(text) = &request.prompts.prediction {
        room.check(text, "prediction", false)?;
        let prediction = tokenizer.encode(text, false);
        let prediction = prediction.map_err(|error| ApiError::from_text(error, "prediction"))?;
        return Ok(Written { given: Given { prediction, ..Given::default() }, length: None });
    }
    let Some(suffix) = &request.prompts.suffix else {
        return Ok(Written::default());
    };
    room.check(suffix, "suffix", false)?;
    let suffix = tokenizer.encode(suffix, false);
    let suffix = suffix.map_err(|error| ApiError::from_text(error, "suffix"))?;
    Ok(Written { given: Given { suffix, ..Given::default() }, length: None })
}

/// The ids of `text`, the field `prompt` of a request.
///
/// # Errors
/// A text that cannot be encoded, or of more than [`FREE_BYTES`] bytes that cannot fit the context.
pub fn text(
    tokenizer: &Tokenizer,
    limits: Limits,
    text: &str,
    add_special_tokens: bool,
) -> Result<Vec<TokenId>, ApiError> {
    Room::new(tokenizer, limits).check(text, "prompt", true)?;
    let ids = tokenizer.encode(text, add_special_tokens);
    ids.map_err(|error| ApiError::from_text(error, "prompt"))
}

/// A chat to encode.
#[derive(Clone, Copy, Debug)]
pub struct ChatPrompt<'a> {
    /// The chat.
    pub chat: &'a Conversation,
    /// The format of calls in its history.
    pub calls: ToolFormat,
    /// The end of its text.
    pub ending: Ending,
    /// The request field that it stands in, for errors.
    pub field: &'a str,
}

impl ChatPrompt<'_> {
    /// Its text in the model's template.
    ///
    /// # Errors
    /// Faults of the chat template.
    pub fn text(&self, tokenizer: &Tokenizer) -> Result<String, ApiError> {
        let text = chat_text(tokenizer, self.chat, self.calls, self.ending);
        text.map_err(|error| ApiError::from_text(error, self.field))
    }

    /// Its ids.
    ///
    /// # Errors
    /// As [`Self::text`]; a text of more than [`FREE_BYTES`] bytes that cannot fit the context.
    pub fn ids(&self, tokenizer: &Tokenizer, limits: Limits) -> Result<Vec<TokenId>, ApiError> {
        chat_ids(tokenizer, limits, &self.text(tokenizer)?, self.field)
    }
}

/// The ids of a part of a chat's text that stands in the request field `field`.
///
/// # Errors
/// A text that cannot be encoded, or of more than [`FREE_BYTES`] bytes that cannot fit the context.
pub fn chat_ids(
    tokenizer: &Tokenizer,
    limits: Limits,
    text: &str,
    field: &str,
) -> Result<Vec<TokenId>, ApiError> {
    Room::new(tokenizer, limits).check(text, field, true)?;
    tokenizer.encode_chat(text).map_err(|error| ApiError::from_text(error, field))
}

/// A text of a client for [`chat_ids`], behind the template: names of control tokens in it are plain text
/// where the tokenizer splits them.
pub fn client_text(tokenizer: &Tokenizer, text: &str) -> String {
    let chat = Conversation::new(vec![Message::new("user", text)]);
    let mut chat = tokenizer.marked(Cow::Owned(chat)).into_owned();
    chat.messages.pop().map_or_else(String::new, |message| message.content)
}

/// Bytes of text that can fit the context.
#[derive(Clone, Copy, Debug)]
struct Room {
    context: usize,
    longest: usize,
}

impl Room {
    fn new(tokenizer: &Tokenizer, limits: Limits) -> Self {
        Self {
            context: limits.max_model_len as usize,
            longest: tokenizer.longest_token_bytes().unwrap_or(UNKNOWN_TOKEN_BYTES),
        }
    }

    /// Refuses a `text` of the field `field` that has more tokens than the context, whatever its
    /// tokens are. If it `may_exceed` the context, [`FREE_BYTES`] are allowed in any case.
    fn check(self, text: &str, field: &str, may_exceed: bool) -> Result<(), ApiError> {
        let Self { context, longest } = self;
        let fits = context.saturating_mul(longest);
        let most = match may_exceed {
            true => fits.max(FREE_BYTES),
            false => fits,
        };
        if text.len() <= most {
            return Ok(());
        }
        let rest = format!(
            "has {} bytes, expected at most {most}: this model's maximum context length is \
             {context} tokens, of at most {longest} bytes each",
            text.len()
        );
        Err(ApiError::field(ErrorCode::ContextLengthExceeded, field, rest))
    }
}

/// The budget of a prompt of `length` tokens, which must fit the context with it and with the
/// `behind` tokens of the suffix.
fn budget(
    request: &Generation,
    length: usize,
    written: &Written,
    limits: Limits,
) -> Result<u32, ApiError> {
    let behind = written.given.suffix.len();
    let field = request.names.prompt;
    if length == 0 {
        return Err(ApiError::field(ErrorCode::InvalidValue, field, "has no tokens"));
    }
    let context = limits.max_model_len;
    let exceeded = |param, rest| ApiError::field(ErrorCode::ContextLengthExceeded, param, rest);
    let count = |tokens: usize| u32::try_from(tokens).unwrap_or(u32::MAX);
    let (prompt, used) = (count(length), count(length.saturating_add(behind)));
    let rest = context.checked_sub(used);
    if let Some(canvas) = written.length {
        return match rest {
            Some(rest) if canvas <= rest => Ok(canvas),
            _ => {
                let rest = format!(
                    "has {canvas} tokens, which with the prompt's {prompt} and the {behind} behind them exceed \
                     this model's maximum context length of {context} tokens"
                );
                Err(exceeded(written::FIELD, rest))
            }
        };
    }
    match (rest, request.stops.max_tokens) {
        (Some(rest), Some(max_tokens)) if max_tokens <= rest => Ok(max_tokens),
        (Some(rest), None) if rest > 0 => Ok(rest.min(request.default_budget())),
        (Some(rest), Some(_)) if rest > 0 => {
            let takes = match behind {
                0 => "the prompt takes",
                _ => "prompt and suffix take",
            };
            let rest = format!(
                "must be at most {rest}: this model's maximum context length is {context} tokens, \
                 of which {takes} {used}"
            );
            Err(exceeded(request.names.max_tokens, rest))
        }
        _ if behind > 0 && prompt <= context => Err(exceeded(
            "suffix",
            format!(
                "has {behind} tokens, which with the prompt's {prompt} leave no room in this model's \
                 maximum context length of {context} tokens"
            ),
        )),
        _ => Err(exceeded(
            field,
            format!("has {prompt} tokens, this model's maximum context length is {context} tokens"),
        )),
    }
}
