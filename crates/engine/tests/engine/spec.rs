//! Decoder settings: presets, precedence, and every way to get them wrong.

use asynclane_engine::decoding::{
    CacheConfig, Compact, DEFAULT_PRESET, DecodingSpec, FIELDS, FieldKind, PRESET_NAMES, PRESETS,
    Refresh, RowSelection, SpecError, SpecFault, Value,
};
use decode::{
    AnswerSpan, AsyncLaneConfig, Boundary, CommitConfig, DecoderConfig, NumericPeriod, Offset,
    Rank, ScheduleConfig,
};

use crate::common::decoding;

fn error(settings: &str) -> SpecError {
    let found = DecodingSpec::parse(settings).and_then(|spec| spec.resolve());
    found.map(|decoding| decoding.label).expect_err(settings)
}

#[test]
fn every_preset_resolves() {
    let labels = [
        ("balanced", "asynclane+threshold+fused"),
        ("fast", "asynclane+threshold+fused"),
        ("quality", "asynclane+threshold+fused"),
        ("asynclane", "asynclane+threshold+fused"),
        ("asynclane_paper", "asynclane+threshold+snapshot"),
        ("vanilla", "block_wise+top_k+none"),
        ("fast_dllm", "block_wise+threshold+none"),
        ("fast_dllm_prefix", "block_wise+threshold+prefix"),
        ("fast_dllm_dual", "block_wise+threshold+dual"),
        ("fast_dllm_dual_published", "block_wise+threshold+dual"),
        ("adablock", "adaptive_block+threshold+dual"),
        ("d3llm", "multi_block+entropy+dual"),
        ("dream", "block_wise+scheduled+none"),
        ("window_diffusion", "window+top_k+dual"),
        ("wedlm", "streaming+entropy+exact"),
        ("autoregressive", "streaming+entropy+exact"),
        ("block_causal", "block_wise+threshold+exact"),
    ];
    let found: Vec<_> = PRESETS
        .iter()
        .map(|preset| (preset.name, decoding(preset.name).label))
        .collect();
    let expected: Vec<_> = labels
        .iter()
        .map(|(name, label)| (*name, (*label).to_owned()))
        .collect();
    assert_eq!(found, expected);
    let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
    assert_eq!(names, PRESET_NAMES);
    assert!(PRESETS.iter().all(|preset| !preset.summary.is_empty()));
}

/// AsyncLane §3, defaults: spelled out once.
#[test]
fn nothing_set_is_the_default_preset() {
    let found = DecodingSpec::default()
        .resolve()
        .expect("the default is valid");
    assert_eq!(found, decoding(DEFAULT_PRESET));
    let schedule = ScheduleConfig::AsyncLane(AsyncLaneConfig {
        block_length: 32,
        lookahead: 8,
        draft_threshold: Some(0.97),
        fork: Some(Boundary::Auto(NumericPeriod::Next)),
        min_fill: 0.5,
        min_clock: 2,
        fork_when_complete: true,
        lane_budget: false,
        max_lanes: 16,
        coupled: false,
    });
    let commit = CommitConfig::Threshold { threshold: 0.97 };
    let decoder = DecoderConfig {
        schedule,
        commit,
        prune: true,
        early_stop: true,
    };
    assert_eq!(found.decoder, decoder);
    let compact = Compact {
        refresh: Refresh::Every(32),
        margin: 40,
    };
    assert_eq!(
        found.cache,
        CacheConfig::Fused {
            compact,
            rows: RowSelection::Open
        }
    );
    assert_eq!(found.max_forwards, None);
}

#[test]
fn the_published_forms_keep_their_own_settings() {
    let vanilla = decoding("vanilla").decoder;
    assert_eq!(vanilla.commit, CommitConfig::TopK { tokens_per_step: 1 });
    assert_eq!(
        vanilla.schedule,
        ScheduleConfig::BlockWise { block_length: 32 }
    );
    let published = decoding("fast_dllm_dual_published").decoder;
    assert_eq!((published.prune, published.early_stop), (false, false));
    let compact = Compact {
        refresh: Refresh::Lane,
        margin: 64,
    };
    assert_eq!(
        decoding("asynclane_paper").cache,
        CacheConfig::Snapshot(compact)
    );
}

