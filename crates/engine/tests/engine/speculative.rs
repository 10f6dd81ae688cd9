//! Drafts of a draft model: the text is the verifier's own, in fewer forward passes, whatever is
//! drafted.

use std::time::Duration;

use asynclane_engine::{
    Capabilities, Drafter, Engine, EngineConfig, Event, FinishReason, Penalties, Refusal, Request,
    SequenceId, SequenceStats,
};
use sim::{SimConfig, SimExecutor};
use step::{
    Attention, Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec, LogitShift, Score, TokenId,
};

use crate::common::{STOP, candidate, config, decoding, drafted, request, sim};

const PROMPTS: [&[u32]; 4] = [&[20, 21], &[30, 2, 40, 9], &[55], &[33, 34, 35]];
const BUDGET: u32 = 40;
/// Greedy in one forward pass, whatever the number of drafts.
const ONE_PASS: &str = "schedule=block_wise,commit=top_k,tokens_per_step=64,cache=none";

/// A draft model that knows the texts of [`PROMPTS`] and errs at every `wrong`-th position.
#[derive(Debug)]
struct Oracle {
    spec: ExecutorSpec,
    /// By the first token of the prompt: the tokens by position.
    texts: Vec<Vec<TokenId>>,
    wrong: u32,
    passes: u64,
    /// Every pass of this number fails, the one after it panics.
    broken: u64,
}

impl Executor for Oracle {
    fn spec(&self) -> ExecutorSpec {
        self.spec
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        self.passes += 1;
        if self.passes.is_multiple_of(self.broken) {
            return Err(ExecuteError("told to".to_owned()));
        }
        assert!(!(self.passes - 1).is_multiple_of(self.broken) || self.passes == 1, "told to");
        output.candidates.clear();
        output.tops.clear();
        for segment in &batch.segments {
            let rows = batch.rows_of(segment);
            let text = self.texts.iter().find(|text| text[0] == rows[0].token);
            for row in rows.iter().filter(|row| row.score == Score::Candidate) {
                let token = text.and_then(|text| text.get(row.position.index()).copied());
                let wrong = row.position.get().is_multiple_of(self.wrong);
                let token = token.filter(|_| !wrong).unwrap_or(63);
                output.candidates.push(candidate(token, 0.5));
            }
        }
        Ok(())
    }
}

fn verifier(logit_shift: LogitShift) -> SimConfig {
    SimConfig { attention: Attention::Causal, logit_shift, ..sim(2000, 4) }
}

fn oracle(model: &SimConfig, wrong: u32) -> Oracle {
    let known = SimExecutor::new(model.clone()).expect("a valid model");
    let text = |prompt: &&[u32]| [prompt, &known.hidden_text(prompt, BUDGET)[..]].concat();
    Oracle {
        spec: ExecutorSpec {
            attention: Attention::Full,
            logit_shift: LogitShift::None,
            ..known.spec()
        },
        texts: PROMPTS.iter().map(text).collect(),
        wrong,
        passes: 0,
        broken: u64::MAX,
    }
}

/// A sequence that ended, its text, and how it ended unless it failed.
type Ended = (SequenceId, Vec<TokenId>, Option<(FinishReason, SequenceStats)>);

/// An engine with a draft model, without a thread.
struct Pair {
    engine: Engine,
    executor: SimExecutor,
    drafter: Drafter,
    ended: Vec<Ended>,
}

impl Pair {
    fn new(config: &EngineConfig, model: &SimConfig, drafter: impl Executor + 'static) -> Self {
        let executor = SimExecutor::new(model.clone()).expect("a valid model");
        let mut engine = Engine::new(config, executor.spec());
        engine.hand_out_drafts();
        let drafter = Drafter::new(config, Box::new(drafter), decoding(ONE_PASS));
        Self { engine, executor, drafter, ended: Vec::new() }
    }

    fn submit(&mut self, request: Request) -> SequenceId {
        let id = self.engine.submit(request).expect("there is room");
        self.ended.push((id, Vec::new(), None));
        id
    }

