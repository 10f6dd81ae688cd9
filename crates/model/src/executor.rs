//! The CPU executor: owns the model, the KV pool and the threads, and runs one batch at a time.

use crate::inputs::{InputBounds, Inputs};
use crate::network::Pass;
use crate::pool::KvPool;
use crate::profile::{Clock, Profile, Stage};
use crate::{LoadError, Model, ModelInfo, sampler};
use kernels::Team;
use std::num::NonZeroUsize;
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

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

/// Runs forward passes of one model on the CPU.
pub struct ModelExecutor {
    model: Model,
    pool: KvPool,
    team: Team,
    spec: ExecutorSpec,
    bounds: InputBounds,
    inputs: Inputs,
    profile: Option<Profile>,
}

impl ModelExecutor {
    /// Allocates the KV pool and starts the threads.
    ///
    /// # Errors
    /// If a size is zero or too large, or the threads cannot be started.
    pub fn new(model: Model, config: ExecutorConfig) -> Result<Self, LoadError> {
        let (spec, bounds) = sizes(model.info(), config)?;
        let pool = model
            .pool(bounds.page_size, bounds.pages)
            .map_err(|error| LoadError::Setup(error.to_string()))?;
        keep_freed_memory();
        let team =
            Team::new(config.threads).map_err(|error| LoadError::Setup(error.to_string()))?;
        Ok(Self {
            model,
            pool,
            team,
            spec,
            bounds,
            inputs: Inputs::default(),
            profile: None,
        })
    }

    /// The model it runs.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Number of compute threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.team.threads()
    }

    /// The instruction set used for matrix products, for logs and benchmark labels.
    #[must_use]
    pub fn instructions(&self) -> &'static str {
        self.model.info().dtype.instructions()
    }

    /// Measures the peak rate of the threads in the model's dtype, in billions of operations per
    /// second; see [`kernels::peak`].
    #[must_use]
    pub fn peak(&self) -> f64 {
        self.team.install(|| kernels::peak(self.model.info().dtype))
    }

    /// Starts a new profile; every later forward pass adds its times to it.
    pub fn start_profile(&mut self) {
        self.profile = Some(Profile::default());
    }

    /// Ends profiling and returns the profile since [`Self::start_profile`].
    pub fn take_profile(&mut self) -> Option<Profile> {
        self.profile.take()
    }

    /// [`Model::logits`] on this executor's threads; does not use its KV pool.
    ///
    /// # Errors
    /// As [`Model::logits`].
    pub fn logits(&self, tokens: &[u32]) -> Result<Vec<f32>, crate::ForwardError> {
        self.team.install(|| self.model.logits(tokens))
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
        vocab_size: info.vocab_size as u32,
        max_positions: info.max_positions as u32,
        mask: info.mask,
        attention: info.attention,
        readout: info.readout,
    };
    let bounds = InputBounds {
        tokens: info.embedding_size,
        vocab: info.vocab_size,
        positions: info.max_positions,
        mask: info.mask,
        page_size: config.page_size as usize,
        pages: config.pages as usize,
    };
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

impl Executor for ModelExecutor {
    fn spec(&self) -> ExecutorSpec {
        self.spec
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        let Self {
            model,
            pool,
            inputs,
            profile,
            ..
        } = self;
        output.candidates.clear();
        output.tops.clear();
        let mut clock = Clock::start(profile.as_mut());
        inputs.fill(batch, &self.bounds).map_err(ExecuteError)?;
        let pass = || {
            pool.copy(&inputs.copies)?;
            clock.lap(Stage::Inputs);
            if inputs.tokens.is_empty() {
                return Ok(());
            }
            let pass = Pass { inputs, pool };
            let hidden = model.network.hidden(&pass, &mut clock)?;
            sampler::sample(&*model.network, &hidden, inputs, &mut clock, output)?;
            clock.pass();
            Ok(())
        };
        // Entering the team once per pass wakes its helpers before the first parallel region.
        self.team
            .install(pass)
            .map_err(|error: candle_core::Error| ExecuteError(error.to_string()))
    }
}