#[test]
fn fields_override_their_preset() {
    let fast = decoding("fast,threshold=0.5,block_length=8,lookahead=0").decoder;
    assert_eq!(fast.commit, CommitConfig::Threshold { threshold: 0.5 });
    let ScheduleConfig::AsyncLane(lanes) = fast.schedule else {
        panic!("{fast:?}")
    };
    assert_eq!((lanes.block_length, lanes.lookahead), (8, 0));
    assert_eq!(lanes.draft_threshold, Some(0.95), "the preset's");
}

#[test]
fn another_schedule_leaves_the_settings_of_the_preset_behind() {
    assert_eq!(
        decoding("fast,schedule=block_wise").label,
        "block_wise+threshold+dual"
    );
    assert_eq!(
        decoding("vanilla,schedule=asynclane").label,
        "asynclane+top_k+fused"
    );
    let other = decoding("balanced,cache=snapshot");
    let compact = Compact {
        refresh: Refresh::Lane,
        margin: 40,
    };
    assert_eq!(
        other.cache,
        CacheConfig::Snapshot(compact),
        "a refresh of 32 is fused's own"
    );
}

#[test]
fn a_later_value_replaces_an_earlier_one() {
    let mut spec = DecodingSpec::default();
    spec.set("threshold", Value::Number(0.5)).expect("in range");
    spec.set("threshold", Value::Integer(1))
        .expect("an integer is a number");
    let found = spec.resolve().expect("valid").decoder.commit;
    assert_eq!(found, CommitConfig::Threshold { threshold: 1.0 });
}

#[test]
fn settings_lie_over_others() {
    let base = DecodingSpec::parse("vanilla,block_length=8").expect("valid");
    let over = DecodingSpec::parse("tokens_per_step=4").expect("valid");
    let found = over.over(&base).resolve().expect("valid").decoder;
    assert_eq!(found.commit, CommitConfig::TopK { tokens_per_step: 4 });
    assert_eq!(
        found.schedule,
        ScheduleConfig::BlockWise { block_length: 8 }
    );
}

