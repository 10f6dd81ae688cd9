//! The decoders of a comparison: those named, and those that `all` stands for.

use anyhow::Result;
use engine::decoding::{Decoding, DecodingSpec, PRESET_NAMES, Registry, TUNED_PRESETS};

use super::row::Decoder;
use cli::exit;

/// The name that stands for every preset, commit rule and ablation.
pub const ALL: &str = "all";

/// The reference decoder, the first of `all`.
const VANILLA: &str = "vanilla";

/// The preset that ablations and rules vary. It is not a tuned preset, because those are derived from
/// the comparison.
const REFERENCE: &str = "asynclane";

/// The preset with the second schedule that every commit rule runs on.
const BASELINE: &str = "fast_dllm_dual";

/// Changes of one setting of the reference.
const ABLATIONS: &[&str] = &[
    "fork=off",
    "coupled=true",
    "cache=snapshot,rows=all,refresh=lane",
    "cache=fresh",
    "cache=fused,rows=all",
    "cache=elastic",
    "lookahead=16",
    "lookahead=4",
    "lookahead=0",
    "lookahead=8,block_length=16",
];

/// Entropy bounds on the reference's schedule; drafts have the threshold 0.99, as no bound applies to
/// them.
const BOUNDS: [f64; 5] = [0.1, 0.15, 0.25, 0.4, 0.6];

/// Combinations that the other lists do not contain.
const OTHERS: &[&str] = &[
    "asynclane,schedule=block_wise,cache=elastic",
    "asynclane,schedule=block_wise,cache=elastic,threshold=0.97",
    "asynclane,schedule=window,cache=elastic",
    "schedule=block_wise,commit=early_commit,cache=prefix",
    "schedule=block_wise,commit=edit,force=true",
];

/// Lookaheads for the thresholds: the schedule's default, and a shorter one with fewer rows per step.
const LOOKAHEADS: [u32; 2] = [32, 8];

/// Thresholds of commits and drafts on the reference.
const THRESHOLDS: [f64; 7] = [0.8, 0.9, 0.95, 0.97, 0.99, 0.995, 0.999];

/// A decoder of the comparison.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The decoder with its name.
    pub decoder: Decoder,
    /// True if [`ALL`] listed it; it is then left out if the model does not support it.
    pub optional: bool,
}

/// Parses presets and settings separated by blanks or semicolons, each with `MODEL:` in front if it
/// decodes another model than the configured one. [`ALL`] adds what is not listed yet; a warning
/// names the combinations that do not resolve.
///
/// # Errors
/// An unknown name, an invalid combination, an empty list.
pub fn parse(text: &str) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    for name in text.split([' ', ';']).filter(|name| !name.is_empty()) {
        if name == ALL {
            for why in add_all(&mut listed) {
                eprintln!("left out: {why}");
            }
            continue;
        }
        let decoder = decoder(name)
            .map_err(|why| exit::failure(exit::USAGE, format!("--decoders {name}: {why}")))?;
        listed.push(Listed { decoder, optional: false });
    }
    if listed.is_empty() {
        return Err(exit::failure(exit::USAGE, "--decoders names no decoder"));
    }
    Ok(listed)
}

/// Adds every candidate that resolves to settings not listed yet; returns the others that do not
/// resolve, with the reason.
fn add_all(listed: &mut Vec<Listed>) -> Vec<String> {
    let mut refused = Vec::new();
    for name in candidates() {
        match decoder(&name) {
            Ok(new)
                if listed.iter().any(|Listed { decoder: known, .. }| {
                    known.model == new.model && known.decoding == new.decoding
                }) => {}
            Ok(decoder) => listed.push(Listed { decoder, optional: true }),
            Err(why) => refused.push(format!("{name}: {why}")),
        }
    }
    refused
}

/// Presets, every commit rule on two schedules, the other schedules, ablations, thresholds.
fn candidates() -> Vec<String> {
    let published = |name: &&&str| **name != VANILLA && !TUNED_PRESETS.contains(name);
    let presets = PRESET_NAMES.iter().filter(published);
    let mut names: Vec<String> =
        std::iter::once(&VANILLA).chain(presets).map(|name| (*name).to_owned()).collect();
    let registry = Registry::builtin();
    let default = schedule(REFERENCE);
    let baseline = schedule(BASELINE);
    for schedule in [&default, &baseline] {
        let rules = registry.commits().iter();
        let rules = rules.filter(|rule| rule.requires.schedules.admits(schedule));
        names.extend(rules.map(|rule| with_defaults(schedule, rule.name)));
    }
    let others = registry.schedules().iter().map(|schedule| schedule.name);
    let others = others.filter(|name| *name != default && *name != baseline);
    names.extend(others.map(|name| format!("{REFERENCE},schedule={name}")));
    names.extend(ABLATIONS.iter().map(|change| format!("{REFERENCE},{change}")));
    names.extend(OTHERS.iter().map(|name| (*name).to_owned()));
    names.extend(BOUNDS.iter().map(|bound| {
        format!("{REFERENCE},commit=entropy_bound,entropy_threshold={bound},draft_threshold=0.99,fork=auto")
    }));
    names.extend(THRESHOLDS.iter().flat_map(|threshold| {
        LOOKAHEADS.iter().map(move |seen| {
            format!(
                "{REFERENCE},threshold={threshold},draft_threshold={threshold},lookahead={seen}"
            )
        })
    }));
    names.extend(TUNED_PRESETS.iter().map(|name| (*name).to_owned()));
    names
}

