//! What the server promises about the fields of a body: a field is implemented, neutral, a hint,
//! known and unsupported, or unknown.

use std::fmt;

use engine::did_you_mean;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::Value;

use super::body::JsonBody;
use crate::error::{ApiError, ErrorCode, clip};

/// Fields without effect by design: accepted with any value.
pub const NEUTRAL: [&str; 19] = [
    "cache_control",
    "cache_prompt",
    "cache_salt",
    "guided_decoding_backend",
    "include",
    "include_reasoning",
    "metadata",
    "moderation",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "request_id",
    "safety_identifier",
    "separate_reasoning",
    "service_tier",
    "stream_reasoning",
    "timings_per_token",
    "truncation",
    "user",
];

/// Fields that ask for a manner or a place of answering: accepted with any value, and named in the
/// answer's header where they have no effect.
pub const HINTS: [&str; 4] = ["inference_geo", "reasoning_effort", "speed", "verbosity"];

/// Fields that OpenAI, Anthropic, vLLM, SGLang or llama.cpp would obey and this server does not:
/// refused, except with the values that ask for nothing, as JSON.
pub const UNSUPPORTED: [(&str, &[&str]); 53] = [
    ("add_generation_prompt", &["true"]),
    ("allowed_token_ids", &["[]"]),
    ("audio", &[]),
    ("background", &["false"]),
    ("bad_words", &["[]"]),
    ("best_of", &["1"]),
    ("chat_template", &[]),
    ("container", &[]),
    ("context_management", &[]),
    ("conversation", &[]),
    ("custom_logit_processor", &[]),
    ("documents", &["[]"]),
    ("dry_multiplier", &["0"]),
    ("dynatemp_range", &["0"]),
    ("echo", &["false"]),
    ("function_call", &["\"none\"", "\"auto\""]),
    ("functions", &["[]"]),
    ("id_slot", &["-1"]),
    ("input_ids", &[]),
    ("json_schema", &[]),
    ("kv_transfer_params", &[]),
    ("length_penalty", &["1"]),
    ("logits_processors", &["[]"]),
    ("logprobs", &["false"]),
    ("lora", &["[]"]),
    ("lora_path", &[]),
    ("max_tool_calls", &[]),
    ("mcp_servers", &["[]"]),
    ("min_keep", &["0"]),
    ("mirostat", &["0"]),
    ("mm_processor_kwargs", &["{}"]),
    ("modalities", &["[\"text\"]"]),
    ("n_keep", &["0"]),
    ("n_predict", &["-1"]),
    ("prediction", &[]),
    ("prompt_embeds", &[]),
    ("prompt_logprobs", &[]),
    ("repeat_last_n", &[]),
    ("repeat_penalty", &["1"]),
    ("return_hidden_states", &["false"]),
    ("return_tokens_as_token_ids", &["false"]),
    ("samplers", &[]),
    ("spaces_between_special_tokens", &["true"]),
    ("store", &["false"]),
    ("structural_tag", &[]),
    ("suffix", &[]),
    ("tfs_z", &["1"]),
    ("top_logprobs", &["0"]),
    ("typical_p", &["1"]),
    ("use_beam_search", &["false"]),
    ("vllm_xargs", &[]),
    ("web_search_options", &[]),
    ("xtc_probability", &["0"]),
];

/// Most unknown fields that an answer names.
const NAMED: usize = 32;
/// Most characters of an unknown field that an answer names.
const NAME_CHARS: usize = 128;

/// The unknown fields and the hints of `body`, whose endpoint implements `implemented`. Null counts
/// as absent.
///
/// # Errors
/// `unsupported_parameter`; `unknown_parameter` of an unknown field if `rejects`.
pub fn unknown(
    body: &JsonBody<'_>,
    implemented: &[&str],
    rejects: bool,
) -> Result<Vec<String>, ApiError> {
    let Keys(keys) = body.read()?;
    let mut unknown = Vec::new();
    for (key, value) in keys {
        if implemented.contains(&key.as_str()) || NEUTRAL.contains(&key.as_str()) {
            continue;
        }
        let known = UNSUPPORTED.iter().find(|(name, _)| *name == key);
        match known {
            Some((_, neutral)) if neutral.iter().any(|neutral| is_same(neutral, &value)) => {}
            Some((_, neutral)) => {
                let only = match neutral {
                    [] => String::new(),
                    values => format!("; only {} is", values[0]),
                };
                let rest = format!("is not supported by this server{only}");
                let code = ErrorCode::UnsupportedParameter;
                return Err(ApiError::field(code, key, rest));
            }
            None if HINTS.contains(&key.as_str()) => unknown.push(key),
            None if rejects => {
                let param = clip(&key);
                let known = implemented.iter().chain(&NEUTRAL).chain(&HINTS).copied();
                let hint = did_you_mean(&key, known);
                let rest = format!("does not exist{hint}; server.unknown_fields is \"reject\"");
                return Err(ApiError::field(ErrorCode::UnknownParameter, param, rest));
            }
            None => unknown.push(key),
        }
    }
    Ok(unknown)
}

/// Whether two values are the same as JSON; `1.0` is `1`.
fn is_same(left: &str, right: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    left == right || number(left).is_some_and(|left| number(right) == Some(left))
}

/// The value of a header that names fields; those that no header can hold are left out.
pub fn header(unknown: &[String]) -> String {
    let is_plain = |name: &&String| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        (1..=NAME_CHARS).contains(&name.len()) && name.bytes().all(is_part)
    };
    let names = unknown.iter().filter(is_plain).take(NAMED);
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The keys of an object that are not null. Values of up to [`SHORT`] bytes come as JSON.
struct Keys(Vec<(String, String)>);

/// Most bytes of a value that is compared.
const SHORT: usize = 16;

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(KeysVisitor)
    }
}

struct KeysVisitor;

impl<'de> Visitor<'de> for KeysVisitor {
    type Value = Keys;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let mut keys = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            // Only the values of known fields are looked at.
            if UNSUPPORTED.iter().any(|(name, _)| *name == key) {
                let value = map.next_value::<Value>()?;
                if !value.is_null() {
                    let text = value.to_string();
                    let is_short = text.len() <= SHORT;
                    keys.push((key, if is_short { text } else { String::new() }));
                }
            } else if map.next_value::<Option<IgnoredAny>>()?.is_some() {
                keys.push((key, String::new()));
            }
        }
        Ok(Keys(keys))
    }
}

/// The names of the fields that the struct `T` reads.
pub fn names<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // The struct is never made: the names are told first.
    let _ = T::deserialize(Names(&mut names));
    names
}

/// Notes the names of the fields of a struct, and ends.
struct Names<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("no struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(Self::Error::custom("only the names are read"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