/// Settings, the fault, the field it is about, and the whole message.
const FAULTS: &[(&str, SpecFault, &str)] = &[
    (
        "threshold=high",
        SpecFault::Type,
        "threshold must be a number in 0..1, got \"high\"",
    ),
    (
        "threshold=true",
        SpecFault::Type,
        "threshold must be a number in 0..1, got true",
    ),
    (
        "block_length=1.5",
        SpecFault::Type,
        "block_length must be an integer in 1..1024, got 1.5",
    ),
    (
        "block_length=no",
        SpecFault::Type,
        "block_length must be an integer in 1..1024, got \"no\"",
    ),
    (
        "coupled=1",
        SpecFault::Type,
        "coupled must be true or false, got 1",
    ),
    (
        "schedule=3",
        SpecFault::Type,
        "schedule must be one of asynclane, block_wise, adaptive_block, multi_block, window, streaming, got 3",
    ),
    (
        "refresh=false",
        SpecFault::Type,
        "refresh must be one of lane, never, or an integer >= 1, got false",
    ),
    (
        "threshold=1.01",
        SpecFault::Value,
        "threshold must be a number in 0..1, got 1.01",
    ),
    (
        "threshold=-1",
        SpecFault::Value,
        "threshold must be a number in 0..1, got -1",
    ),
    (
        "threshold=nan",
        SpecFault::Value,
        "threshold must be a number in 0..1, got NaN",
    ),
    (
        "min_fill=inf",
        SpecFault::Value,
        "min_fill must be a number in 0..1, got inf",
    ),
    (
        "block_length=0",
        SpecFault::Value,
        "block_length must be an integer in 1..1024, got 0",
    ),
    (
        "block_length=1025",
        SpecFault::Value,
        "block_length must be an integer in 1..1024, got 1025",
    ),
    (
        "lookahead=257",
        SpecFault::Value,
        "lookahead must be an integer in 0..256, got 257",
    ),
    (
        "max_lanes=33",
        SpecFault::Value,
        "max_lanes must be an integer in 1..32, got 33",
    ),
    (
        "max_forwards=0",
        SpecFault::Value,
        "max_forwards must be an integer >= 1, got 0",
    ),
    (
        "refresh=0",
        SpecFault::Value,
        "refresh must be one of lane, never, or an integer >= 1, got 0",
    ),
    (
        "cache=lru",
        SpecFault::Value,
        "cache must be one of none, prefix, dual, snapshot, fresh, fused, elastic, exact, got \"lru\"",
    ),
    (
        "schedule=block_wise,lookahead=4",
        SpecFault::Combination,
        "lookahead is read by schedule asynclane only",
    ),
    (
        "vanilla,threshold=0.5",
        SpecFault::Combination,
        "threshold is read by commit threshold, capped, credit, local_leap, hierarchy, edit only",
    ),
    (
        "tokens_per_step=2",
        SpecFault::Combination,
        "tokens_per_step is read by commit top_k, capped, early_commit, draft_verify only",
    ),
    (
        "cache=dual",
        SpecFault::Combination,
        "cache dual does not go with schedule asynclane: use fused, snapshot, fresh, elastic or exact",
    ),
    (
        "schedule=block_wise,cache=fused",
        SpecFault::Combination,
        "cache fused does not go with schedule block_wise: use dual, none, prefix, elastic or exact",
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
        "commit=entropy,margin_threshold=0.5",
        SpecFault::Combination,
        "margin_threshold is read by commit margin only",
    ),
    (
        "commit=factor,factor=0",
        SpecFault::Value,
        "factor must be a number > 0, got 0",
    ),
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
        "refresh_margin must be at least block_length + lookahead = 16, got 15",
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
        "wedlm,cache=dual",
        SpecFault::Combination,
        "cache dual does not go with schedule streaming: use exact",
    ),
    (
        "position_penalty=0.1",
        SpecFault::Combination,
        "position_penalty is read by commit entropy only",
    ),
    (
        "wedlm,position_penalty=-1",
        SpecFault::Value,
        "position_penalty must be a number >= 0, got -1",
    ),
    (
        "commit=edit",
        SpecFault::Combination,
        "commit edit does not go with schedule asynclane: it needs block_wise",
    ),
    (
        "fast_dllm_dual,commit=early_commit",
        SpecFault::Combination,
        "commit early_commit does not go with cache dual: it needs none or prefix",
    ),
    (
        "fast_dllm_dual,force=true",
        SpecFault::Combination,
        "force is read by commit edit only",
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
        assert_eq!(
            (found.fault, found.to_string().as_str()),
            (*fault, *message),
            "{settings}"
        );
        assert!(message.starts_with(&found.field), "{settings}");
    }
}

#[test]
fn an_unknown_field_or_preset_is_told_the_known_ones() {
    let found = error("treshold=0.9");
    assert_eq!(
        (found.fault, found.field.as_str()),
        (SpecFault::Unknown, "treshold")
    );
    for field in FIELDS {
        assert!(
            found.message.contains(field.name),
            "{}: {}",
            field.name,
            found.message
        );
    }
    let found = error("fastest");
    assert_eq!(
        (found.fault, found.field.as_str()),
        (SpecFault::Value, "preset")
    );
    for name in PRESET_NAMES {
        assert!(found.message.contains(name), "{name}: {}", found.message);
    }
}

