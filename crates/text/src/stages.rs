//! The stages of a tokenizer.json, checked before they are built: some kinds panic on faulty data,
//! loop for as long as a number says, or make a text grow without bound.

use serde::Deserialize;
use serde_json::Value;

use crate::TextError;

const FILE: &str = "tokenizer.json";
/// By how much all stages together may make a text grow.
const MAX_GROWTH: u64 = 8;
/// Maximum stages, and maximum levels of sequences of stages.
const MAX_STAGES: usize = 64;
const MAX_DEPTH: usize = 8;
/// Maximum bytes of a text that a stage adds once, or to each character.
const MAX_ADDED_BYTES: usize = 64;
/// Maximum tokens that a template adds, and maximum characters that a decoder strips.
const MAX_TOKENS: usize = 64;

/// The sections of a tokenizer.json. All but the model are parsed as plain JSON first, because
/// their parsers panic on invalid JSON.
#[derive(Deserialize)]
pub(crate) struct Sections {
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    post_processor: Option<Value>,
    decoder: Option<Value>,
    model: Affixes,
}

/// The texts that a model adds to each part of a word.
#[derive(Deserialize)]
struct Affixes {
    continuing_subword_prefix: Option<Value>,
    end_of_word_suffix: Option<Value>,
}

impl Sections {
    /// Checks all stages.
    ///
    /// # Errors
    /// Names the section, what is supported, and what was found.
    pub(crate) fn check(&self) -> Result<(), TextError> {
        let sections = [
            ("normalizer", "normalizers", &self.normalizer),
            ("pre_tokenizer", "pretokenizers", &self.pre_tokenizer),
            ("post_processor", "processors", &self.post_processor),
            ("decoder", "decoders", &self.decoder),
        ];
        for (section, list, value) in sections {
            let Some(value) = value else {
                continue;
            };
            let mut growth = 1_u64;
            for stage in stages(section, list, value)? {
                growth = growth.saturating_mul(check_stage(section, stage)?);
            }
            if growth > MAX_GROWTH {
                let expected =
                    format!("stages that make a text at most {MAX_GROWTH} times as long");
                return Err(wrong(section, &expected, growth));
            }
        }
        let affixes = [
            ("model.continuing_subword_prefix", &self.model.continuing_subword_prefix),
            ("model.end_of_word_suffix", &self.model.end_of_word_suffix),
        ];
        for (key, affix) in affixes {
            at_most(key, "bytes", length(affix.as_ref()), MAX_ADDED_BYTES)?;
        }
        Ok(())
    }
}

fn wrong(key: &str, expected: &str, found: impl ToString) -> TextError {
    TextError::value(FILE, key, expected, found)
}

fn at_most(key: &str, what: &str, found: usize, limit: usize) -> Result<(), TextError> {
    if found <= limit {
        return Ok(());
    }
    Err(wrong(key, &format!("at most {limit} {what}"), found))
}

/// Bytes of a text; 0 for another value.
fn length(value: Option<&Value>) -> usize {
    value.and_then(Value::as_str).map_or(0, str::len)
}

/// The stages of a section, sequences resolved.
fn stages<'a>(section: &str, list: &str, value: &'a Value) -> Result<Vec<&'a Value>, TextError> {
    let (mut open, mut found) = (vec![(value, 1)], Vec::new());
    while let Some((value, level)) = open.pop() {
        at_most(section, "levels of stages", level, MAX_DEPTH)?;
        match value.get(list).and_then(Value::as_array) {
            Some(members) => {
                at_most(section, "stages", members.len() + open.len() + found.len(), MAX_STAGES)?;
                open.extend(members.iter().map(|member| (member, level + 1)));
            }
            None => found.push(value),
        }
    }
    Ok(found)
}

/// Checks one stage; returns by how much it makes a text grow.
fn check_stage(section: &str, stage: &Value) -> Result<u64, TextError> {
    let kind = stage.get("type").and_then(Value::as_str);
    // A stage without a type is recognised by its keys.
    let has = |key: &str| stage.get(key).is_some();
    if kind == Some("Precompiled") || has("precompiled_charsmap") {
        return Err(wrong(section, "a normalizer of another kind", "Precompiled"));
    }
    if has("single") || has("special_tokens") {
        check_template(section, stage)?;
    }
    at_most(section, "bytes to prepend", length(stage.get("prepend")), MAX_ADDED_BYTES)?;
    at_most(section, "bytes of a prefix", length(stage.get("prefix")), MAX_ADDED_BYTES)?;
    for key in ["start", "stop"] {
        let number = stage.get(key).and_then(Value::as_u64).unwrap_or(0);
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        at_most(&format!("{section}.{key}"), "characters", number, MAX_TOKENS)?;
    }
    if kind == Some("FixedLength") && stage.get("length").and_then(Value::as_u64) == Some(0) {
        return Err(wrong(&format!("{section}.length"), "at least 1", 0));
    }
    match (stage.get("pattern"), stage.get("content")) {
        (Some(pattern), Some(Value::String(content))) => {
            let matched = length(pattern.get("String")).max(1);
            Ok((content.len().div_ceil(matched) as u64).max(1))
        }
        _ => Ok(1),
    }
}

/// Checks a template of special tokens around one text: the text once, and known tokens.
fn check_template(section: &str, stage: &Value) -> Result<(), TextError> {
    let key = format!("{section}.single");
    let pieces = stage.get("single").and_then(Value::as_array);
    let pieces = pieces.map_or(&[][..], Vec::as_slice);
    let (mut texts, mut tokens) = (0, 0);
    for piece in pieces {
        if let Some(sequence) = piece.get("Sequence") {
            texts += 1;
            let id = sequence.get("id").and_then(Value::as_str);
            if id != Some("A") || texts > 1 {
                let expected = "the text A once";
                return Err(wrong(&key, expected, piece));
            }
            continue;
        }
        let id = piece.pointer("/SpecialToken/id").and_then(Value::as_str);
        let known = id.and_then(|id| stage.get("special_tokens")?.get(id)?.get("ids")?.as_array());
        let Some(ids) = known else {
            return Err(wrong(&key, "tokens of special_tokens", piece));
        };
        tokens += ids.len();
        at_most(&key, "tokens", tokens, MAX_TOKENS)?;
    }
    Ok(())
}
