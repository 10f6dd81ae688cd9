//! An answer on the terminal: tokens as they are committed, or the canvas redrawn at every step.

mod canvas;
mod lanes;
mod screen;

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use engine::{Event, EventStream, FinishReason, SequenceStats, StepTrace};
use text::{StreamOptions, TextStream, Tokenizer};

use crate::args::SamplingArgs;
use crate::exit;
use canvas::Canvas;
use lanes::Lanes;
use screen::Screen;

/// One answer that is being written.
pub struct Answer<'a> {
    canvas: Canvas<'a>,
    lanes: Lanes,
    stream: TextStream,
    text: String,
    /// `Some` if standard output is a terminal.
    screen: Option<Screen>,
    /// True if every step is printed on standard error.
    trace: bool,
    begun: Instant,
}

/// A whole answer and its cost.
#[derive(Clone, Debug)]
pub struct WholeAnswer {
    /// The text.
    pub text: String,
    /// The cost.
    pub cost: Cost,
    /// Its end.
    pub end: End,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model ended it.
    Stop,
    /// Its budget was used up.
    Length,
    /// The user ended it with Ctrl-C.
    Interrupted,
}

/// The cost of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// The engine's counts.
    pub stats: SequenceStats,
    /// The time from the request to the last token.
    pub time: Duration,
}

impl<'a> Answer<'a> {
    /// An answer of at most `budget` tokens that nothing is known of yet.
    pub fn new(tokenizer: &'a Tokenizer, budget: u32, trace: bool) -> Self {
        Self {
            canvas: Canvas::new(tokenizer, budget),
            lanes: Lanes::default(),
            stream: TextStream::new(tokenizer, &StreamOptions::default()),
            text: String::new(),
            screen: Screen::new(trace),
            trace,
            begun: Instant::now(),
        }
    }

    /// Writes the answer to standard output until it is complete or, between two steps, `interrupted`.
    ///
    /// # Errors
    /// A request that the engine refuses, a failed step, an output that cannot be written.
    pub fn follow(
        mut self,
        mut stream: EventStream,
        interrupted: &AtomicBool,
    ) -> Result<WholeAnswer> {
        let mut stats = SequenceStats::default();
        while let Some(event) = stream.blocking_next() {
            match event {
                // A text is written, and none is read.
                Event::Started | Event::Labels(_) => {}
                Event::Tokens { chunk, stats: now, .. } => {
                    stats = now;
                    let piece = self.stream.push(chunk.as_slice());
                    self.write(&piece.text)?;
                }
                Event::Step(step) => self.step(&step)?,
                Event::Finished(finished) => {
                    let end = match finished.reason {
                        FinishReason::Stop => End::Stop,
                        FinishReason::Length => End::Length,
                    };
                    return self.finish(finished.stats, end);
                }
                Event::Refused { message } | Event::Failed { message } => {
                    return Err(exit::failure(exit::ENGINE, message));
                }
            }
            if interrupted.load(Ordering::Relaxed) {
                return self.finish(stats, End::Interrupted);
            }
        }
        Err(exit::failure(exit::ENGINE, "the engine stopped before the answer was complete"))
    }

    fn write(&mut self, piece: &str) -> Result<()> {
        self.text.push_str(piece);
        if self.screen.is_none() {
            let mut out = std::io::stdout().lock();
            write!(out, "{piece}")?;
            out.flush()?;
        }
        Ok(())
    }

    fn step(&mut self, step: &StepTrace) -> Result<()> {
        self.canvas.apply(step);
        self.lanes.apply(step);
        if self.trace {
            writeln!(std::io::stderr().lock(), "{}", self.canvas.step_line(step))?;
        } else if let Some(screen) = &self.screen {
            screen.draw(&self.canvas, &self.lanes);
        }
        Ok(())
    }

    fn finish(mut self, stats: SequenceStats, end: End) -> Result<WholeAnswer> {
        let time = self.begun.elapsed();
        let rest = self.stream.finish();
        self.write(&rest.text)?;
        let mut out = std::io::stdout().lock();
        match self.screen.take() {
            Some(screen) => {
                screen.clear();
                writeln!(out, "{}", self.canvas.finished())?;
            }
            None => writeln!(out)?,
        }
        if self.trace {
            write!(std::io::stderr().lock(), "\n{}", self.lanes.draw(&self.canvas))?;
        }
        Ok(WholeAnswer { text: self.text, cost: Cost { stats, time }, end })
    }
}

impl WholeAnswer {
    /// Tells the user, on standard error, why the answer ended, if neither the model ended it nor a budget that
    /// the user set.
    pub fn tell_end(&self, sampling: &SamplingArgs) {
        match self.end {
            End::Length if sampling.max_tokens.is_none() => {
                let tokens = self.cost.stats.emitted_tokens;
                say!("(cut after {tokens} tokens, the budget without --max-tokens)");
            }
            End::Interrupted => say!("(ended by Ctrl-C)"),
            End::Stop | End::Length => {}
        }
    }
}

impl Cost {
    /// Tokens for each forward pass.
    pub fn tokens_per_forward(&self) -> f64 {
        f64::from(self.stats.emitted_tokens) / f64::from(self.stats.forwards().max(1))
    }

    /// `1 forward` or `7 forwards`.
    pub fn forwards(&self) -> String {
        match self.stats.forwards() {
            1 => "1 forward".to_owned(),
            count => format!("{count} forwards"),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = &self.stats;
        let tokens = f64::from(stats.emitted_tokens.max(1));
        write!(
            f,
            "{} tokens, {} ({} prefill, {} decode, {} refresh), {:.2} tokens per forward, {:.1} \
             positions per token, {} lanes, {} forks, {} drafts",
            stats.emitted_tokens,
            self.forwards(),
            stats.passes.prefill,
            stats.passes.decode,
            stats.passes.refresh,
            self.tokens_per_forward(),
            stats.positions as f64 / tokens,
            stats.lanes,
            stats.forks,
            stats.commits.drafts,
        )?;
        let drafts = &stats.draft_model;
        if drafts.forwards > 0 {
            let (forwards, drafted) = (drafts.forwards, drafts.drafted);
            let verified = drafts.verified;
            write!(
                f,
                "\ndraft model: {forwards} forwards, {drafted} tokens drafted, {verified} verified"
            )?;
        }
        Ok(())
    }
}
