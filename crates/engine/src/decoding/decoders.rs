//! The decoders of a served model: from what a caller names to a decoder.

use decode::{Feature, Value};
use step::Attention;

use super::presets::{DEFAULT, PRESETS, Preset};
use super::registry::Registry;
use super::resolved::Decoding;
use super::spec::{DecodingSpec, SpecError};
use super::weights::WeightKind;

/// Resolves the settings of a request: over the weights, the operator's settings, and those that are
/// published with the weights. Requests, the command line and the laboratory all resolve their
/// settings here, so that the same settings mean the same decoder everywhere.
#[derive(Clone, Debug)]
pub struct Decoders {
    weights: WeightKind,
    configured: DecodingSpec,
    published: DecodingSpec,
}

impl Decoders {
    /// `configured` is what the operator named, `published` what the checkpoint suggests; both may be
    /// empty.
    pub fn new(weights: WeightKind, configured: DecodingSpec, published: DecodingSpec) -> Self {
        Self { weights, configured, published }
    }

    /// The decoders of weights without settings of an operator or a checkpoint.
    pub fn of(weights: WeightKind) -> Self {
        Self::new(weights, DecodingSpec::default(), DecodingSpec::default())
    }

    /// The members and fields that names refer to.
    pub fn registry(&self) -> &Registry {
        self.configured.registry()
    }

    /// The preset of a request that names nothing.
    pub fn default_preset(&self) -> &'static str {
        let spec = self.spec(&self.blank());
        spec.name("preset").unwrap_or(DEFAULT)
    }

    /// Returns true if the weights have full attention.
    pub fn has_full_attention(&self) -> bool {
        self.weights.attention == Attention::Full
    }

    /// No settings yet: those of a request that names none.
    pub fn blank(&self) -> DecodingSpec {
        self.configured.blank()
    }

    /// The full settings of a request: `given`, over the operator's unless it names a preset, which is
    /// complete, over what suits the weights, over what is published with them.
    pub fn spec(&self, given: &DecodingSpec) -> DecodingSpec {
        let named = if given.is_empty() {
            self.configured.clone()
        } else if given.name("preset").is_some() {
            given.clone()
        } else {
            given.suggested(&self.configured)
        };
        named.suited_to(self.weights).suggested(&self.published)
    }

    /// The decoder of a request.
    ///
    /// # Errors
    /// As [`DecodingSpec::resolve`].
    pub fn resolve(&self, given: &DecodingSpec) -> Result<Decoding, SpecError> {
        self.spec(given).resolve()
    }

    /// The decoder of a request that names none and asks for `features`: the default one, or, where its
    /// commit rule excludes one of them, the preset of such requests.
    ///
    /// # Errors
    /// As [`DecodingSpec::resolve`].
    pub fn default_for(&self, features: &[Feature]) -> Result<Decoding, SpecError> {
        let default = self.resolve(&self.blank())?;
        let excluded = default.decoder.commit.info().requires.excludes;
        if !features.iter().any(|feature| excluded.contains(feature)) {
            return Ok(default);
        }
        let mut plain = self.blank();
        plain.set("preset", Value::Name(self.weights.plain_preset()))?;
        self.resolve(&plain)
    }
}

impl WeightKind {
    /// The presets that go with the weights.
    pub fn presets(self) -> impl Iterator<Item = &'static Preset> {
        PRESETS.iter().filter(move |preset| {
            let spec = DecodingSpec::parse(preset.name);
            let decoding = spec.and_then(|spec| spec.suited_to(self).resolve());
            decoding.is_ok_and(|decoding| self.admits(&decoding, None).is_ok())
        })
    }
}
