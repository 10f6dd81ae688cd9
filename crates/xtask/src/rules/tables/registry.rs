//! Tables of what a `diffusion` object may name, rendered from the registry:
//!
//! ```text
//! <!-- registry: presets | schedules | commits | caches | settings | differences -->
//! (rendered)
//! <!-- end of table -->
//! ```

use std::fmt::Write;

use decode::{
    AttentionKind, Capability, CommitInfo, Company, Describe, SettingDefault, SettingInfo,
};
use engine::decoding::{PRESETS, Preset, Registry};

/// The table called `name`.
///
/// # Errors
/// An unknown name.
pub(super) fn table(name: &str) -> Result<String, String> {
    let registry = Registry::builtin();
    match name {
        "presets" => Ok(presets()),
        "schedules" => Ok(schedules(&registry)),
        "commits" => Ok(commits(&registry)),
        "caches" => Ok(caches(&registry)),
        "settings" => Ok(settings(&registry)),
        "differences" => Ok(differences(&registry)),
        _ => Err(format!(
            "expected presets, schedules, commits, caches, settings or differences, found {name}"
        )),
    }
}

/// The three fields of a preset that name its parts.
const PARTS: [&str; 3] = ["schedule", "commit", "cache"];

fn presets() -> String {
    let mut out = head([
        "preset",
        "schedule, commit rule, cache",
        "settings",
        "what it is",
    ]);
    for Preset {
        name,
        summary,
        fields,
    } in PRESETS
    {
        let part = |part: &str| fields.iter().find(|(field, _)| *field == part);
        let parts = PARTS.iter().filter_map(|of| part(of));
        let parts: Vec<String> = parts.map(|(_, value)| value.to_string()).collect();
        let settings = fields.iter().filter(|(field, _)| !PARTS.contains(field));
        let settings: Vec<String> = settings
            .map(|(of, value)| format!("{of} {value}"))
            .collect();
        row(
            &mut out,
            [
                &format!("`{name}`"),
                &parts.join(", "),
                &settings.join(", "),
                summary,
            ],
        );
    }
    out
}

fn schedules(registry: &Registry) -> String {
    let mut out = head([
        "schedule",
        "lanes and open positions",
        "caches, the default first",
        "from",
    ]);
    for info in registry.schedules() {
        let caches = registry.caches_of(info);
        let caches: Vec<&str> = caches.iter().map(|cache| cache.name).collect();
        row(
            &mut out,
            [
                &format!("`{}`", info.name),
                info.summary,
                &caches.join(", "),
                info.paper,
            ],
        );
    }
    out
}

fn commits(registry: &Registry) -> String {
    let mut out = head(["rule", "commits in a step", "requires", "from"]);
    for info in registry.commits() {
        row(
            &mut out,
            [
                &format!("`{}`", info.name),
                info.summary,
                &requires(info),
                info.paper,
            ],
        );
    }
    out
}

/// What a commit rule requires of schedule, cache, weights, model and request.
fn requires(info: &CommitInfo) -> String {
    let requires = &info.requires;
    let mut parts = Vec::new();
    if let Company::Only(names) = requires.schedules {
        parts.push(names.join(", "));
    }
    if let Company::Only(names) = requires.caches {
        parts.push(format!("cache {}", names.join(", ")));
    }
    if requires.attention != AttentionKind::MASKED {
        parts.push(format!("{} attention", attention(requires.attention)));
    }
    if requires.checks {
        parts.push("masks predicted at their own row".to_owned());
    }
    let defaults = decode::Settings::defaults(info.settings);
    match (requires.needs)(&defaults) {
        Some(Capability::Filter) => parts.push("a trained filter".to_owned()),
        Some(Capability::Edits) => parts.push("weights trained to rewrite tokens".to_owned()),
        Some(Capability::Drafts) => parts.push("a draft model".to_owned()),
        None => {}
    }
    if !requires.excludes.is_empty() {
        let words: Vec<&str> = requires.excludes.iter().map(|of| of.words()).collect();
        parts.push(format!("not with {}", words.join(", ")));
    }
    match parts.is_empty() {
        true => "–".to_owned(),
        false => parts.join("; "),
    }
}

fn attention(kinds: &[AttentionKind]) -> String {
    let word = |kind: &AttentionKind| match kind {
        AttentionKind::Full => "full",
        AttentionKind::BlockCausal => "block-causal",
        AttentionKind::Causal => "causal",
        AttentionKind::Canvas => "canvas",
    };
    kinds.iter().map(word).collect::<Vec<_>>().join(" or ")
}

