//! The executor on the host: owns the model, its KV pages and the threads, and runs one batch at a
//! time.

use crate::arch::Work;
use crate::inputs::{self, InputBounds, Inputs, PassRows};
use crate::{LoadError, Model, ModelInfo};
use kernels::{Cpu, Host, Pass, Scores, Team};
use std::num::NonZeroUsize;
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec, PageCopy};

/// Sizes of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorConfig {
    /// Slots per KV page, at least 1.
    pub page_size: u32,
    /// Number of KV pages, at least 1; all are allocated at once.
    pub pages: u32,
    /// Number of compute threads, including the one that calls [`Executor::execute`]; `None`: one
    /// per processor.
    pub threads: Option<NonZeroUsize>,
}

/// Runs forward passes of one model on a backend of the host.
pub struct ModelExecutor<B: Host = Cpu> {
    model: Model<B>,
    kv: B::Kv,
    /// A pass over all rows, or one over the rows of the target and one over those of its drafter.
    passes: [HostPass<B>; 2],
    /// The threads of this crate's kernels; other backends have their own.
    team: Option<Team>,
    spec: ExecutorSpec,
    bounds: InputBounds,
    /// The mean embeddings of a canvas model's rows, by slot.
    soft: Vec<f32>,
}

/// Called between layers; an error ends the pass.
type GoesOn<'a> = dyn Fn() -> candle_core::Result<()> + 'a;

/// The rows of a pass.
struct HostPass<B: Host> {
    inputs: Inputs,
    batch: B::Batch,
}

impl<B: Host> Default for HostPass<B> {
    fn default() -> Self {
        Self { inputs: Inputs::default(), batch: B::Batch::default() }
    }
}

impl<B: Host> ModelExecutor<B> {
    /// Allocates the KV pool and starts the threads.
    ///
    /// # Errors
    /// If a size is zero or too large, or the threads cannot be started.
    pub fn new(model: Model<B>, config: ExecutorConfig) -> Result<Self, LoadError> {
        let (spec, bounds) = sizes(model.info(), config)?;
        let kv = model
            .kv(bounds.page_size, bounds.pages)
            .map_err(|error| LoadError::Setup(error.to_string()))?;
        keep_freed_memory();
        let team = B::TEAM.then(|| Team::new(config.threads)).transpose();
        let team = team.map_err(|error| LoadError::Setup(error.to_string()))?;
        Ok(Self {
            model,
            kv,
            passes: [HostPass::default(), HostPass::default()],
            team,
            spec,
            bounds,
            soft: Vec::new(),
        })
    }

    /// The model it runs.
    pub fn model(&self) -> &Model<B> {
        &self.model
    }

    /// Number of compute threads.
    pub fn threads(&self) -> usize {
        match &self.team {
            Some(team) => team.threads(),
            None => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        }
    }

    /// The instruction set used for matrix products, for logs and benchmark labels.
    pub fn instructions(&self) -> &'static str {
        B::instructions(self.model.info().formats.matrices)
    }

    /// [`Model::logits`] on this executor's threads; does not use its KV pool.
    ///
    /// # Errors
    /// As [`Model::logits`].
    pub fn logits(&self, tokens: &[u32]) -> Result<Vec<f32>, crate::ForwardError> {
        self.within(|| self.model.logits(tokens))
    }

    /// Runs `f` on the threads of the backend. Entering the team once per pass wakes its helpers
    /// before the first parallel region.
    fn within<R>(&self, f: impl FnOnce() -> R) -> R {
        match &self.team {
            Some(team) => team.install(f),
            None => f(),
        }
    }
}

/// The spec of an executor for a model of these sizes, and the bounds that it checks.
///
/// # Errors
/// If a size is zero or too large.
pub(crate) fn sizes(
    info: &ModelInfo,
    config: ExecutorConfig,
) -> Result<(ExecutorSpec, InputBounds), LoadError> {
    let slots = u64::from(config.page_size) * u64::from(config.pages);
    if slots == 0 || slots > u64::from(u32::MAX) {
        return Err(LoadError::Setup(format!(
            "expected 1 to {} KV slots, found {} pages of {}",
            u32::MAX,
            config.pages,
            config.page_size
        )));
    }
    let spec = ExecutorSpec {
        page_size: config.page_size,
        pages: config.pages,
        vocab_size: info.vocabulary.size as u32,
        max_positions: info.max_positions as u32,
        mask: info.vocabulary.mask.or(info.rows.drafter.map(|drafter| drafter.mask)),
        attention: info.rows.attention,
        logit_shift: info.rows.logit_shift,
    };
    let bounds = InputBounds::of(info, config.page_size as usize, config.pages as usize);
    Ok((spec, bounds))
}

/// Makes the system allocator keep the memory that a pass frees for the next pass. glibc returns
/// large blocks to the system immediately, so that every pass would get newly zeroed pages. Freeing
/// a block of this size raises glibc's threshold (`mallopt(3)`, `M_MMAP_THRESHOLD`). The block is
/// never written, and other allocators are not affected.
fn keep_freed_memory() {
    const BLOCK: usize = 31 << 20;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(BLOCK)));
}

impl<B: Host> Executor for ModelExecutor<B> {
    fn spec(&self) -> ExecutorSpec {
        self.spec
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        self.execute_while(batch, output, &|| true)
    }

