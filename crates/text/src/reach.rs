//! The bytes of a text for which one token can stand.

use std::collections::HashMap;

use tokenizers::models::ModelWrapper;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{NormalizedString, Normalizer, SplitDelimiterBehavior, Tokenizer as HfTokenizer};

use crate::TokenId;

/// NFC maps at most this many bytes to one: U+212A, three bytes, becomes `K`.
const MAX_COMPOSITION_BYTES: usize = 3;
/// Maximum bytes of one character.
const MAX_CHARACTER_BYTES: usize = 4;

/// The largest number of bytes of a text that one token stands for. `None` if there is no such
/// number: a stage drops text, a token takes blanks beside it, or unknown text becomes one token.
pub(crate) fn longest_token_bytes(hf: &HfTokenizer) -> Option<usize> {
    let shrinks = hf.get_normalizer().map_or(Some(1), shrinking)?;
    let bytes = hf.get_pre_tokenizer().map_or(Some(false), byte_level)?;
    let added = hf.get_added_tokens_decoder();
    if added.values().any(|token| token.lstrip || token.rstrip) {
        return None;
    }
    let ModelWrapper::BPE(model) = hf.get_model() else {
        return None;
    };
    let affixes = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
    if affixes.into_iter().flatten().any(|affix| !affix.is_empty()) {
        return None;
    }
    let vocabulary = model.get_vocab();
    let unknown = match &model.unk_token {
        _ if is_complete(&vocabulary, bytes, model.byte_fallback) => 0,
        Some(unknown) if !model.fuse_unk && vocabulary.contains_key(unknown) => MAX_CHARACTER_BYTES,
        _ => return None,
    };
    let length = |token: &str| {
        if bytes { token.chars().count() } else { token.len() }
    };
    let longest = vocabulary.keys().map(|token| length(token)).max()?;
    let added = added.values().map(|token| as_matched(hf, &token.content));
    let added = added.max();
    Some(longest.max(added.unwrap_or(0)).max(unknown).max(1) * shrinks)
}

/// Maximum bytes that the text of an added token has where it is searched: the normalizer may change
/// it first.
fn as_matched(hf: &HfTokenizer, content: &str) -> usize {
    let mut normalized = NormalizedString::from(content);
    let changed =
        hf.get_normalizer().is_some_and(|normalizer| normalizer.normalize(&mut normalized).is_ok());
    let normalized = if changed { normalized.get().len() } else { 0 };
    normalized.max(content.len())
}

/// By how much a normalizer can shrink a text; `None` if without bound.
fn shrinking(normalizer: &NormalizerWrapper) -> Option<usize> {
    match normalizer {
        NormalizerWrapper::Sequence(stages) => stages
            .as_ref()
            .iter()
            .try_fold(1, |product: usize, stage| product.checked_mul(shrinking(stage)?)),
        NormalizerWrapper::NFC(_) => Some(MAX_COMPOSITION_BYTES),
        NormalizerWrapper::Prepend(_) | NormalizerWrapper::ByteLevel(_) => Some(1),
        NormalizerWrapper::Replace(replace) => {
            let pattern = serde_json::to_value(replace).ok()?;
            let pattern = pattern.get("pattern")?.get("String")?.as_str()?.len();
            (pattern <= replace.content.len()).then_some(1)
        }
        _ => None,
    }
}

/// True if the model sees each byte as one character; `None` if a stage drops text.
fn byte_level(pre_tokenizer: &PreTokenizerWrapper) -> Option<bool> {
    let keeps = |behavior: SplitDelimiterBehavior| {
        (behavior != SplitDelimiterBehavior::Removed).then_some(false)
    };
    match pre_tokenizer {
        PreTokenizerWrapper::ByteLevel(_) => Some(true),
        PreTokenizerWrapper::Metaspace(_)
        | PreTokenizerWrapper::Digits(_)
        | PreTokenizerWrapper::UnicodeScripts(_) => Some(false),
        PreTokenizerWrapper::Split(split) => keeps(split.behavior),
        PreTokenizerWrapper::Punctuation(punctuation) => keeps(punctuation.behavior),
        PreTokenizerWrapper::Sequence(stages) => {
            stages.as_ref().iter().try_fold(false, |any, stage| Some(any | byte_level(stage)?))
        }
        _ => None,
    }
}

/// True if every byte of a text has a token.
fn is_complete(vocabulary: &HashMap<String, TokenId>, bytes: bool, fallback: bool) -> bool {
    if bytes {
        let alphabet = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        return alphabet.iter().all(|character| vocabulary.contains_key(&character.to_string()));
    }
    fallback && (0..=255_u8).all(|byte| vocabulary.contains_key(&format!("<0x{byte:02X}>")))
}
