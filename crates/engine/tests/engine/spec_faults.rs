//! Decoder settings: every way to get them wrong.

use asynclane_engine::decoding::{
    DecodingSpec, FieldKind, PRESET_NAMES, Registry, SettingKind, SpecError, SpecFault, Value,
};

/// Why `settings` are refused.
pub fn error(settings: &str) -> SpecError {
    let found = DecodingSpec::parse(settings).and_then(|spec| spec.resolve());
    found.map(|decoding| decoding.label).expect_err(settings)
}

/// Settings, the fault, the field it is about, and the whole message.
const FAULTS: &[(&str, SpecFault, &str)] = &[
    ("threshold=high", SpecFault::Type, "threshold must be a number in 0..1, got \"high\""),
    ("threshold=true", SpecFault::Type, "threshold must be a number in 0..1, got true"),
    ("block_length=1.5", SpecFault::Type, "block_length must be an integer in 1..1024, got 1.5"),
    ("block_length=no", SpecFault::Type, "block_length must be an integer in 1..1024, got \"no\""),
    ("coupled=1", SpecFault::Type, "coupled must be true or false, got 1"),
    (
        "schedule=3",
        SpecFault::Type,
        "schedule must be one of asynclane, block_wise, adaptive_block, multi_block, window, streaming, speculative, prompt_lookup, canvas, got 3",
    ),
    (
        "refresh=false",
        SpecFault::Type,
        "refresh must be one of lane, never, or an integer >= 1, got false",
    ),
    ("threshold=1.01", SpecFault::Value, "threshold must be a number in 0..1, got 1.01"),
    ("threshold=-1", SpecFault::Value, "threshold must be a number in 0..1, got -1"),
    ("threshold=nan", SpecFault::Value, "threshold must be a number in 0..1, got NaN"),
    ("min_fill=inf", SpecFault::Value, "min_fill must be a number in 0..1, got inf"),
    ("block_length=0", SpecFault::Value, "block_length must be an integer in 1..1024, got 0"),
    ("block_length=1025", SpecFault::Value, "block_length must be an integer in 1..1024, got 1025"),
    ("lookahead=257", SpecFault::Value, "lookahead must be an integer in 0..256, got 257"),
    ("max_lanes=33", SpecFault::Value, "max_lanes must be an integer in 1..32, got 33"),
    ("max_forwards=0", SpecFault::Value, "max_forwards must be an integer >= 1, got 0"),
    (
        "refresh=0",
        SpecFault::Value,
        "refresh must be one of lane, never, or an integer >= 1, got 0",
    ),
    (
        "cache=fsed",
        SpecFault::Value,
        "cache must be one of dual, none, prefix, fused, snapshot, fresh, elastic, exact, got \"fsed\" (did you mean \"fused\"?)",
    ),
    (
        "refresh=lanes",
        SpecFault::Value,
        "refresh must be one of lane, never, or an integer >= 1, got \"lanes\" (did you mean \"lane\"?)",
    ),
    (
        "cache=lru",
        SpecFault::Value,
        "cache must be one of dual, none, prefix, fused, snapshot, fresh, elastic, exact, got \"lru\"",
    ),
    (
        "schedule=block_wise,lookahead=4",
        SpecFault::Combination,
        "lookahead is read by schedule asynclane only",
    ),
    (
        "vanilla,threshold=0.5",
        SpecFault::Combination,
        "threshold is read by commit threshold, capped, credit, local_leap, hierarchy, self_speculative, edit only",
    ),
    (
        "tokens_per_step=2",
        SpecFault::Combination,
        "tokens_per_step is read by commit top_k, capped, early_commit, draft_verify only",
    ),
    (
        "schedule=asynclane,cache=dual",
        SpecFault::Combination,
        "cache dual does not go with schedule asynclane: use fused, snapshot, fresh, elastic or exact",
    ),
    (
        "schedule=block_wise,cache=fresh",
        SpecFault::Combination,
        "cache fresh does not go with schedule block_wise: use dual, none, prefix, fused, elastic or exact",
    ),
    (
        "schedule=window,cache=prefix",
        SpecFault::Combination,
        "cache prefix does not go with schedule window: use dual, none or elastic",
    ),
    (
        "schedule=window,window=8",
        SpecFault::Combination,
        "window must be at least block_length = 16, got 8",
    ),
    (
        "schedule=window,refresh=lane",
        SpecFault::Combination,
        "refresh must be an integer with schedule window",
    ),
    (
        "schedule=multi_block,delimiter_threshold=0.5",
        SpecFault::Combination,
        "delimiter_threshold is read by schedule adaptive_block only",
    ),
    (
        "add_block_threshold=0.5",
        SpecFault::Combination,
        "add_block_threshold is read by schedule multi_block only",
    ),
    (
        "d3llm,schedule=block_wise,active_block_threshold=0.5",
        SpecFault::Combination,
        "active_block_threshold is read by schedule multi_block only",
    ),
    (
        "commit=entropy,margin_threshold=0.5",
        SpecFault::Combination,
        "margin_threshold is read by commit margin only",
    ),
    ("commit=factor,factor=0", SpecFault::Value, "factor must be a number > 0, got 0"),
    (
        "commit=entropy,entropy_threshold=-1",
        SpecFault::Value,
        "entropy_threshold must be a number >= 0, got -1",
    ),
    (
        "cache=snapshot,rows=open",
        SpecFault::Combination,
        "rows open needs cache fused, got cache snapshot",
    ),
    (
        "block_length=8,lookahead=8,refresh_margin=15",
        SpecFault::Combination,
        "refresh_margin must be at least 16, as far as lanes of schedule asynclane reach, got 15",
    ),
    (
        "early_stop=false",
        SpecFault::Combination,
        "early_stop false needs schedule block_wise and prune false",
    ),
    (
        "fast_dllm,early_stop=false",
        SpecFault::Combination,
        "early_stop false needs schedule block_wise and prune false",
    ),
    (
        "wedlm,schedule=streaming,cache=dual",
        SpecFault::Combination,
        "cache dual does not go with schedule streaming: use exact",
    ),
    (
        "position_penalty=0.1",
        SpecFault::Combination,
        "position_penalty is read by commit entropy, causal_check only",
    ),
    (
        "wedlm,position_penalty=-1",
        SpecFault::Value,
        "position_penalty must be a number >= 0, got -1",
    ),
    (
        "schedule=asynclane,commit=edit",
        SpecFault::Combination,
        "commit edit does not go with schedule asynclane: it needs block_wise",
    ),
    (
        "cache=dual,commit=early_commit",
        SpecFault::Combination,
        "commit early_commit does not go with cache dual: it needs none or prefix",
    ),
    ("fast_dllm_dual,force=true", SpecFault::Combination, "force is read by commit edit only"),
    (
        "commit=scheduled,cache=fresh",
        SpecFault::Combination,
        "commit scheduled does not go with cache fresh: it needs dual or none or prefix or fused or elastic or exact",
    ),
    (
        "schedule=block_wise,refresh=4",
        SpecFault::Combination,
        "refresh is read by schedule window and cache fused, snapshot, fresh only",
    ),
    (
        "balanced,drift_threshold=0.5",
        SpecFault::Combination,
        "drift_threshold is read by cache elastic only",
    ),
];

