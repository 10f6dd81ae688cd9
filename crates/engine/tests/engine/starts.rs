//! The waiting sequence that starts next: priority, order of submission, aging.

use std::collections::BTreeMap;
use std::sync::Arc;

use asynclane_engine::{ByPriority, EngineConfig, Rank, Request, SequenceId, WaitOrder};
use sim::SimExecutor;

use crate::common::{Lab, Rng, ShowSeed, config, random_request, request, seeds, sim};

/// [`ByPriority`] with another number of steps.
#[derive(Debug)]
struct Aging(u64);

impl WaitOrder for Aging {
    fn rank(&self, request: &Request) -> Rank {
        ByPriority.rank(request)
    }

    fn aging_steps(&self) -> u64 {
        self.0
    }
}

fn lab(max_running: u32, aging_steps: u64) -> Lab {
    let config = EngineConfig { max_running, wait_order: Arc::new(Aging(aging_steps)), ..config() };
    let executor = SimExecutor::new(sim(4000, 4)).expect("a valid model");
    Lab::new(&config, executor)
}

/// Submits a sequence of four steps.
fn submit(lab: &mut Lab, priority: i32) -> SequenceId {
    let mut request = request(&[20; 4], 4, "vanilla");
    request.stop_tokens.clear();
    request.sampling.seed = lab.logs.len() as u64;
    request.sender.priority = priority;
    lab.submit(request).expect("there is room")
}

/// The priorities of sequences in the order in which they started.
fn started(lab: &Lab, priorities: &BTreeMap<SequenceId, i32>) -> Vec<i32> {
    lab.starts.iter().map(|id| priorities[id]).collect()
}

#[test]
fn lower_priorities_start_first_and_equal_ones_as_submitted() {
    let mut lab = lab(1, 1000);
    let all: Vec<SequenceId> = [9, 3, -2, 0, 3, i32::MIN, i32::MAX, 0]
        .into_iter()
        .map(|priority| submit(&mut lab, priority))
        .collect();
    lab.finish();
    let expected = [5, 2, 3, 7, 1, 4, 0, 6].map(|index: usize| all[index]);
    assert_eq!(lab.starts, expected);
}

/// A new sequence of lower priority arrives whenever one has ended.
#[test]
fn a_sequence_that_has_aged_is_overtaken_no_more() {
    let mut lab = lab(1, 10);
    let mut priorities = BTreeMap::new();
    for priority in [0, 7] {
        priorities.insert(submit(&mut lab, priority), priority);
    }
    for _ in 0..24 {
        if lab.starts.len() + 1 == lab.logs.len() {
            priorities.insert(submit(&mut lab, 0), 0);
        }
        lab.step();
    }
    lab.finish();
    // Steps 1..=4, 5..=8, 9..=12; step 13 finds that the second one has waited 12 steps.
    assert_eq!(started(&lab, &priorities)[..5], [0, 0, 0, 7, 0]);
}

/// A sequence that does not fit blocks those behind it, whatever their size.
#[test]
fn the_first_in_the_order_blocks_all_others() {
    let config = EngineConfig { wait_order: Arc::new(ByPriority), ..config() };
    // 15, 28 and 3 pages of a pool of 30.
    let executor = SimExecutor::new(sim(30, 4)).expect("a valid model");
    let mut lab = Lab::new(&config, executor);
    let mut submit = |seed, budget, priority| {
        let mut request = request(&[20; 10], budget, "vanilla");
        request.sampling.seed = seed;
        request.sender.priority = priority;
        let id = lab.submit(request).expect("each one fits alone");
        lab.step();
        id
    };
    let all = [submit(0, 50, 0), submit(1, 102, -1), submit(2, 2, 0)];
    lab.finish();
    assert_eq!(lab.starts, all);
}

/// Waiting sequences: when each was submitted, in steps, and its priority.
type Waiting = BTreeMap<SequenceId, (u64, i32)>;

/// The sequence that starts next at step `now`.
fn next(waiting: &Waiting, now: u64, aging_steps: u64) -> Option<SequenceId> {
    let (oldest, (since, _)) = waiting.first_key_value()?;
    if now - since >= aging_steps {
        return Some(*oldest);
    }
    let first = waiting.iter().min_by_key(|(id, (_, priority))| (*priority, **id));
    first.map(|(id, _)| *id)
}

/// Any load: sequences start in the order that is promised, and none that was submitted later
/// starts before one that has aged.
#[test]
fn starts_follow_priority_until_a_sequence_has_aged() {
    let (mut overtaken, mut aged) = (0, 0);
    let all = seeds(40);
    for seed in &all {
        let _show = ShowSeed(*seed);
        let mut rng = Rng::new(seed ^ 0x57A7);
        let aging_steps = rng.pick(&[0u64, 1, 5, 20, 1000]);
        let mut lab = lab(rng.pick(&[1, 2, 4]), aging_steps);
        let mut waiting = Waiting::new();
        let mut number = 0;
        let mut now = 0;
        while number < 30 || !lab.engine.is_idle() {
            while number < 30 && rng.chance(40) {
                let priority = rng.pick(&[0, 0, -1, 3, 8]);
                let mut request = random_request(&mut rng, number);
                request.sender.priority = priority;
                let id = lab.submit(request).expect("there is room");
                waiting.insert(id, (now, priority));
                number += 1;
                if rng.chance(5) {
                    lab.cancel(id);
                    waiting.remove(&id);
                }
            }
            let before = lab.starts.len();
            lab.step();
            for id in &lab.starts[before..] {
                let expected = next(&waiting, now, aging_steps);
                assert_eq!(Some(*id), expected, "step {now}: {waiting:?}");
                let (_, priority) = waiting.remove(id).expect("it waited");
                for (earlier, (since, other)) in waiting.range(..*id) {
                    let waited = now - since;
                    assert!(waited < aging_steps, "{earlier:?} has aged");
                    assert!(priority < *other, "{earlier:?} goes first");
                    overtaken += 1;
                }
                let lower = |(_, other): &(u64, i32)| *other < priority;
                aged += u32::from(waiting.values().any(lower));
            }
            now += 1;
            assert!(now < 100_000, "the engine never ends");
        }
        lab.finish();
    }
    if all.len() > 1 {
        println!("{overtaken} overtaken, {aged} aged");
        assert!(overtaken > 100 && aged > 100);
    }
}

/// With equal priorities, whatever they are and after however many steps sequences age, sequences
/// start as submitted, and every batch is the same.
#[test]
fn equal_priorities_are_the_order_of_submission() {
    for seed in seeds(10) {
        let _show = ShowSeed(seed);
        let run = |priority: i32, aging_steps: u64| {
            let mut rng = Rng::new(seed ^ 0xE90A);
            let mut lab = lab(rng.pick(&[1, 3]), aging_steps);
            for number in 0..12 {
                let mut request = random_request(&mut rng, number);
                request.sender.priority = priority;
                request.extras.trace = true;
                lab.submit(request).expect("there is room");
                for _ in 0..rng.range(0, 4) {
                    lab.step();
                }
            }
            lab.finish();
            let steps: Vec<_> = lab.logs.into_values().map(|log| log.steps).collect();
            (lab.starts, steps)
        };
        let first = run(0, 0);
        assert!(first.0.is_sorted(), "{:?}", first.0);
        assert_eq!(first, run(0, 1000));
        assert_eq!(first, run(-7, 3));
    }
}
