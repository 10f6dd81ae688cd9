//! The executor: owns the model, the KV pool and the threads, and runs one batch at a time.

use crate::arch::Pass;
use crate::inputs::{Inputs, Limits};
use crate::pool::KvPool;
use crate::profile::{Clock, Part, Profile};
use crate::{LoadError, Model, ModelInfo, sampler};
use kernels::Team;
use std::num::NonZeroUsize;
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

/// Sizes of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorConfig {
    /// Slots per KV page, at least 1.
    pub page_size: u32,
    /// KV pages, at least 1; all are allocated at once.
    pub pages: u32,
    /// Threads that compute, the one that calls [`Executor::execute`] among them; none = one per
    /// processor.
    pub threads: Option<NonZeroUsize>,
}

/// Runs forward passes of one model on the CPU.
pub struct ModelExecutor {
    model: Model,
    pool: KvPool,
    team: Team,
    spec: ExecutorSpec,
    limits: Limits,
    inputs: Inputs,
    profile: Option<Profile>,
}

impl ModelExecutor {
    /// Allocates the KV pool and starts the threads.
    ///
    /// # Errors
    /// If a size is zero or too large, or the threads cannot be started.
    pub fn new(model: Model, config: ExecutorConfig) -> Result<Self, LoadError> {
        let (spec, limits) = sizes(model.info(), config)?;
        let pool = model
            .pool(limits.page_size, limits.pages)
            .map_err(|error| LoadError::Setup(error.to_string()))?;
        keep_freed_memory();
        let team =
            Team::new(config.threads).map_err(|error| LoadError::Setup(error.to_string()))?;
        Ok(Self {
            model,
            pool,
            team,
            spec,
            limits,
            inputs: Inputs::default(),
            profile: None,
        })
    }

    /// The model it runs.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Threads that compute.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.team.threads()
    }

    /// The instructions that multiply the matrices, for logs and benchmark labels.
    #[must_use]
    pub fn instructions(&self) -> &'static str {
        self.model.info().dtype.instructions()
    }

    /// Billions of operations per second that the threads reach at most in the model's dtype,
    /// measured now; see [`kernels::peak`].
    #[must_use]
    pub fn peak(&self) -> f64 {
        self.team.install(|| kernels::peak(self.model.info().dtype))
    }

    /// Starts a new profile, to which every later forward pass adds its times.
    pub fn start_profile(&mut self) {
        self.profile = Some(Profile::default());
    }

    /// The profile since [`Self::start_profile`], which ends it.
    pub fn take_profile(&mut self) -> Option<Profile> {
        self.profile.take()
    }

    /// [`Model::logits`] on this executor's threads; its KV pool is left alone.
    ///
    /// # Errors
    /// As [`Model::logits`].
    pub fn logits(&self, tokens: &[u32]) -> Result<Vec<f32>, crate::ForwardError> {
        self.team.install(|| self.model.logits(tokens))
    }
}

/// What an executor over a model of these sizes promises and checks.
///
/// # Errors
/// If a size is zero or too large.
pub(crate) fn sizes(
    info: &ModelInfo,
    config: ExecutorConfig,
) -> Result<(ExecutorSpec, Limits), LoadError> {
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
    let limits = Limits {
        tokens: info.embedding_size,
        vocab: info.vocab_size,
        positions: info.max_positions,
        mask: info.mask,
        page_size: config.page_size as usize,
        pages: config.pages as usize,
    };
    Ok((spec, limits))
}

/// Makes the system's allocator keep what a pass frees for the next one. glibc returns large blocks
/// to the system at once, and a pass would get its memory zeroed anew page by page; a freed block
/// of this size raises its limit for that (`mallopt(3)`, `M_MMAP_THRESHOLD`). The block is never
/// touched, and other allocators take no notice.
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
        inputs.fill(batch, &self.limits).map_err(ExecuteError)?;
        let pass = || {
            pool.copy(&inputs.copies)?;
            clock.lap(Part::Inputs);
            if inputs.tokens.is_empty() {
                return Ok(());
            }
            let pass = Pass { inputs, pool };
            let hidden = model.network.hidden(&pass, &mut clock)?;
            sampler::sample(&*model.network, &hidden, inputs, &mut clock, output)?;
            clock.pass();
            Ok(())
        };
        // One entry into the team per pass: its helpers wake up before the first region.
        self.team
            .install(pass)
            .map_err(|error: candle_core::Error| ExecuteError(error.to_string()))
    }
}
