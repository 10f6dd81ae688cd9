//! Decoders from outside: a commit rule with a setting and a cache policy, defined in this file
//! alone and chosen by name, run a request through the engine.

use asynclane_tests::run;
use decode::{
    AttentionKind, CommitInfo, CommitRule, ForwardKind, Lane, NameFilter, Proposal, Requirements,
    SettingInfo, UNBOUNDED,
};
use engine::cache::{CacheInfo, CachePolicy, ForwardPlan, Forwards, SHARED, View};
use engine::decoding::{Registry, SpecFault};
use engine::{FinishReason, Request};
use sim::{SimConfig, SimExecutor};

/// Commits the run of sure masks at the left end of a lane.
#[derive(Debug)]
struct LeftRun {
    threshold: f64,
}

impl CommitRule for LeftRun {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let sure = |mask: &Proposal| mask.candidate.probability >= self.threshold;
        let run = masks.iter().take_while(|mask| sure(mask)).count();
        chosen.extend(0..run);
    }
}

const RUN_THRESHOLD: SettingInfo = SettingInfo::number("run_threshold", 0.0..=1.0, 0.9)
    .says("confidence that every mask of the run has");

static LEFT_RUN: CommitInfo = CommitInfo {
    name: "left_run",
    summary: "the run of sure masks at the left end of the lane",
    paper: "this file",
    differs: "",
    settings: &[RUN_THRESHOLD],
    requires: Requirements::NONE,
    build: |settings, _| {
        let threshold = settings.number(&RUN_THRESHOLD);
        Box::new(LeftRun { threshold })
    },
};

/// Computes the whole canvas when a block starts and after every `renew_every` forwards, else the
/// block alone.
#[derive(Debug)]
struct Renewed {
    every: u32,
}

impl CachePolicy for Renewed {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(view.lane_started || view.since_refresh >= self.every)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        if self.kind(view) != ForwardKind::Decode {
            return plan.full(view, view.end(), SHARED);
        }
        plan.begin(ForwardKind::Decode);
        for lane in view.decoder.lanes() {
            plan.push_range(view.places(lane.range), view.end());
        }
        plan.close(SHARED);
    }
}

const RENEW_EVERY: SettingInfo = SettingInfo::integer("renew_every", 1..=UNBOUNDED, 4)
    .says("forwards of a block between two of the whole canvas");

static RENEWED: CacheInfo = CacheInfo {
    name: "renewed",
    summary: "K/V of everything but the block, from a full forward every few forwards",
    paper: "this file",
    settings: &[RENEW_EVERY],
    schedules: NameFilter::Only(&["block_wise"]),
    forwards: Forwards::OPEN,
    attention: &[AttentionKind::Full],
    check: |_, _| Ok(()),
    pages: |footprint| footprint.shared_table(footprint.budget),
    build: |settings, _| {
        let every = settings.count(&RENEW_EVERY);
        Box::new(Renewed { every })
    },
};

fn registry() -> Registry {
    let registry = Registry::builtin().with_commit(&LEFT_RUN);
    let registry = registry.and_then(|registry| registry.with_cache(&RENEWED));
    registry.expect("the names are free")
}

const PROMPT: [u32; 3] = [20, 21, 22];
const BUDGET: u32 = 48;

/// The label of the decoder, and the forwards that a request takes to write the model's text.
fn forwards(settings: &str) -> (String, u32) {
    let mut executor = SimExecutor::new(SimConfig::default()).expect("a valid model");
    let spec = registry().parse(settings).expect("known settings");
    let decoding = spec.resolve().expect("they go together");
    let label = decoding.label.clone();
    let request = Request::new(PROMPT.to_vec(), BUDGET, decoding);
    let outcome = run::run(&mut executor, vec![request]).remove(0);
    let text = executor.hidden_text(&PROMPT, BUDGET);
    assert_eq!(outcome.tokens, text[..outcome.tokens.len()], "{settings}");
    let end = outcome.finished.expect("it ends");
    assert_eq!(end.reason, FinishReason::Length, "no stop token was named");
    (label, end.stats.forwards())
}

#[test]
fn a_commit_rule_is_one_file_and_one_line() {
    let (label, strict) = forwards("vanilla,commit=left_run,run_threshold=0.99");
    assert_eq!(label, "block_wise+left_run+none");
    let (_, loose) = forwards("vanilla,commit=left_run,run_threshold=0");
    assert_eq!(loose, 2, "a run of everything: a forward per block");
    assert!(strict > loose, "{strict} forwards");
    // Alone it has the schedule and the cache policy of the default preset.
    let (label, _) = forwards("commit=left_run");
    assert_eq!(label, "asynclane+left_run+fused");
}

#[test]
fn a_cache_policy_is_one_file_and_one_line() {
    let (label, _) = forwards("cache=renewed");
    assert_eq!(label, "block_wise+entropy_bound+renewed");
    let (label, _) = forwards("vanilla,cache=renewed,commit=left_run,renew_every=1");
    assert_eq!(label, "block_wise+left_run+renewed");
}

#[test]
fn refusals_name_what_was_added() {
    let refused = |settings: &str| {
        let read = registry().parse(settings).and_then(|spec| spec.resolve());
        let error = read.expect_err(settings);
        (error.fault, error.to_string())
    };
    let (fault, message) = refused("commit=left_run,run_threshold=2");
    assert_eq!(fault, SpecFault::Value);
    assert_eq!(message, "run_threshold must be a number in 0..1, got 2");
    let (fault, message) = refused("commit=threshold,run_threshold=0.5");
    assert_eq!(fault, SpecFault::Combination);
    assert_eq!(message, "run_threshold is read by commit left_run only");
    let (_, message) = refused("schedule=asynclane,cache=renewed");
    let expected = "cache renewed does not go with schedule asynclane: \
                    use fused, snapshot, fresh, elastic or exact";
    assert_eq!(message, expected);
    let (_, message) = refused("schedule=block_wise,cache=fresh");
    assert!(message.ends_with("elastic, exact or renewed"), "{message}");
    assert!(Registry::builtin().parse("commit=left_run").is_err());
}
