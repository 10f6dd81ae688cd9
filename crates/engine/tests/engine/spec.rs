//! Decoder settings: presets, precedence, members and what they go with.

use asynclane_engine::Engine;
use asynclane_engine::cache::{CACHES, CacheConfig};
use asynclane_engine::decoding::{
    DEFAULT_PRESET, DecodingSpec, FieldKind, PRESET_NAMES, PRESETS, Registry, Value, WeightKind,
};
use decode::{
    AsyncLaneConfig, AttentionKind, Boundary, COMMITS, CommitConfig, CommitInfo, DecoderConfig,
    NumericPeriod, Requirements, SCHEDULES, ScheduleConfig, SettingDefault, SettingInfo,
    SettingKind,
};
use sim::{SimConfig, SimExecutor};
use step::{Attention, Executor, LogitShift};

use crate::common::{decoding, drafted, sim};

fn schedule(name: &str) -> ScheduleConfig {
    ScheduleConfig::find(SCHEDULES, name).expect("a schedule")
}

fn commit(name: &str) -> CommitConfig {
    CommitConfig::find(COMMITS, name).expect("a commit rule")
}

fn cache(name: &str) -> CacheConfig {
    CacheConfig::find(CACHES, name).expect("a cache policy")
}

#[test]
fn every_preset_resolves() {
    let labels = [
        ("balanced", "asynclane+entropy_bound+fused"),
        ("fast", "asynclane+entropy_bound+fused"),
        ("low_latency", "asynclane+nested_drafts+fused"),
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
        ("wedlm_exact", "streaming+causal_check+exact"),
        ("wedlm_next", "streaming+causal_check+exact"),
        ("introspective", "streaming+causal_check+exact"),
        ("autoregressive", "streaming+entropy+exact"),
        ("self_speculation", "streaming+block_check+exact"),
        ("speculative", "speculative+top_k+exact"),
        ("prompt_lookup", "prompt_lookup+top_k+exact"),
        ("block_causal", "block_wise+threshold+exact"),
        ("d2f", "multi_block+threshold+exact"),
        ("s2d2", "block_wise+self_speculative+exact"),
        ("editing", "block_wise+edit+exact"),
        ("editing_fast", "block_wise+edit+exact"),
        ("canvas", "canvas+renoise+exact"),
    ];
    let found: Vec<_> =
        PRESETS.iter().map(|preset| (preset.name, decoding(preset.name).label)).collect();
    let expected: Vec<_> =
        labels.iter().map(|(name, label)| (*name, (*label).to_owned())).collect();
    assert_eq!(found, expected);
    let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
    assert_eq!(names, PRESET_NAMES);
    assert!(PRESETS.iter().all(|preset| !preset.summary.is_empty()));
    // A former name is accepted and shown nowhere.
    assert_eq!(decoding("quality"), decoding("balanced"));
    assert!(!PRESET_NAMES.contains(&"quality"));
}

/// AsyncLane §3, defaults: spelled out once.
#[test]
fn nothing_set_is_the_default_preset() {
    let found = DecodingSpec::default().resolve().expect("the default is valid");
    assert_eq!(found, decoding(DEFAULT_PRESET));
    let lanes = AsyncLaneConfig {
        block_length: 32,
        lookahead: 8,
        draft_threshold: Some(0.99),
        fork: Some(Boundary::Prose(NumericPeriod::Next)),
        min_fill: 0.5,
        min_clock: 2,
        fork_when_complete: true,
        fork_entropy: None,
        lane_budget: false,
        max_lanes: 16,
        coupled: false,
    };
    let settings = found.decoder.schedule.settings();
    assert_eq!(AsyncLaneConfig::read(settings), lanes);
    let schedule = schedule("asynclane").with("lookahead", 8u32).with("draft_threshold", 0.99);
    let schedule = schedule.with("fork", "prose");
    assert_eq!(schedule.reach(), 40);
    let decoder = DecoderConfig {
        schedule,
        commit: commit("entropy_bound").with("entropy_threshold", 0.15),
        prune: true,
        early_stop: true,
        lone_stops: false,
        max_steps: None,
        expected: 0,
    };
    assert_eq!(found.decoder, decoder);
    assert_eq!(found.cache, cache("fused").with("rows", "near").with("row_reach", 16u32));
    assert_eq!(found.max_forwards, None);
}

