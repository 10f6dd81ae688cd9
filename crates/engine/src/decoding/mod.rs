//! A decoder as a composition: lane schedule × commit rule × cache policy.

/// The names of a registry's members, in order, as a constant.
macro_rules! names {
    ($registry:ident) => {
        &{
            let mut names = [""; $registry.len()];
            let mut at = 0;
            while at < names.len() {
                names[at] = $registry[at].name;
                at += 1;
            }
            names
        }
    };
}

mod caches;
mod commits;
mod field;
mod presets;
mod resolve;
mod schedules;
mod spec;

use decode::DecoderConfig;

pub use caches::{CACHES, CacheInfo, cache_goes_with};
pub use commits::{COMMITS, CommitInfo, Need};
pub use field::{FIELDS, Field, FieldKind, Value};
pub use presets::{
    DEFAULT as DEFAULT_PRESET, NAMES as PRESET_NAMES, PRESETS, Preset, TUNED as TUNED_PRESETS,
    default_preset, preset, presets_for,
};
pub use schedules::{SCHEDULES, ScheduleInfo};
pub use spec::{DecodingSpec, SpecError, SpecFault};

/// A fully resolved decoder. Build one with [`DecodingSpec::resolve`].
#[derive(Clone, Debug, PartialEq)]
pub struct Decoding {
    /// Lanes and commits.
    pub decoder: DecoderConfig,
    /// Cached K/V.
    pub cache: CacheConfig,
    /// Most forward passes; the sequence ends with what is committed.
    pub max_forwards: Option<u32>,
    /// Run commit rules that the model was not trained for.
    pub force: bool,
    /// `schedule+commit+cache`, for usage and logs.
    pub label: String,
}

/// Which cached K/V a forward may read, and when it is renewed.
#[derive(Clone, Debug, PartialEq)]
pub enum CacheConfig {
    /// Every forward computes the whole canvas.
    None,
    /// Fast-dLLM: K/V left of the block from a full forward at its start; the rest recomputed.
    Prefix,
    /// Fast-dLLM: K/V of the whole canvas from a full forward; only the block recomputed.
    Dual,
    /// Window-Diffusion: as `Dual`, but a forward between two full ones sees no mask beyond the
    /// outer window.
    Window,
    /// AsyncLane §4: a fork clones the page table, lanes write to private pages.
    Snapshot(Compact),
    /// One page table per sequence; a lane sees the slots up to the end of its own run.
    Fresh(Compact),
    /// One page table per sequence; every row sees every written slot.
    Fused {
        /// When and how far K/V are renewed.
        compact: Compact,
        /// Which rows are forwarded.
        rows: RowSelection,
    },
    /// Elastic-Cache: as `Fused` with open rows, renewed when K/V have drifted.
    Elastic {
        /// As [`Compact::margin`].
        margin: u32,
        /// γ: similarity of a watched token's answer below which K/V are renewed, in `0.0..=1.0`.
        threshold: f64,
    },
    /// Every committed token left of the frontier is forwarded once: exact for causal and
    /// block-causal weights.
    Exact,
}

impl CacheConfig {
    /// The public name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Prefix => "prefix",
            Self::Dual | Self::Window => "dual",
            Self::Snapshot(_) => "snapshot",
            Self::Fresh(_) => "fresh",
            Self::Fused { .. } => "fused",
            Self::Elastic { .. } => "elastic",
            Self::Exact => "exact",
        }
    }
}

/// Compact refresh (AsyncLane eq. 12): renews `[0, P + Leff + margin)` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compact {
    /// When.
    pub refresh: Refresh,
    /// m: positions behind the furthest lane's valid tokens, `>= block_length + lookahead`.
    pub margin: u32,
}

/// When cached K/V are renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// Whenever a generate lane starts, by fork or spawn.
    Lane,
    /// After this many forwards without one; 0 = every forward is a refresh.
    Every(u32),
    /// Only the first forward.
    Never,
}

/// Which rows of the active lanes are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSelection {
    /// Every position of the lanes and of the lookahead.
    All,
    /// Masks, and tokens committed in the last step; the rest is read from the cache.
    Open,
}
