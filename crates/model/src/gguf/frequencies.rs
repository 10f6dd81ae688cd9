//! Changes of the rotary frequencies by a file.

use super::volumes::{Fields, plain};
use crate::LoadError;
use serde_json::{Value, json};

/// Divisors of the rotary frequencies, `[rotated width / 2]` (Llama 3.1 and later).
pub(crate) const DIVISORS: &str = "rope_freqs.weight";
/// Divisors that are taken.
const TAKEN: std::ops::RangeInclusive<f32> = 1e-6..=1e6;

/// Checks the divisors of a file.
///
/// # Errors
/// If one of them is not between 10^-6 and 10^6.
pub(crate) fn check_divisors(file: &str, divisors: &[f32]) -> Result<(), LoadError> {
    let wrong = divisors.iter().position(|x| !TAKEN.contains(x));
    wrong.map_or(Ok(()), |index| {
        Err(LoadError::Key {
            file: file.to_owned(),
            key: DIVISORS.to_owned(),
            expected: format!("divisors from {} to {}", TAKEN.start(), TAKEN.end()),
            found: format!("{} at element {index}", divisors[index]),
        })
    })
}

/// The scaling that the metadata of the architecture `name` states, as the object `rope_scaling` of a
/// configuration; `None` if there is none.
///
/// # Errors
/// If `rope.scaling.type` is another one than `none`, `linear` or `yarn` and its factor is not 1, or YaRN has
/// parameters that configurations do not have.
pub(super) fn scaling(file: &str, name: &str, fields: &Fields) -> Result<Option<Value>, LoadError> {
    let key = |key: &str| format!("{name}.rope.scaling.{key}");
    let number = |field: &str| fields.get(&key(field)).and_then(plain);
    let refuse = |field: &str, expected: &str, found: String| LoadError::Key {
        file: file.to_owned(),
        key: key(field),
        expected: expected.to_owned(),
        found,
    };
    let factor = number("factor");
    let kind = fields.get(&key("type")).and_then(|kind| kind.to_string().ok());
    match kind.map(String::as_str) {
        None | Some("none") => return Ok(None),
        Some(_) if factor.as_ref().and_then(Value::as_f64) == Some(1.0) => return Ok(None),
        Some("linear") => return Ok(Some(json!({"rope_type": "linear", "factor": factor}))),
        Some("yarn") => {}
        Some(found) => {
            let expected = format!("none, linear or yarn (others are read from {DIVISORS} only)");
            return Err(refuse("type", &expected, format!("{found:?}")));
        }
    }
    for (field, usual) in [("yarn_ext_factor", 1.0), ("yarn_log_multiplier", 0.0)] {
        if let Some(found) = number(field).filter(|found| found.as_f64() != Some(usual)) {
            return Err(refuse(field, &usual.to_string(), found.to_string()));
        }
    }
    // The file's factor of cosines and sines is beside YaRN's own one.
    let own = factor.as_ref().and_then(Value::as_f64).map_or(1.0, |x| 0.1 * x.max(1.0).ln() + 1.0);
    let further = number("attn_factor").or_else(|| number("yarn_attn_factor"));
    Ok(Some(json!({
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": number("original_context_length"),
        "beta_fast": number("yarn_beta_fast"),
        "beta_slow": number("yarn_beta_slow"),
        "attention_factor": further.and_then(|x| x.as_f64()).map(|x| x * own),
    })))
}