/// Settings for a commit rule on a schedule with the rule's own defaults. A preset with the same
/// schedule would set its own threshold; if that makes a difference, a preset with another schedule
/// is the base.
fn with_defaults(host: &str, commit: &str) -> String {
    if schedule(REFERENCE) != host {
        return format!("schedule={host},commit={commit}");
    }
    let short = format!("{REFERENCE},commit={commit}");
    let foreign = PRESET_NAMES.iter().find(|name| schedule(name) != host);
    let Some(foreign) = foreign else {
        return short;
    };
    let long = format!("{foreign},schedule={host},commit={commit}");
    match (resolve(&short), resolve(&long)) {
        (Ok(with_preset), Ok(alone)) if with_preset != alone => long,
        _ => short,
    }
}

fn decoder(name: &str) -> Result<Decoder, String> {
    // A path may contain a colon, a setting cannot.
    let (model, settings) = match name.rsplit_once(':') {
        Some((model, settings)) => (Some(model), settings),
        None => (None, name),
    };
    let read = DecodingSpec::parse(settings).and_then(|spec| Ok((spec.resolve()?, spec)));
    let (decoding, spec) = read.map_err(|error| error.to_string())?;
    Ok(Decoder { name: name.to_owned(), model: model.map(str::to_owned), spec, decoding })
}

fn resolve(name: &str) -> Result<Decoding, String> {
    decoder(name).map(|decoder| decoder.decoding)
}

/// The schedule of a preset, the first part of its label.
fn schedule(preset: &str) -> String {
    let label = resolve(preset).map(|decoding| decoding.label);
    let label = label.unwrap_or_default();
    label.split('+').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(listed: &[Listed]) -> Vec<&str> {
        listed.iter().map(|one| one.decoder.name.as_str()).collect()
    }

    #[test]
    fn all_begins_with_vanilla_and_holds_every_preset_and_rule() {
        let mut listed = Vec::new();
        let refused = add_all(&mut listed);
        assert_eq!(listed[0].decoder.name, VANILLA);
        for preset in PRESET_NAMES {
            let decoding = resolve(preset).unwrap();
            let present = listed.iter().any(|one| one.decoder.decoding == decoding);
            assert!(present, "{preset}");
        }
        for host in [schedule(REFERENCE), schedule(BASELINE)] {
            let rules = Registry::builtin();
            let rules = rules.commits().iter();
            for rule in rules.filter(|rule| rule.requires.schedules.admits(&host)) {
                let start = format!("{host}+{}+", rule.name);
                let present =
                    listed.iter().any(|one| one.decoder.decoding.label.starts_with(&start));
                let told = refused.iter().any(|why| why.contains(rule.name));
                assert!(present || told, "{start}");
            }
        }
        for schedule in Registry::builtin().schedules() {
            let start = format!("{}+", schedule.name);
            let present = listed.iter().any(|one| one.decoder.decoding.label.starts_with(&start));
            assert!(present, "{start}");
        }
    }

    #[test]
    fn no_ablation_and_no_threshold_is_refused_and_none_is_run_twice() {
        let mut listed = Vec::new();
        let refused = add_all(&mut listed);
        assert!(refused.is_empty(), "{refused:?}");
        for (index, one) in listed.iter().enumerate() {
            assert!(one.optional);
            let twin =
                listed[..index].iter().find(|other| other.decoder.decoding == one.decoder.decoding);
            assert!(twin.is_none(), "{} = {:?}", one.decoder.name, twin);
        }
    }

    #[test]
    fn every_name_of_all_is_a_setting_that_a_user_can_pass() {
        let mut listed = Vec::new();
        add_all(&mut listed);
        for one in &listed {
            let again = parse(&one.decoder.name).unwrap();
            assert_eq!(again.len(), 1, "{}", one.decoder.name);
            assert_eq!(again[0].decoder.decoding, one.decoder.decoding);
        }
    }

    #[test]
    fn a_rule_has_its_own_defaults_rather_than_the_presets() {
        let capped = with_defaults(&schedule(REFERENCE), "capped");
        let commit = resolve(&capped).unwrap().decoder.commit;
        let own = decode::CommitConfig::find(decode::COMMITS, "capped");
        assert_eq!(Some(commit), own, "{capped}");
    }

    #[test]
    fn all_adds_to_what_is_named_first() {
        let listed = parse("balanced,lookahead=16 all").unwrap();
        assert_eq!(names(&listed)[..2], ["balanced,lookahead=16", VANILLA]);
        assert!(!listed[0].optional && listed[1].optional);
    }

    #[test]
    fn a_decoder_may_name_its_model() {
        let listed = parse("vanilla demo-wedlm:wedlm,window=8 /a:b/c:vanilla all").unwrap();
        let models: Vec<_> = listed.iter().map(|one| one.decoder.model.as_deref()).collect();
        assert_eq!(models[..3], [None, Some("demo-wedlm"), Some("/a:b/c")]);
        assert_eq!(names(&listed)[1], "demo-wedlm:wedlm,window=8");
        let alone = resolve("wedlm,window=8").unwrap();
        assert_eq!(listed[1].decoder.decoding, alone);
        let again = listed[3..].iter().filter(|one| one.decoder.name == VANILLA);
        assert_eq!(again.count(), 0, "`all` adds to the configured model's decoders");
    }

    #[test]
    fn an_unknown_name_and_an_empty_list_are_refused() {
        assert!(parse("vanilla slow").is_err());
        assert!(parse(" ; ").is_err());
    }
}
