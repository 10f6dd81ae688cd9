//! Special tokens and their roles, and the parsing of a tokenizer.json.

use std::panic::AssertUnwindSafe;

use tokenizers::{AddedToken, Encoding, Tokenizer as HfTokenizer};

use crate::settings::Settings;
use crate::stages::Sections;
use crate::{TextError, TokenId};

/// A special token with a role; it has no id if the vocabulary does not contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) text: String,
    pub(crate) id: Option<TokenId>,
}

/// The tokens with a role.
#[derive(Debug)]
pub(crate) struct Roles {
    pub(crate) bos: Option<Role>,
    pub(crate) eos: Option<Role>,
    pub(crate) pad: Option<Role>,
    pub(crate) mask: Option<Role>,
}

impl Roles {
    pub(crate) fn new(hf: &HfTokenizer, settings: &Settings) -> Self {
        let role = |name, ids: &[TokenId]| find_role(hf, settings.role(name), ids);
        Self {
            bos: role("bos_token", &settings.bos_ids),
            eos: role("eos_token", &settings.eos_ids),
            pad: role("pad_token", &settings.pad_ids),
            mask: role("mask_token", &[]),
        }
    }
}

/// The token with a role: by its text, otherwise the first of `ids` with a token.
fn find_role(hf: &HfTokenizer, text: Option<&str>, ids: &[TokenId]) -> Option<Role> {
    match text {
        Some(text) => Some(Role { text: text.to_owned(), id: hf.token_to_id(text) }),
        None => ids.iter().find_map(|&id| Some(Role { text: hf.id_to_token(id)?, id: Some(id) })),
    }
}

pub(crate) fn text(role: &Option<Role>) -> Option<&str> {
    role.as_ref().map(|role| role.text.as_str())
}

pub(crate) fn id(role: &Option<Role>) -> Option<TokenId> {
    role.as_ref()?.id
}

/// Parses a tokenizer.json after a check of its stages.
pub(crate) fn parse(bytes: &[u8]) -> Result<HfTokenizer, TextError> {
    let file = "tokenizer.json";
    let sections: Sections =
        serde_json::from_slice(bytes).map_err(|e| TextError::malformed(file, e))?;
    sections.check()?;
    // Parsers panic on some faults that no check knows.
    let parsed = std::panic::catch_unwind(|| HfTokenizer::from_bytes(bytes));
    let parsed = parsed.map_err(|_| TextError::malformed(file, "the parser failed"))?;
    parsed.map_err(|e| TextError::malformed(file, e))
}

/// Encodes `text` with `hf`, whose stages may panic on faulty data.
pub(crate) fn encode_with(
    hf: &HfTokenizer,
    text: &str,
    special: bool,
) -> Result<Encoding, TextError> {
    let encode = AssertUnwindSafe(|| hf.encode_fast(text, special));
    match std::panic::catch_unwind(encode) {
        Ok(encoding) => encoding.map_err(|error| TextError::Encode(error.to_string())),
        Err(_) => Err(TextError::Encode("the tokenizer failed".to_owned())),
    }
}

/// Adds the tokens that only the settings contain, and marks as special the tokens that only the
/// settings mark as special.
pub(crate) fn add_tokens(hf: &mut HfTokenizer, settings: &Settings) -> Result<(), TextError> {
    let known = hf.get_added_tokens_decoder();
    let is_new = |id: &TokenId, token: &AddedToken| {
        known.get(id).is_none_or(|known| known.content != token.content)
    };
    let added = settings.added.iter().filter(|(id, token)| is_new(id, token));
    let added: Vec<AddedToken> = added.map(|(_, token)| token.clone()).collect();
    hf.add_tokens(added).map_err(|e| TextError::malformed("tokenizer_config.json", e))?;
    for (id, token) in &settings.added {
        let found = hf.token_to_id(&token.content);
        if found != Some(*id) {
            let key = format!("added_tokens_decoder.{id}");
            let expected = format!("the id of {:?} in tokenizer.json", token.content);
            let found = found.map_or("none".to_owned(), |id| id.to_string());
            return Err(TextError::value("tokenizer_config.json", &key, &expected, found));
        }
    }
    let known = hf.get_added_tokens_decoder();
    let flagged = settings.added.iter().filter(|(_, token)| token.special);
    let flagged = flagged.map(|(_, token)| token.content.as_str());
    let named = settings.roles.iter().map(|(_, text)| text.as_str());
    let extra = settings.extra_special.iter().map(String::as_str);
    let mut special = Vec::new();
    for content in named.chain(extra).chain(flagged) {
        let Some(id) = hf.token_to_id(content) else {
            continue;
        };
        match known.get(&id) {
            Some(token) if token.special => {}
            Some(token) => special.push(token.clone().special(true)),
            None => special.push(AddedToken::from(content, true)),
        }
    }
    hf.add_special_tokens(special).map_err(|e| TextError::malformed("tokenizer_config.json", e))?;
    Ok(())
}
