//! An engine in this process, without HTTP.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use engine::decoding::{Decoders, Decoding};
use engine::{Drafter, Engine, Event, Request, SequenceId};
use step::{BatchOutput, Executor};
use text::Tokenizer;

use super::super::arrivals::{Arrivals, LoadPattern};
use super::super::latency::Times;
use super::super::tally::Tally;
use super::{Ask, Target};
use crate::conversation;
use cli::config::Config;
use cli::exit;
use cli::load::{self, LoadedModel};

/// An engine over a loaded model.
pub struct Runner {
    engine: Engine,
    executor: Box<dyn Executor>,
    drafter: Option<Drafter>,
    tokenizer: Arc<Tokenizer>,
    stop_tokens: Vec<u32>,
    decoders: Decoders,
}

/// A sequence in flight.
struct Flight {
    index: usize,
    arrived: Duration,
    first: Option<Duration>,
}

/// One turn, from the first arrival to the last answer.
struct Turn {
    started: Instant,
    flights: HashMap<SequenceId, Flight>,
    answers: Vec<Vec<u32>>,
    tally: Tally,
}

impl Runner {
    /// A runner over a loaded model.
    ///
    /// # Errors
    /// Settings of the decoder, in the configuration or in the model's folder.
    pub fn new(loaded: LoadedModel, config: &Config) -> Result<Self> {
        let decoders = config.decoders(loaded.weights)?;
        let config = load::engine_config(config, &loaded);
        let mut engine = Engine::new(&config, loaded.executor.spec());
        if loaded.draft.is_some() {
            engine.hand_out_drafts();
        }
        Ok(Self {
            engine,
            executor: loaded.executor,
            drafter: loaded.draft.map(|draft| draft.drafter(&config)),
            tokenizer: loaded.tokenizer,
            stop_tokens: loaded.stop_tokens,
            decoders,
        })
    }

    /// Runs all `requests` as they arrive; returns the counts and every answer's tokens.
    ///
    /// # Errors
    /// A request that does not fit the context, a failed step.
    pub fn run(
        &mut self,
        requests: Vec<Request>,
        mut arrivals: Arrivals,
    ) -> Result<(Tally, Vec<Vec<u32>>)> {
        let mut turn = Turn {
            started: Instant::now(),
            flights: HashMap::new(),
            answers: vec![Vec::new(); requests.len()],
            tally: Tally {
                problems: requests.len() as u64,
                execute: Some(Duration::ZERO),
                times: vec![Times::default(); requests.len()],
                ..Tally::default()
            },
        };
        let mut requests: Vec<Option<Request>> = requests.into_iter().map(Some).collect();
        let mut output = BatchOutput::default();
        loop {
            let now = turn.started.elapsed();
            while let Some((index, arrived)) = arrivals.due(now, turn.flights.len()) {
                let Some(request) = requests[index].take() else {
                    continue;
                };
                let id = self.engine.submit(request);
                let id = id.map_err(|e| exit::failure(exit::USAGE, e.to_string()))?;
                let first = None;
                let flight = Flight { index, arrived, first };
                turn.flights.insert(id, flight);
            }
            if turn.flights.is_empty() {
                match arrivals.next_at() {
                    Some(time) => std::thread::sleep(time.saturating_sub(turn.started.elapsed())),
                    None => break,
                }
            }
            self.step(&mut turn, &mut output)?;
        }
        turn.tally.wall = turn.started.elapsed();
        Ok((turn.tally, turn.answers))
    }

    /// Runs one step and takes its events.
    fn step(&mut self, turn: &mut Turn, output: &mut BatchOutput) -> Result<()> {
        if let Some(drafter) = &mut self.drafter {
            let executing = Instant::now();
            drafter.advance(&mut self.engine, turn.started.elapsed());
            if let Some(execute) = &mut turn.tally.execute {
                *execute += executing.elapsed();
            }
        }
        if let Some(step) = self.engine.plan() {
            let executing = Instant::now();
            self.executor.begin(step.batch())?;
            turn.tally.begin += executing.elapsed();
            self.executor.execute(step.batch(), output)?;
            if let Some(execute) = &mut turn.tally.execute {
                *execute += executing.elapsed();
            }
            self.engine.apply(step, output, turn.started.elapsed());
        }
        while let Some((id, event)) = self.engine.poll_event() {
            turn.take(id, event)?;
        }
        self.engine.clear_report();
        Ok(())
    }

    /// The executor; all pages are free between two runs.
    pub fn executor(&mut self) -> &mut dyn Executor {
        &mut *self.executor
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// A chat request with the conversation of a prompt, up to a stop token.
    ///
    /// # Errors
    /// A text that cannot be encoded.
    pub fn ask(&self, text: &str, max_tokens: u32, decoding: &Decoding) -> Result<Request> {
        let prompt = conversation::ids(text, &self.tokenizer)?;
        Ok(Request {
            stop_tokens: self.stop_tokens.clone(),
            code_prompt: server::is_code_shaped(text),
            ..Request::new(prompt, max_tokens, decoding.clone())
        })
    }

    /// The request of a row, resolved as the server does.
    fn asked(&self, ask: &Ask<'_>) -> Result<Request> {
        let decoding = self.decoders.resolve(&ask.decoder.spec);
        let decoding = decoding.map_err(|error| exit::failure(exit::USAGE, error.to_string()))?;
        self.ask(ask.text, ask.max_tokens, &decoding)
    }
}

impl Turn {
    fn take(&mut self, id: SequenceId, event: Event) -> Result<()> {
        let Some(flight) = self.flights.get_mut(&id) else {
            return Ok(());
        };
        let now = self.started.elapsed();
        match event {
            Event::Tokens { chunk, .. } => {
                flight.first.get_or_insert(now);
                self.answers[flight.index].extend_from_slice(chunk.as_slice());
            }
            Event::Finished(finished) => {
                let (index, arrived) = (flight.index, flight.arrived);
                self.tally.times[index] = Times {
                    first: flight.first.unwrap_or(now).saturating_sub(arrived),
                    end: now.saturating_sub(arrived),
                    tokens: u64::from(finished.stats.emitted_tokens),
                };
                self.tally.count(&finished.stats);
                self.flights.remove(&id);
            }
            Event::Refused { message } | Event::Failed { message } => {
                return Err(exit::failure(exit::ENGINE, message));
            }
            Event::Started | Event::Step(_) | Event::Labels(_) => {}
        }
        Ok(())
    }
}

impl Target for Runner {
    fn admits(&self, ask: &Ask<'_>) -> Result<()> {
        let request = self.asked(ask)?;
        Ok(self.engine.limits().admit(&request)?)
    }

    fn answer(&mut self, asks: &[Ask<'_>], arrivals: Arrivals) -> Result<(Tally, Vec<Vec<u32>>)> {
        let mut requests = Vec::with_capacity(asks.len());
        for ask in asks {
            requests.push(self.asked(ask)?);
        }
        self.run(requests, arrivals)
    }
}

/// The arrivals of `count` requests with `concurrency` in flight.
pub fn closed(count: usize, concurrency: usize) -> Arrivals {
    LoadPattern::Closed(concurrency.max(1)).arrivals(count, 0)
}
