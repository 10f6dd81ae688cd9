//! A decoder as a composition: lane schedule × commit rule × cache policy.

mod presets;
mod registry;
mod resolve;
mod spec;

use decode::{Capability, DecoderConfig};

pub use crate::cache::CacheConfig;
pub use decode::{SettingKind, Value};
pub use presets::{
    DEFAULT as DEFAULT_PRESET, NAMES as PRESET_NAMES, PRESETS, Preset, TUNED as TUNED_PRESETS,
    WeightKind, preset,
};
pub use registry::{Field, FieldKind, Registry, RegistryError};
pub use spec::{DecodingSpec, SpecError, SpecFault};

/// A fully resolved decoder. Build one with [`DecodingSpec::resolve`].
#[derive(Clone, Debug, PartialEq)]
pub struct Decoding {
    /// Lanes and commits.
    pub decoder: DecoderConfig,
    /// Which K/V forwards read.
    pub cache: CacheConfig,
    /// Most forward passes; the sequence ends with what is committed by then. `None` = no limit.
    pub max_forwards: Option<u32>,
    /// `schedule+commit+cache`, for usage and logs.
    pub label: String,
}

impl Decoding {
    /// Whether committed tokens may change, which rules out grammars and penalties.
    pub fn edits(&self) -> bool {
        let commit = &self.decoder.commit;
        (commit.info().requires.needs)(commit.settings()) == Some(Capability::Edits)
    }

    /// Most steps of a sequence of `max_tokens` tokens.
    pub fn most_steps(&self, max_tokens: u32) -> u32 {
        let longest = self.decoder.schedule.longest_lane(max_tokens).max(1);
        let idle = self.decoder.commit.idle(longest);
        // The first lane may be shorter than the others.
        let lanes = max_tokens.div_ceil(longest).saturating_add(1);
        max_tokens.saturating_add(lanes.saturating_mul(idle))
    }

    /// Positions of the schedule's window, committed ones included; 1 if drafts follow it, `None` if it
    /// has no window.
    pub fn window(&self) -> Option<u32> {
        if self.decoder.schedule.drafts() > 0 {
            return Some(1);
        }
        let window = self.decoder.schedule.settings().get("window");
        window.and_then(|window| window.as_count())
    }
}
