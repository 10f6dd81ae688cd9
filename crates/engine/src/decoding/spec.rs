//! From named settings to a decoder: which values apply, and which combinations make sense.

use decode::{
    AsyncLaneConfig, Boundary, CommitConfig, DecoderConfig, NumericPeriod, ScheduleConfig,
};

use super::field::{FIELDS, Field, FieldKind, Value};
use super::presets::{self, Preset};
use super::{CacheConfig, Compact, Decoding, Refresh, RowSelection};

/// Settings as a caller named them, each checked for type and range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecodingSpec {
    set: Vec<(&'static Field, Setting)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Setting {
    Name(&'static str),
    Integer(i64),
    Number(f64),
    Flag(bool),
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {message}")]
pub struct SpecError {
    /// The field's name as the caller wrote it.
    pub field: String,
    /// What kind of fault.
    pub fault: SpecFault,
    /// What is wrong and what is allowed; reads on from the field's name.
    pub message: String,
}

/// The kinds of fault of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecFault {
    /// No such field.
    Unknown,
    /// The wrong type.
    Type,
    /// A value outside the allowed ones.
    Value,
    /// The chosen policies do not read it, or do not go together.
    Combination,
}

impl DecodingSpec {
    /// Sets `name` to `value`, replacing an earlier value.
    ///
    /// # Errors
    /// Unknown field, wrong type, value out of range.
    pub fn set(&mut self, name: &str, value: Value<'_>) -> Result<(), SpecError> {
        let field = FIELDS
            .iter()
            .find(|field| field.name == name)
            .ok_or_else(|| {
                let known: Vec<_> = FIELDS.iter().map(|field| field.name).collect();
                error(
                    name,
                    SpecFault::Unknown,
                    format!("is not known; known are {}", known.join(", ")),
                )
            })?;
        let setting = check(field, value)?;
        self.set.retain(|(known, _)| known.name != name);
        self.set.push((field, setting));
        Ok(())
    }

    /// Reads `key=value,key=value`; an item without `=` is a preset's name.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let mut spec = Self::default();
        for item in text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            let (name, value) = item.split_once('=').unwrap_or(("preset", item));
            let value = value.trim();
            let parsed = match value {
                "true" => Value::Flag(true),
                "false" => Value::Flag(false),
                _ => value
                    .parse()
                    .map(Value::Integer)
                    .unwrap_or_else(|_| value.parse().map_or(Value::Name(value), Value::Number)),
            };
            spec.set(name.trim(), parsed)?;
        }
        Ok(spec)
    }

    /// Puts the settings of `self` over those of `base`.
    pub fn over(&self, base: &Self) -> Self {
        let mut merged = self.clone();
        for (field, setting) in &base.set {
            if merged.get(field.name).is_none() {
                merged.set.push((field, *setting));
            }
        }
        merged
    }

    /// The decoder these settings describe. What is not set comes from the preset where it has
    /// the same schedule (and cache), else from the field's default.
    ///
    /// # Errors
    /// A field that the chosen policies do not read, or policies that do not go together.
    pub fn resolve(&self) -> Result<Decoding, SpecError> {
        let name = self.name("preset").unwrap_or(presets::DEFAULT);
        let preset = presets::preset(name).expect("preset names are checked when set");
        Resolver {
            spec: self,
            preset: Self::of_preset(preset),
        }
        .resolve()
    }

    fn of_preset(preset: &Preset) -> Self {
        let mut spec = Self::default();
        for (name, value) in preset.fields {
            spec.set(name, *value)
                .expect("presets hold valid settings, by test");
        }
        spec
    }

    fn get(&self, name: &str) -> Option<Setting> {
        self.set
            .iter()
            .find(|(field, _)| field.name == name)
            .map(|(_, setting)| *setting)
    }

    fn name(&self, name: &str) -> Option<&'static str> {
        match self.get(name) {
            Some(Setting::Name(value)) => Some(value),
            _ => None,
        }
    }
}

struct Resolver<'a> {
    spec: &'a DecodingSpec,
    preset: DecodingSpec,
}

/// Fields that only the AsyncLane schedule reads.
const ASYNCLANE: &[&str] = &[
    "rows",
    "refresh",
    "refresh_margin",
    "draft_threshold",
    "lookahead",
    "max_lanes",
    "min_fill",
    "min_clock",
    "fork",
    "numeric",
    "fork_when_complete",
    "coupled",
];