#[test]
fn the_published_forms_keep_their_own_settings() {
    let vanilla = decoding("vanilla").decoder;
    assert_eq!(vanilla.commit, commit("top_k").with("tokens_per_step", 1u32));
    let blocks = schedule("block_wise").with("block_length", 32u32);
    assert_eq!(vanilla.schedule, blocks);
    let published = decoding("fast_dllm_dual_published").decoder;
    assert_eq!((published.prune, published.early_stop), (false, false));
    let paper = decoding("asynclane_paper");
    assert_eq!(paper.cache, cache("snapshot").with("refresh", "lane"));
    assert_eq!(paper.decoder.schedule.reach(), 64);
}

#[test]
fn fields_override_their_preset() {
    let fast = decoding("fast,entropy_threshold=0.5,block_length=8,lookahead=0").decoder;
    let bound = commit("entropy_bound").with("entropy_threshold", 0.5);
    assert_eq!(fast.commit, bound);
    assert_eq!(fast.schedule.name(), "asynclane");
    let lanes = AsyncLaneConfig::read(fast.schedule.settings());
    assert_eq!((lanes.block_length, lanes.lookahead), (8, 0));
    assert_eq!(lanes.draft_threshold, Some(0.99), "the preset's");
}

#[test]
fn another_schedule_leaves_the_settings_of_the_preset_behind() {
    assert_eq!(decoding("fast,schedule=block_wise").label, "block_wise+entropy_bound+dual");
    assert_eq!(decoding("vanilla,schedule=asynclane").label, "asynclane+top_k+fused");
    let other = decoding("balanced,cache=snapshot");
    let snapshot = cache("snapshot").with("refresh", "lane");
    assert_eq!(other.cache, snapshot, "a refresh of 32 is fused's own");
}

#[test]
fn a_later_value_replaces_an_earlier_one() {
    let mut spec = DecodingSpec::default();
    spec.set("entropy_threshold", Value::Number(0.5)).expect("in range");
    spec.set("entropy_threshold", Value::Integer(1)).expect("an integer is a number");
    let found = spec.resolve().expect("valid").decoder.commit;
    assert_eq!(found, commit("entropy_bound").with("entropy_threshold", 1.0));
}

#[test]
fn settings_lie_over_others() {
    let base = DecodingSpec::parse("vanilla,block_length=8").expect("valid");
    let over = DecodingSpec::parse("tokens_per_step=4").expect("valid");
    let found = over.over(&base).resolve().expect("valid").decoder;
    assert_eq!(found.commit, commit("top_k").with("tokens_per_step", 4u32));
    let blocks = schedule("block_wise").with("block_length", 8u32);
    assert_eq!(found.schedule, blocks);
}

/// A value of a setting that is not its default.
fn other_value(setting: &SettingInfo) -> Value<'static> {
    let default = match setting.default {
        SettingDefault::Value(value) => Some(value),
        SettingDefault::Derived(_) => None,
    };
    let names = |names: &[&'static str]| names.iter().map(|name| Value::Name(name)).collect();
    let values: Vec<Value<'_>> = match setting.kind {
        SettingKind::Name(all) | SettingKind::NameOrInteger(all, ..) => names(all),
        SettingKind::Integer(min, max) => {
            vec![Value::Integer(min), Value::Integer(max.min(min + 2))]
        }
        SettingKind::Number(min, max) => vec![min, min + (max.min(min + 1.0) - min) / 4.0]
            .into_iter()
            .map(Value::Number)
            .collect(),
        SettingKind::Flag => vec![Value::Flag(false), Value::Flag(true)],
    };
    let other = values.into_iter().find(|value| Some(*value) != default);
    other.expect("two values at least")
}

/// The settings of a request reach the rule; a rule without settings of the request has its defaults.
#[test]
fn every_rule_reads_its_settings() {
    let registry = Registry::builtin();
    for info in COMMITS {
        // The default preset has settings of its own for its schedule.
        let mut schedules = registry.schedules_for(info).into_iter();
        let schedule = schedules.find(|schedule| schedule.name != "asynclane");
        let base = format!("schedule={},commit={}", schedule.expect("a schedule").name, info.name);
        assert_eq!(decoding(&base).decoder.commit, commit(info.name));
        for setting in info.settings {
            let value = other_value(setting);
            let found = decoding(&format!("{base},{}={value}", setting.name));
            let expected = commit(info.name).with(setting.name, value);
            assert_eq!(found.decoder.commit, expected, "{}", setting.name);
        }
    }
}

