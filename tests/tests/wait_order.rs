//! Orders of waiting sequences that are written outside the engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asynclane_tests::run;
use engine::decoding::DecodingSpec;
use engine::{ByPriority, Engine, EngineConfig, Event, Rank, Request, SequenceId, WaitOrder};
use sim::{SimConfig, SimExecutor};
use step::{BatchOutput, Executor};

/// The sequence with the fewest prompt tokens starts first.
#[derive(Debug)]
struct ShortestPromptFirst;

impl WaitOrder for ShortestPromptFirst {
    fn rank(&self, request: &Request) -> Rank {
        Rank(request.prompt.len() as i64)
    }
}

/// The sequence whose deadline comes first starts first: a second per token of the budget, plus the
/// priority in seconds.
#[derive(Debug)]
struct EarliestDeadlineFirst {
    aging_steps: u64,
}

impl WaitOrder for EarliestDeadlineFirst {
    fn rank(&self, request: &Request) -> Rank {
        Rank(i64::from(request.max_tokens) + i64::from(request.sender.priority))
    }

    fn aging_steps(&self) -> u64 {
        self.aging_steps
    }
}

/// Prompt tokens, budget and priority of the requests, in order of submission.
const REQUESTS: [(usize, u32, i32); 5] =
    [(9, 8, 0), (4, 16, 0), (12, 12, 0), (4, 24, -20), (6, 4, 0)];

/// The numbers of the requests in the order in which they start, one at a time.
fn starts(wait_order: Arc<dyn WaitOrder>) -> Vec<usize> {
    let mut executor = SimExecutor::new(SimConfig::default()).expect("a valid model");
    let config = EngineConfig {
        max_running: 1,
        max_waiting: 8,
        row_budget: 1024,
        wait_order,
        ..run::config(Arc::default())
    };
    let mut engine = Engine::new(&config, executor.spec());
    let decoding = DecodingSpec::parse("vanilla").and_then(|spec| spec.resolve());
    let decoding = decoding.expect("a preset");
    let mut numbers: HashMap<SequenceId, usize> = HashMap::new();
    for (number, (prompt, budget, priority)) in REQUESTS.into_iter().enumerate() {
        let mut request = Request::new(vec![20; prompt], budget, decoding.clone());
        request.sender.priority = priority;
        let id = engine.submit(request).expect("the request fits");
        numbers.insert(id, number);
    }
    let mut output = BatchOutput::default();
    let mut starts = Vec::new();
    while !engine.is_idle() {
        if let Some(step) = engine.plan() {
            let executed = executor.execute(step.batch(), &mut output);
            executed.expect("the model runs");
            engine.apply(step, &output, Duration::ZERO);
        }
        while let Some((id, event)) = engine.poll_event() {
            if matches!(event, Event::Started) {
                starts.push(numbers[&id]);
            }
        }
    }
    starts
}

#[test]
fn the_shortest_prompt_starts_first() {
    assert_eq!(starts(Arc::new(ShortestPromptFirst)), [1, 3, 4, 0, 2]);
}

#[test]
fn the_earliest_deadline_starts_first() {
    let order = |aging_steps| Arc::new(EarliestDeadlineFirst { aging_steps });
    assert_eq!(starts(order(1000)), [3, 4, 0, 2, 1]);
    // The first one runs for 24 steps. After 10 of them all others have aged.
    assert_eq!(starts(order(10)), [3, 0, 1, 2, 4]);
}

#[test]
fn without_another_order_priorities_decide() {
    assert_eq!(starts(Arc::new(ByPriority)), [3, 0, 1, 2, 4]);
}