impl Resolver<'_> {
    fn resolve(self) -> Result<Decoding, SpecError> {
        let schedule = self.name("schedule", "asynclane");
        let commit_name = self.name("commit", "threshold");
        let asynclane = schedule == "asynclane";
        if !asynclane {
            self.refuse(ASYNCLANE, "is read by schedule asynclane only")?;
        }
        let commit = self.commit(commit_name)?;
        let block_length = self.count("block_length", 32);
        let (schedule_config, cache) = if asynclane {
            let config = self.asynclane(block_length);
            let cache = self.lane_cache(&config)?;
            (ScheduleConfig::AsyncLane(config), cache)
        } else {
            (
                ScheduleConfig::BlockWise { block_length },
                self.block_cache()?,
            )
        };
        let prune = self.flag("prune", true);
        let early_stop = self.flag("early_stop", true);
        if !early_stop && (asynclane || prune) {
            let message = "false needs schedule block_wise and prune false".to_owned();
            return Err(error("early_stop", SpecFault::Combination, message));
        }
        let max_forwards = match self.spec.get("max_forwards") {
            Some(Setting::Integer(limit)) => Some(limit as u32),
            _ => None,
        };
        let label = format!("{schedule}+{commit_name}+{}", cache.name());
        let decoder = DecoderConfig {
            schedule: schedule_config,
            commit,
            prune,
            early_stop,
        };
        Ok(Decoding {
            decoder,
            cache,
            max_forwards,
            label,
        })
    }

    fn commit(&self, name: &str) -> Result<CommitConfig, SpecError> {
        if name == "top_k" {
            self.refuse(&["threshold"], "is read by commit threshold only")?;
            Ok(CommitConfig::TopK {
                tokens_per_step: self.count("tokens_per_step", 1),
            })
        } else {
            self.refuse(&["tokens_per_step"], "is read by commit top_k only")?;
            Ok(CommitConfig::Threshold {
                threshold: self.number("threshold", 0.9),
            })
        }
    }

    fn asynclane(&self, block_length: u32) -> AsyncLaneConfig {
        let numeric = match self.name("numeric", "next") {
            "strict" => NumericPeriod::Strict,
            _ => NumericPeriod::Next,
        };
        let fork = match self.name("fork", "auto") {
            "off" => None,
            "sentence" => Some(Boundary::Sentence(numeric)),
            "newline" => Some(Boundary::Newline),
            _ => Some(Boundary::Auto(numeric)),
        };
        AsyncLaneConfig {
            block_length,
            lookahead: self.count("lookahead", 32),
            draft_threshold: Some(self.number("draft_threshold", 0.9)),
            fork,
            min_fill: self.number("min_fill", 0.5),
            min_clock: self.count("min_clock", 2),
            fork_when_complete: self.flag("fork_when_complete", true),
            max_lanes: self.count("max_lanes", 16),
            coupled: self.flag("coupled", false),
        }
    }

    fn lane_cache(&self, config: &AsyncLaneConfig) -> Result<CacheConfig, SpecError> {
        let name = self.name("cache", "fused");
        let needed = config.block_length + config.lookahead;
        let margin = self.count("refresh_margin", i64::from(needed));
        if margin < needed {
            let message =
                format!("must be at least block_length + lookahead = {needed}, got {margin}");
            return Err(error("refresh_margin", SpecFault::Combination, message));
        }
        let same = self.preset.name("cache") == Some(name);
        let (refresh, rows) = if same {
            (self.lookup("refresh"), self.lookup("rows"))
        } else {
            (self.spec.get("refresh"), self.spec.get("rows"))
        };
        let refresh = match refresh {
            Some(Setting::Name("never")) => Refresh::Never,
            Some(Setting::Integer(steps)) => Refresh::Every(steps as u32),
            Some(Setting::Name(_)) => Refresh::Lane,
            _ if name == "fused" => Refresh::Every(32),
            _ => Refresh::Lane,
        };
        let open = rows == Some(Setting::Name("open")) || (rows.is_none() && name == "fused");
        let compact = Compact { refresh, margin };
        match name {
            "fused" => {
                let rows = if open {
                    RowSelection::Open
                } else {
                    RowSelection::All
                };
                Ok(CacheConfig::Fused { compact, rows })
            }
            _ if open => {
                let message = format!("open needs cache fused, got cache {name}");
                Err(error("rows", SpecFault::Combination, message))
            }
            "snapshot" => Ok(CacheConfig::Snapshot(compact)),
            "fresh" => Ok(CacheConfig::Fresh(compact)),
            other => {
                let message = format!(
                    "{other} does not go with schedule asynclane: use snapshot, fresh or fused"
                );
                Err(error("cache", SpecFault::Combination, message))
            }
        }
    }

    fn block_cache(&self) -> Result<CacheConfig, SpecError> {
        match self.name("cache", "dual") {
            "none" => Ok(CacheConfig::None),
            "prefix" => Ok(CacheConfig::Prefix),
            "dual" => Ok(CacheConfig::Dual),
            other => {
                let message = format!(
                    "{other} does not go with schedule block_wise: use none, prefix or dual"
                );
                Err(error("cache", SpecFault::Combination, message))
            }
        }
    }

    /// The caller's setting, else the preset's where the preset is of the same schedule.
    fn lookup(&self, name: &str) -> Option<Setting> {
        let schedule = self.spec.name("schedule");
        let same = schedule.is_none() || schedule == self.preset.name("schedule");
        let commits = ["threshold", "tokens_per_step", "commit"].contains(&name);
        self.spec.get(name).or_else(|| {
            let applies = same || (commits && self.spec.get("commit").is_none());
            if applies { self.preset.get(name) } else { None }
        })
    }

    fn name(&self, name: &str, default: &'static str) -> &'static str {
        match self.lookup(name) {
            Some(Setting::Name(value)) => value,
            _ => default,
        }
    }

    fn count(&self, name: &str, default: i64) -> u32 {
        match self.lookup(name) {
            Some(Setting::Integer(value)) => value as u32,
            _ => default as u32,
        }
    }

    fn number(&self, name: &str, default: f64) -> f64 {
        match self.lookup(name) {
            Some(Setting::Number(value)) => value,
            _ => default,
        }
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        match self.lookup(name) {
            Some(Setting::Flag(value)) => value,
            _ => default,
        }
    }

    fn refuse(&self, names: &[&str], why: &str) -> Result<(), SpecError> {
        match names.iter().find(|name| self.spec.get(name).is_some()) {
            Some(name) => Err(error(name, SpecFault::Combination, why.to_owned())),
            None => Ok(()),
        }
    }
}

