//! The descriptions by which the registry knows schedules, commit rules and cache policies.

use alloc::string::String;

use crate::settings::{SettingInfo, Settings, Value};

/// The common part of `ScheduleInfo`, `CommitInfo` and the engine's `CacheInfo`.
pub trait Describe: 'static {
    /// The request field of this kind: `schedule`, `commit` or `cache`.
    const KIND: &'static str;

    /// The public name, unique within the kind.
    fn name(&self) -> &'static str;

    /// A description in one line.
    fn summary(&self) -> &'static str;

    /// The paper and section, or the project that published it.
    fn paper(&self) -> &'static str;

    /// The settings it reads.
    fn settings(&self) -> &'static [SettingInfo];
}

/// Implements [`Describe`](crate::Describe) for a struct with the fields `name`, `summary`, `paper`
/// and `settings`, which requests call by `$kind`.
#[macro_export]
macro_rules! describe {
    ($info:ty, $kind:literal) => {
        impl $crate::Describe for $info {
            const KIND: &'static str = $kind;

            fn name(&self) -> &'static str {
                self.name
            }

            fn summary(&self) -> &'static str {
                self.summary
            }

            fn paper(&self) -> &'static str {
                self.paper
            }

            fn settings(&self) -> &'static [$crate::SettingInfo] {
                self.settings
            }
        }
    };
}

/// A schedule, commit rule or cache policy with a value for each of its settings.
pub struct Configured<I: Describe> {
    info: &'static I,
    settings: Settings,
}

impl<I: Describe> Configured<I> {
    /// With the default of every setting.
    pub fn new(info: &'static I) -> Self {
        Self { info, settings: Settings::defaults(info.settings()) }
    }

    /// The member of a list called `name`, with the default of every setting.
    pub fn find(list: &[&'static I], name: &str) -> Option<Self> {
        let found = list.iter().find(|info| info.name() == name);
        found.map(|info| Self::new(info))
    }

    /// With another value for a setting. The range is not checked.
    ///
    /// # Panics
    /// In debug builds, if the setting is not declared.
    #[must_use]
    pub fn with(mut self, setting: &str, value: impl Into<Value<'static>>) -> Self {
        let known = self.settings.set(setting, value.into());
        debug_assert!(known, "{} reads no setting {setting}", self.name());
        self
    }

    /// The description.
    pub fn info(&self) -> &'static I {
        self.info
    }

    /// The public name.
    pub fn name(&self) -> &'static str {
        self.info.name()
    }

    /// The values.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl<I: Describe> Clone for Configured<I> {
    fn clone(&self) -> Self {
        Self { info: self.info, settings: self.settings.clone() }
    }
}

/// Names are unique within a kind, so name and values tell two of a kind apart.
impl<I: Describe> PartialEq for Configured<I> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.settings == other.settings
    }
}

impl<I: Describe> core::fmt::Debug for Configured<I> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut fields = out.debug_struct(self.name());
        for (name, value) in self.settings.iter() {
            fields.field(name, &format_args!("{value}"));
        }
        fields.finish()
    }
}

/// The rows that a cache policy computes in every forward, from fewest to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rows {
    /// Open positions and a few others.
    Open,
    /// Every position of the lane, committed ones included.
    Lane,
    /// Every position from the lane to the end of the canvas.
    Canvas,
}

/// The members of another kind that one goes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFilter {
    /// All of them.
    Any,
    /// The members of these names.
    Only(&'static [&'static str]),
}

impl NameFilter {
    /// Returns true if the member called `name` is one of them.
    pub fn admits(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(names) => names.contains(&name),
        }
    }
}

/// The part of a sequence that weights may see: the kinds of `step::Attention`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionKind {
    /// Everything, in both directions.
    Full,
    /// The own block of positions and every block before it.
    BlockCausal,
    /// The rows before.
    Causal,
    /// Final tokens see those before; an open block sees itself and the final tokens before it.
    OpenBlock,
    /// The own canvas and the final tokens before it; a canvas holds noise where others hold masks.
    Canvas,
}

impl AttentionKind {
    /// Every kind of weights that were trained on masks.
    pub const MASKED: &'static [Self] =
        &[Self::Full, Self::BlockCausal, Self::Causal, Self::OpenBlock];
    /// Weights of which masks of several blocks may be open at once.
    pub const SEVERAL: &'static [Self] = &[Self::Full, Self::BlockCausal, Self::Causal];
    /// Weights that were trained on noise.
    pub const NOISED: &'static [Self] = &[Self::Canvas];
}

/// An optional capability of a loaded model that some commit rules require.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// A filter network trained for the model.
    Filter,
    /// Weights trained to rewrite committed tokens.
    Edits,
    /// A draft model.
    Drafts,
}

impl Capability {
    /// The reason to refuse a model without it; it continues the rule's name.
    pub fn refusal(self) -> &'static str {
        match self {
            Self::Filter => "needs a filter trained for the model, and none was loaded",
            Self::Edits => {
                "needs weights that were trained to rewrite tokens, and this model's were not \
                 (`force` runs it all the same)"
            }
            Self::Drafts => "needs a draft model, and none was loaded",
        }
    }
}

/// Request features that some commit rules do not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// A grammar.
    Grammar,
    /// Frequency, presence or repetition penalties.
    Penalties,
    /// A temperature above 0.
    Temperature,
    /// Log-probabilities.
    Logprobs,
}

impl Feature {
    /// Every feature.
    pub const ALL: &'static [Self] =
        &[Self::Grammar, Self::Penalties, Self::Temperature, Self::Logprobs];

    /// The feature in words, for messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::Grammar => "a grammar",
            Self::Penalties => "penalties",
            Self::Temperature => "a temperature above 0",
            Self::Logprobs => "log-probabilities",
        }
    }
}

/// A setting whose value does not go with the other values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The setting.
    pub setting: &'static str,
    /// The expected and the found value; the text continues the setting's name.
    pub message: String,
}
