//! One replica: an engine over a simulated executor, stepped in virtual time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use decode::{TokenClass, TokenClasses, TokenId};
use engine::StepPlan;
use engine::decoding::{Decoding, DecodingSpec};
use engine::{ByPriority, Capabilities, Engine, EngineConfig, Event, Gauges, Request, SequenceId};
use sim::{Fidelity, SimConfig, SimExecutor};
use step::{Attention, BatchOutput, Executor};

use super::device::Device;
use crate::args::{DeviceArgs, EngineArgs};
use cli::exit;

/// Positions of a KV page.
pub const PAGE: u32 = 16;
/// Number of tokens with a logit. Prompts are random tokens of it.
pub const VOCAB: u32 = 4096;
/// Most positions of a sequence.
const POSITIONS: u32 = 8192;

/// What all replicas have in common.
pub struct Kind {
    engine: EngineConfig,
    model: SimConfig,
    device: Device,
    decoding: Decoding,
}

impl Kind {
    /// Causal weights with the preset `wedlm` on a device.
    ///
    /// # Errors
    /// Sizes that make no engine.
    pub fn new(device: &DeviceArgs, engine: &EngineArgs) -> Result<Self> {
        let positions = engine.kv_memory * f64::from(1 << 30) / (device.kv_position * 1024.0);
        let pages = (positions / f64::from(PAGE)) as u32;
        let numbers = [
            device.bandwidth,
            device.tflops,
            device.parameters,
            device.kv_position,
        ];
        let shares = [device.bandwidth_share, device.flops_share];
        let is_positive = |of: &f64| of.is_finite() && *of > 0.0;
        if !numbers.iter().chain(&shares).all(is_positive) || device.overhead < 0.0 || pages == 0 {
            let message = "the device: expected positive numbers and at least a page of K/V";
            return Err(exit::failure(exit::USAGE, message));
        }
        let spec = DecodingSpec::parse("wedlm").and_then(|spec| spec.resolve());
        Ok(Self {
            engine: EngineConfig {
                max_running: engine.max_running,
                max_waiting: engine.max_waiting,
                row_budget: engine.row_budget,
                long_quantum: engine.row_budget / 2,
                prefill_chunk: 0,
                grammar_timeout: Duration::ZERO,
                prefix_cache: true,
                max_model_len: None,
                wait_order: Arc::new(ByPriority),
                classes: Arc::new(TokenClasses::new(
                    (0..VOCAB).map(|_| TokenClass::default()).collect(),
                )),
                capabilities: Capabilities::default(),
            },
            model: SimConfig {
                page_size: PAGE,
                pages,
                vocab_size: VOCAB,
                max_positions: POSITIONS,
                attention: Attention::Causal,
                fidelity: Fidelity::Free,
                ..SimConfig::default()
            },
            device: Device::new(device, PAGE),
            decoding: spec.map_err(|error| exit::failure(exit::ENGINE, error.to_string()))?,
        })
    }

    /// A request of `answer` tokens.
    pub fn request(&self, prompt: Vec<TokenId>, answer: u32) -> Request {
        Request::new(prompt, answer, self.decoding.clone())
    }
}

/// A request in flight.
struct Flight {
    /// The caller's number of the request.
    request: usize,
    arrived: Duration,
    first: Option<Duration>,
    tokens: Vec<TokenId>,
}

/// A request that is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// The caller's number of the request.
    pub request: usize,
    /// When it came.
    pub arrived: Duration,
    /// From then to its first token.
    pub first: Duration,
    /// When it ended.
    pub ended: Duration,
    /// Tokens of its prompt, and those of them whose K/V were cached.
    pub prompt: (u32, u32),
    /// Its answer.
    pub tokens: Vec<TokenId>,
}

/// A step that the device computes, until when.
struct UnderWay {
    step: StepPlan,
    until: Duration,
}

