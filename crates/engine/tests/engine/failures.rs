//! Failed passes: which sequences end, which go on, what is given back.

use asynclane_engine::{Engine, EngineConfig, Event, SequenceId};
use sim::SimExecutor;
use step::{BatchOutput, Executor};

use crate::common::{End, Lab, STOP, config, request, sim};

/// A row budget of one sequence a step.
fn one_by_one() -> EngineConfig {
    EngineConfig { row_budget: 1, ..config() }
}

fn failing(config: &EngineConfig, passes: impl IntoIterator<Item = u64>) -> Lab {
    let executor = SimExecutor::new(sim(2000, 4)).expect("a valid model");
    Lab::new(config, executor.fail_on(passes))
}

fn submit(lab: &mut Lab, seed: u64) -> SequenceId {
    let mut request = request(&[20 + seed as u32, 30], 40, "balanced");
    request.sampling.seed = seed;
    lab.submit(request).expect("there is room")
}

#[test]
fn a_failed_pass_fails_every_sequence_in_it() {
    let mut lab = failing(&config(), [2]);
    let ids: Vec<SequenceId> = (0..4).map(|seed| submit(&mut lab, seed)).collect();
    lab.finish();
    for id in ids {
        let expected = End::Failed("forward pass failed: pass 2 was told to fail".to_owned());
        assert_eq!(lab.logs[&id].end, Some(expected));
    }
    assert_eq!((lab.totals.failed, lab.totals.finished), (1, 0));
}

#[test]
fn sequences_outside_the_failed_pass_go_on() {
    let mut lab = failing(&one_by_one(), [0, 4]);
    let ids: Vec<SequenceId> = (0..4).map(|seed| submit(&mut lab, seed)).collect();
    lab.finish();
    // Pass 0 holds the first sequence, passes 1 to 3 the others, pass 4 the second one again.
    let failed = |id: &SequenceId| matches!(lab.logs[id].end, Some(End::Failed(_)));
    assert_eq!(ids.iter().map(failed).collect::<Vec<_>>(), [true, true, false, false]);
    for (seed, id) in (0..).zip(&ids).skip(2) {
        let mut text = lab.executor.hidden_text(&[20 + seed, 30], 40);
        text.retain(|token| *token != STOP);
        assert_eq!(lab.outcome(*id).expect("it finishes").tokens, text);
    }
}

#[test]
fn what_comes_after_a_failure_is_served() {
    let mut lab = failing(&config(), [1]);
    let first = submit(&mut lab, 0);
    lab.finish();
    assert!(matches!(lab.logs[&first].end, Some(End::Failed(_))));
    let second = submit(&mut lab, 1);
    lab.finish();
    assert!(lab.outcome(second).is_some());
}

#[test]
fn an_output_of_the_wrong_size_fails_the_pass() {
    let mut executor = SimExecutor::new(sim(2000, 4)).expect("a valid model");
    let mut engine = Engine::new(&config(), executor.spec());
    let id = engine.submit(request(&[20, 21], 40, "balanced")).expect("there is room");
    let step = engine.plan().expect("there is something to run");
    let mut output = BatchOutput::default();
    executor.execute(step.batch(), &mut output).expect("a sound batch");
    let scored = output.candidates.len();
    output.candidates.pop();
    engine.apply(step, &output, std::time::Duration::ZERO);
    engine.validate().expect("valid all the same");
    assert!(engine.report().failed);
    assert_eq!(engine.report().gauges.pages_used, 0);
    let events: Vec<_> = std::iter::from_fn(|| engine.poll_event()).collect();
    let [(_, Event::Started), (last, Event::Failed { message })] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(*last, id);
    let expected =
        format!("the model returned {} candidates and 0 tops, expected {scored} and 0", scored - 1);
    assert_eq!(*message, expected);
}