    fn round(&mut self) {
        self.drafter.advance(&mut self.engine, Duration::ZERO);
        let mut output = BatchOutput::default();
        if let Some(step) = self.engine.plan() {
            let ran = self.executor.execute(step.batch(), &mut output);
            ran.expect("a sound batch");
            self.engine.apply(step, &output, Duration::ZERO);
        }
        self.engine.validate().expect("valid after a step");
        self.engine.clear_report();
        while let Some((id, event)) = self.engine.poll_event() {
            let log = self.ended.iter_mut().find(|log| log.0 == id);
            let log = log.expect("a known sequence");
            match event {
                Event::Tokens { chunk, .. } => log.1.extend(chunk.as_slice()),
                Event::Finished(end) => log.2 = Some((end.reason, end.stats)),
                Event::Failed { message } | Event::Refused { message } => panic!("{message}"),
                _ => {}
            }
        }
    }

    fn finish(&mut self) -> Vec<(Vec<TokenId>, FinishReason, SequenceStats)> {
        for _ in 0..10_000 {
            if self.engine.is_idle() {
                break;
            }
            self.round();
        }
        assert!(self.engine.is_idle() && !self.drafter.is_busy());
        let ended = std::mem::take(&mut self.ended).into_iter();
        ended
            .map(|(_, tokens, end)| {
                let (reason, stats) = end.expect("it finishes");
                (tokens, reason, stats)
            })
            .collect()
    }
}

fn speculative(prompt: &[u32], settings: &str) -> Request {
    request(prompt, BUDGET, &format!("speculative{settings}"))
}

#[test]
fn the_text_is_the_verifiers_own_in_fewer_passes() {
    for logit_shift in [LogitShift::None, LogitShift::One] {
        let model = verifier(logit_shift);
        for (wrong, drafts) in [(u32::MAX, 8), (7, 8), (3, 4), (1, 8), (5, 1), (6, 32)] {
            let mut pair = Pair::new(&drafted(), &model, oracle(&model, wrong));
            for prompt in PROMPTS {
                pair.submit(speculative(prompt, &format!(",draft_length={drafts}")));
            }
            for (prompt, (tokens, reason, stats)) in PROMPTS.iter().zip(pair.finish()) {
                let mut text = pair.executor.hidden_text(prompt, BUDGET);
                let stops = text.last() == Some(&STOP);
                text.retain(|token| *token != STOP);
                assert_eq!(tokens, text, "{logit_shift:?} {wrong} {drafts}");
                assert_eq!(reason == FinishReason::Stop, stops);
                let committed = text.len() as u32 + u32::from(stops);
                let counts = stats.draft_model;
                assert_eq!(stats.forwards() + counts.verified, stats.commits.total());
                match wrong {
                    // The wrong token is the right one now and then.
                    1 => assert!(counts.verified * 10 < counts.drafted),
                    u32::MAX => assert_eq!(stats.forwards(), committed.div_ceil(drafts + 1)),
                    _ => assert!(stats.forwards() < committed && counts.verified < counts.drafted),
                }
            }
        }
    }
}

/// Token, position, slot, slots that are seen before and beyond, whether a candidate is wanted.
type Seen = (TokenId, u32, u32, u32, u64, bool);

fn rows(batch: &Batch) -> Vec<Seen> {
    let rows = batch.rows.iter().map(|row| {
        let (position, slot) = (row.position.get(), row.slot.get());
        let wanted = row.score.is_wanted();
        let end = row.visible_end.get();
        (row.token, position, slot, end, row.beyond, wanted)
    });
    rows.collect()
}

