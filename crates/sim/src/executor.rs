//! The simulated forward pass: copy, write, attend, propose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use step::{
    Attention, Batch, BatchOutput, Candidate, ExecuteError, Executor, ExecutorSpec, PageCopy,
    Position, Row, Sampling, Score, Segment, Span, TokenId, TopToken, as_count, as_index,
    noise_token, set_words,
};

use crate::allowed::Allowed;
use crate::check::{check_shape, error};
use crate::context::Context;
use crate::hash::mix;
use crate::kv::{KvStore, seen};
use crate::law::{Proposed, Seen, TAIL, predicted, propose, shift_of};
use crate::text::HiddenText;
use crate::{Fidelity, SimConfig, SimConfigError};

/// Gaps of a confident row and of any other row under [`Fidelity::Free`].
const FREE_GAPS: (f64, f64) = (6.0, 0.5);

/// Called before every pass with its number, from 0, and its batch. An error makes the pass fail;
/// the K/V of its rows are then lost, as after a real failed pass.
pub type StepHook = Box<dyn FnMut(u64, &Batch) -> Result<(), ExecuteError> + Send>;

/// Counts of the executed work; other threads may read them while the executor runs.
#[derive(Debug, Default)]
pub struct SimCounters {
    steps: AtomicU64,
    failed: AtomicU64,
    rows: AtomicU64,
    scored: AtomicU64,
    copies: AtomicU64,
}

impl SimCounters {
    /// Number of forward passes, failed ones included.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Number of failed forward passes.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Number of rows of all passes.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Number of scored rows of all passes.
    pub fn scored(&self) -> u64 {
        self.scored.load(Ordering::Relaxed)
    }

    /// Number of page copies of all passes.
    pub fn copies(&self) -> u64 {
        self.copies.load(Ordering::Relaxed)
    }
}

/// The output for one row.
struct Scored {
    candidate: Candidate,
    tops: Vec<TopToken>,
}

/// A deterministic executor without a model.
pub struct SimExecutor {
    config: SimConfig,
    text: HiddenText,
    kv: KvStore,
    context: Context,
    counters: Arc<SimCounters>,
    hook: Option<StepHook>,
}

impl std::fmt::Debug for SimExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimExecutor").field("config", &self.config).finish_non_exhaustive()
    }
}

