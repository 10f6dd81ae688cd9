//! KV pages: promised before a sequence starts, never exceeded, free as soon as it ends.

use asynclane_engine::EngineConfig;
use sim::{SimConfig, SimExecutor};

use crate::common::{
    LANE_DECODERS, Lab, Rng, ShowSeed, config, decoding, request, seeds, sim, stubborn,
};

/// Fork snapshots need the most pages: a pool of exactly the worst case suffices for any lanes. In a
/// debug build, a sequence that needs more pages than it was promised panics.
#[test]
fn snapshots_never_hold_more_than_their_worst_case() {
    let mut lanes = 0;
    for seed in seeds(150) {
        let _show = ShowSeed(seed);
        let mut rng = Rng::new(seed ^ 0x9A6E5);
        let (block, lookahead) = (rng.pick(&[2, 4, 8, 32]), rng.pick(&[0, 3, 16, 32]));
        let settings = format!(
            "commit=threshold,cache=snapshot,rows=all,refresh={},block_length={block},lookahead={lookahead},\
             fork=sentence,min_fill=0,min_clock={},max_lanes={},threshold={},refresh_margin={},\
             draft_threshold={},fork_when_complete={},coupled={}",
            rng.pick(&["lane", "never", "never", "5"]),
            rng.range(0, 3),
            rng.pick(&[2, 5, 32]),
            rng.pick(&[0.9, 0.99]),
            block + lookahead,
            rng.pick(&[0.5, 0.9]),
            rng.chance(50),
            rng.chance(20),
        );
        let (prompt, budget) = (rng.range(0, 12), rng.range(20, 230));
        let page_size = rng.pick(&[1, 2, 3, 4, 5]);
        let model = if rng.chance(70) { stubborn(1, page_size) } else { sim(1, page_size) };
        lanes = lanes.max(fits_its_promise(model, prompt, budget, &settings));
    }
    assert!(lanes >= 8, "at most {lanes} refine lanes at once: too few to mean anything");
}

/// Runs one sequence in a pool of its worst case; returns the largest number of its refine lanes.
fn fits_its_promise(mut model: SimConfig, prompt: u32, budget: u32, settings: &str) -> u32 {
    model.pages = 10_000;
    let limits = {
        let executor = SimExecutor::new(model.clone()).expect("a valid model");
        Lab::new(&config(), executor).engine.limits()
    };
    model.pages = limits.worst_case_pages(prompt, budget, &decoding(settings));
    let promised = model.pages;
    let mut lab = Lab::new(&config(), SimExecutor::new(model).expect("a valid model"));
    let prompt: Vec<u32> = (0..prompt).map(|index| 20 + index).collect();
    let id = lab.submit(request(&prompt, budget, settings)).expect("exactly its worst case");
    lab.finish();
    assert!(lab.outcome(id).is_some());
    assert!(lab.totals.most_pages <= promised, "{} of {promised}", lab.totals.most_pages);
    lab.totals.most_refine_lanes
}

#[test]
fn other_policies_hold_the_pages_of_their_positions() {
    for settings in ["vanilla", "fast_dllm_dual", "cache=fresh", "cache=fused"] {
        let executor = SimExecutor::new(sim(100, 4)).expect("a valid model");
        let limits = Lab::new(&config(), executor).engine.limits();
        let worst = |prompt, budget| limits.worst_case_pages(prompt, budget, &decoding(settings));
        assert_eq!([worst(4, 4), worst(3, 6), worst(0, 1)], [2, 3, 1], "{settings}");
    }
}

#[test]
fn a_cancelled_sequence_gives_its_pages_back_at_once() {
    for settings in LANE_DECODERS.into_iter().chain(["vanilla", "fast_dllm_dual"]) {
        let used_after = |steps: u32, cancelled: &[u64]| {
            let executor = SimExecutor::new(sim(500, 2)).expect("a valid model");
            let mut lab = Lab::new(&config(), executor);
            let ids: Vec<_> = (0..3)
                .map(|seed| {
                    let mut request = request(&[20 + seed as u32; 5], 70, settings);
                    request.sampling.seed = seed;
                    lab.submit(request).expect("there is room")
                })
                .collect();
            (0..steps).for_each(|_| assert!(lab.step(), "still running"));
            for index in cancelled {
                assert!(lab.cancel(ids[*index as usize]));
            }
            lab.engine.report().gauges.pages_used
        };
        for steps in 1..5 {
            let all = used_after(steps, &[]);
            let own: Vec<u32> =
                [[1, 2], [0, 2], [0, 1]].map(|others| used_after(steps, &others)).to_vec();
            assert_eq!(own.iter().sum::<u32>(), all, "{settings}: nobody shares a page");
            assert_eq!(used_after(steps, &[1]), own[0] + own[2], "{settings}, {steps} steps");
            assert_eq!(used_after(steps, &[2, 0, 1]), 0, "{settings}, {steps} steps");
        }
    }
}

#[test]
fn cancelling_twice_or_too_late_changes_nothing() {
    let mut lab = Lab::new(&config(), SimExecutor::new(sim(500, 4)).expect("a valid model"));
    let id = lab.submit(request(&[20, 21], 30, "balanced")).expect("there is room");
    assert!(lab.cancel(id), "waiting");
    assert!(!lab.cancel(id));
    let mut again = request(&[20, 21], 30, "balanced");
    again.sampling.seed = 1;
    let id = lab.submit(again).expect("there is room");
    lab.finish();
    assert!(!lab.cancel(id), "finished");
    assert_eq!((lab.totals.finished, lab.totals.cancelled), (1, 1));
}

/// A sequence waits for all its pages before its first forward, and for none later.
#[test]
fn a_running_sequence_never_waits_for_a_page() {
    let pages = 22;
    let config = EngineConfig { max_running: 8, ..config() };
    let mut lab = Lab::new(&config, SimExecutor::new(sim(pages, 4)).expect("a valid model"));
    for seed in 0..6 {
        let mut request = request(&[20; 8], 30, "vanilla");
        request.sampling.seed = seed;
        lab.submit(request).expect("10 of 22 pages");
    }
    while !lab.engine.is_idle() {
        let before: Vec<u32> = lab.logs.values().map(|log| log.forwards).collect();
        lab.step();
        let running = lab.logs.values().zip(before).filter(|(log, before)| log.forwards > *before);
        let running = running.count();
        assert!((1..=2).contains(&running), "two promises of 10 pages fit: {running}");
        let stalled = lab.logs.values().filter(|log| log.started && log.end.is_none()).count();
        assert!(stalled <= running, "everything that started runs in every step");
    }
    lab.finish();
}
