//! The configuration of a DFlash drafter (arXiv 2602.06036): Qwen3's layers over states of its target's.

use crate::config::qwen3;
use crate::config::{Keys, MOST_POSITIONS, Spec};
use crate::{DrafterInfo, LoadError, ModelInfo};
use serde_json::Value;
use step::{Attention, LogitShift, as_index};

/// The object that makes a configuration one of a drafter.
pub(crate) const OBJECT: &str = "dflash_config";
/// The keys of the object that are read.
const READ: [&str; 3] = ["target_layer_ids", "mask_token_id", "block_size"];
/// The architecture's name.
const ARCHITECTURE: &str = "DFlashDraftModel";
/// Positions of the longest block: a forward pass checks up to 63 drafts.
const MOST_BLOCK: usize = 64;

/// The specification of a drafter for a certain target.
pub(crate) struct DrafterSpec {
    /// Its layers.
    pub(crate) layers: Spec,
    /// The target's layers whose results it reads, rising.
    pub(crate) taps: Vec<usize>,
    pub(crate) info: DrafterInfo,
}

impl DrafterSpec {
    /// Reads the specification of a drafter for `target`.
    pub(crate) fn read(config: &Keys, target: &ModelInfo) -> Result<Self, LoadError> {
        check_target(config, target)?;
        let named = config.get("architectures").and_then(|list| list.get(0));
        if named.and_then(Value::as_str).is_some_and(|name| name != ARCHITECTURE) {
            return Err(config.refuse("architectures", ARCHITECTURE));
        }
        let own = config.nested(OBJECT)?;
        if let Some(key) = own.names().find(|key| !READ.contains(key) && own.get(key).is_some()) {
            return Err(own.refuse(key, format!("no keys but {}", READ.join(", "))));
        }
        let mut layers = qwen3(config)?;
        for (key, expected, found) in [
            ("hidden_size", target.width, layers.info.width),
            ("vocab_size", target.vocabulary.embedding_size, layers.info.vocabulary.size),
            (
                "num_target_layers",
                target.layers,
                config.optional_count("num_target_layers")?.unwrap_or(target.layers),
            ),
        ] {
            if found != expected {
                return Err(config.refuse(key, format!("{expected}, that of the target")));
            }
        }
        // A longer context costs a drafter nothing but drafts that are further from its training.
        layers.info.max_positions = target.max_positions.min(MOST_POSITIONS);
        let size = layers.info.vocabulary.size;
        let holder = if own.get("block_size").is_some() { &own } else { config };
        let block = match holder.count("block_size")? {
            block @ 2..=MOST_BLOCK => block as u32,
            _ => return Err(holder.refuse("block_size", format!("2 to {MOST_BLOCK}"))),
        };
        let mask = match own.get("mask_token_id") {
            Some(_) => own.token("mask_token_id", 0, size)?,
            None => return Err(own.refuse("mask_token_id", format!("a token id below {size}"))),
        };
        let info =
            DrafterInfo { layers: layers.info.layers, heads: layers.info.heads, block, mask };
        Ok(Self { taps: taps(&own, target.layers, info.layers)?, layers, info })
    }

    /// Lets the target's open blocks be read by the drafter.
    pub(crate) fn join(&self, target: &mut ModelInfo) {
        target.rows.attention = Attention::OpenBlock(self.info.block);
        target.rows.logit_shift = LogitShift::None;
        target.rows.drafter = Some(self.info);
    }
}

/// Refuses a target that is no ordinary language model: causal, without a mask, predicting the next token.
fn check_target(config: &Keys, target: &ModelInfo) -> Result<(), LoadError> {
    let is_causal = (target.rows.attention, target.rows.logit_shift)
        == (Attention::Causal, LogitShift::One)
        && target.vocabulary.mask.is_none();
    match is_causal {
        true => Ok(()),
        false => Err(LoadError::Key {
            file: config.file().to_owned(),
            key: OBJECT.to_owned(),
            expected: "a causal target that predicts the next token".to_owned(),
            found: target.family.to_owned(),
        }),
    }
}

/// The target's layers that a drafter reads. By default they lie evenly from the second layer to the
/// fourth one from the end, or one in the middle. The result of the last layer is none of them: the published code
/// takes it after the final norm.
fn taps(own: &Keys, target: usize, drafter: usize) -> Result<Vec<usize>, LoadError> {
    let refuse = || {
        let expected = format!("rising numbers of layers below {}", target.saturating_sub(1));
        own.refuse("target_layer_ids", expected)
    };
    let taps: Vec<usize> = match own.get("target_layer_ids") {
        Some(Value::Array(list)) => {
            let numbers = list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
            numbers.map(|id| id.map(as_index).ok_or_else(refuse)).collect::<Result<_, _>>()?
        }
        Some(_) => return Err(refuse()),
        None if drafter == 1 => vec![target / 2],
        None => {
            let span = target as f64 - 4.0;
            let step = span / (drafter as f64 - 1.0);
            // As Python, which rounds a half to the even number.
            let place = |number| (1.0 + number as f64 * step).round_ties_even().max(0.0) as usize;
            (0..drafter).map(place).collect()
        }
    };
    let rises = taps.windows(2).all(|two| two[0] < two[1]);
    match taps.last() {
        Some(last) if rises && last + 1 < target => Ok(taps),
        _ => Err(refuse()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn of(object: serde_json::Value) -> Keys {
        Keys::new("config.json", object.as_object().cloned().unwrap_or_else(Map::new))
    }

    /// The published `build_target_layer_ids`.
    #[test]
    fn layers_by_default_are_the_published_ones() {
        let default = |target, drafter| taps(&of(json!({})), target, drafter).unwrap();
        assert_eq!(default(36, 5), [1, 9, 17, 25, 33]);
        assert_eq!(default(32, 5), [1, 8, 15, 22, 29]);
        assert_eq!(default(28, 3), [1, 13, 25]);
        assert_eq!(default(8, 3), [1, 3, 5]);
        assert_eq!(default(36, 1), [18]);
        // Two layers at one place.
        assert!(taps(&of(json!({})), 6, 4).is_err());
    }

    #[test]
    fn other_layers_are_refused() {
        for ids in [json!([]), json!([3, 2]), json!([2, 2]), json!([1, 7]), json!(["1"]), json!(3)]
        {
            let error = taps(&of(json!({"target_layer_ids": ids})), 8, 2).unwrap_err();
            let expected =
                "config.json: target_layer_ids: expected rising numbers of layers below 7";
            assert!(error.to_string().starts_with(expected), "{error}");
        }
        assert_eq!(taps(&of(json!({"target_layer_ids": [0, 6]})), 8, 1).unwrap(), [0, 6]);
    }
}
