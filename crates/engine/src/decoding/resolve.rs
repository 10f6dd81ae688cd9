//! Which of the settings apply, and which combinations of policies make sense.

use decode::DecoderConfig;

use super::spec::{DecodingSpec, Setting, SpecError, SpecFault, error};
use super::{Decoding, caches, commits, schedules};

/// A caller's settings over those of a preset.
pub(super) struct Resolver<'a> {
    pub(super) spec: &'a DecodingSpec,
    pub(super) preset: DecodingSpec,
}

impl Resolver<'_> {
    pub(super) fn resolve(self) -> Result<Decoding, SpecError> {
        let schedule = self.name("schedule", "asynclane");
        let commit_name = self.name("commit", "threshold");
        let schedule_config = schedules::resolve(&self, schedule)?;
        let commit = commits::resolve(&self, commit_name)?;
        let cache_name = schedules::cache(&self, schedule)?;
        commits::refuse_company(commit_name, schedule, cache_name)?;
        let cache = caches::resolve(&self, cache_name, schedule)?;
        let prune = self.flag("prune", true);
        let early_stop = self.flag("early_stop", true);
        if !early_stop && (schedule != "block_wise" || prune) {
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
            force: self.flag("force", false),
            label,
        })
    }

    /// A setting of the cache policy `name`: the caller's, else the preset's where the preset is
    /// of the same policy.
    pub(super) fn cache_setting(&self, name: &str, setting: &str) -> Option<Setting> {
        match self.preset.name("cache") == Some(name) {
            true => self.lookup(setting),
            false => self.spec.get(setting),
        }
    }

    /// Refuses a setting that `members` of a registry (names and what they read) read, but the
    /// chosen one, which reads `own`, does not.
    pub(super) fn refuse_foreign(
        &self,
        kind: &str,
        own: &[&str],
        members: impl Iterator<Item = (&'static str, &'static [&'static str])> + Clone,
    ) -> Result<(), SpecError> {
        let foreign = |setting: &&str| !own.contains(setting) && self.spec.get(setting).is_some();
        let mut read = members.clone().flat_map(|(_, reads)| reads).copied();
        let Some(setting) = read.find(foreign) else {
            return Ok(());
        };
        let readers = members.filter(|(_, reads)| reads.contains(&setting));
        let readers: Vec<&str> = readers.map(|(name, _)| name).collect();
        let message = format!("is read by {kind} {} only", readers.join(", "));
        Err(error(setting, SpecFault::Combination, message))
    }

    /// The caller's setting, else the preset's where the preset is of the same schedule.
    pub(super) fn lookup(&self, name: &str) -> Option<Setting> {
        let schedule = self.spec.name("schedule");
        let same = schedule.is_none() || schedule == self.preset.name("schedule");
        let commits = name == "commit" || commits::is_setting(name);
        self.spec.get(name).or_else(|| {
            let applies = same || (commits && self.spec.get("commit").is_none());
            if applies { self.preset.get(name) } else { None }
        })
    }

    pub(super) fn name(&self, name: &str, default: &'static str) -> &'static str {
        match self.lookup(name) {
            Some(Setting::Name(value)) => value,
            _ => default,
        }
    }

    pub(super) fn count(&self, name: &str, default: i64) -> u32 {
        match self.lookup(name) {
            Some(Setting::Integer(value)) => value as u32,
            _ => default as u32,
        }
    }

    pub(super) fn number(&self, name: &str, default: f64) -> f64 {
        match self.lookup(name) {
            Some(Setting::Number(value)) => value,
            _ => default,
        }
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> bool {
        match self.lookup(name) {
            Some(Setting::Flag(value)) => value,
            _ => default,
        }
    }
}