/// Attention and where predictions are read, of every kind of weights.
const WEIGHTS: [(Attention, LogitShift); 8] = [
    (Attention::Full, LogitShift::None),
    (Attention::Blocks(32), LogitShift::None),
    (Attention::Blocks(32), LogitShift::One),
    (Attention::BlocksAfterPrompt(32), LogitShift::None),
    (Attention::BlocksAfterPrompt(32), LogitShift::One),
    (Attention::Causal, LogitShift::None),
    (Attention::OpenBlock(16), LogitShift::None),
    (Attention::Canvas(16), LogitShift::None),
];

/// Resolves `settings` for these weights and asks an engine with every capability to admit them.
fn admitted(settings: &str, (attention, logit_shift): (Attention, LogitShift)) -> String {
    let spec = DecodingSpec::parse(settings).expect(settings);
    let decoding = spec
        .suited_to(WeightKind { attention, logit_shift, edits: false, drafts: false, masks: false })
        .resolve();
    let decoding = decoding.unwrap_or_else(|error| panic!("{settings}: {error}"));
    let model = SimConfig { attention, logit_shift, ..sim(1000, 4) };
    let executor = SimExecutor::new(model).expect("a valid model");
    let limits = Engine::new(&drafted(), executor.spec()).limits();
    let label = decoding.label.clone();
    let admitted = limits.admit_decoder(&decoding);
    admitted.unwrap_or_else(|refusal| panic!("{settings} as {label}: {refusal}"));
    label
}

#[test]
fn weights_that_edit_are_decoded_so_unless_a_request_says_otherwise() {
    let weights = |edits| WeightKind {
        attention: Attention::Blocks(32),
        logit_shift: LogitShift::None,
        edits,
        drafts: false,
        masks: true,
    };
    let label = |named: &str, edits| {
        let spec = DecodingSpec::parse(named).expect(named);
        spec.suited_to(weights(edits)).resolve().expect(named).label
    };
    assert_eq!(label("", true), "block_wise+edit+exact");
    assert_eq!(label("", false), "block_wise+threshold+exact");
    assert_eq!(label("block_causal", true), "block_wise+threshold+exact");
    let names = |edits| weights(edits).presets().map(|preset| preset.name).collect::<Vec<_>>();
    assert_eq!(names(false), ["block_causal", "d2f", "s2d2"]);
    assert_eq!(names(true), ["block_causal", "d2f", "s2d2", "editing", "editing_fast"]);
    let open = WeightKind { attention: Attention::OpenBlock(32), ..weights(false) };
    let names: Vec<_> = open.presets().map(|preset| preset.name).collect();
    assert_eq!(names, ["autoregressive", "self_speculation", "prompt_lookup", "block_causal"]);
    // The rule needs attention that is not causal, whatever the weights are said to do.
    let causal = WeightKind { attention: Attention::Causal, ..weights(true) };
    let rules = causal.presets().map(|preset| preset.name);
    assert!(rules.into_iter().all(|name| !name.starts_with("editing")));
}

/// The parts that the caller leaves open go with the named ones and with the weights.
#[test]
fn a_member_that_is_named_alone_gets_company_that_it_goes_with() {
    let registry = Registry::builtin();
    for weights in WEIGHTS {
        let kind = weights.0.kind();
        for cache in registry.caches() {
            if cache.attention.contains(&kind) {
                let label = admitted(&format!("cache={}", cache.name), weights);
                assert!(label.ends_with(cache.name), "{label}");
            }
        }
        for schedule in registry.schedules() {
            let caches = registry.caches_of(schedule);
            let possible = caches.iter().any(|cache| cache.attention.contains(&kind));
            if possible && schedule.attention.contains(&kind) {
                let more = match (schedule.name, kind) {
                    // Its masks see each other.
                    ("streaming", AttentionKind::OpenBlock) => ",window=1",
                    _ => "",
                };
                let label = admitted(&format!("schedule={}{more}", schedule.name), weights);
                assert!(label.starts_with(schedule.name), "{label}");
            }
        }
        for commit in registry.commits() {
            let caches = registry.caches_for(commit);
            let possible = caches.iter().any(|cache| cache.attention.contains(&kind));
            let read = !commit.requires.checks || weights.1 == LogitShift::None;
            if possible && read && commit.requires.attention.contains(&kind) {
                let more = match commit.name {
                    // The filter of these tests reads blocks of 32.
                    "learned_filter" => ",block_length=32",
                    _ => "",
                };
                let label = admitted(&format!("commit={}{more}", commit.name), weights);
                assert!(label.contains(&format!("+{}+", commit.name)), "{label}");
            }
        }
    }
}

