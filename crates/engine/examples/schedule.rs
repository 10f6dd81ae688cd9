//! Measures the engine alone: plan, apply and events over a model that costs nothing.
//!
//! `cargo run --release -p asynclane-engine --example schedule [STEPS [CONCURRENCY [DECODER]]]`
//! prints the time of a row and of a step on one core for every decoder and concurrency. The model's
//! candidates come from a ring that is made beforehand; the time to read them is not counted. Under
//! `valgrind --tool=callgrind`, a small STEPS shows where the instructions go, independently of the
//! load of the machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use asynclane_engine::decoding::DecodingSpec;
use asynclane_engine::{ByPriority, Capabilities, Engine, EngineConfig, Event, Request};
use decode::{Candidate, TokenClass, TokenClasses};
use step::{Attention, Batch, BatchOutput, ExecutorSpec, Readout};

const DECODERS: [&str; 2] = ["balanced", "fast_dllm_dual"];
const CONCURRENCIES: [u32; 4] = [1, 16, 64, 256];
const STEPS: u32 = 20_000;
/// Tokens of a prompt and of an answer; no answer ends before its budget.
const LENGTHS: (u32, u32) = (64, 256);
const VOCAB: u32 = 512;
const MASK: u32 = 0;
const PERIOD: u32 = 2;

/// Candidates: one in eight is confident, one in twelve ends a sentence.
struct Ring {
    candidates: Vec<Candidate>,
    next: usize,
}

impl Ring {
    fn new() -> Self {
        let mut state = 1u64;
        let mut any = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let candidates = (0..4099).map(|_| {
            let word = 3 + any(u64::from(VOCAB) - 4) as u32;
            let probability = if any(8) == 0 { 0.995 } else { 0.3 };
            Candidate {
                token: if any(12) == 0 { PERIOD } else { word },
                probability,
                runner_up: word + 1,
                runner_up_probability: 0.004,
                entropy: 1.0,
                gap: 2.0,
                present: 0.0,
            }
        });
        Self {
            candidates: candidates.collect(),
            next: 0,
        }
    }

    #[inline(never)]
    fn answer(&mut self, batch: &Batch, output: &mut BatchOutput) {
        output.candidates.clear();
        for _ in 0..batch.scored() {
            output.candidates.push(self.candidates[self.next]);
            self.next = (self.next + 1) % self.candidates.len();
        }
    }
}

/// An engine with a constant number of sequences.
struct Load {
    engine: Engine,
    ring: Ring,
    output: BatchOutput,
    decoder: &'static str,
    /// Sequences submitted so far.
    number: u32,
}

/// Time by part of a step, and rows.
#[derive(Clone, Copy, Default)]
struct Cost {
    plan: Duration,
    apply: Duration,
    events: Duration,
    rows: u64,
}

impl Load {
    fn new(decoder: &'static str, concurrency: u32) -> Self {
        let class = |token| TokenClass {
            period: token == PERIOD,
            ..TokenClass::default()
        };
        let config = EngineConfig {
            max_running: concurrency,
            max_waiting: concurrency,
            row_budget: 2048,
            long_quantum: 1024,
            prefill_chunk: 512,
            grammar_timeout: Duration::ZERO,
            prefix_cache: true,
            max_model_len: None,
            wait_order: Arc::new(ByPriority),
            classes: Arc::new(TokenClasses::new((0..VOCAB).map(class).collect())),
            capabilities: Capabilities::default(),
        };
        let spec = ExecutorSpec {
            page_size: 16,
            pages: concurrency * 64,
            vocab_size: VOCAB,
            max_positions: 1024,
            mask: Some(MASK),
            attention: Attention::Full,
            readout: Readout::Own,
        };
        let mut load = Self {
            engine: Engine::new(&config, spec),
            ring: Ring::new(),
            output: BatchOutput::default(),
            decoder,
            number: 0,
        };
        for _ in 0..concurrency {
            load.submit();
        }
        load
    }

    fn submit(&mut self) {
        let decoding = DecodingSpec::parse(self.decoder).and_then(|spec| spec.resolve());
        let prompt = (0..LENGTHS.0).map(|at| 3 + (self.number + at) % (VOCAB - 3));
        let decoding = decoding.expect("a preset");
        let request = Request::new(prompt.collect(), LENGTHS.1, decoding);
        self.engine.submit(request).expect("there is room");
        self.number += 1;
    }

    fn step(&mut self, now: Duration, cost: &mut Cost) {
        let begin = Instant::now();
        self.engine.clear_report();
        let step = self.engine.plan().expect("sequences are always there");
        let planned = Instant::now();
        let rows = step.batch().rows.len();
        self.ring.answer(step.batch(), &mut self.output);
        let answered = Instant::now();
        self.engine.apply(step, &self.output, now);
        let applied = Instant::now();
        let mut ended = 0;
        while let Some((_, event)) = self.engine.poll_event() {
            ended += u32::from(matches!(event, Event::Finished(_)));
        }
        self.engine.report();
        cost.plan += planned - begin;
        cost.apply += applied - answered;
        cost.events += applied.elapsed();
        cost.rows += rows as u64;
        for _ in 0..ended {
            self.submit();
        }
    }
}

fn main() {
    let mut given = std::env::args().skip(1);
    let steps = given
        .next()
        .map_or(STEPS, |steps| steps.parse().expect("STEPS is a number"));
    let only = given
        .next()
        .map(|number| number.parse::<u32>().expect("CONCURRENCY is a number"));
    let decoder = given.next();
    println!(
        "decoder          concurrency  rows/step     rows/s  ns/row  us/step  plan  apply  events"
    );
    for settings in DECODERS {
        if decoder.as_ref().is_some_and(|wanted| wanted != settings) {
            continue;
        }
        for concurrency in CONCURRENCIES {
            if only.is_none_or(|wanted| wanted == concurrency) {
                measure(settings, concurrency, steps);
            }
        }
    }
}

fn measure(decoder: &'static str, concurrency: u32, steps: u32) {
    let mut load = Load::new(decoder, concurrency);
    let mut now = Duration::ZERO;
    let mut cost = Cost::default();
    for step in 0..steps + steps / 10 {
        if step == steps / 10 {
            cost = Cost::default();
        }
        now += Duration::from_millis(1);
        load.step(now, &mut cost);
    }
    let all = cost.plan + cost.apply + cost.events;
    let percent = |part: Duration| 100.0 * part.as_secs_f64() / all.as_secs_f64();
    println!(
        "{decoder:<16} {concurrency:>11} {:>10.1} {:>10.0} {:>7.1} {:>8.2} {:>4.0}% {:>5.0}% {:>6.0}%",
        cost.rows as f64 / f64::from(steps),
        cost.rows as f64 / all.as_secs_f64(),
        all.as_nanos() as f64 / cost.rows as f64,
        all.as_secs_f64() * 1e6 / f64::from(steps),
        percent(cost.plan),
        percent(cost.apply),
        percent(cost.events),
    );
}