impl SimExecutor {
    /// A simulated model with an empty KV store.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: SimConfig) -> Result<Self, SimConfigError> {
        config.validate()?;
        let pages = if config.fidelity == Fidelity::Free { 0 } else { config.pages };
        Ok(Self {
            text: HiddenText::new(&config),
            kv: KvStore::new(pages, config.page_size, config.mask),
            context: Context::default(),
            counters: Arc::default(),
            hook: None,
            config,
        })
    }

    /// Calls `hook` before every pass.
    #[must_use]
    pub fn with_hook(
        mut self,
        hook: impl FnMut(u64, &Batch) -> Result<(), ExecuteError> + Send + 'static,
    ) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// Makes the passes with these numbers fail, counted from 0.
    #[must_use]
    pub fn fail_on(self, steps: impl IntoIterator<Item = u64>) -> Self {
        let steps: Vec<u64> = steps.into_iter().collect();
        self.with_hook(move |step, _| match steps.contains(&step) {
            true => error(format!("pass {step} was told to fail")),
            false => Ok(()),
        })
    }

    /// A handle to the counters; it stays valid when the executor moves into an engine.
    pub fn counters(&self) -> Arc<SimCounters> {
        Arc::clone(&self.counters)
    }

    /// The tokens that every schedule generates after `prompt` at temperature 0 without biases and
    /// allowed sets: at most `budget`, the stop token included if it is reached. Not valid under
    /// [`Fidelity::Free`].
    pub fn hidden_text(&self, prompt: &[TokenId], budget: u32) -> Vec<TokenId> {
        let mut origin = self.text.origin();
        let given = as_count(prompt.len());
        for (position, &token) in Span::first(given).iter().zip(prompt) {
            if token != self.config.mask {
                origin = self.text.read(origin, position, token);
            }
        }
        let mut tokens = Vec::new();
        for position in Span::at(Position::new(given), budget) {
            tokens.push(self.text.token(origin, position));
            if tokens.last() == Some(&self.config.stop_token) {
                break;
            }
        }
        tokens
    }

    fn simulate(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        let pass = self.counters.steps();
        let strict = self.config.fidelity == Fidelity::Strict;
        for &copy in &batch.copies {
            if strict && !writes(batch, copy, self.config.page_size) {
                return error(format!("{copy:?}: no row of the batch writes the destination"));
            }
            self.kv.copy(copy);
        }
        for segment in &batch.segments {
            let (rows, table) = (batch.rows_of(segment), batch.table_of(segment));
            self.kv.write(rows, table, pass, strict)?;
        }
        for segment in &batch.segments {
            let (rows, table) = (batch.rows_of(segment), batch.table_of(segment));
            self.kv.deepen(rows, table);
        }
        for segment in &batch.segments {
            if strict {
                self.kv.check_reads(batch, segment)?;
            }
            self.score(batch, segment, output)?;
        }
        Ok(())
    }

    fn score(
        &mut self,
        batch: &Batch,
        segment: &Segment,
        output: &mut BatchOutput,
    ) -> Result<(), ExecuteError> {
        let (rows, table) = (batch.rows_of(segment), batch.table_of(segment));
        if rows.iter().all(|row| row.score == Score::None) {
            return Ok(());
        }
        let contents = self.kv.contents(rows, table);
        let mut filled = None;
        for row in rows.iter().filter(|row| row.score.is_wanted()) {
            let visible = (row.visible_end, row.beyond);
            if filled != Some(visible) {
                let known = self.kv.known(table, row);
                self.context.fill(&self.text, known);
                filled = Some(visible);
            }
            let own = mix(u64::from(row.position.get()), u64::from(row.token));
            let content = mix(own, seen(&contents, row));
            let (law, context) = (&self.config.law, &self.context);
            let logit_shift = shift_of(row, &self.config);
            let seen = Seen { row, logit_shift, content };
            let proposed = propose(law, &self.text, context, seen);
            push(output, self.reduce(proposed, batch, segment, row)?);
        }
        Ok(())
    }

    /// The batch with masks in the place of noise: the model reads noise as others read masks. None for
    /// other models.
    fn without_noise(&self, batch: &Batch) -> Option<Batch> {
        let Attention::Canvas(_) = self.config.attention else {
            return None;
        };
        let mut read = batch.clone();
        for segment in &batch.segments {
            let Sampling { seed, clock, .. } = segment.sampling;
            let rows = &mut read.rows[as_index(segment.rows.start)..as_index(segment.rows.end)];
            for row in rows.iter_mut().filter(|row| row.denoise.is_some()) {
                if row.token == noise_token(seed, clock, row.position, self.config.vocab_size) {
                    row.token = self.config.mask;
                }
            }
        }
        Some(read)
    }

    /// Scores from positions alone, for [`Fidelity::Free`].
    fn score_free(&self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        let origin = self.text.origin();
        for segment in &batch.segments {
            let mut confident = self.config.free_width;
            let scored = batch.rows_of(segment).iter();
            for row in scored.filter(|row| row.score.is_wanted()) {
                let mut gap = FREE_GAPS.0;
                if row.token == self.config.mask {
                    gap = if confident > 0 { FREE_GAPS.0 } else { FREE_GAPS.1 };
                    confident = confident.saturating_sub(1);
                }
                let token = self.text.token(origin, predicted(row, shift_of(row, &self.config)));
                let logits = vec![(token, gap), (self.config.stop_token, 0.0)];
                let proposed = Proposed { logits, tail: TAIL };
                push(output, self.reduce(proposed, batch, segment, row)?);
            }
        }
        Ok(())
    }

    fn reduce(
        &self,
        proposed: Proposed,
        batch: &Batch,
        segment: &Segment,
        row: &Row,
    ) -> Result<Scored, ExecuteError> {
        let (vocab_size, mask) = (self.config.vocab_size, self.config.mask);
        let mut distribution = proposed.over(vocab_size, mask);
        for &bias in batch.biases_of(row) {
            distribution.bias(bias);
        }
        if let Some(set) = row.allowed {
            let words = set_words(vocab_size);
            distribution.restrict(&batch.allowed[as_index(set) * words..][..words]);
        }
        let candidate =
            distribution.candidate(&segment.sampling, row.position, row.token).ok_or_else(
                || ExecuteError(format!("{row:?}: biases and allowed set ban every token")),
            )?;
        let among = row.score.among().map(|set| {
            let words = set_words(vocab_size);
            Allowed::set(vocab_size, &batch.allowed[as_index(set) * words..][..words])
        });
        let tops = match among {
            Some(set) => distribution.among(&set, row.score.tops(), mask),
            None => distribution.tops(row.score.tops(), mask),
        };
        Ok(Scored { candidate, tops })
    }
}

impl Executor for SimExecutor {
    fn spec(&self) -> ExecutorSpec {
        self.config.spec()
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        output.candidates.clear();
        output.tops.clear();
        let step = self.counters.steps.fetch_add(1, Ordering::Relaxed);
        self.counters.rows.fetch_add(number(batch.rows.len()), Ordering::Relaxed);
        self.counters.scored.fetch_add(number(batch.scored()), Ordering::Relaxed);
        self.counters.copies.fetch_add(number(batch.copies.len()), Ordering::Relaxed);
        let free = self.config.fidelity == Fidelity::Free;
        let mut result = check_shape(batch, &self.config.spec());
        let sound = result.is_ok();
        let read = self.without_noise(batch);
        let batch = read.as_ref().unwrap_or(batch);
        if let (Ok(()), Some(hook)) = (&result, &mut self.hook) {
            result = hook(step, batch);
        }
        let result = result.and_then(|()| match free {
            true => self.score_free(batch, output),
            false => self.simulate(batch, output),
        });
        if result.is_err() {
            self.counters.failed.fetch_add(1, Ordering::Relaxed);
            output.candidates.clear();
            output.tops.clear();
            if sound && !free {
                self.kv.poison(batch);
            }
        }
        result
    }
}

/// Appends the candidate and the most probable tokens of a row.
fn push(output: &mut BatchOutput, scored: Scored) {
    output.candidates.push(scored.candidate);
    output.tops.extend(scored.tops);
}

fn writes(batch: &Batch, copy: PageCopy, page_size: u32) -> bool {
    batch.segments.iter().any(|segment| {
        let table = batch.table_of(segment);
        let mut rows = batch.rows_of(segment).iter();
        rows.any(|row| table[as_index(row.slot.block(page_size))] == copy.destination)
    })
}

/// A length as an increment of a counter.
fn number(len: usize) -> u64 {
    u64::from(as_count(len))
}
