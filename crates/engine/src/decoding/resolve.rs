//! From settings to a decoder: which schedule, commit rule and cache policy, with which values.

use decode::{
    AttentionKind, CommitInfo, Configured, DecoderConfig, Describe, Fault, ScheduleInfo,
    SettingInfo, Value,
};

use super::presets;
use super::registry::{self, EARLY_STOP, LONE_STOPS, MAX_FORWARDS, MAX_STEPS, PRUNE};
use super::resolved::Decoding;
use super::spec::{DecodingSpec, SpecError, SpecFault, error};
use crate::cache::CacheInfo;

impl DecodingSpec {
    /// The decoder that these settings describe. Schedule, commit rule and cache policy that are
    /// not named are those of the preset, or others that go with what is named. A setting that is
    /// not named has the preset's value if the preset has the same schedule (and, for settings of
    /// the cache policy, the same policy), else its default.
    ///
    /// # Errors
    /// Named members that do not go together, a setting that no chosen member reads, values that
    /// do not go together.
    pub fn resolve(&self) -> Result<Decoding, SpecError> {
        let name = self.name("preset").unwrap_or(presets::DEFAULT);
        let preset = presets::preset(name).expect("preset names are checked when set");
        Resolver { spec: self, preset: self.of_preset(preset) }.resolve()
    }
}

/// A caller's settings over those of a preset.
struct Resolver<'a> {
    spec: &'a DecodingSpec,
    preset: DecodingSpec,
}

/// A schedule, commit rule and cache policy that go together.
#[derive(Clone, Copy)]
struct Members {
    schedule: &'static ScheduleInfo,
    commit: &'static CommitInfo,
    cache: &'static CacheInfo,
}

/// Members that may be chosen, in order of preference.
type Candidates<I> = Vec<&'static I>;