/// A replica.
pub struct Replica {
    engine: Engine,
    executor: SimExecutor,
    device: Device,
    output: BatchOutput,
    under_way: Option<UnderWay>,
    flights: HashMap<SequenceId, Flight>,
    max_waiting: u32,
    /// Rows and forward passes so far.
    pub rows: u64,
    /// Forward passes so far.
    pub steps: u64,
}

impl Replica {
    /// An idle replica.
    ///
    /// # Errors
    /// Sizes that make no executor.
    pub fn new(kind: &Kind) -> Result<Self> {
        let executor = SimExecutor::new(kind.model.clone());
        let executor = executor.map_err(|e| exit::failure(exit::ENGINE, e.to_string()))?;
        Ok(Self {
            engine: Engine::new(&kind.engine, executor.spec()),
            executor,
            device: kind.device,
            output: BatchOutput::default(),
            under_way: None,
            flights: HashMap::new(),
            max_waiting: kind.engine.max_waiting,
            rows: 0,
            steps: 0,
        })
    }

    /// Takes a request at `now`, and begins a step if none is under way. False if too many wait, as a
    /// server answers 429.
    ///
    /// # Errors
    /// A request that can never be served.
    pub fn submit(&mut self, request: Request, number: usize, now: Duration) -> Result<bool> {
        if self.gauges().waiting >= self.max_waiting {
            return Ok(false);
        }
        let id = self.engine.submit(request);
        let id = id.map_err(|error| exit::failure(exit::USAGE, error.to_string()))?;
        let flight = Flight {
            request: number,
            arrived: now,
            first: None,
            tokens: Vec::new(),
        };
        self.flights.insert(id, flight);
        self.begin(now)?;
        Ok(true)
    }

    /// When the step under way ends.
    pub fn until(&self) -> Option<Duration> {
        self.under_way.as_ref().map(|step| step.until)
    }

    /// Ends the step under way, and begins the next one.
    ///
    /// # Errors
    /// A failed step.
    pub fn end(&mut self) -> Result<Vec<Done>> {
        let mut done = Vec::new();
        if let Some(UnderWay { step, until }) = self.under_way.take() {
            self.engine.apply(step, &self.output, until);
            while let Some((id, event)) = self.engine.poll_event() {
                done.extend(self.take(id, event, until)?);
            }
            self.engine.clear_report();
            self.begin(until)?;
        }
        Ok(done)
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// The engine's state.
    pub fn gauges(&mut self) -> Gauges {
        self.engine.report().gauges
    }

    fn begin(&mut self, now: Duration) -> Result<()> {
        if self.under_way.is_some() {
            return Ok(());
        }
        if let Some(step) = self.engine.plan() {
            self.executor.execute(step.batch(), &mut self.output)?;
            self.rows += step.batch().rows.len() as u64;
            self.steps += 1;
            let until = now + self.device.step(step.batch());
            self.under_way = Some(UnderWay { step, until });
        }
        Ok(())
    }

    fn take(&mut self, id: SequenceId, event: Event, now: Duration) -> Result<Option<Done>> {
        match event {
            Event::Tokens { chunk, .. } => {
                if let Some(flight) = self.flights.get_mut(&id) {
                    flight.first.get_or_insert(now);
                    flight.tokens.extend_from_slice(chunk.as_slice());
                }
                Ok(None)
            }
            Event::Finished(finished) => Ok(self.flights.remove(&id).map(|flight| Done {
                request: flight.request,
                arrived: flight.arrived,
                first: flight.first.unwrap_or(now).saturating_sub(flight.arrived),
                ended: now,
                prompt: (finished.stats.prompt_tokens, finished.stats.cached_tokens),
                tokens: flight.tokens,
            })),
            Event::Refused { message } | Event::Failed { message } => {
                Err(exit::failure(exit::ENGINE, message))
            }
            Event::Started | Event::Step(_) => Ok(None),
        }
    }
}
