//! One decoder over a set of problems, closed loop, in process.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use demo::grade::grade;
use demo::problems::Problem;
use engine::decoding::Decoding;
use engine::{Engine, Event, Request, SequenceId, SequenceStats};
use step::{BatchOutput, Executor};
use text::Tokenizer;

use super::prompt_ids;
use crate::config::Config;
use crate::exit;
use crate::load::{self, Loaded};

/// What one decoder did in one round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Problems run.
    pub problems: u64,
    /// Right by the end of the answer.
    pub end: u64,
    /// Right in the whole text.
    pub strict: u64,
    /// Identical to the answer of the comparison's first decoder.
    pub agreed: u64,
    /// Output tokens up to the first stop token.
    pub tokens: u64,
    /// Forward passes, summed over sequences.
    pub forwards: u64,
    /// Rows computed.
    pub positions: u64,
    /// Wall time.
    pub wall: Duration,
    /// Wall time inside the executor.
    pub execute: Duration,
}

impl Tally {
    /// Output tokens per second.
    pub fn tps(&self) -> f64 {
        self.tokens as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

/// Owns the model between rounds.
pub struct Runner {
    engine: Engine,
    executor: Box<dyn Executor>,
    tokenizer: std::sync::Arc<Tokenizer>,
    kernels: String,
    stop_tokens: Vec<u32>,
    load: Load,
}

/// What a runner is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Generation budget of a problem in tokens.
    pub max_tokens: u32,
    /// Sequences in flight at once, `>= 1`.
    pub concurrency: usize,
}

impl Runner {
    /// A runner over a loaded model.
    ///
    /// # Errors
    /// A concurrency of 0.
    pub fn new(loaded: Loaded, config: &Config, load: Load) -> Result<Self> {
        if load.concurrency == 0 {
            return Err(exit::failure(
                exit::USAGE,
                "--concurrency: expected at least 1, found 0",
            ));
        }
        let engine = Engine::new(
            &load::engine_config(config, &loaded),
            loaded.executor.spec(),
        );
        Ok(Self {
            engine,
            executor: loaded.executor,
            tokenizer: loaded.tokenizer,
            kernels: loaded.kernels,
            stop_tokens: loaded.stop_tokens,
            load,
        })
    }

    /// Whether the engine takes `problem` with this decoder.
    ///
    /// # Errors
    /// Why not.
    pub fn admits(&self, problem: &Problem, decoding: &Decoding) -> Result<()> {
        Ok(self
            .engine
            .limits()
            .admit(&self.request(problem, decoding)?)?)
    }

    /// Answers all `problems`, `concurrency` at a time, and grades the answers afterwards: the
    /// cost, and every answer in tokens.
    ///
    /// # Errors
    /// A problem that does not fit the context, a failed step.
    pub fn run(
        &mut self,
        decoding: &Decoding,
        problems: &[Problem],
    ) -> Result<(Tally, Vec<Vec<u32>>)> {
        let mut requests = Vec::with_capacity(problems.len());
        for problem in problems {
            requests.push(self.request(problem, decoding)?);
        }
        let (mut tally, answers) = self.answer(requests)?;
        for (problem, answer) in problems.iter().zip(&answers) {
            let grade = grade(problem, &self.tokenizer.decode(answer, true));
            tally.end += u64::from(grade.end);
            tally.strict += u64::from(grade.strict);
        }
        Ok((tally, answers))
    }

    /// Runs all `requests`, `concurrency` at a time: the cost, and every answer in tokens.
    ///
    /// # Errors
    /// A request that does not fit the context, a failed step.
    pub fn answer(&mut self, requests: Vec<Request>) -> Result<(Tally, Vec<Vec<u32>>)> {
        let mut answers: Vec<Vec<u32>> = vec![Vec::new(); requests.len()];
        let mut tally = Tally {
            problems: requests.len() as u64,
            ..Tally::default()
        };
        let mut queue = requests.into_iter().enumerate();
        let mut owners: HashMap<SequenceId, usize> = HashMap::new();
        let mut output = BatchOutput::default();
        let started = Instant::now();
        loop {
            while owners.len() < self.load.concurrency
                && let Some((index, request)) = queue.next()
            {
                let id = self.engine.submit(request);
                let id = id.map_err(|e| exit::failure(exit::USAGE, e.to_string()))?;
                owners.insert(id, index);
            }
            if owners.is_empty() {
                break;
            }
            if self.engine.plan() {
                let executing = Instant::now();
                self.executor.execute(self.engine.batch(), &mut output)?;
                tally.execute += executing.elapsed();
                self.engine.apply(&output, started.elapsed());
            }
            while let Some((id, event)) = self.engine.poll_event() {
                match event {
                    Event::Tokens { chunk, .. } => {
                        answers[owners[&id]].extend_from_slice(chunk.as_slice());
                    }
                    Event::Finished(finished) => {
                        count(&mut tally, &finished.stats);
                        owners.remove(&id);
                    }
                    Event::Failed { message } => return Err(exit::failure(exit::ENGINE, message)),
                    Event::Started | Event::Step(_) => {}
                }
            }
            self.engine.clear_report();
        }
        tally.wall = started.elapsed();
        Ok((tally, answers))
    }

    /// Its executor; all pages are free between two runs.
    pub fn executor(&mut self) -> &mut dyn Executor {
        &mut *self.executor
    }

    /// Processor, threads, and what multiplies the matrices.
    pub fn machine(&self) -> String {
        format!("{}, {}", super::report::machine(), self.kernels)
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    fn request(&self, problem: &Problem, decoding: &Decoding) -> Result<Request> {
        self.ask(&problem.prompt, decoding)
    }

    /// A request for the answer to a user's text.
    ///
    /// # Errors
    /// A text that cannot be encoded.
    pub fn ask(&self, text: &str, decoding: &Decoding) -> Result<Request> {
        let prompt = prompt_ids(text, &self.tokenizer)?;
        Ok(Request {
            stop_tokens: self.stop_tokens.clone(),
            code_prompt: server::is_code_shaped(text),
            ..Request::new(prompt, self.load.max_tokens, decoding.clone())
        })
    }
}

fn count(tally: &mut Tally, stats: &SequenceStats) {
    tally.tokens += u64::from(stats.emitted_tokens);
    tally.forwards += u64::from(stats.forwards());
    tally.positions += stats.positions;
}
