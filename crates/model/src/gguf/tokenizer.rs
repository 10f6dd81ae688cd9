//! The tokenizer in the metadata of a GGUF file, as the files of a Hugging Face folder.
//!
//! Byte-level BPE (`tokenizer.ggml.model` `gpt2`), and Gemma's BPE over characters (`gemma4`). A file of
//! the first kind names its split of a text into words (`tokenizer.ggml.pre`); those of Qwen, Llama 3,
//! Ling (LLaDA2, LLaDA-MoE), SmolLM and GPT-2 are known, by each name that llama.cpp has for them in files of
//! the architectures that are read.

use super::Gguf;
use super::volumes::plain;
use crate::LoadError;
use candle_core::quantized::gguf_file::Value as Field;
use serde_json::{Map, Value, json};

/// Types of tokens (`tokenizer.ggml.token_type`): control tokens are special, user-defined ones are
/// found in a text as a whole.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// Control tokens that end a text or a turn whatever the file says: it names one, and the families
/// that are read have up to three.
const ENDS: [&str; 11] = [
    "<|endoftext|>",
    "<|im_end|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|role_end|>",
    "<EOT>",
    "<｜end▁of▁sentence｜>",
];

/// Maximum bytes of all tokens and merges together.
const MOST_BYTES: usize = 64 << 20;

/// Files of a tokenizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizerJson {
    /// `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// `tokenizer_config.json`: special tokens and the chat template.
    pub config: Vec<u8>,
    /// `generation_config.json`: the tokens that end a text.
    pub generation: Vec<u8>,
}

/// The division of a text into words.
struct Split {
    names: &'static [&'static str],
    normalizer: Option<&'static str>,
    /// The pattern of a word; `None`: GPT-2's own.
    pattern: Option<&'static str>,
    /// Every digit is a word.
    digits: bool,
    /// A word that is a token is not split further.
    whole: bool,
    /// A text begins with the bos token unless the file says otherwise, as in llama.cpp.
    begins: bool,
}

