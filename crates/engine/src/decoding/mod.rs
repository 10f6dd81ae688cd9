//! A decoder as a composition: lane schedule × commit rule × cache policy.

mod decoders;
mod presets;
mod reader;
mod registry;
mod resolve;
mod resolved;
mod spec;
mod weights;

pub use crate::cache::CacheConfig;
pub use decode::{SettingKind, Value};
pub use decoders::Decoders;
pub use presets::{
    DEFAULT as DEFAULT_PRESET, NAMES as PRESET_NAMES, PRESETS, Preset, TUNED as TUNED_PRESETS,
    preset,
};
pub use registry::{Field, FieldKind, Registry, RegistryError};
pub use resolved::Decoding;
pub use spec::{DecodingSpec, SpecError, SpecFault};
pub use weights::{NEEDS_OWN_ROWS, WeightKind};
