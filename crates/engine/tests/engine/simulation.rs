//! Simulations: random arrivals, decoders, cancels, failed passes, small pools and row budgets.

use std::collections::BTreeMap;

use asynclane_engine::{EngineConfig, FinishReason, Penalties, Refusal, Request};
use sim::{SimConfig, SimExecutor};
use step::{Batch, ExecuteError};

use crate::common::{
    End, Lab, Outcome, Rng, STOP, ShowSeed, alone, config, random_request, seeds, sim, stubborn,
};

/// Every accepted sequence ends exactly once. A finished one has the tokens and the cost that it has
/// alone (AsyncLane §6.10). All pages are free in the end. `Lab::step` checks `Engine::validate`,
/// the order of events and the accounting after every step.
#[test]
fn random_lives() {
    let mut lives = Lives::default();
    for seed in seeds(400) {
        let _show = ShowSeed(seed);
        lives.live(seed);
    }
    if lives.seeds > 100 {
        lives.assert_covering();
    }
}

#[derive(Default)]
struct Lives {
    seeds: u32,
    finished: u32,
    failed: u32,
    cancelled: u32,
    refused: u32,
    stopped: u32,
    /// Most refine lanes at once.
    refine_lanes: u32,
}

impl Lives {
    fn live(&mut self, seed: u64) {
        self.seeds += 1;
        let mut rng = Rng::new(seed);
        let (config, model) = world(&mut rng);
        let pages = model.pages;
        let failing = rng.chance(40);
        let executor = SimExecutor::new(model.clone()).expect("a valid model");
        let executor = executor.with_hook(move |pass, _: &Batch| {
            let fails = failing && Rng::new(seed ^ (pass << 20)).chance(4);
            if fails { Err(ExecuteError(format!("pass {pass}"))) } else { Ok(()) }
        });
        let mut lab = Lab::new(&config, executor);
        let mut requests = BTreeMap::new();
        let count = u64::from(rng.range(3, 16));
        for number in 0..count {
            let request = random_request(&mut rng, seed * 1000 + number);
            match lab.submit(request.clone()) {
                Ok(id) => drop(requests.insert(id, request)),
                Err(refusal) => self.check_refusal(refusal, &request, &lab, pages),
            }
            while rng.chance(60) {
                lab.step();
                if rng.chance(8) && !requests.is_empty() {
                    let ids: Vec<_> = requests.keys().copied().collect();
                    lab.cancel(rng.pick(&ids));
                }
            }
        }
        lab.finish();
        for (id, request) in &requests {
            match &lab.logs[id].end {
                Some(End::Finished(_)) => {
                    self.finished += 1;
                    let outcome = lab.outcome(*id).expect("it finished");
                    assert_eq!(outcome, alone(request, &model), "{id:?}: {request:?}");
                    self.stopped += u32::from(outcome.reason == FinishReason::Stop);
                    check_text(&lab, request, &outcome);
                    check_wishes(request, &outcome);
                }
                Some(End::Failed(message)) => {
                    self.failed += 1;
                    assert!(message.contains("pass "), "{message}");
                }
                Some(End::Cancelled) => self.cancelled += 1,
                Some(End::Refused(message)) => panic!("no grammar fails here: {message}"),
                None => panic!("{id:?} has no end"),
            }
        }
        self.refine_lanes = self.refine_lanes.max(lab.totals.most_refine_lanes);
    }

    fn check_refusal(&mut self, refusal: Refusal, request: &Request, lab: &Lab, pages: u32) {
        self.refused += 1;
        let prompt = (request.prompt.len() + request.given.suffix.len()) as u32;
        let limits = lab.engine.limits();
        let needed = limits.worst_case_pages(prompt, request.max_tokens, &request.decoding);
        assert_eq!(refusal, Refusal::TooManyPages { pages: needed, limit: pages });
        assert!(needed > pages);
    }

    /// The simulations covered every case that the test is about.
    fn assert_covering(&self) {
        let Self { finished, failed, cancelled, refused, stopped, refine_lanes, .. } = *self;
        assert!(finished > 500, "{finished} finished");
        assert!(failed > 50 && cancelled > 50 && refused > 20, "{failed} {cancelled} {refused}");
        assert!(stopped > 100 && finished - stopped > 100, "{stopped} of {finished} stopped");
        assert!(refine_lanes >= 4, "{refine_lanes} refine lanes at once");
    }
}

fn world(rng: &mut Rng) -> (EngineConfig, SimConfig) {
    let page_size = rng.pick(&[1, 2, 3, 4, 16]);
    let pages = rng.range(80, 200) / page_size + rng.range(1, 40);
    let config = EngineConfig {
        max_running: rng.pick(&[1, 2, 5, 16]),
        row_budget: rng.pick(&[1, 10, 60, 5000]),
        long_quantum: rng.pick(&[1, 30, 5000]),
        prefix_cache: true,
        ..config()
    };
    let mut model = sim(pages, page_size);
    if rng.chance(30) {
        model = stubborn(pages, page_size);
    }
    (config, model)
}

/// The output follows the grammar, and has log-probabilities if they were asked for.
fn check_wishes(request: &Request, outcome: &Outcome) {
    if let Some(mut grammar) = request.constraint.clone() {
        for token in &outcome.tokens {
            assert_eq!(grammar.accept(*token), Ok(true), "{request:?} {outcome:?}");
        }
        assert!(
            grammar.may_end()
                || outcome.reason == FinishReason::Length
                || request.stop_tokens != [STOP],
            "{request:?}"
        );
    }
    let wanted = request.extras.logprobs.map_or(0, |_| outcome.tokens.len());
    assert_eq!(outcome.logprobs.len(), wanted);
    for entry in &outcome.logprobs {
        assert!(
            entry.logprob <= 0.0
                && entry.top.len() <= request.extras.logprobs.map_or(0, usize::from)
        );
        assert!(entry.top.windows(2).all(|two| two[0].logprob >= two[1].logprob));
    }
}

/// Without biases and noise every decoder writes the model's hidden text.
fn check_text(lab: &Lab, request: &Request, outcome: &Outcome) {
    let plain = request.sampling.temperature == 0.0
        && request.logits.biases.is_empty()
        && request.logits.penalties == Penalties::default()
        && request.constraint.is_none()
        && request.min_tokens == 0
        && request.stop_tokens == [STOP]
        && request.decoding.max_forwards.is_none();
    if plain {
        let mut text = lab.executor.hidden_text(&request.prompt, request.max_tokens);
        let stops = text.last() == Some(&STOP);
        if stops {
            text.pop();
        }
        let reason = if stops { FinishReason::Stop } else { FinishReason::Length };
        // A lane that uses up its steps after a cut ends its sequence before the stop token.
        let short = stops
            && request.decoding.decoder.prune
            && outcome.reason == FinishReason::Length
            && text.starts_with(&outcome.tokens);
        assert!(short || (&outcome.tokens, outcome.reason) == (&text, reason), "{request:?}");
    }
}
