//! Drafts that are copied from the text: the text is the model's own, in fewer forward passes.

use std::time::Duration;

use asynclane_engine::{Capabilities, Engine, EngineConfig, Event, Request, SequenceStats};
use step::{
    Attention, Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec, LogitShift, Score, TokenId,
};

use crate::common::{candidate, config, request, sim};
use sim::SimExecutor;

const BUDGET: u32 = 40;
/// Tokens of the text from one period to the next.
const PERIOD: usize = 7;

/// Continues the periodic text of [`law`].
#[derive(Debug)]
struct Periodic {
    spec: ExecutorSpec,
    /// The text breaks its period at multiples of it.
    breaks: usize,
}

/// The token at a place: periodic, but for every `breaks`-th.
fn law(index: usize, breaks: usize) -> TokenId {
    match index.is_multiple_of(breaks) {
        true => 60,
        false => 20 + (index % PERIOD) as TokenId,
    }
}

impl Executor for Periodic {
    fn spec(&self) -> ExecutorSpec {
        self.spec
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        output.candidates.clear();
        output.tops.clear();
        let scored = batch.rows.iter().filter(|row| row.score == Score::Candidate);
        let next = scored.map(|row| law(row.position.index() + 1, self.breaks));
        output.candidates.extend(next.map(|token| candidate(token, 0.5)));
        Ok(())
    }
}

fn run(request: Request, breaks: usize) -> (Vec<TokenId>, SequenceStats) {
    let known = SimExecutor::new(sim(2000, 4)).expect("a valid model");
    let spec =
        ExecutorSpec { attention: Attention::Causal, logit_shift: LogitShift::One, ..known.spec() };
    let mut executor = Periodic { spec, breaks };
    let config = EngineConfig { capabilities: Capabilities::default(), ..config() };
    let mut engine = Engine::new(&config, spec);
    engine.submit(request).expect("there is room");
    let (mut text, mut output) = (Vec::new(), BatchOutput::default());
    loop {
        let step = engine.plan().expect("it has not ended");
        executor.execute(step.batch(), &mut output).expect("it runs");
        engine.apply(step, &output, Duration::ZERO);
        engine.validate().expect("valid after a step");
        engine.clear_report();
        while let Some((_, event)) = engine.poll_event() {
            match event {
                Event::Tokens { chunk, .. } => text.extend(chunk.as_slice()),
                Event::Finished(end) => return (text, end.stats),
                Event::Failed { message } | Event::Refused { message } => panic!("{message}"),
                _ => {}
            }
        }
    }
}

fn prompt(length: usize, breaks: usize) -> Vec<TokenId> {
    (0..length).map(|index| law(index, breaks)).collect()
}

#[test]
fn a_text_that_repeats_itself_takes_few_passes() {
    for (breaks, most) in [(usize::MAX, 5), (19, 16), (5, 40)] {
        let prompt = prompt(2 * PERIOD, breaks);
        let expected: Vec<_> =
            (0..BUDGET as usize).map(|index| law(prompt.len() + index, breaks)).collect();
        let (text, stats) = run(request(&prompt, BUDGET, "prompt_lookup"), breaks);
        assert_eq!(text, expected);
        let copied = stats.draft_model;
        assert_eq!(stats.forwards() + copied.verified, BUDGET);
        assert_eq!((copied.forwards, copied.positions), (0, 0));
        assert!(stats.forwards() <= most, "{breaks}: {}", stats.forwards());
        assert!(copied.verified <= copied.drafted);
    }
}

/// Six tokens recur at most: nothing is copied if eight must, and every pass commits one token.
#[test]
fn fewer_recurring_tokens_than_match_length_are_no_match() {
    let prompt = prompt(PERIOD - 1, usize::MAX);
    let decode = |settings| run(request(&prompt, PERIOD as u32, settings), usize::MAX);
    let (text, stats) = decode("prompt_lookup,match_length=8");
    assert_eq!(stats.forwards(), PERIOD as u32);
    assert_eq!(stats.draft_model.drafted, 0);
    let (same, stats) = decode("prompt_lookup");
    assert_eq!(same, text);
    assert!(stats.forwards() < PERIOD as u32 && stats.draft_model.drafted > 0);
}