const SPLITS: [Split; 5] = [
    Split {
        names: &["qwen2", "deepseek-r1-qwen", "kormo", "megrez"],
        normalizer: Some("NFC"),
        pattern: Some(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        digits: false,
        whole: false,
        begins: false,
    },
    Split {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "midm-2.0", "pixtral"],
        normalizer: None,
        pattern: Some(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        digits: false,
        whole: true,
        begins: true,
    },
    Split {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        normalizer: None,
        pattern: Some(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        ),
        digits: false,
        whole: false,
        begins: false,
    },
    Split {
        names: &["smollm"],
        normalizer: None,
        pattern: None,
        digits: true,
        whole: false,
        begins: false,
    },
    Split {
        names: &["gpt-2", "gigachat", "mellum", "a.x-4.0"],
        normalizer: None,
        pattern: None,
        digits: false,
        whole: false,
        begins: false,
    },
];

/// The model of Gemma's tokenizers: characters are merged, spaces are written as U+2581, and what is no
/// token becomes the tokens of its bytes. A text begins with the bos token.
const GEMMA: &str = "gemma4";
/// Its token for what has no bytes among the tokens.
const UNKNOWN: &str = "<unk>";

impl Split {
    /// Adds the parts of `tokenizer.json` that depend on the split.
    fn complete(&self, tokenizer: &mut Value) {
        tokenizer["normalizer"] = json!(self.normalizer.map(|name| json!({"type": name})));
        tokenizer["pre_tokenizer"] = pre_tokenizer(self);
        tokenizer["decoder"] = byte_level(true);
        tokenizer["model"]["ignore_merges"] = json!(self.whole);
    }
}

/// The same for Gemma's tokenizers.
fn complete_gemma(tokenizer: &mut Value, has_unknown: bool) {
    let replace = |pattern: &str, by: &str| json!({"type": "Replace", "pattern": {"String": pattern}, "content": by});
    tokenizer["normalizer"] = replace(" ", "\u{2581}");
    tokenizer["pre_tokenizer"] = json!({"type": "Split", "pattern": {"String": " "},
        "behavior": "MergedWithPrevious", "invert": false});
    tokenizer["decoder"] = json!({"type": "Sequence", "decoders": [
        replace("\u{2581}", " "), {"type": "ByteFallback"}, {"type": "Fuse"}]});
    tokenizer["model"]["unk_token"] = json!(has_unknown.then_some(UNKNOWN));
}

impl Gguf {
    /// The tokenizer in the file; `None` if it has no tokens.
    ///
    /// # Errors
    /// If it is of another kind, or incomplete.
    pub(crate) fn tokenizer(&self) -> Result<Option<TokenizerJson>, LoadError> {
        let Some(tokens) = self.texts("tokens") else {
            return Ok(None);
        };
        let is_gemma = self.only("model", &["gpt2", GEMMA])? == GEMMA;
        let split = match is_gemma {
            true => None,
            false => Some(self.split()?),
        };
        let merges = self.texts("merges").ok_or_else(|| self.refused("merges", &["a list"]))?;
        let bytes = tokens.iter().chain(&merges).map(|text| text.len()).sum();
        check_bytes(bytes)
            .map_err(|reason| LoadError::Corrupt { file: self.file.clone(), reason })?;
        let types = self.numbers("token_type");
        let kind = |id: usize| types.get(id).copied().unwrap_or(1);
        let is_added = |id: usize| [CONTROL, USER_DEFINED].contains(&kind(id));
        let entry = |id: usize| {
            json!({"id": id, "content": tokens[id], "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false, "special": kind(id) == CONTROL})
        };
        let added: Vec<Value> = (0..tokens.len()).filter(|id| is_added(*id)).map(entry).collect();
        // With all tokens: one that is added takes its number from here.
        let vocab = tokens.iter().enumerate();
        let vocab: Map<String, Value> =
            vocab.map(|(id, text)| ((*text).to_owned(), json!(id))).collect();
        let mut tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
            "post_processor": null,
            "model": {"type": "BPE", "dropout": null, "unk_token": null,
                "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": is_gemma, "byte_fallback": is_gemma, "ignore_merges": false,
                "vocab": vocab, "merges": merges},
        });
        match split {
            Some(split) => split.complete(&mut tokenizer),
            None => complete_gemma(&mut tokenizer, tokens.contains(&UNKNOWN)),
        }
        let begins = split.is_none_or(|split| split.begins);
        Ok(Some(TokenizerJson {
            tokenizer: tokenizer.to_string().into_bytes(),
            config: self.special(&tokens, begins).to_string().into_bytes(),
            generation: json!({"eos_token_id": self.ends(&tokens)}).to_string().into_bytes(),
        }))
    }

    /// The split of a text that the file names.
    fn split(&self) -> Result<&'static Split, LoadError> {
        let names: Vec<&str> = SPLITS.iter().flat_map(|split| split.names).copied().collect();
        let pre = self.only("pre", &names)?;
        let split = SPLITS.iter().find(|split| split.names.contains(&pre));
        split.ok_or_else(|| self.refused("pre", &names))
    }

    /// `tokenizer_config.json`.
    fn special(&self, tokens: &[&str], begins: bool) -> Value {
        let mut config = Map::new();
        for (role, key) in [("bos_token", "bos_token_id"), ("eos_token", "eos_token_id")] {
            let id = self.number(key).and_then(|id| usize::try_from(id).ok());
            let text = id.and_then(|id| tokens.get(id));
            config.extend(text.map(|text| (role.to_owned(), json!(text))));
        }
        for (flag, usual) in [("add_bos_token", begins), ("add_eos_token", false)] {
            let set = self.field(flag).and_then(|field| field.to_bool().ok());
            config.insert(flag.to_owned(), json!(set.unwrap_or(usual)));
        }
        let template = |key: &str| {
            let field = self.fields.get(key)?;
            field.to_string().ok()
        };
        let templates = [
            ("default", template("tokenizer.chat_template")),
            ("tool_use", template("tokenizer.chat_template.tool_use")),
        ];
        let [(_, default), (_, tools)] = templates;
        let named = templates.map(|(name, text)| json!({"name": name, "template": text}));
        let template = match (default, tools) {
            (Some(_), Some(_)) => Some(json!(named)),
            (default, _) => default.map(|text| json!(text)),
        };
        config.extend(template.map(|template| ("chat_template".to_owned(), template)));
        Value::Object(config)
    }

    /// The tokens that end a text or a turn.
    fn ends(&self, tokens: &[&str]) -> Vec<u64> {
        let named = ["eos_token_id", "eot_token_id", "eom_token_id"].into_iter();
        let mut ids: Vec<u64> = named.filter_map(|key| self.number(key)).collect();
        let types = self.numbers("token_type");
        for ((id, text), kind) in (0..).zip(tokens).zip(types) {
            if kind == CONTROL && ENDS.contains(text) && !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    }

    fn field(&self, key: &str) -> Option<&Field> {
        self.fields.get(&format!("tokenizer.ggml.{key}"))
    }

    fn number(&self, key: &str) -> Option<u64> {
        plain(self.field(key)?)?.as_u64()
    }

    fn texts(&self, key: &str) -> Option<Vec<&str>> {
        let texts = self.field(key)?.to_vec().ok()?.iter();
        let texts: Option<Vec<&str>> =
            texts.map(|field| field.to_string().ok().map(String::as_str)).collect();
        texts
    }

    fn numbers(&self, key: &str) -> Vec<u64> {
        let list = self.field(key).and_then(|field| field.to_vec().ok());
        let numbers = list.into_iter().flatten();
        numbers.map(|field| plain(field).and_then(|value| value.as_u64()).unwrap_or(1)).collect()
    }

    /// The text of a key, which must be one of `known`.
    fn only(&self, key: &str, known: &[&str]) -> Result<&str, LoadError> {
        let text = self.field(key).and_then(|field| field.to_string().ok());
        match text {
            Some(text) if known.contains(&text.as_str()) => Ok(text),
            _ => Err(self.refused(key, known)),
        }
    }

    fn refused(&self, key: &str, known: &[&str]) -> LoadError {
        let found = self.field(key);
        let found = found.and_then(|field| field.to_string().ok());
        LoadError::Key {
            file: self.file.clone(),
            key: format!("tokenizer.ggml.{key}"),
            expected: format!("{}, or tokenizer.json beside the file", known.join(", ")),
            found: found.map_or_else(|| "nothing".to_owned(), |text| format!("{text:?}")),
        }
    }
}

/// Bounds what the files made of the tokens take.
fn check_bytes(bytes: usize) -> Result<(), String> {
    match bytes <= MOST_BYTES {
        true => Ok(()),
        false => Err(format!(
            "tokenizer.ggml: expected tokens and merges of at most {MOST_BYTES} bytes, found {bytes}"
        )),
    }
}

fn byte_level(splits: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": splits})
}

fn pre_tokenizer(split: &Split) -> Value {
    let mut parts = Vec::new();
    if split.digits {
        parts.push(json!({"type": "Digits", "individual_digits": true}));
    }
    parts.extend(split.pattern.map(|pattern| {
        json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
            "invert": false})
    }));
    parts.push(byte_level(split.pattern.is_none()));
    json!({"type": "Sequence", "pretokenizers": parts})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tokenizer_of_too_many_bytes_is_refused() {
        assert_eq!(check_bytes(MOST_BYTES), Ok(()));
        let said = check_bytes(MOST_BYTES + 1).unwrap_err();
        assert!(said.contains("at most 67108864 bytes, found 67108865"), "{said}");
    }
}
