//! The registry: every schedule, commit rule and cache policy that requests may name, with their
//! settings and the combinations that work.

use std::sync::{Arc, LazyLock};

use decode::{
    COMMITS, CommitInfo, Describe, Mismatch, SCHEDULES, ScheduleInfo, SettingInfo, SettingKind,
    Settings, UNBOUNDED, Value,
};

use super::presets;
use crate::cache::{CACHES, CacheInfo};

/// Members that requests may name. Cheap to clone.
///
/// [`Registry::builtin`] holds everything this project implements; `with_schedule`, `with_commit`
/// and `with_cache` add members that are defined elsewhere.
#[derive(Clone, Debug)]
pub struct Registry {
    members: Arc<Members>,
}

#[derive(Clone, Debug)]
struct Members {
    schedules: Vec<&'static ScheduleInfo>,
    commits: Vec<&'static CommitInfo>,
    caches: Vec<&'static CacheInfo>,
    fields: Vec<Field>,
}

/// A field of the `diffusion` object.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Type and allowed values.
    pub kind: FieldKind,
}

/// Type and allowed values of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldKind {
    /// One of the presets, or of the members of a kind.
    Member(Vec<&'static str>),
    /// A setting.
    Setting(SettingKind),
}

/// A member that a registry cannot take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The name is taken.
    #[error("there is a {kind} called {name} already")]
    Duplicate {
        /// `schedule`, `commit` or `cache`.
        kind: &'static str,
        /// The name.
        name: &'static str,
    },
    /// Another member declares a setting of the same name with another type or range.
    #[error("setting {setting} of {kind} {name} must be {expected} as elsewhere, found {found}")]
    Setting {
        /// `schedule`, `commit` or `cache`.
        kind: &'static str,
        /// The member.
        name: &'static str,
        /// The setting.
        setting: &'static str,
        /// Its type and range elsewhere.
        expected: String,
        /// The type and range that the member declares.
        found: String,
    },
}

/// Settings that belong to no member.
pub(super) static PRUNE: SettingInfo =
    SettingInfo::flag("prune", true).says("a committed stop token cuts the canvas after it");
pub(super) static EARLY_STOP: SettingInfo = SettingInfo::flag("early_stop", true)
    .says("generation ends at the stop token; false requires `block_wise` and `prune` false");
pub(super) static LONE_STOPS: SettingInfo = SettingInfo::flag("lone_stops", true)
    .says("a step may commit stop tokens alone while a mask is left of them; otherwise the best other mask comes too");
pub(super) static MAX_FORWARDS: SettingInfo =
    SettingInfo::integer("max_forwards", 1..=UNBOUNDED, 1)
        .derived("no limit")
        .says("generation ends after this many forward passes");

pub(super) static MAX_STEPS: SettingInfo = SettingInfo::integer("max_steps", 1..=1024, 1)
    .derived("no limit")
    .says("the step in which all masks take their likeliest tokens");

static GENERAL: [&SettingInfo; 5] = [&PRUNE, &EARLY_STOP, &LONE_STOPS, &MAX_FORWARDS, &MAX_STEPS];

static BUILTIN: LazyLock<Registry> = LazyLock::new(|| {
    let built = Registry::blank()
        .with_all(SCHEDULES, |members| &mut members.schedules)
        .and_then(|all| all.with_all(COMMITS, |members| &mut members.commits))
        .and_then(|all| all.with_all(CACHES, |members| &mut members.caches));
    built.expect("names are unique and settings agree, by test")
});

impl Registry {
    /// Everything that this project implements.
    pub fn builtin() -> Self {
        BUILTIN.clone()
    }

    /// The fields that belong to no member.
    fn blank() -> Self {
        let kinds = [ScheduleInfo::KIND, CommitInfo::KIND, CacheInfo::KIND];
        let mut members = vec![("preset", FieldKind::Member(presets::NAMES.to_vec()))];
        members.extend(kinds.map(|kind| (kind, FieldKind::Member(Vec::new()))));
        members.extend(GENERAL.map(|setting| (setting.name, FieldKind::Setting(setting.kind))));
        let fields = members.into_iter().map(|(name, kind)| Field { name, kind });
        Self {
            members: Arc::new(Members {
                schedules: Vec::new(),
                commits: Vec::new(),
                caches: Vec::new(),
                fields: fields.collect(),
            }),
        }
    }

    fn with_all<I: Describe>(
        mut self,
        infos: &[&'static I],
        list: impl Fn(&mut Members) -> &mut Vec<&'static I>,
    ) -> Result<Self, RegistryError> {
        let members = Arc::make_mut(&mut self.members);
        for info in infos {
            members.describe(*info)?;
            list(members).push(info);
        }
        Ok(self)
    }

    /// With one more schedule.
    ///
    /// # Errors
    /// If the name is taken, or a setting differs from another member's of the same name.
    pub fn with_schedule(self, info: &'static ScheduleInfo) -> Result<Self, RegistryError> {
        self.with_all(&[info], |members| &mut members.schedules)
    }

    /// With one more commit rule.
    ///
    /// # Errors
    /// As [`Self::with_schedule`].
    pub fn with_commit(self, info: &'static CommitInfo) -> Result<Self, RegistryError> {
        self.with_all(&[info], |members| &mut members.commits)
    }

    /// With one more cache policy.
    ///
    /// # Errors
    /// As [`Self::with_schedule`].
    pub fn with_cache(self, info: &'static CacheInfo) -> Result<Self, RegistryError> {
        self.with_all(&[info], |members| &mut members.caches)
    }

    /// Every schedule, in the order in which requests fall back to them.
    pub fn schedules(&self) -> &[&'static ScheduleInfo] {
        &self.members.schedules
    }

    /// Every commit rule, in the order in which requests fall back to them.
    pub fn commits(&self) -> &[&'static CommitInfo] {
        &self.members.commits
    }

    /// Every cache policy.
    pub fn caches(&self) -> &[&'static CacheInfo] {
        &self.members.caches
    }

    /// The settings that every decoder reads.
    pub fn general(&self) -> &'static [&'static SettingInfo] {
        &GENERAL
    }

