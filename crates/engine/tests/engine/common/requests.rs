//! Simulated models, engines and requests.

use std::sync::Arc;
use std::time::Duration;

use asynclane_engine::decoding::{Decoding, DecodingSpec, Registry};
use asynclane_engine::{ByPriority, Capabilities, EngineConfig, Penalties, Request};
use decode::{
    AttentionKind, COMMITS, Capability, CommitInfo, Feature, Filter, NameFilter, SettingDefault,
    SettingKind, Settings, TokenClass, TokenClasses, Weights,
};
use sim::{ConfidenceLaw, SimConfig};
use step::TokenId;

use super::{Automaton, Rng};

/// The simulated model's stop token.
pub const STOP: TokenId = 1;

const VOCAB: u32 = 64;

/// A strict simulated model of short texts with many sentences.
pub fn sim(pages: u32, page_size: u32) -> SimConfig {
    SimConfig {
        page_size,
        pages,
        vocab_size: VOCAB,
        max_positions: 256,
        text_len: 10..90,
        period_every: 7,
        seed: 11,
        ..SimConfig::default()
    }
}

/// A model of short sentences that is sure of every fifth token and of little else, whatever it
/// sees: holes stay open, so refine lanes live long and pile up.
pub fn stubborn(pages: u32, page_size: u32) -> SimConfig {
    let law = ConfidenceLaw {
        base: 6.5,
        left: 0.0,
        right: 0.0,
        difficulty: 20.0,
        ..ConfidenceLaw::default()
    };
    SimConfig { period_every: 2, text_len: 1000..1001, law, ..sim(pages, page_size) }
}

/// Token 2 is a full stop, 3 to 7 are digits, 8 and 9 are line feeds, all others words.
pub fn classes() -> Arc<TokenClasses> {
    let class = |token| match token {
        2 => TokenClass { period: true, ..TokenClass::default() },
        3..=7 => {
            TokenClass { starts_with_digit: true, ends_with_digit: true, ..TokenClass::default() }
        }
        8 | 9 => {
            TokenClass { newline: true, line_feed: true, blank: true, ..TokenClass::default() }
        }
        _ => TokenClass::default(),
    };
    Arc::new(TokenClasses::new((0..VOCAB).map(class).collect()))
}

/// An engine with room for everything.
pub fn config() -> EngineConfig {
    EngineConfig {
        max_running: 64,
        max_waiting: 64,
        row_budget: 100_000,
        long_quantum: 100_000,
        prefill_chunk: 0,
        grammar_timeout: Duration::ZERO,
        prefix_cache: true,
        max_model_len: None,
        classes: classes(),
        wait_order: Arc::new(ByPriority),
        capabilities: Capabilities {
            filter: Some(filter()),
            edits: true,
            drafts: false,
            block_drafts: false,
            masks: false,
        },
    }
}

/// [`config`] for causal weights that read masks where they predict the next token.
pub fn reading_masks() -> EngineConfig {
    let mut config = config();
    config.capabilities.masks = true;
    config
}

/// [`config`] beside a draft model.
pub fn drafted() -> EngineConfig {
    let mut config = config();
    config.capabilities.drafts = true;
    config
}

/// Blocks of 32; a position passes when its own confidence does.
fn filter() -> Arc<Filter> {
    let identity = |scale: f32| -> Vec<f32> {
        let one = |index: usize| if index.is_multiple_of(33) { scale } else { 0.0 };
        (0..32 * 32).map(one).collect()
    };
    let weights = Weights {
        first: identity(1.0),
        first_bias: vec![0.0; 32],
        second: identity(20.0),
        second_bias: vec![-14.0; 32],
    };
    Arc::new(Filter::new(weights).expect("square layers"))
}

/// A decoder as `key=value,key=value`.
pub fn decoding(settings: &str) -> Decoding {
    let spec = DecodingSpec::parse(settings).unwrap_or_else(|error| panic!("{settings}: {error}"));
    spec.resolve().unwrap_or_else(|error| panic!("{settings}: {error}"))
}

/// A plain request.
pub fn request(prompt: &[TokenId], max_tokens: u32, settings: &str) -> Request {
    Request {
        stop_tokens: vec![STOP],
        ..Request::new(prompt.to_vec(), max_tokens, decoding(settings))
    }
}

/// Decoders of the AsyncLane schedule, one per cache policy and row selection.
pub const LANE_DECODERS: [&str; 4] = [
    "cache=snapshot,rows=all,refresh=lane",
    "cache=fresh,rows=all,refresh=lane",
    "cache=fused,rows=all,refresh=8",
    "cache=fused,rows=open,refresh=32",
];

