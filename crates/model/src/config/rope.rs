//! The rotation: its base, and its change for contexts longer than those of the first training.

use crate::LoadError;
use crate::config::{Keys, MOST_POSITIONS, RopeSpec, Spec};
use kernels::{Llama3Scaling, RopeScaling, YarnScaling};
use serde_json::Value;

/// The objects that describe a scaling; newer configurations have the second one.
const OBJECTS: [&str; 2] = ["rope_scaling", "rope_parameters"];
/// The types of scaling that are read.
const TYPES: &str =
    "nothing or the type \"default\", \"linear\", \"llama3\", \"yarn\" or \"longrope\"";
/// Factors, numbers of rotations and divisors end before this number.
const MOST: f64 = 1e6;

/// The rotation of a configuration with the keys of `transformers`.
pub(super) fn rope(config: &Keys) -> Result<RopeSpec, LoadError> {
    let mut theta = config.optional_number("rope_theta")?;
    let mut scaling = None;
    for key in OBJECTS {
        // RND1 is published with `false`.
        let Some(value) = config.get(key).filter(|value| **value != Value::Bool(false)) else {
            continue;
        };
        let kind = value.get("rope_type").or_else(|| value.get("type"));
        let kind = kind.map_or(Some("default"), Value::as_str);
        if !value.is_object() {
            return Err(config.refuse(key, TYPES));
        }
        let keys = config.nested(key)?;
        theta = theta.or_else(|| value.get("rope_theta").and_then(Value::as_f64));
        let scaled = Scaling { keys: &keys, config };
        scaling = match kind {
            Some("default") => scaling,
            Some("linear") => Some((RopeScaling::Linear { factor: scaled.factor()? as f32 }, 1.0)),
            Some("llama3") => Some((RopeScaling::Llama3(scaled.llama3()?), 1.0)),
            Some("yarn") => Some(scaled.yarn(theta.unwrap_or(10_000.0))?),
            Some("longrope") => Some(scaled.long()?),
            _ => return Err(config.refuse(key, TYPES)),
        };
    }
    let (scaling, magnitude) =
        scaling.map_or((None, 1.0), |(scaling, factor)| (Some(scaling), factor));
    match theta.unwrap_or(10_000.0) {
        theta if theta > 0.0 => {
            let magnitude = magnitude as f32;
            Ok(RopeSpec { scaling, magnitude, ..RopeSpec::plain(theta) })
        }
        _ => Err(config.refuse("rope_parameters", "a positive rope_theta")),
    }
}

/// An object that describes a scaling, and the configuration around it.
struct Scaling<'a> {
    keys: &'a Keys,
    config: &'a Keys,
}

