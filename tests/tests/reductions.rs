//! Decoders that reduce to others, on the goldens' checkpoint in f32: AsyncLane without forks and
//! drafts equals Fast-dLLM in tokens and forwards (§7); draft-and-verify equals its static order in
//! tokens.

use asynclane_tests::golden;
use asynclane_tests::run::{self, Outcome};
use decode::{SCHEDULES, ScheduleConfig};
use engine::Request;
use engine::cache::{CACHES, CacheConfig};

const BUDGET: u32 = 128;
/// Enough rows after every lane for each refresh to cover the whole canvas.
const EVERYTHING: u32 = 2 * BUDGET;

/// Lanes without forks and drafts.
fn plain_lanes(block_length: u32, lookahead: u32) -> ScheduleConfig {
    ScheduleConfig::find(SCHEDULES, "asynclane")
        .expect("a schedule")
        .with("block_length", block_length)
        .with("lookahead", lookahead)
        // No probability reaches a threshold above 1.
        .with("draft_threshold", 2.0)
        .with("fork", "off")
        .with("lane_budget", true)
        .with("max_lanes", 1u32)
}

/// A cache policy whose refreshes cover the whole canvas.
fn renewing(cache: &str) -> CacheConfig {
    let cache = CacheConfig::find(CACHES, cache).expect("a cache policy");
    cache.with("refresh_margin", EVERYTHING)
}

fn outcomes(settings: &str, change: impl Fn(&mut Request)) -> Vec<Outcome> {
    let goldens = golden::load();
    let requests = goldens.rows.iter().step_by(8).map(|row| {
        let mut request = run::request(&row.prompt_ids, BUDGET, &goldens.stop_ids, settings);
        change(&mut request);
        request
    });
    run::run_in_halves(|| run::single(1024), requests.collect())
}

fn reduced(lanes: &ScheduleConfig, cache: &CacheConfig) -> Vec<Outcome> {
    let settings = "asynclane,threshold=0.9,prune=false,lone_stops=true";
    outcomes(settings, |request| {
        request.decoding.decoder.schedule = lanes.clone();
        request.decoding.cache = cache.clone();
    })
}

fn block_wise(block_length: u32, cache: &str) -> Vec<Outcome> {
    let block = format!("block_length={block_length},cache={cache}");
    let settings =
        format!("schedule=block_wise,commit=threshold,threshold=0.9,prune=false,{block}");
    outcomes(&settings, |_| {})
}

fn assert_same(ours: &[Outcome], theirs: &[Outcome]) {
    assert_eq!(ours.len(), theirs.len());
    for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(ours.tokens, theirs.tokens, "problem {index}");
        let end =
            |outcome: &Outcome| outcome.finished.map(|end| (end.reason, end.stats.forwards()));
        assert_eq!(end(ours), end(theirs), "problem {index}");
    }
    let spans = theirs.iter().any(|outcome| outcome.tokens.len() > 32);
    assert!(spans, "some answers span blocks");
}

/// AsyncLane's lanes and cache policy, and the length of the blocks and the cache of Fast-dLLM.
#[test]
fn lanes_without_forks_and_drafts_are_fast_dllm() {
    // Every forward is a refresh.
    let fresh = renewing("fresh").with("refresh", 0u32);
    // Snapshots are refreshed when a lane starts.
    let snapshot = renewing("snapshot").with("refresh", "lane");
    for (lanes, cache, block_length, theirs) in [
        (plain_lanes(BUDGET, 0), &fresh, BUDGET, "none"),
        (plain_lanes(32, BUDGET), &fresh, 32, "none"),
        (plain_lanes(32, BUDGET), &snapshot, 32, "prefix"),
    ] {
        assert_same(&reduced(&lanes, cache), &block_wise(block_length, theirs));
    }
}

/// FreeDave: the same tokens, and every right guess saves a forward.
#[test]
fn draft_and_verify_is_its_static_order_in_fewer_forwards() {
    for (tokens_per_step, draft_steps) in [(1, 4), (2, 3)] {
        let settings = |commit: &str| {
            format!(
                "schedule=block_wise,cache=dual,commit={commit},tokens_per_step={tokens_per_step}"
            )
        };
        let fixed = outcomes(&settings("top_k"), |_| {});
        let drafted = format!("{},draft_steps={draft_steps}", settings("draft_verify"));
        let drafted = outcomes(&drafted, |_| {});
        let forwards = |outcomes: &[Outcome]| -> u32 {
            let ends = outcomes.iter().filter_map(|outcome| outcome.finished);
            ends.map(|end| end.stats.forwards()).sum()
        };
        for (index, (ours, theirs)) in drafted.iter().zip(&fixed).enumerate() {
            assert_eq!(ours.tokens, theirs.tokens, "problem {index}");
        }
        let (fewer, all) = (forwards(&drafted), forwards(&fixed));
        assert!(fewer * 10 < all * 9, "{fewer} of {all} forwards");
    }
}