    /// Every field of the `diffusion` object.
    pub fn fields(&self) -> &[Field] {
        &self.members.fields
    }

    /// The field called `name`.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields().iter().find(|field| field.name == name)
    }

    /// The cache policies that go with `schedule`, its default first.
    pub fn caches_of(&self, schedule: &ScheduleInfo) -> Vec<&'static CacheInfo> {
        let goes = |cache: &&CacheInfo| {
            cache.schedules.admits(schedule.name) || schedule.shape.caches.contains(&cache.name)
        };
        self.caches().iter().copied().filter(goes).collect()
    }

    /// The schedules that `commit` goes with.
    pub fn schedules_for(&self, commit: &CommitInfo) -> Vec<&'static ScheduleInfo> {
        let all = self.schedules().iter().copied();
        all.filter(|schedule| commit.requires.schedules.admits(schedule.name)).collect()
    }

    /// The cache policies that `commit` goes with under one of its schedules.
    pub fn caches_for(&self, commit: &CommitInfo) -> Vec<&'static CacheInfo> {
        let schedules = self.schedules_for(commit);
        let reached = |cache: &CacheInfo| {
            let mut caches = schedules.iter().flat_map(|schedule| self.caches_of(schedule));
            caches.any(|other| other.name == cache.name)
        };
        let all = self.caches().iter().copied();
        all.filter(|cache| suits(commit, cache) && reached(cache)).collect()
    }

    /// Returns true if the three go together.
    pub fn goes(&self, schedule: &ScheduleInfo, commit: &CommitInfo, cache: &CacheInfo) -> bool {
        let mut caches = self.caches_of(schedule).into_iter();
        let mut kinds = commit.requires.attention.iter();
        kinds.any(|kind| schedule.attention.contains(kind))
            && commit.requires.schedules.admits(schedule.name)
            && suits(commit, cache)
            && caches.any(|other| other.name == cache.name)
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

/// Members of the same kind and name are the same.
impl PartialEq for Registry {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.members, &other.members) || self.fields() == other.fields()
    }
}

impl Members {
    /// Adds the name and the settings of `info` to the fields.
    fn describe<I: Describe>(&mut self, info: &I) -> Result<(), RegistryError> {
        let (kind, name) = (I::KIND, info.name());
        for setting in info.settings() {
            match self.fields.iter().find(|field| field.name == setting.name) {
                Some(field) if field.kind == FieldKind::Setting(setting.kind) => {}
                Some(field) => {
                    return Err(RegistryError::Setting {
                        kind,
                        name,
                        setting: setting.name,
                        expected: field.kind.describe(),
                        found: setting.kind.describe(),
                    });
                }
                None => self
                    .fields
                    .push(Field { name: setting.name, kind: FieldKind::Setting(setting.kind) }),
            }
        }
        let field = self.fields.iter_mut().find(|field| field.name == kind);
        if let Some(FieldKind::Member(names)) = field.map(|field| &mut field.kind) {
            if names.contains(&name) {
                return Err(RegistryError::Duplicate { kind, name });
            }
            names.push(name);
        }
        Ok(())
    }
}

impl FieldKind {
    /// The names among the allowed values.
    pub fn names(&self) -> &[&'static str] {
        match self {
            Self::Member(names) => names,
            Self::Setting(SettingKind::Name(names) | SettingKind::NameOrInteger(names, ..)) => {
                names
            }
            Self::Setting(_) => &[],
        }
    }

    /// The allowed values in words, for messages.
    pub fn describe(&self) -> String {
        match self {
            Self::Member(names) => format!("one of {}", names.join(", ")),
            Self::Setting(kind) => kind.describe(),
        }
    }

    /// `value` as a field of this kind holds it.
    ///
    /// # Errors
    /// A value of another type, or outside the allowed ones.
    pub fn check(&self, value: Value<'_>) -> Result<Value<'static>, Mismatch> {
        match (self, value) {
            (Self::Setting(kind), value) => kind.check(value),
            (Self::Member(names), Value::Name(text)) => {
                let found = names.iter().find(|name| **name == text);
                found.map(|name| Value::Name(name)).ok_or(Mismatch::Range)
            }
            (Self::Member(_), _) => Err(Mismatch::Type),
        }
    }
}

/// Returns true if the forwards of a cache policy are those that a commit rule needs.
fn suits(commit: &CommitInfo, cache: &CacheInfo) -> bool {
    let (requires, forwards) = (&commit.requires, &cache.forwards);
    let defaults = Settings::defaults(commit.settings);
    let mut kinds = requires.attention.iter();
    requires.rows <= forwards.rows
        && (forwards.checks || !requires.checks)
        && (forwards.branches || (requires.branches)(&defaults) == 0)
        && kinds.any(|kind| cache.attention.contains(kind))
}

/// The member called `name`.
pub(super) fn find<I: Describe>(members: &[&'static I], name: &str) -> Option<&'static I> {
    members.iter().copied().find(|info| info.name() == name)
}
