//! Tests of the public interface, on the demo tokenizer and on small synthetic ones.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chat;
mod chat_limits;
mod classes;
mod cut;
mod demo_template;
mod detokenize;
mod encode;
mod fixtures;
mod grammar;
mod grammar_limits;
mod grammar_work;
mod load;
mod normal;
mod setup;
mod stop;
mod stream;
mod tags;
mod templates;
mod tools;