/// Drafts are rows like any causal token. Where a position is predicted at its own mask, the mask of
/// each position sees the drafts before it, and itself behind all drafts.
#[test]
fn drafts_are_causal_rows() {
    let plan = |logit_shift| {
        let model = verifier(logit_shift);
        let mut pair = Pair::new(&drafted(), &model, oracle(&model, u32::MAX));
        let id = pair.submit(speculative(&[20, 21], ",draft_length=2"));
        assert!(pair.engine.plan().is_none(), "its drafts are not there yet");
        pair.engine.settle_drafts(&asynclane_engine::Drafts {
            sequence: id,
            tokens: vec![50, 51, 52],
            forwards: 1,
            positions: 5,
        });
        let step = pair.engine.plan().expect("its drafts are there");
        rows(step.batch())
    };
    assert_eq!(
        plan(LogitShift::One),
        [
            (20, 0, 0, 1, 0, false),
            (21, 1, 1, 2, 0, true),
            (50, 2, 2, 3, 0, true),
            (51, 3, 3, 4, 0, true),
        ]
    );
    let mask = sim(8, 4).mask;
    assert_eq!(
        plan(LogitShift::None),
        [
            (20, 0, 0, 1, 0, false),
            (21, 1, 1, 2, 0, false),
            (50, 2, 2, 3, 0, false),
            (51, 3, 3, 4, 0, false),
            (mask, 2, 4, 2, 0b100, true),
            (mask, 3, 5, 3, 0b100, true),
            (mask, 4, 6, 4, 0b100, true),
        ]
    );
}

/// A draft that was confirmed is forwarded once: the rows of all passes are the prompt, what was
/// drafted, and one or two rows for each pass.
#[test]
fn a_verified_draft_is_not_forwarded_again() {
    for (logit_shift, masks) in [(LogitShift::One, 0), (LogitShift::None, 1)] {
        let model = verifier(logit_shift);
        let mut pair = Pair::new(&drafted(), &model, oracle(&model, 7));
        pair.submit(speculative(PROMPTS[1], ",draft_length=4"));
        let (_, _, stats) = pair.finish().remove(0);
        let drafted = u64::from(stats.draft_model.drafted);
        let passes = u64::from(stats.forwards());
        // The first pass forwards the prompt, each later one the token that the pass before chose.
        let own = PROMPTS[1].len() as u64 + passes - 1;
        assert_eq!(stats.positions, own + drafted + masks * (drafted + passes));
    }
}

/// A sequence's passes depend on it alone: neither on what else runs nor on places and pages.
#[test]
fn neighbours_change_nothing() {
    let model = verifier(LogitShift::None);
    let ask = |number: usize| {
        let mut request = speculative(PROMPTS[number % 4], ",draft_length=5");
        request.sampling.seed = number as u64;
        request.sampling.temperature = [0.0, 0.7][number / 4 % 2];
        request
    };
    let alone: Vec<_> = (0..8)
        .map(|number| {
            let mut pair = Pair::new(&drafted(), &model, oracle(&model, 6));
            pair.submit(ask(number));
            pair.finish().remove(0)
        })
        .collect();
    let tight = EngineConfig { max_running: 3, row_budget: 12, prefix_cache: false, ..drafted() };
    let split = EngineConfig { prefill_chunk: 2, ..tight.clone() };
    let mut chunks = 0;
    for config in [tight, split, drafted()] {
        let few = SimConfig { pages: 64, ..model.clone() };
        let mut pair = Pair::new(&config, &few, oracle(&model, 6));
        for number in 0..8 {
            pair.submit(ask(number));
        }
        for (mut together, alone) in pair.finish().into_iter().zip(&alone) {
            let cached = together.2.cached_tokens;
            chunks += std::mem::take(&mut together.2.chunks);
            if cached == 0 {
                assert_eq!(&together, alone);
            }
            assert_eq!((&together.0, together.1), (&alone.0, alone.1));
        }
    }
    assert!(chunks > 0, "the prompts are split");
}