fn caches(registry: &Registry) -> String {
    let mut out = head([
        "cache",
        "K/V that a forward pass reads",
        "schedules",
        "from",
    ]);
    for info in registry.caches() {
        let goes = |schedule: &&&decode::ScheduleInfo| {
            let caches = registry.caches_of(schedule);
            caches.iter().any(|cache| cache.name == info.name)
        };
        let schedules = registry.schedules().iter().filter(goes);
        let mut schedules: String = schedules.map(|of| of.name).collect::<Vec<_>>().join(", ");
        if info.attention != AttentionKind::MASKED {
            let _ = write!(schedules, "; {} attention", attention(info.attention));
        }
        row(
            &mut out,
            [
                &format!("`{}`", info.name),
                info.summary,
                &schedules,
                info.paper,
            ],
        );
    }
    out
}

/// Schedules and commit rules that are known to differ from published code.
fn differences(registry: &Registry) -> String {
    let mut out = head(["name", "kind", "from", "difference"]);
    let schedules = registry.schedules().iter();
    let schedules = schedules.map(|of| ("schedule", of.name, of.paper, of.differs));
    let commits = registry.commits().iter();
    let commits = commits.map(|of| ("commit rule", of.name, of.paper, of.differs));
    for (kind, name, paper, differs) in schedules.chain(commits) {
        if !differs.is_empty() {
            row(&mut out, [&format!("`{name}`"), kind, paper, differs]);
        }
    }
    out
}

/// A setting as one of its readers declares it.
type Reading = (&'static str, &'static SettingInfo);

/// The reader of the settings that belong to no member, in backticks.
const EVERY: &str = "``";

fn settings(registry: &Registry) -> String {
    let mut readings: Vec<Reading> = Vec::new();
    fn add<I: Describe>(readings: &mut Vec<Reading>, members: &[&'static I]) {
        for info in members {
            readings.extend(info.settings().iter().map(|setting| (info.name(), setting)));
        }
    }
    add(&mut readings, registry.schedules());
    add(&mut readings, registry.commits());
    add(&mut readings, registry.caches());
    readings.extend(registry.general().iter().map(|setting| ("", *setting)));
    let mut out = head(["setting", "values", "default", "meaning"]);
    let mut names: Vec<&str> = Vec::new();
    for (_, setting) in &readings {
        if !names.contains(&setting.name) {
            names.push(setting.name);
        }
    }
    for name in names {
        let of: Vec<&Reading> = readings.iter().filter(|(_, of)| of.name == name).collect();
        let values = of[0].1.kind.describe();
        row(
            &mut out,
            [
                &format!("`{name}`"),
                &values,
                &defaults(&of),
                &meanings(&of),
            ],
        );
    }
    out
}

/// The distinct values of a setting's readers, each with the names of those that have it.
fn grouped(
    readings: &[&Reading],
    value: impl Fn(&SettingInfo) -> String,
) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (reader, setting) in readings {
        let (value, name) = (value(setting), format!("`{reader}`"));
        match groups.iter_mut().find(|(known, _)| *known == value) {
            Some((_, names)) => names.push(name),
            None => groups.push((value, vec![name])),
        }
    }
    groups
}

/// `32`, or `1 (`top_k`); 32 (`capped`)` where readers differ.
fn defaults(readings: &[&Reading]) -> String {
    let groups = grouped(readings, |setting| match setting.default {
        SettingDefault::Value(value) => value.to_string(),
        SettingDefault::Derived(words) => words.to_owned(),
    });
    if let [(value, _)] = &groups[..] {
        return value.clone();
    }
    let cells = groups.iter();
    let cells = cells.map(|(value, names)| format!("{value} ({})", names.join(", ")));
    cells.collect::<Vec<_>>().join("; ")
}

/// What the setting does for each of its readers.
fn meanings(readings: &[&Reading]) -> String {
    let groups = grouped(readings, |setting| setting.summary.to_owned());
    let cells = groups.iter().map(|(text, names)| match names[0].as_str() {
        EVERY => text.clone(),
        _ => format!("{}: {text}", names.join(", ")),
    });
    cells.collect::<Vec<_>>().join("; ")
}

fn head(names: [&str; 4]) -> String {
    format!("\n| {} |\n|---|---|---|---|\n", names.join(" | "))
}

fn row(out: &mut String, cells: [&str; 4]) {
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_and_every_field_has_a_row() {
        let registry = Registry::builtin();
        let settings = table("settings").unwrap();
        for field in registry.fields() {
            let is_member = matches!(field.kind, engine::decoding::FieldKind::Member(_));
            let row = format!("\n| `{}` |", field.name);
            assert_ne!(is_member, settings.contains(&row), "{}", field.name);
        }
        let commits = table("commits").unwrap();
        assert_eq!(commits.matches("\n| `").count(), registry.commits().len());
        assert!(table("lanes").is_err());
    }

    #[test]
    fn readers_that_differ_are_named() {
        let settings = table("settings").unwrap();
        let row = |name: &str| {
            let start = format!("| `{name}` |");
            let found = settings.lines().find(|line| line.starts_with(&start));
            found.unwrap().to_owned()
        };
        assert!(row("tokens_per_step").contains("32 (`capped`)"));
        assert!(row("lookahead").contains("`asynclane`: "));
    }
}