    fn execute_while(
        &mut self,
        batch: &Batch,
        output: &mut BatchOutput,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), ExecuteError> {
        output.candidates.clear();
        output.tops.clear();
        let goes_on = || match goes_on() {
            true => Ok(()),
            false => Err(candle_core::Error::Msg("given up".to_owned())),
        };
        self.run(batch, output, &goes_on).map_err(ExecuteError)
    }
}

impl<B: Host> ModelExecutor<B> {
    /// Runs the passes over a batch.
    fn run(
        &mut self,
        batch: &Batch,
        output: &mut BatchOutput,
        goes_on: &GoesOn<'_>,
    ) -> Result<(), String> {
        let passes = PassRows::of(self.model.info().rows.drafter.is_some());
        for (pass, rows) in self.passes.iter_mut().zip(passes) {
            pass.inputs.fill(batch, *rows, &self.bounds)?;
        }
        match passes {
            [_] => self.pass(0, batch, output, goes_on),
            _ => {
                let mut outputs = [BatchOutput::default(), BatchOutput::default()];
                // The target's rows write what rows of the drafter read.
                for (number, output) in outputs.iter_mut().enumerate() {
                    self.pass(number, batch, output, goes_on)?;
                }
                inputs::merge(batch, outputs, output);
                Ok(())
            }
        }
    }

    /// Runs the pass with this number.
    fn pass(
        &mut self,
        number: usize,
        batch: &Batch,
        output: &mut BatchOutput,
        goes_on: &GoesOn<'_>,
    ) -> Result<(), String> {
        let mut pass = std::mem::take(&mut self.passes[number]);
        self.copy_soft(&batch.copies);
        let soft = self.soft_rows(&pass.inputs);
        let done = self.within(|| self.forward(batch, &mut pass, &soft, goes_on));
        if let Ok(scores) = &done {
            self.keep_soft(&pass.inputs, &scores.soft);
        }
        self.passes[number] = pass;
        let scores = done.map_err(|error| error.to_string())?;
        output.candidates = scores.candidates;
        output.tops = scores.tops;
        Ok(())
    }

    /// Makes the batch's page copies among the mean embeddings.
    fn copy_soft(&mut self, copies: &[PageCopy]) {
        let page = self.bounds.page_size * self.model.info().width;
        for copy in copies {
            let (source, destination) =
                (copy.source.index() * page, copy.destination.index() * page);
            if source.max(destination) + page <= self.soft.len() {
                self.soft.copy_within(source..source + page, destination);
            }
        }
    }

    /// The mean embeddings of all rows, empty if none has one.
    fn soft_rows(&self, inputs: &Inputs) -> Vec<f32> {
        let width = self.model.info().width;
        let conditioned = inputs.canvas.as_ref().map(|canvas| &canvas.conditioned);
        let conditioned = conditioned.filter(|rows| !rows.is_empty());
        let Some(conditioned) = conditioned.filter(|_| !self.soft.is_empty()) else {
            return Vec::new();
        };
        let mut soft = vec![0.0; inputs.tokens.len() * width];
        for row in conditioned {
            let (row, slot) = (*row as usize, inputs.slots[*row as usize] as usize);
            let source = &self.soft[slot * width..][..width];
            soft[row * width..][..width].copy_from_slice(source);
        }
        soft
    }

    /// Keeps the mean embeddings of the scored rows.
    fn keep_soft(&mut self, inputs: &Inputs, new: &[f32]) {
        let width = self.model.info().width;
        if new.is_empty() {
            return;
        }
        let slots = self.bounds.page_size * self.bounds.pages;
        self.soft.resize(slots * width, 0.0);
        for (row, new) in inputs.scored.iter().zip(new.chunks_exact(width)) {
            let slot = inputs.slots[*row as usize] as usize;
            self.soft[slot * width..][..width].copy_from_slice(new);
        }
    }

    fn forward(
        &self,
        batch: &Batch,
        HostPass { inputs, batch: uploaded }: &mut HostPass<B>,
        soft: &[f32],
        goes_on: &GoesOn<'_>,
    ) -> candle_core::Result<Scores> {
        let Model { backend, decoder, .. } = &self.model;
        let drafter = decoder.drafter().filter(|_| inputs.pass_rows() == PassRows::Open);
        let (network, info) = drafter.unwrap_or((decoder, self.model.info()));
        let mut arrays = inputs.arrays(batch);
        if let Some(canvas) = &mut arrays.canvas {
            canvas.soft = soft;
        }
        backend.upload(&arrays, &self.bounds.limits(1, 1), uploaded)?;
        let pass = Pass {
            arrays: &arrays,
            batch: uploaded,
            kv: &self.kv,
            mask: inputs.mask,
            adapted: &inputs.adapted,
        };
        backend.copy_pages(&pass)?;
        let rows = backend.rows(&pass);
        if rows == 0 {
            return Ok(Scores::default());
        }
        let mut work = Work::new(backend, info, rows)?;
        let mut scores = Scores::default();
        network.hidden(backend, &pass, &mut work, goes_on)?;
        network.score(backend, &pass, &mut work, &mut scores)?;
        Ok(scores)
    }
}