/// Whatever the draft model does wrong, texts are the verifier's.
#[test]
fn a_draft_model_that_fails_costs_passes_only() {
    let model = verifier(LogitShift::One);
    let texts = |drafter: Oracle| {
        let mut pair = Pair::new(&drafted(), &model, drafter);
        for prompt in PROMPTS {
            pair.submit(speculative(prompt, ""));
        }
        let ended = pair.finish().into_iter();
        let (texts, passes): (Vec<_>, Vec<_>) =
            ended.map(|(tokens, _, stats)| (tokens, stats.forwards())).unzip();
        (texts, passes.iter().sum::<u32>())
    };
    let (expected, few) = texts(oracle(&model, u32::MAX));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (failing, more) = texts(Oracle { broken: 3, ..oracle(&model, u32::MAX) });
    std::panic::set_hook(hook);
    assert_eq!(failing, expected);
    assert!(more > few);
    // Texts longer than the draft model's context are not drafted; nor are its foreign tokens tried.
    let mut short = oracle(&model, u32::MAX);
    short.spec.max_positions = 12;
    let (cut, most) = texts(short);
    assert_eq!(cut, expected);
    assert!(most > few);
    let mut foreign = oracle(&model, 2);
    foreign.spec.vocab_size = 4096;
    foreign.texts.iter_mut().flatten().for_each(|token| {
        if *token > 40 {
            *token += 2000;
        }
    });
    foreign.texts.iter_mut().zip(PROMPTS).for_each(|(text, prompt)| {
        text[..prompt.len()].copy_from_slice(prompt);
    });
    assert_eq!(texts(foreign).0, expected);
}

/// Penalties would see the tokens of a step late, so such texts are decoded without drafts; so are
/// those of an engine that nobody gives drafts to.
#[test]
fn penalties_and_an_engine_without_drafts_decode_one_token_at_a_time() {
    let model = verifier(LogitShift::One);
    let mut pair = Pair::new(&drafted(), &model, oracle(&model, u32::MAX));
    let mut penalised = speculative(PROMPTS[0], "");
    penalised.logits.penalties = Penalties { presence: 0.1, ..Penalties::default() };
    pair.submit(penalised);
    let (_, _, stats) = pair.finish().remove(0);
    assert_eq!(stats.forwards(), stats.commits.total());
    assert_eq!(stats.draft_model.drafted, 0);
}

#[test]
fn a_sequence_that_waits_for_drafts_can_be_cancelled() {
    let model = verifier(LogitShift::None);
    let mut pair = Pair::new(&drafted(), &model, oracle(&model, u32::MAX));
    let first = pair.submit(speculative(PROMPTS[0], ""));
    assert!(pair.engine.plan().is_none(), "its drafts are not there yet");
    let job = pair.engine.take_draft_job().expect("they were asked for");
    pair.drafter.accept(job);
    assert!(pair.engine.cancel(first));
    pair.drafter.forget(first);
    assert!(pair.engine.is_idle() && !pair.drafter.is_busy());
    // Drafts that come too late are dropped.
    let second = pair.submit(speculative(PROMPTS[1], ""));
    assert!(pair.engine.plan().is_none());
    let job = pair.engine.take_draft_job().expect("they were asked for");
    assert_eq!(job.sequence, second);
    pair.drafter.accept(job);
    pair.drafter.step(Duration::ZERO);
    assert!(pair.engine.cancel(second));
    let drafts = pair.drafter.take().expect("they are done");
    pair.engine.settle_drafts(&drafts);
    assert!(pair.engine.is_idle());
    pair.engine.validate().expect("nothing is left behind");
}

#[test]
fn the_schedule_needs_a_draft_model_and_causal_weights() {
    let ask = |model: SimConfig, drafts: bool| {
        let config = EngineConfig {
            capabilities: Capabilities { drafts, ..Capabilities::default() },
            ..config()
        };
        let executor = SimExecutor::new(model).expect("a valid model");
        let limits = Engine::new(&config, executor.spec()).limits();
        let names = limits.kind().presets().map(|preset| preset.name);
        let listed = names.into_iter().any(|name| name == "speculative");
        (limits.admit_decoder(&decoding("speculative")), listed)
    };
    let causal = verifier(LogitShift::None);
    assert_eq!(ask(causal.clone(), true), (Ok(()), true));
    let (refused, listed) = ask(causal, false);
    let Err(Refusal::Rule { field, message }) = refused else {
        panic!("refused");
    };
    assert_eq!(field, "schedule");
    assert_eq!(message, "speculative needs a draft model, and none was loaded");
    assert!(!listed);
    let (refused, listed) = ask(sim(100, 4), true);
    assert!(refused.is_err() && !listed);
}