impl Scaling<'_> {
    /// A positive number below [`MOST`], `None` if the key is absent.
    fn number(&self, key: &str) -> Result<Option<f64>, LoadError> {
        match self.keys.optional_number(key) {
            Ok(number) if number.is_none_or(|number| number < MOST) => Ok(number),
            _ => Err(self.keys.refuse(key, format!("a positive number below {MOST}"))),
        }
    }

    /// A number below [`MOST`] that must be there.
    fn needed(&self, key: &str) -> Result<f64, LoadError> {
        let number = self.number(key)?;
        number.ok_or_else(|| self.keys.refuse(key, format!("a positive number below {MOST}")))
    }

    fn factor(&self) -> Result<f64, LoadError> {
        match self.number("factor")? {
            Some(factor) if factor >= 1.0 => Ok(factor),
            _ => Err(self.keys.refuse("factor", format!("a number from 1 to {MOST}"))),
        }
    }

    /// The positions of the first training: of the object, or else of the configuration.
    fn original(&self) -> Result<usize, LoadError> {
        let key = "original_max_position_embeddings";
        let found = match self.keys.optional_count(key) {
            Ok(None) => self.config.optional_count(key),
            own => own,
        };
        match found {
            Ok(Some(original)) if original <= MOST_POSITIONS => Ok(original),
            _ => Err(self.keys.refuse(key, format!("1 to {MOST_POSITIONS} positions"))),
        }
    }

    fn llama3(&self) -> Result<Llama3Scaling, LoadError> {
        let (low, high) = (self.needed("low_freq_factor")?, self.needed("high_freq_factor")?);
        if low >= high {
            return Err(self.keys.refuse("high_freq_factor", "more than low_freq_factor"));
        }
        Ok(Llama3Scaling {
            factor: self.factor()? as f32,
            low: low as f32,
            high: high as f32,
            original: self.original()?,
        })
    }

    /// YaRN's frequencies, and the factor of cosines and sines.
    fn yarn(&self, theta: f64) -> Result<(RopeScaling, f64), LoadError> {
        let (original, factor) = (self.original()?, self.factor()?);
        let fast = self.number("beta_fast")?.unwrap_or(32.0);
        let slow = self.number("beta_slow")?.unwrap_or(1.0);
        if slow >= fast {
            return Err(self.keys.refuse("beta_fast", format!("more than beta_slow {slow}")));
        }
        if theta <= 1.0 {
            return Err(self.config.refuse("rope_theta", "more than 1 beside the type \"yarn\""));
        }
        let own = |scale: f64| 0.1 * scale * factor.ln() + 1.0;
        let scales = [self.number("mscale")?, self.number("mscale_all_dim")?];
        let magnitude = match (self.number("attention_factor")?, scales) {
            (Some(magnitude), _) => magnitude,
            (None, [Some(scale), Some(all)]) => own(scale) / own(all),
            (None, _) => own(1.0),
        };
        let truncate = self.keys.flag("truncate", true)?;
        let scaling = YarnScaling { factor, fast, slow, original, truncate };
        Ok((RopeScaling::Yarn(scaling), magnitude))
    }

    /// LongRoPE's divisors for the context of the configuration, and the factor of cosines and sines.
    /// All sequences have the same divisors, as in vLLM.
    fn long(&self) -> Result<(RopeScaling, f64), LoadError> {
        let original = self.original()?;
        let positions = self.config.count("max_position_embeddings")?;
        let [short, long] = [self.divisors("short_factor")?, self.divisors("long_factor")?];
        let divisors = if positions > original { long } else { short };
        let factor = self.number("factor")?.unwrap_or(positions as f64 / original as f64);
        let magnitude = match self.number("attention_factor")? {
            Some(magnitude) => magnitude,
            None if factor <= 1.0 => 1.0,
            None if original == 1 => {
                let key = "original_max_position_embeddings";
                return Err(self.keys.refuse(key, "more than 1 position"));
            }
            None => (1.0 + factor.ln() / (original as f64).ln()).sqrt(),
        };
        Ok((RopeScaling::Long { divisors }, magnitude))
    }

    fn divisors(&self, key: &str) -> Result<Vec<f32>, LoadError> {
        let refuse = || self.keys.refuse(key, format!("a list of positive numbers below {MOST}"));
        let list = self.keys.get(key).and_then(Value::as_array).ok_or_else(refuse)?;
        let number = |value: &Value| value.as_f64().filter(|x| *x > 1.0 / MOST && *x < MOST);
        list.iter().map(|value| number(value).map(|x| x as f32).ok_or_else(refuse)).collect()
    }
}

impl Spec {
    /// The positions that the rotation reaches: YaRN's context, which many configurations do not state.
    pub(super) fn reach(&self) -> usize {
        match &self.rope.scaling {
            Some(RopeScaling::Yarn(yarn)) => {
                let reach = (yarn.original as f64 * yarn.factor) as usize;
                self.info.max_positions.max(reach.min(MOST_POSITIONS))
            }
            _ => self.info.max_positions,
        }
    }

    /// Checks that there are as many divisors as frequencies.
    pub(crate) fn check_divisors(&self, config: &Keys) -> Result<(), LoadError> {
        let count = self.rotary_width / 2;
        match &self.rope.scaling {
            Some(RopeScaling::Long { divisors }) if divisors.len() != count => {
                let key = OBJECTS.into_iter().find(|key| config.get(key).is_some());
                let expected = format!("{count} divisors of the type \"longrope\"");
                Err(config.refuse(key.unwrap_or(OBJECTS[0]), expected))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