#[test]
fn every_fault_names_its_field_and_what_is_allowed() {
    for (settings, fault, message) in FAULTS {
        let found = error(settings);
        assert_eq!((found.fault, found.to_string().as_str()), (*fault, *message), "{settings}");
        assert!(message.starts_with(&found.field), "{settings}");
    }
}

#[test]
fn an_unknown_field_or_preset_is_told_the_known_ones() {
    let found = error("treshold=0.9");
    assert_eq!((found.fault, found.field.as_str()), (SpecFault::Unknown, "treshold"));
    for field in Registry::builtin().fields() {
        assert!(found.message.contains(field.name), "{}: {}", field.name, found.message);
    }
    let found = error("fastest");
    assert_eq!((found.fault, found.field.as_str()), (SpecFault::Value, "preset"));
    for name in PRESET_NAMES {
        assert!(found.message.contains(name), "{name}: {}", found.message);
    }
}

/// A value of this kind; the largest number.
fn most(kind: &SettingKind) -> Value<'static> {
    match *kind {
        SettingKind::Name(names) | SettingKind::NameOrInteger(names, ..) => Value::Name(names[0]),
        SettingKind::Integer(_, max) => Value::Integer(max),
        SettingKind::Number(_, max) => Value::Number(max),
        SettingKind::Flag => Value::Flag(true),
    }
}

/// Every field that only AsyncLane reads is refused elsewhere, and no other is.
#[test]
fn fields_that_nobody_reads_are_refused() {
    for field in Registry::builtin().fields() {
        let value = match &field.kind {
            FieldKind::Member(names) => Value::Name(names[0]),
            FieldKind::Setting(kind) => most(kind),
        };
        let mut spec = DecodingSpec::parse("fast_dllm").expect("a preset");
        spec.set(field.name, value).expect("a value of its own range");
        let general = [
            "preset",
            "schedule",
            "commit",
            "cache",
            "block_length",
            "threshold",
            "min_tokens_per_step",
        ];
        let stops = ["prune", "early_stop", "lone_stops", "max_forwards", "max_steps"];
        let read = general.contains(&field.name) || stops.contains(&field.name);
        let refused = spec.resolve().is_err_and(|error| error.fault == SpecFault::Combination);
        assert_eq!(refused, !read, "{}", field.name);
    }
}

/// A caller's text comes back clipped, whatever its length.
#[test]
fn messages_stay_short() {
    let long = "x".repeat(10_000);
    let mut spec = DecodingSpec::default();
    let unknown = spec.set(&long, Value::Flag(true)).expect_err("no such field");
    let name = spec.set("cache", Value::Name(&long)).expect_err("no such name");
    assert!(unknown.field.len() <= 64 && unknown.to_string().len() < 1100);
    assert!(name.to_string().len() < 200);
}

#[test]
fn a_failed_set_changes_nothing() {
    let mut spec = DecodingSpec::parse("threshold=0.5").expect("valid");
    let before = spec.clone();
    spec.set("threshold", Value::Number(2.0)).expect_err("out of range");
    assert_eq!(spec, before);
}
