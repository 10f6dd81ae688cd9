//! The tokenizer of a model.

use std::borrow::Cow;
use std::path::Path;

use anyhow::Result;
use demo::checkpoint::Embedded;
use model::{ModelInfo, TokenizerJson, strict_json};
use text::{Conversation, Message, Tokenizer, TokenizerFiles};

use super::checkpoint;
use crate::config::Config;
use crate::exit;
use crate::hub;

/// Tokens that end a chat turn in the served families, in addition to the checkpoint's own.
const TURN_ENDS: &[&str] = &["<|eot_id|>", "<|im_end|>"];

/// The tokenizer of an embedded model, a folder, or the folder of a GGUF file.
///
/// # Errors
/// As [`load`](super::load).
pub fn tokenizer(path: &str) -> Result<Tokenizer> {
    parsed(&files(path)?)
}

/// As [`tokenizer`], with the configured chat template.
///
/// # Errors
/// As [`load`](super::load).
pub fn configured_tokenizer(path: &str, config: &Config) -> Result<Tokenizer> {
    match config.model.formats.chat_template.as_str() {
        "" => tokenizer(path),
        template => {
            let files = files(path)?.with_chat_template(Path::new(template));
            let refused = |error| format!("model.chat_template: {error}");
            parsed(&files.map_err(|error| exit::failure(exit::NO_INPUT, refused(error)))?)
        }
    }
}

fn files(path: &str) -> Result<TokenizerFiles> {
    if let Some(embedded) = Embedded::named(path) {
        return Ok(embedded_files(embedded));
    }
    let folder = match hub::is_gguf(path) {
        true => Path::new(path).parent().unwrap_or(Path::new("")),
        false => Path::new(path),
    };
    let files = TokenizerFiles::read(folder)
        .map_err(|error| exit::failure(exit::CHECKPOINT, error.to_string()))?;
    let strict = |text: Option<Vec<u8>>| text.map(|text| strict_json(&text).into_owned());
    let files = TokenizerFiles {
        config: strict(files.config),
        generation_config: strict(files.generation_config),
        ..files
    };
    let found = match files.tokenizer.is_some() || files.vocab.is_some() {
        true => None,
        false => stored(path)?,
    };
    Ok(match found {
        None => files,
        Some(stored) => TokenizerFiles {
            tokenizer: Some(stored.tokenizer),
            config: files.config.or(Some(stored.config)),
            generation_config: files.generation_config.or(Some(stored.generation)),
            ..files
        },
    })
}

/// The tokenizer in a GGUF file, or in the only one of a folder.
fn stored(path: &str) -> Result<Option<TokenizerJson>> {
    match checkpoint(path) {
        Ok(checkpoint) => checkpoint.tokenizer().map_err(exit::refused),
        Err(error) if hub::is_gguf(path) => Err(error),
        // Whoever loads the weights says what is wrong with them.
        Err(_) => Ok(None),
    }
}

fn embedded_files(embedded: Embedded) -> TokenizerFiles {
    let file = |name| embedded.file(name).map(<[u8]>::to_vec);
    TokenizerFiles {
        tokenizer: file("tokenizer.json"),
        config: file("tokenizer_config.json"),
        special_tokens_map: file("special_tokens_map.json"),
        generation_config: file("generation_config.json"),
        ..TokenizerFiles::default()
    }
}

fn parsed(files: &TokenizerFiles) -> Result<Tokenizer> {
    Tokenizer::new(files).map_err(|error| exit::failure(exit::CHECKPOINT, error.to_string()))
}

/// Sets the mask token, if the model has one; often only config.json names it. Then cuts the names of
/// control tokens, if configured.
pub(super) fn prepare(
    mut tokenizer: Tokenizer,
    info: &ModelInfo,
    config: &Config,
) -> Result<Tokenizer> {
    if let Some(mask) = info.vocabulary.mask {
        tokenizer.set_mask_id(mask);
    }
    if config.text.split_control_tokens {
        let refused = |error| format!("text.split_control_tokens: {error}");
        let cut = tokenizer.split_control_tokens();
        cut.map_err(|error| exit::failure(exit::CONFIG, refused(error)))?;
    }
    Ok(tokenizer)
}

pub(super) fn stop_tokens(tokenizer: &Tokenizer, info: &ModelInfo) -> Vec<u32> {
    let mut stops = info.vocabulary.end.clone();
    stops.extend_from_slice(tokenizer.eos_ids());
    stops.extend(TURN_ENDS.iter().filter_map(|token| tokenizer.token_to_id(token)));
    stops.retain(|id| (*id as usize) < info.vocabulary.size);
    stops.sort_unstable();
    stops.dedup();
    stops
}

/// The ids of a chat that holds `content` as its one user message, up to the answer's first token.
///
/// # Errors
/// As [`conversation_ids`].
pub fn chat_ids(content: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    conversation_ids(vec![Message::new("user", content)], tokenizer)
}

/// The ids of a chat, up to the first token of its next answer.
///
/// # Errors
/// A tokenizer without a chat template, messages that the template refuses, a text that cannot be
/// encoded.
pub fn conversation_ids(messages: Vec<Message>, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let chat = tokenizer.marked(Cow::Owned(Conversation::new(messages)));
    let text = tokenizer.chat_template()?.render_conversation(&chat, true)?;
    Ok(tokenizer.encode_chat(&text)?)
}
