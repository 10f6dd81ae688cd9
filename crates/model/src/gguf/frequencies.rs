//! Changes of the rotary frequencies by a file.

use super::plain;
use crate::LoadError;
use candle_core::quantized::gguf_file::Value as Field;
use std::collections::HashMap;

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
    wrong.map_or(Ok(()), |at| {
        Err(LoadError::Key {
            file: file.to_owned(),
            key: DIVISORS.to_owned(),
            expected: format!("divisors from {} to {}", TAKEN.start(), TAKEN.end()),
            found: format!("{} at element {at}", divisors[at]),
        })
    })
}

/// Refuses frequencies that the metadata of the architecture `name` scales.
///
/// # Errors
/// If `rope.scaling.type` is another one than `none` and its factor is not 1.
pub(super) fn check_scaling(
    file: &str,
    name: &str,
    fields: &HashMap<String, Field>,
) -> Result<(), LoadError> {
    let key = format!("{name}.rope.scaling.type");
    let kind = fields.get(&key);
    let kind = kind.and_then(|kind| kind.to_string().ok());
    let factor = fields.get(&format!("{name}.rope.scaling.factor"));
    let factor = factor.and_then(plain).and_then(|factor| factor.as_f64());
    match kind.map(String::as_str) {
        None | Some("none") => Ok(()),
        Some(_) if factor == Some(1.0) => Ok(()),
        Some(found) => Err(LoadError::Key {
            file: file.to_owned(),
            key,
            expected: format!("none (scaled frequencies are read from {DIVISORS} only)"),
            found: format!("{found:?}"),
        }),
    }
}