fn check(field: &Field, value: Value<'_>) -> Result<Setting, SpecError> {
    let fault = |fault, found: String| {
        Err(error(
            field.name,
            fault,
            format!("must be {}, got {found}", field.kind.describe()),
        ))
    };
    let find = |names: &[&'static str], text: &str| names.iter().copied().find(|n| *n == text);
    match (field.kind, value) {
        (FieldKind::Name(names) | FieldKind::NameOrInteger(names, ..), Value::Name(text)) => {
            match find(names, text) {
                Some(name) => Ok(Setting::Name(name)),
                None => fault(SpecFault::Value, format!("\"{}\"", clip(text))),
            }
        }
        (
            FieldKind::Integer(min, max) | FieldKind::NameOrInteger(_, min, max),
            Value::Integer(n),
        ) => {
            if (min..=max).contains(&n) {
                Ok(Setting::Integer(n))
            } else {
                fault(SpecFault::Value, n.to_string())
            }
        }
        (FieldKind::Number(min, max), Value::Integer(_) | Value::Number(_)) => {
            let number = match value {
                Value::Integer(n) => n as f64,
                Value::Number(n) => n,
                Value::Name(_) | Value::Flag(_) => f64::NAN,
            };
            if (min..=max).contains(&number) {
                Ok(Setting::Number(number))
            } else {
                fault(SpecFault::Value, number.to_string())
            }
        }
        (FieldKind::Flag, Value::Flag(flag)) => Ok(Setting::Flag(flag)),
        (_, Value::Name(text)) => fault(SpecFault::Type, format!("\"{}\"", clip(text))),
        (_, Value::Integer(n)) => fault(SpecFault::Type, n.to_string()),
        (_, Value::Number(n)) => fault(SpecFault::Type, n.to_string()),
        (_, Value::Flag(flag)) => fault(SpecFault::Type, flag.to_string()),
    }
}

/// At most 64 characters of a caller's text may come back in a message.
fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}

fn error(field: &str, fault: SpecFault, message: String) -> SpecError {
    SpecError {
        field: clip(field),
        fault,
        message,
    }
}