#[test]
fn what_is_left_open_is_the_presets_before_anything_else() {
    let labels = [
        ("commit=early_commit", "block_wise+early_commit+none"),
        ("schedule=block_wise,commit=early_commit", "block_wise+early_commit+none"),
        ("fast_dllm_prefix,commit=early_commit", "block_wise+early_commit+prefix"),
        ("fast_dllm_dual,commit=early_commit", "block_wise+early_commit+none"),
        ("cache=dual", "block_wise+entropy_bound+dual"),
        ("dream,schedule=asynclane", "asynclane+threshold+fused"),
        ("wedlm,cache=dual", "block_wise+entropy+dual"),
        ("commit=capped", "asynclane+capped+fused"),
    ];
    for (settings, label) in labels {
        assert_eq!(decoding(settings).label, label, "{settings}");
    }
}

/// A setting of one name has one type and one range, whoever reads it; everything that is shown
/// to callers is there.
#[test]
fn members_describe_themselves_in_full() {
    let registry = Registry::builtin();
    let mut settings: Vec<SettingInfo> = Vec::new();
    for info in registry.schedules() {
        assert!(!info.summary.is_empty() && !info.paper.is_empty(), "{info:?}");
        settings.extend(info.settings);
    }
    for info in registry.commits() {
        assert!(!info.summary.is_empty() && !info.paper.is_empty(), "{info:?}");
        settings.extend(info.settings);
    }
    for info in registry.caches() {
        assert!(!info.summary.is_empty() && !info.paper.is_empty(), "{info:?}");
        settings.extend(info.settings);
        // Who goes with whom is said once.
        let twice = |schedule: &&&decode::ScheduleInfo| schedule.shape.caches.contains(&info.name);
        let named = registry.schedules().iter().filter(twice);
        let mut named = named.map(|schedule| schedule.name);
        assert!(!named.any(|name| info.schedules.admits(name)), "{info:?}");
    }
    for setting in settings {
        assert!(!setting.summary.is_empty(), "{}", setting.name);
        let field = registry.field(setting.name).expect("every setting is a field");
        assert_eq!(field.kind, FieldKind::Setting(setting.kind));
        if let SettingDefault::Value(value) = setting.default {
            assert_eq!(setting.kind.check(value), Ok(value), "{}", setting.name);
        }
    }
}

#[test]
fn a_registry_refuses_what_would_be_ambiguous() {
    static AGAIN: CommitInfo = CommitInfo { settings: &[], ..threshold_of_half() };
    let refused = Registry::builtin().with_commit(&AGAIN).err();
    let message = refused.map(|error| error.to_string());
    let expected = "there is a commit called threshold already";
    assert_eq!(message.as_deref(), Some(expected));
    static OTHER: CommitInfo = CommitInfo { name: "half", ..threshold_of_half() };
    let refused = Registry::builtin().with_commit(&OTHER).err();
    let message = refused.map(|error| error.to_string());
    let expected = "setting threshold of commit half must be a number in 0..1 as elsewhere, \
                    found a number in 0..0.5";
    assert_eq!(message.as_deref(), Some(expected));
}

/// A rule whose name is taken and whose setting has another range.
const fn threshold_of_half() -> CommitInfo {
    const SETTING: SettingInfo = SettingInfo::number("threshold", 0.0..=0.5, 0.5);
    CommitInfo {
        name: "threshold",
        summary: "a threshold of at most a half",
        paper: "none",
        differs: "",
        settings: &[SETTING],
        requires: Requirements::NONE,
        build: |_, input| commit("threshold").build(input),
    }
}