/// Any decoder.
fn random_decoding(rng: &mut Rng) -> String {
    let commit = match rng.chance(30) {
        _ if rng.chance(30) => {
            let full = |rule: &&CommitInfo| rule.requires.attention.contains(&AttentionKind::Full);
            let rules: Vec<_> = COMMITS.iter().copied().filter(full).collect();
            let rule = rng.pick(&rules);
            if rule.requires.schedules != NameFilter::Any {
                return restricted_rule(rng, rule);
            }
            format!("commit={}", rule.name)
        }
        true => format!("commit=top_k,tokens_per_step={}", rng.range(1, 4)),
        false => format!("commit=threshold,threshold={}", rng.pick(&[0.3, 0.7, 0.9, 0.97])),
    };
    let block = rng.pick(&[1, 3, 4, 8, 16, 32]);
    let limit = if rng.chance(10) { ",max_forwards=3" } else { "" };
    let prune = rng.chance(70);
    if rng.chance(25) {
        let cache = rng.pick(&["none", "prefix", "dual"]);
        let early = if !prune && rng.chance(50) { ",early_stop=false" } else { "" };
        return format!(
            "schedule=block_wise,{commit},cache={cache},block_length={block},prune={prune}\
             {early}{limit}"
        );
    }
    if rng.chance(25) {
        let schedule = rng.pick(&[
            "schedule=adaptive_block,delimiter_threshold=0.3,delimiters=sentence,cache=dual",
            "schedule=adaptive_block,delimiter_threshold=0.9,cache=prefix",
            "schedule=multi_block,add_block_threshold=0.1,cache=dual",
            "schedule=multi_block,add_block_threshold=0.6,cache=none",
            "schedule=window,window=40,refresh=5,cache=dual",
            "schedule=window,window=32,refresh=31,cache=none",
        ]);
        return format!("{schedule},{commit},block_length={block},prune={prune}{limit}");
    }
    if rng.chance(10) {
        let schedule = rng.pick(&["asynclane", "block_wise", "window"]);
        let drift = rng.pick(&[0.0, 0.9, 0.999, 1.0]);
        return format!(
            "schedule={schedule},{commit},cache=elastic,drift_threshold={drift},prune={prune}"
        );
    }
    let (cache, rows) = rng.pick(&[
        ("snapshot", "all"),
        ("snapshot", "all"),
        ("fresh", "all"),
        ("fused", "all"),
        ("fused", "open"),
    ]);
    let lookahead = rng.pick(&[0, 1, 5, 16, 32]);
    let refresh = rng.pick(&["lane", "never", "1", "3", "32"]);
    let margin = block + lookahead + rng.range(0, 20);
    let fork = rng.pick(&["sentence", "sentence", "newline", "auto", "off"]);
    let max_lanes = rng.pick(&[1, 2, 4, 16]);
    let (fill, clock) = (rng.pick(&[0.0, 0.1, 0.5]), rng.range(0, 3));
    let (complete, coupled) = (rng.chance(50), rng.chance(25));
    // The engine refuses the one with the other.
    let budget = rng.chance(50) && commit != "commit=joint_bound";
    let sight = match cache {
        "fused" => sight(rng),
        _ => String::new(),
    };
    let entropy = rng.pick(&["", "", "", ",fork_entropy=0.5"]);
    let draft = rng.pick(&[0.5, 0.9, 1.0]);
    format!(
        "schedule=asynclane,{commit},block_length={block},cache={cache},rows={rows}{sight}{entropy},\
         refresh={refresh},refresh_margin={margin},lookahead={lookahead},fork={fork},\
         max_lanes={max_lanes},min_fill={fill},min_clock={clock},fork_when_complete={complete},\
         lane_budget={budget},\
         coupled={coupled},draft_threshold={draft},prune={prune}{limit}"
    )
}

/// Slots that the cache policy `fused` restores, in half of the cases none.
fn sight(rng: &mut Rng) -> String {
    if rng.chance(50) {
        return String::new();
    }
    format!(
        ",left_rows={},right_rows={},commit_rows={},refresh_commits={}",
        rng.pick(&[0, 1, 8, 1024]),
        rng.pick(&[0, 3, 1024]),
        rng.pick(&[0, 1, 4]),
        rng.pick(&[1, 5, 100])
    )
}

