//! Usage equals what the executor saw.

use asynclane_engine::{FinishReason, Finished};
use decode::ForwardKind;
use sim::SimExecutor;

use crate::common::{
    End, LANE_DECODERS, Lab, Rng, ShowSeed, config, random_request, request, seeds, sim, stubborn,
};

fn lab() -> Lab {
    Lab::new(&config(), SimExecutor::new(stubborn(2000, 4)).expect("a valid model"))
}

/// AsyncLane §6.8: forwards = 1 prefill + steps with rows. A step of any number of lanes is one
/// forward, and a refresh replaces the lane forward of its step.
#[test]
fn a_step_of_any_number_of_lanes_is_one_forward() {
    let mut lanes = 0;
    for settings in LANE_DECODERS {
        let mut lab = lab();
        let mut request =
            request(&[20, 21, 22, 23], 80, &format!("{settings},min_fill=0,min_clock=0"));
        request.extras.trace = true;
        let id = lab.submit(request).expect("there is room");
        lab.finish();
        let stats = lab.outcome(id).expect("it finishes").stats;
        let steps = &lab.logs[&id].steps;
        assert_eq!(stats.forwards() as usize, steps.len(), "{settings}");
        assert_eq!(stats.forwards(), lab.logs[&id].forwards, "{settings}");
        let count = |kind| steps.iter().filter(|step| step.kind == kind).count() as u32;
        assert_eq!(stats.passes.prefill, 1);
        assert_eq!(stats.passes.prefill, count(ForwardKind::Prefill));
        assert_eq!(stats.passes.decode, count(ForwardKind::Decode));
        assert_eq!(stats.passes.refresh, count(ForwardKind::Refresh));
        let rows: usize = steps.iter().flat_map(|step| &step.rows).map(Vec::len).sum();
        assert_eq!(stats.positions, rows as u64, "{settings}");
        lanes = lanes.max(steps.iter().map(|step| step.lanes.len()).max().unwrap_or(0));
    }
    assert!(lanes >= 3, "some step has three lanes");
}

/// Usage, summed over sequences that all finish, equals the sum of the step reports.
#[test]
fn usage_sums_to_the_step_reports() {
    for seed in seeds(60) {
        let _show = ShowSeed(seed);
        let mut rng = Rng::new(seed ^ 0xACC0);
        let mut config = config();
        config.row_budget = rng.pick(&[1, 50, 10_000]);
        let mut lab = Lab::new(&config, SimExecutor::new(sim(2000, 4)).expect("a valid model"));
        for number in 0..8 {
            lab.submit(random_request(&mut rng, number)).expect("there is room");
            lab.step();
        }
        lab.finish();
        check_sums(&lab);
    }
}

fn check_sums(lab: &Lab) {
    let totals = lab.totals;
    let (mut forwards, mut positions, mut commits) = ([0; 3], 0, [0; 3]);
    let (mut emitted, mut lanes, mut forks) = (0, 0, 0);
    for log in lab.logs.values() {
        let Some(End::Finished(Finished { stats, .. })) = &log.end else {
            panic!("nothing fails or is cancelled here: {log:?}")
        };
        forwards[0] += u64::from(stats.passes.prefill);
        forwards[1] += u64::from(stats.passes.decode);
        forwards[2] += u64::from(stats.passes.refresh);
        positions += stats.positions;
        commits[0] += u64::from(stats.commits.masked);
        commits[1] += u64::from(stats.commits.drafts);
        commits[2] += u64::from(stats.commits.edits);
        emitted += u64::from(stats.emitted_tokens);
        lanes += stats.lanes;
        forks += stats.forks;
    }
    assert_eq!(totals.forwards, forwards);
    assert_eq!(totals.positions.iter().sum::<u64>(), positions);
    assert_eq!(totals.commits, commits);
    assert_eq!(totals.commit_latencies, commits.iter().sum::<u64>());
    assert_eq!(totals.emitted, emitted);
    let born = totals.lanes_started;
    assert_eq!((born.generate + born.refine, totals.lanes_forked), (lanes, forks));
    assert_eq!(born.refine, forks, "every fork has one refine child");
    assert_eq!(totals.finished as usize, lab.logs.len());
    let counters = lab.executor.counters();
    assert_eq!(counters.steps(), totals.executed);
    assert_eq!(counters.rows(), positions);
}

/// The lead of a fork: last step of the refine lane minus first step of the continuation.
#[test]
fn leads_of_coupled_forks_are_minus_one_or_zero() {
    let settings = "asynclane,lookahead=8,refresh=never,min_fill=0,min_clock=0";
    let leads = |coupled: bool| {
        let mut lab = lab();
        let settings = format!("{settings},coupled={coupled},threshold=0.97,draft_threshold=0.97");
        lab.submit(request(&[20, 21, 22], 90, &settings)).expect("there is room");
        let mut leads = Vec::new();
        while !lab.engine.is_idle() {
            let step = lab.engine.plan().expect("there is something to run");
            let mut output = step::BatchOutput::default();
            step::Executor::execute(&mut lab.executor, step.batch(), &mut output)
                .expect("a sound batch");
            lab.engine.apply(step, &output, std::time::Duration::ZERO);
            leads.extend_from_slice(&lab.engine.report().lanes.fork_leads);
            lab.engine.clear_report();
        }
        leads
    };
    let (free, coupled) = (leads(false), leads(true));
    assert!(free.iter().all(|lead| *lead >= 0) && free.iter().any(|lead| *lead > 0), "{free:?}");
    assert!(coupled.iter().all(|lead| (-1..=0).contains(lead)), "{coupled:?}");
    assert!(coupled.contains(&-1), "{coupled:?}");
}

#[test]
fn max_forwards_ends_a_sequence_with_what_is_committed() {
    let mut lab = lab();
    let settings = "cache=fused,max_forwards=2,commit=top_k,tokens_per_step=1,draft_threshold=1";
    let id = lab.submit(request(&[20, 21, 22], 50, settings)).expect("there is room");
    lab.finish();
    let outcome = lab.outcome(id).expect("it finishes");
    assert_eq!((outcome.stats.forwards(), outcome.reason), (2, FinishReason::Length));
    assert_eq!(outcome.stats.commits.total() - outcome.stats.commits.drafts, 2);
    let text = lab.executor.hidden_text(&[20, 21, 22], 50);
    assert!(text.starts_with(&outcome.tokens), "{:?}", outcome.tokens);
}
