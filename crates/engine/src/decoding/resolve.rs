//! Which of the settings apply, and which combinations of policies make sense.

use decode::{
    AsyncLaneConfig, Boundary, CommitConfig, DecoderConfig, NumericPeriod, ScheduleConfig,
};

use super::spec::{DecodingSpec, Setting, SpecError, SpecFault, error};
use super::{CacheConfig, Compact, Decoding, Refresh, RowSelection};

/// A caller's settings over those of a preset.
pub(super) struct Resolver<'a> {
    pub(super) spec: &'a DecodingSpec,
    pub(super) preset: DecodingSpec,
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
    pub(super) fn resolve(self) -> Result<Decoding, SpecError> {
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
