//! Text at the edge: tokenizer, chat template, incremental detokenizer, stop strings, grammars.
//!
//! Everything between here and the HTTP layer is text; everything between here and the
//! engine is token ids. A [`Tokenizer`] is loaded once and shared; a [`TextStream`] lives
//! as long as one choice of one request and turns its tokens into the text a client sees. [`Grammars`] turns a schema, a regex or a
//! grammar into a [`decode::Constraint`] over the tokens of one tokenizer.
#![deny(missing_docs)]

mod arena;
mod chat;
mod classify;
mod decoder;
mod detokenizer;
mod error;
mod files;
mod grammar;
mod python_json;
mod settings;
mod split_files;
mod stop;
mod stream;
mod tokenizer;
mod utf8;
mod vocabulary;

pub use chat::{ChatTemplate, Message};
pub use classify::classify;
pub use decode::TokenId;
pub use detokenizer::{Detokenizer, SpecialTokens};
pub use error::TextError;
pub use files::TokenizerFiles;
pub use grammar::{GrammarError, GrammarSpec, Grammars};
pub use stop::{Released, StopMatch, StopMatcher};
pub use stream::{Piece, StreamOptions, TextStream};
pub use tokenizer::Tokenizer;
