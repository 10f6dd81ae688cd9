//! `asynclane inspect decoders`: presets, and the parts of decoders with their settings.

use std::fmt::Write;

use anyhow::Result;
use decode::{Describe, SettingDefault, SettingInfo, Value};
use engine::decoding::{PRESETS, Registry};

use crate::exit;
use crate::names::unknown;

/// Prints every preset and part, or the one called `name`.
///
/// # Errors
/// A name that is none of them.
pub fn run(name: Option<&str>) -> Result<()> {
    let registry = Registry::builtin();
    let mut all = sections(&registry);
    if let Some(name) = name {
        let names: Vec<&str> = all.iter().map(|section| section.name).collect();
        let fault = unknown(&names, name);
        all.retain(|section| section.name == name);
        if all.is_empty() {
            return Err(exit::failure(exit::USAGE, format!("inspect decoders: {fault}")));
        }
    }
    for section in all {
        tell!("{}", section.text.trim_end());
    }
    Ok(())
}

/// A preset or a part of a decoder.
struct Section {
    name: &'static str,
    text: String,
}

fn sections(registry: &Registry) -> Vec<Section> {
    let presets = PRESETS.iter().map(|preset| {
        let values = preset.settings().map(|(name, value)| format!("{name}={}", shown(value)));
        let values = values.collect::<Vec<_>>().join(",");
        let text = format!("preset {}: {}\n  {values}\n", preset.name, preset.summary);
        Section { name: preset.name, text }
    });
    let mut all: Vec<Section> = presets.collect();
    let general = Section { name: "general", text: "every decoder\n".to_owned() };
    all.push(with_settings(general, registry.general().iter().copied()));
    all.extend(registry.schedules().iter().map(|info| part(*info, info.summary, info.paper)));
    all.extend(registry.commits().iter().map(|info| part(*info, info.summary, info.paper)));
    all.extend(registry.caches().iter().map(|info| part(*info, info.summary, info.paper)));
    all
}

fn part<I: Describe>(info: &'static I, summary: &str, paper: &str) -> Section {
    let text = format!("{} {}: {summary} ({paper})\n", I::KIND, info.name());
    with_settings(Section { name: info.name(), text }, info.settings().iter())
}

fn with_settings<'a>(
    mut section: Section,
    settings: impl Iterator<Item = &'a SettingInfo>,
) -> Section {
    for setting in settings {
        let default = match setting.default {
            SettingDefault::Value(value) => shown(value),
            SettingDefault::Derived(words) => words.to_owned(),
        };
        let (name, values, summary) = (setting.name, setting.kind.describe(), setting.summary);
        // Writing to a text does not fail.
        let _ = writeln!(section.text, "  {name} ({values}; default {default}): {summary}");
    }
    section
}

fn shown(value: Value<'_>) -> String {
    match value {
        Value::Name(name) => name.to_owned(),
        Value::Integer(integer) => integer.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
    }
}