/// Every field that only AsyncLane reads is refused elsewhere, and no other is.
#[test]
fn fields_that_nobody_reads_are_refused() {
    for field in FIELDS {
        let value = match field.kind {
            FieldKind::Name(names) | FieldKind::NameOrInteger(names, ..) => Value::Name(names[0]),
            FieldKind::Integer(_, max) => Value::Integer(max),
            FieldKind::Number(_, max) => Value::Number(max),
            FieldKind::Flag => Value::Flag(true),
        };
        let mut spec = DecodingSpec::parse("fast_dllm").expect("a preset");
        spec.set(field.name, value)
            .expect("a value of its own range");
        let general = [
            "preset",
            "schedule",
            "commit",
            "cache",
            "block_length",
            "threshold",
        ];
        let stops = ["prune", "early_stop", "max_forwards"];
        let read = general.contains(&field.name) || stops.contains(&field.name);
        let refused = spec
            .resolve()
            .is_err_and(|error| error.fault == SpecFault::Combination);
        assert_eq!(refused, !read, "{}", field.name);
    }
}

#[test]
fn the_timetable_reads_its_settings() {
    let commit = |settings: &str| decoding(settings).decoder.commit;
    let scheduled = |steps, rank| CommitConfig::Scheduled { steps, rank };
    assert_eq!(commit("dream"), scheduled(None, Rank::Entropy));
    let found = commit("dream,denoising_steps=10,rank=margin");
    assert_eq!(found, scheduled(Some(10), Rank::Margin));
    let found = commit("vanilla,commit=scheduled");
    assert_eq!(found, scheduled(None, Rank::Confidence));
    for (settings, message) in [
        (
            "dream,rank=best",
            "rank must be one of confidence, margin, entropy, got \"best\"",
        ),
        (
            "dream,denoising_steps=0",
            "denoising_steps must be an integer in 1..1024, got 0",
        ),
        (
            "vanilla,rank=margin",
            "rank is read by commit scheduled only",
        ),
        (
            "balanced,commit=scheduled",
            "commit scheduled does not go with schedule asynclane: it needs block_wise",
        ),
    ] {
        assert_eq!(error(settings).to_string(), message);
    }
}

/// Each of these settings has a place of its own.
#[test]
fn the_rules_of_blocks_read_their_settings() {
    let commit = |settings: &str| {
        let spec = DecodingSpec::parse(&format!("schedule=block_wise,{settings}"));
        let decoding = spec.and_then(|spec| spec.resolve());
        decoding.expect("valid settings").decoder.commit
    };
    let answer = |start, len| CommitConfig::EarlyCommit {
        tokens_per_step: 1,
        answer: AnswerSpan {
            start: Offset::new(start),
            len,
        },
    };
    let early = "cache=prefix,commit=early_commit";
    assert_eq!(commit(early), answer(0, 5));
    let placed = format!("{early},answer_start=200,answer_length=7");
    assert_eq!(commit(&placed), answer(200, 7));
    let filter = |threshold| CommitConfig::LearnedFilter { threshold };
    assert_eq!(commit("commit=learned_filter"), filter(0.96));
    let loose = "commit=learned_filter,filter_threshold=0.9";
    assert_eq!(commit(loose), filter(0.9));
    assert_eq!(
        commit("commit=draft_verify,tokens_per_step=2,draft_steps=8"),
        CommitConfig::DraftVerify {
            tokens_per_step: 2,
            draft_steps: 8
        }
    );
    assert_eq!(
        commit("commit=edit,edit_threshold=0,edit_passes=3"),
        CommitConfig::Edit {
            threshold: 0.7,
            edit_threshold: 0.0,
            most_passes: 3
        }
    );
}

/// A caller's text comes back clipped, whatever its length.
#[test]
fn messages_stay_short() {
    let long = "x".repeat(10_000);
    let mut spec = DecodingSpec::default();
    let unknown = spec
        .set(&long, Value::Flag(true))
        .expect_err("no such field");
    let name = spec
        .set("cache", Value::Name(&long))
        .expect_err("no such name");
    assert!(unknown.field.len() <= 64 && unknown.to_string().len() < 600);
    assert!(name.to_string().len() < 200);
}

#[test]
fn a_failed_set_changes_nothing() {
    let mut spec = DecodingSpec::parse("threshold=0.5").expect("valid");
    let before = spec.clone();
    spec.set("threshold", Value::Number(2.0))
        .expect_err("out of range");
    assert_eq!(spec, before);
}
