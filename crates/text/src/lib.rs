//! Conversion between text and token ids: tokenizer, chat template, incremental detokenizer,
//! stop strings, grammars.
//!
//! The HTTP layer works with text, the engine with token ids. A [`Tokenizer`] is loaded once and
//! shared. A [`TextStream`] converts the tokens of one answer to a request into the text that
//! the client receives. [`Grammars`] compiles a schema, a regex or a grammar into a
//! [`decode::Constraint`] over the tokens of one tokenizer.
#![deny(missing_docs)]

mod arena;
mod chat;
mod classify;
mod cut;
mod detokenizer;
mod error;
mod files;
mod grammar;
mod part;
mod parts;
mod python_json;
mod reach;
mod reasoning;
mod settings;
mod special;
mod split_files;
mod stages;
mod stop;
mod stream;
mod token_decoder;
mod tokenizer;
mod tools;
mod utf8;
mod vocabulary;

pub use chat::{ChatTemplate, Conversation, Message, PastCall};
pub use classify::classify;
pub use decode::TokenId;
pub use detokenizer::{Detokenizer, SpecialTokens};
pub use error::TextError;
pub use files::TokenizerFiles;
pub use grammar::{Follow, GrammarError, GrammarSpec, Grammars, Tool, ToolGrammar, ToolUse};
pub use part::Part;
pub use parts::PartStream;
pub use reasoning::{ReasoningFormat, ReasoningStream};
pub use stop::{StopMatch, StopMatcher, StopOutput};
pub use stream::{Piece, StreamOptions, TextStream};
pub use tokenizer::Tokenizer;
pub use tools::{CallStream, ToolFormat, plain_conversation};
