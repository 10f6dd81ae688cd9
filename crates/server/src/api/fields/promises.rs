//! The five levels of support of a request field: implemented, neutral, a hint, known and unsupported,
//! or unknown.

use engine::did_you_mean;
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

/// Fields that ask for a manner or a place of answering, or for a shorter history: accepted with any
/// value, and named in the answer's header where they have no effect.
pub const HINTS: [&str; 5] =
    ["context_management", "inference_geo", "reasoning_effort", "speed", "verbosity"];

/// Fields that OpenAI, Anthropic, vLLM, SGLang or llama.cpp would obey and this server does not:
/// refused, except with these neutral values, as JSON.
pub const UNSUPPORTED: [(&str, &[&str]); 52] = [
    ("add_generation_prompt", &["true"]),
    ("allowed_token_ids", &["[]"]),
    ("audio", &[]),
    ("background", &["false"]),
    ("bad_words", &["[]"]),
    ("best_of", &["1"]),
    ("chat_template", &[]),
    ("container", &[]),
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
    ("logprob_token_ids", &[]),
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
    ("web_search_options", &[]),
    ("xtc_probability", &["0"]),
];

/// Maximum number of unknown fields that an answer names.
const MAX_NAMED_FIELDS: usize = 32;
/// Maximum length in characters of an unknown field that an answer names.
const MAX_FIELD_CHARS: usize = 128;

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
    let mut unknown = Vec::new();
    for (key, value) in body.fields() {
        if implemented.contains(&key) || NEUTRAL.contains(&key) {
            continue;
        }
        let known = UNSUPPORTED.iter().find(|(name, _)| *name == key);
        match known {
            Some((_, neutral)) if neutral.iter().any(|neutral| is_same(neutral, value.get())) => {}
            Some((_, neutral)) => {
                let only = match neutral {
                    [] => String::new(),
                    values => format!("; only {} is", values[0]),
                };
                let rest = format!("is not supported by this server{only}");
                let code = ErrorCode::UnsupportedParameter;
                return Err(ApiError::field(code, key, rest));
            }
            None if HINTS.contains(&key) => unknown.push(key.to_owned()),
            None if rejects => {
                let param = clip(key);
                let known = implemented.iter().chain(&NEUTRAL).chain(&HINTS).copied();
                let hint = did_you_mean(key, known);
                let rest = format!("does not exist{hint}; server.unknown_fields is \"reject\"");
                return Err(ApiError::field(ErrorCode::UnknownParameter, param, rest));
            }
            None => unknown.push(key.to_owned()),
        }
    }
    Ok(unknown)
}

/// Maximum length in bytes of a value that is compared.
const COMPARED_BYTES: usize = 64;

/// True if two values are the same as JSON; `1.0` is `1`.
fn is_same(left: &str, right: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    number(left).is_some_and(|left| number(right) == Some(left))
        || right.len() <= COMPARED_BYTES && value(left) == value(right)
}

/// The value of a header that names fields; those that no header can hold are left out.
pub fn header(unknown: &[String]) -> String {
    let is_plain = |name: &&String| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        (1..=MAX_FIELD_CHARS).contains(&name.len()) && name.bytes().all(is_part)
    };
    let names = unknown.iter().filter(is_plain).take(MAX_NAMED_FIELDS);
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}