/// A rule that does not go with every schedule, on blocks or, where it goes with them, on lanes.
fn restricted_rule(rng: &mut Rng, rule: &'static CommitInfo) -> String {
    let (name, more) = (rule.name, rule_settings(rng, rule));
    if rule.requires.schedules.admits("asynclane") && rng.chance(50) {
        return format!(
            "schedule=asynclane,commit={name}{more},cache=fused,block_length={},lookahead={},\
             min_fill=0,draft_threshold={}{}",
            rng.pick(&[3, 16, 32]),
            rng.pick(&[0, 5, 20]),
            rng.pick(&[0.0, 0.5, 0.9]),
            sight(rng)
        );
    }
    // The weights of these tests have full attention.
    let caches = Registry::builtin().caches_for(rule).into_iter();
    let caches: Vec<_> = caches
        .filter(|cache| cache.attention.contains(&AttentionKind::Full))
        .map(|cache| cache.name)
        .collect();
    let needs = (rule.requires.needs)(&Settings::defaults(rule.settings));
    let block = match needs {
        Some(Capability::Filter) => 32,
        _ => rng.pick(&[3, 4, 16, 32, 100]),
    };
    let (cache, prune) = (rng.pick(&caches), rng.chance(70));
    format!(
        "schedule=block_wise,commit={name}{more},cache={cache},block_length={block},prune={prune}"
    )
}

/// Any values of the rule's settings.
fn rule_settings(rng: &mut Rng, rule: &CommitInfo) -> String {
    let mut settings = String::new();
    for setting in rule.settings {
        let is_derived = matches!(setting.default, SettingDefault::Derived(_));
        let value = match setting.kind {
            SettingKind::Name(names) => rng.pick(names).to_owned(),
            SettingKind::Integer(min, max) | SettingKind::NameOrInteger(_, min, max) => {
                let most = if max > 1000 { 40 } else { 5 };
                max.min(min + i64::from(rng.range(0, most))).to_string()
            }
            SettingKind::Number(min, max) => {
                let part = rng.pick(&[0.0, 0.1, 0.3, 0.5, 1.0]);
                (min + part * (max.min(min + 2.0) - min)).to_string()
            }
            SettingKind::Flag => rng.chance(50).to_string(),
        };
        if !is_derived || rng.chance(50) {
            settings += &format!(",{}={value}", setting.name);
        }
    }
    settings
}

/// Drops the features that the request's commit rule does not support.
fn drop_excluded_features(request: &mut Request) {
    for feature in request.decoding.decoder.commit.info().requires.excludes {
        match feature {
            Feature::Grammar => request.constraint = None,
            Feature::Penalties => request.logits.penalties = Penalties::default(),
            Feature::Temperature => request.sampling.temperature = 0.0,
            Feature::Logprobs => request.extras.logprobs = None,
        }
    }
}

/// Any request; `number` makes its sampling seed, and so its segments, its own.
pub fn random_request(rng: &mut Rng, number: u64) -> Request {
    let settings = random_decoding(rng);
    random_wishes(rng, number, &settings)
}

/// Any request for this decoder, without features that its commit rule does not support.
pub fn random_wishes(rng: &mut Rng, number: u64, settings: &str) -> Request {
    let length = rng.range(0, 20);
    // Mask and stop ids may stand in a prompt as well.
    let prompt: Vec<TokenId> = (0..length).map(|_| rng.range(0, VOCAB)).collect();
    let mut request = request(&prompt, rng.range(0, 60), settings);
    request.sampling.seed = number;
    request.extras.trace = rng.chance(30);
    request.code_prompt = rng.chance(20);
    if rng.chance(20) {
        request.sampling.temperature = 0.8;
        request.sampling.top_p = rng.pick(&[0.9, 1.0]);
    }
    if rng.chance(15) {
        request.min_tokens = rng.range(0, 60);
    }
    if rng.chance(15) {
        request.stop_tokens.push(rng.range(10, VOCAB));
    }
    if rng.chance(10) {
        let bias = step::Bias::add(rng.range(10, VOCAB), 3.0);
        request.logits.biases.push(bias);
    }
    if rng.chance(15) {
        request.given.suffix = (0..rng.range(1, 8)).map(|_| rng.range(0, VOCAB)).collect();
    }
    if rng.chance(15) {
        request.extras.logprobs = Some(rng.pick(&[0, 1, 5]));
    }
    if rng.chance(10) {
        request.logits.penalties = Penalties {
            frequency: rng.pick(&[0.0, 0.5]),
            presence: rng.pick(&[0.0, -1.0]),
            repetition: rng.pick(&[1.0, 1.3]),
        };
    }
    if rng.chance(20) {
        request.constraint = Some(Box::new(Automaton::new(number % 7)));
    }
    drop_excluded_features(&mut request);
    request
}
