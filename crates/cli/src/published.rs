//! The sampler's settings that a canvas model publishes in generation_config.json.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Result;
use decode::Value;
use engine::decoding::DecodingSpec;
use model::strict_json;
use serde_json::Value as Json;

use crate::exit;

const FILE: &str = "generation_config.json";
/// Keys of the file, and the settings of the commit rule `renoise` that they are.
const KEYS: [(&str, &str); 6] = [
    ("/sampler_config/entropy_bound", "entropy_bound"),
    ("/max_denoising_steps", "max_denoising_steps"),
    ("/t_min", "t_min"),
    ("/t_max", "t_max"),
    ("/stability_threshold", "stability_threshold"),
    ("/confidence_threshold", "confidence_threshold"),
];

/// The settings that a model's folder publishes.
///
/// # Errors
/// A file that cannot be read, a value of the wrong type or out of range.
pub fn settings(folder: &Path) -> Result<DecodingSpec> {
    let mut published = DecodingSpec::default();
    let bytes = match std::fs::read(folder.join(FILE)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(published),
        Err(error) => return Err(refused(error)),
    };
    let config: Json = serde_json::from_slice(&strict_json(&bytes)).map_err(refused)?;
    for (key, name) in KEYS {
        let value = match config.pointer(key) {
            None | Some(Json::Null) => continue,
            Some(value) => number(value).map_err(|found| {
                let key = key.trim_start_matches('/').replace('/', ".");
                refused(format!("{key}: expected a number, found {found}"))
            })?,
        };
        published.set(name, value).map_err(refused)?;
    }
    Ok(published)
}

/// A number of the file, or what was found instead.
fn number(value: &Json) -> Result<Value<'static>, String> {
    let whole = value.as_i64().map(Value::Integer);
    let number = whole.or_else(|| value.as_f64().map(Value::Number));
    number.ok_or_else(|| value.to_string().chars().take(64).collect())
}

fn refused(what: impl std::fmt::Display) -> anyhow::Error {
    exit::failure(exit::CHECKPOINT, format!("{FILE}: {what}"))
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use engine::decoding::{Decoders, WeightKind};
    use step::{Attention, LogitShift};

    use super::*;

    fn read(content: &str) -> Result<String> {
        let folder = std::env::temp_dir().join(format!(
            "asynclane-published-{}-{}",
            std::process::id(),
            content.len()
        ));
        std::fs::create_dir_all(&folder).context("a folder")?;
        std::fs::write(folder.join(FILE), content).context("a file")?;
        let weights = WeightKind {
            attention: Attention::Canvas(256),
            logit_shift: LogitShift::None,
            edits: false,
            drafts: false,
            masks: true,
        };
        let configured = DecodingSpec::parse("t_min=0.5")?;
        let read = settings(&folder).map(|published| {
            let decoders = Decoders::new(weights, configured, published);
            decoders.spec(&decoders.blank()).to_string()
        });
        std::fs::remove_dir_all(&folder).context("no folder")?;
        read
    }

    #[test]
    fn published_settings_stand_where_the_operator_named_none() {
        let all = r#"{"eos_token_id": [1], "max_denoising_steps": 12, "t_min": 0.2, "t_max": 1,
            "stability_threshold": 2, "confidence_threshold": null, "length_penalty": Infinity,
            "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.3}}"#;
        assert_eq!(
            read(all).expect("it reads"),
            "canvas,t_min=0.5,block_length=256,entropy_bound=0.3,max_denoising_steps=12,t_max=1,stability_threshold=2"
        );
        assert_eq!(read("{}").expect("it reads"), "canvas,t_min=0.5,block_length=256");
        let absent = settings(Path::new("/no such folder")).expect("no file");
        assert!(absent.is_empty(), "{absent}");
    }

    #[test]
    fn a_wrong_setting_is_refused_by_name() {
        for (content, expected) in [
            (
                r#"{"max_denoising_steps": "many"}"#,
                "generation_config.json: max_denoising_steps: expected a number, found \"many\"",
            ),
            (
                r#"{"sampler_config": {"entropy_bound": true}}"#,
                "generation_config.json: sampler_config.entropy_bound: expected a number, found true",
            ),
            (
                r#"{"t_max": 0}"#,
                "generation_config.json: t_max must be a number in 0.001..10, got 0",
            ),
            (
                r#"{"max_denoising_steps": 4.5}"#,
                "generation_config.json: max_denoising_steps must be an integer in 1..1024, got 4.5",
            ),
        ] {
            assert_eq!(read(content).expect_err("refused").to_string(), expected);
        }
        let cut = read("{").expect_err("refused").to_string();
        assert!(cut.starts_with("generation_config.json: "), "{cut}");
    }
}