impl Resolver<'_> {
    fn resolve(self) -> Result<Decoding, SpecError> {
        let members = self.choose()?;
        self.refuse_unread(&members)?;
        let Members { schedule, commit, cache } = members;
        let same_schedule = self.preset.name("schedule") == Some(schedule.name);
        let same_cache = same_schedule && self.preset.name("cache") == Some(cache.name);
        let own_commit = self.spec.name("commit").is_none();
        let schedule = self.configure(schedule, same_schedule);
        let commit = self.configure(commit, same_schedule || own_commit);
        let cache = self.configure(cache, same_cache);
        let check = (schedule.info().shape.check)(schedule.settings());
        check.map_err(combination)?;
        let check = (cache.info().check)(cache.settings(), &schedule);
        check.map_err(combination)?;
        let prune = self.flag(&PRUNE, same_schedule);
        let early_stop = self.flag(&EARLY_STOP, same_schedule);
        if !early_stop && (!schedule.info().shape.fills_canvas || prune) {
            return Err(self.refuse_filling());
        }
        let lone_stops = self.flag(&LONE_STOPS, same_schedule);
        let max_forwards = self.spec.get(MAX_FORWARDS.name);
        let label = format!("{}+{}+{}", schedule.name(), commit.name(), cache.name());
        let decoder = DecoderConfig {
            schedule,
            commit,
            prune,
            early_stop,
            lone_stops,
            max_steps: None,
            expected: 0,
        };
        let steps = self.spec.get(MAX_STEPS.name).and_then(|steps| steps.as_count());
        Ok(Decoding {
            decoder: match steps {
                Some(steps) => self.within(decoder, steps)?,
                None => decoder,
            },
            cache,
            max_forwards: max_forwards.and_then(|limit| limit.as_count()),
            label,
        })
    }

    /// `decoder` with at most `steps` steps of a canvas.
    fn within(&self, mut decoder: DecoderConfig, steps: u32) -> Result<DecoderConfig, SpecError> {
        let refuse =
            |message: &str| Err(error(MAX_STEPS.name, SpecFault::Combination, message.to_owned()));
        let most = Value::Integer(i64::from(steps));
        if has_setting(decoder.commit.info().settings, "max_denoising_steps") {
            decoder.commit = decoder.commit.with("max_denoising_steps", most);
            return Ok(decoder);
        }
        if self.spec.attention().is_some_and(|kind| kind != AttentionKind::Full) {
            return refuse("needs full attention or a canvas of noise");
        }
        if decoder.schedule.name() != "block_wise" || self.spec.get("block_length").is_some() {
            return refuse(
                "needs schedule block_wise without a block_length: the last step fills the whole canvas",
            );
        }
        // One block as long as any canvas.
        decoder.schedule =
            decoder.schedule.with("block_length", Value::Integer(i64::from(u32::MAX)));
        Ok(DecoderConfig { max_steps: Some(steps), ..decoder })
    }

    /// The first combination that works: what the caller names, else what the preset names, else
    /// the order of the registry (for cache policies that of the schedule). Where the attention
    /// of the weights is known, a member that the caller and the preset leave open goes with it.
    fn choose(&self) -> Result<Members, SpecError> {
        let known = self.spec.attention();
        let suited = known.and_then(|attention| self.first(Some(attention)));
        match suited.or_else(|| self.first(None)) {
            Some(members) => Ok(members),
            None => Err(self.conflict()),
        }
    }

    fn first(&self, attention: Option<AttentionKind>) -> Option<Members> {
        let all = self.spec.registry();
        let suits = |kinds: &[AttentionKind]| attention.is_none_or(|kind| kinds.contains(&kind));
        let commits = self.candidates(all.commits(), |info| suits(info.requires.attention));
        for schedule in self.candidates(all.schedules(), |info| suits(info.attention)) {
            let own = all.caches_of(schedule);
            let same = self.preset.name("schedule") == Some(schedule.name);
            let caches = match (self.named(all.caches()), same) {
                (Some(named), _) => vec![named],
                (None, true) => self.candidates(&own, |info| suits(info.attention)),
                (None, false) => own.into_iter().filter(|info| suits(info.attention)).collect(),
            };
            for commit in &commits {
                let goes = |cache: &&&CacheInfo| all.goes(schedule, commit, cache);
                if let Some(cache) = caches.iter().find(goes) {
                    return Some(Members { schedule, commit, cache });
                }
            }
        }
        None
    }

    /// The member that the caller names alone; else the preset's, and then all others that suit.
    fn candidates<I: Describe>(
        &self,
        members: &[&'static I],
        suits: impl Fn(&I) -> bool,
    ) -> Candidates<I> {
        if let Some(named) = self.named(members) {
            return vec![named];
        }
        let preset = self.preset.name(I::KIND);
        let preset = preset.and_then(|name| registry::find(members, name));
        let others = members.iter().copied().filter(|info| suits(info));
        preset.into_iter().chain(others).collect()
    }

    /// The member that the caller names, even if it is not among `members`.
    fn named<I: Describe>(&self, members: &[&'static I]) -> Option<&'static I> {
        let name = self.spec.name(I::KIND)?;
        registry::find(members, name)
    }

    /// The reason for which no combination works: two members that the caller names do not go together.
    fn conflict(&self) -> SpecError {
        let all = self.spec.registry();
        let refuse = |field: &str, message| error(field, SpecFault::Combination, message);
        let schedule = self.named(all.schedules());
        let (commit, cache) = (self.named(all.commits()), self.named(all.caches()));
        if let (Some(schedule), Some(cache)) = (schedule, cache) {
            let caches = names(&all.caches_of(schedule));
            if !caches.contains(&cache.name) {
                let (cache, schedule, caches) = (cache.name, schedule.name, either(&caches));
                let message = format!("{cache} does not go with schedule {schedule}: use {caches}");
                return refuse("cache", message);
            }
        }
        let Some(commit) = commit else {
            return refuse("schedule", "goes with no commit rule".to_owned());
        };
        let needs = |kind: &str, found: &str, allowed: &[&str]| {
            let (name, allowed) = (commit.name, allowed.join(" or "));
            let message = format!("{name} does not go with {kind} {found}: it needs {allowed}");
            refuse("commit", message)
        };
        match (schedule, cache) {
            (Some(schedule), _) if !commit.requires.schedules.admits(schedule.name) => {
                let schedules = names(&all.schedules_for(commit));
                needs("schedule", schedule.name, &schedules)
            }
            (_, Some(cache)) => needs("cache", cache.name, &names(&all.caches_for(commit))),
            _ => refuse("commit", format!("{} goes with no schedule", commit.name)),
        }
    }

    /// Refuses a setting of the caller that no chosen member reads.
    fn refuse_unread(&self, members: &Members) -> Result<(), SpecError> {
        let Members { schedule, commit, cache } = members;
        let chosen = [schedule.settings, commit.settings, cache.settings];
        let all = self.spec.registry();
        for name in self.spec.named() {
            if chosen.iter().any(|settings| has_setting(settings, name)) {
                continue;
            }
            let readers = [
                readers(all.schedules(), name),
                readers(all.commits(), name),
                readers(all.caches(), name),
            ];
            let readers: Vec<String> = readers.into_iter().flatten().collect();
            if !readers.is_empty() {
                let message = format!("is read by {} only", readers.join(" and "));
                return Err(error(name, SpecFault::Combination, message));
            }
        }
        Ok(())
    }

    /// `info` with the caller's values, else those of the preset if it `applies`, else the
    /// defaults.
    fn configure<I: Describe>(&self, info: &'static I, applies: bool) -> Configured<I> {
        let mut configured = Configured::new(info);
        for setting in info.settings() {
            if let Some(value) = self.lookup(setting, applies) {
                configured = configured.with(setting.name, value);
            }
        }
        configured
    }

    fn lookup(&self, setting: &SettingInfo, applies: bool) -> Option<Value<'static>> {
        let preset = || self.preset.get(setting.name).filter(|_| applies);
        self.spec.get(setting.name).or_else(preset)
    }

    fn flag(&self, setting: &SettingInfo, applies: bool) -> bool {
        let value = self.lookup(setting, applies);
        value.is_none_or(|value| value == Value::Flag(true))
    }

    fn refuse_filling(&self) -> SpecError {
        let all = self.spec.registry().schedules().iter();
        let filling = all.filter(|schedule| schedule.shape.fills_canvas);
        let filling: Vec<&str> = filling.map(|schedule| schedule.name).collect();
        let message = format!("false needs schedule {} and prune false", filling.join(" or "));
        error(EARLY_STOP.name, SpecFault::Combination, message)
    }
}

fn combination(fault: Fault) -> SpecError {
    error(fault.setting, SpecFault::Combination, fault.message)
}

fn has_setting(settings: &[SettingInfo], name: &str) -> bool {
    settings.iter().any(|setting| setting.name == name)
}

/// Kind and names of the members that read the setting `name`.
fn readers<I: Describe>(members: &[&'static I], name: &str) -> Option<String> {
    let readers = members.iter().filter(|info| has_setting(info.settings(), name));
    let readers: Vec<&str> = readers.map(|info| info.name()).collect();
    (!readers.is_empty()).then(|| format!("{} {}", I::KIND, readers.join(", ")))
}

fn names<I: Describe>(members: &[&'static I]) -> Vec<&'static str> {
    members.iter().map(|info| info.name()).collect()
}

/// `a, b or c`.
fn either(names: &[&str]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}
