//! The executor on a CUDA device, with the same contract as [`crate::ModelExecutor`].
//!
//! A step is one upload and one download. [`step::Executor::begin`] launches the step and returns,
//! so that the host can work while the device computes.

mod graphs;
mod largest;
mod memory;
mod model;
mod precision;
mod steps;

pub use memory::{DeviceConfig, DeviceMemory, KvMemory};
pub use model::DeviceModel;
pub use steps::StepLoad;

use crate::arch::Work;
use crate::inputs::{InputBounds, Inputs, PassRows};
use crate::{ExecutorConfig, LoadError};
use graphs::Graphs;
use kernels::device::{AttentionScratch, Device, DeviceBatch, DeviceError, DeviceScores};
use kernels::{Accelerator, Backend, DeviceKv, LayerScratch, Pass};
use largest::{LargestStep, ROWS};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use step::{Batch, BatchOutput, Candidate, ExecuteError, Executor, ExecutorSpec};

/// The arrays of a pass and their number of rows.
struct Workspace {
    work: Work<Accelerator>,
    rows: usize,
}

/// Runs forward passes of one model on a device.
pub struct DeviceExecutor {
    model: DeviceModel,
    kv: DeviceKv,
    spec: ExecutorSpec,
    bounds: InputBounds,
    tile: usize,
    step: StepArrays,
    workspace: Option<Workspace>,
    graphs: Graphs,
    /// True if a pass was launched and its output was not read.
    begun: bool,
    memory: DeviceMemory,
}

/// The arrays of a step, reused between steps.
#[derive(Default)]
struct StepArrays {
    inputs: Inputs,
    batch: DeviceBatch,
    scores: DeviceScores,
    candidates: Vec<Option<Candidate>>,
}

impl DeviceExecutor {
    /// Allocates the arrays of the largest step, then the KV pool.
    ///
    /// # Errors
    /// If a size is zero or too large, the model's head width has no kernels, or the device is out
    /// of memory.
    pub fn new(mut model: DeviceModel, config: DeviceConfig) -> Result<Self, LoadError> {
        let setup = |error: candle_core::Error| LoadError::Setup(error.to_string());
        let (mut graphs, refusal) = Graphs::new(model.backend.device());
        let warning =
            |error| format!("CUDA graphs unavailable, kernels launch one by one: {error}");
        model.warnings.extend(refusal.map(warning));
        let (backend, info) = (&model.backend, &model.info);
        let device = backend.device();
        let loaded = model::free(device)?;
        let step = LargestStep::new(info, &config);
        let work = Work::new(backend, info, step.rows).map_err(setup)?;
        let mut scratch = LayerScratch {
            attention: AttentionScratch::new(device, &step.attention(info)).map_err(failed)?,
            ..LayerScratch::default()
        };
        for experts in model.decoder.grouped() {
            let reserved = scratch.experts.reserve(device, &experts.sizes(), step.rows);
            reserved.map_err(failed)?;
        }
        let mut scores = DeviceScores::default();
        let reserved = scores.reserve(model.decoder.head(), step.rows);
        reserved.map_err(failed)?;
        if let Some(table) = model.decoder.soft() {
            scores.reserve_soft(table, step.rows).map_err(failed)?;
        }
        let mut batch = DeviceBatch::default();
        let reserved = batch.reserve(device, &step.batch(info));
        reserved.map_err(failed)?;
        let reserved = model::free(device)?;
        let sizes = ExecutorConfig {
            page_size: config.page_size,
            pages: memory::pages(&model, &config)?,
            threads: None,
        };
        let (spec, bounds) = crate::executor::sizes(info, sizes)?;
        let kv = model.kv_sizes(bounds.page_size, bounds.pages);
        let mut kv = backend.kv_with(&kv, scratch).map_err(setup)?;
        if info.canvas.is_some() {
            kv = kv.with_means(info.width).map_err(setup)?;
        }
        let tile = kv.tile(info.heads.num_heads).map_err(setup)?;
        graphs.reserve(model::free(device)?);
        let memory = DeviceMemory {
            weights: model.free.saturating_sub(loaded),
            step: loaded.saturating_sub(reserved),
            kv: kv.bytes() as u64,
        };
        Ok(Self {
            model,
            kv,
            spec,
            bounds,
            tile,
            step: StepArrays { batch, scores, ..StepArrays::default() },
            workspace: Some(Workspace { work, rows: step.rows }),
            graphs,
            begun: false,
            memory,
        })
    }

    /// The device memory that it allocated.
    pub fn memory(&self) -> DeviceMemory {
        self.memory
    }

    /// The model it runs.
    pub fn model(&self) -> &DeviceModel {
        &self.model
    }

    /// The device it runs on.
    pub fn device(&self) -> &Device {
        self.model.backend.device()
    }

    /// Number of captured graphs.
    pub fn graphs(&self) -> usize {
        self.graphs.len()
    }

    /// Bytes of device memory that the captured graphs take, as far as the driver tells; they change with
    /// every graph.
    pub fn graph_bytes(&self) -> Arc<AtomicU64> {
        self.graphs.bytes()
    }

    /// Uploads a batch and launches its pass.
    fn launch(&mut self, batch: &Batch) -> Result<(), String> {
        self.step.inputs.fill(batch, PassRows::All, &self.bounds)?;
        self.pass(batch).map_err(|error| error.to_string())
    }

    fn pass(&mut self, batch: &Batch) -> candle_core::Result<()> {
        let DeviceModel { backend, decoder, info, .. } = &self.model;
        let arrays = self.step.inputs.arrays(batch);
        let limits = self.bounds.limits(self.tile, ROWS);
        backend.upload(&arrays, &limits, &mut self.step.batch)?;
        let rows = self.step.batch.rows();
        let fits = |workspace: &Workspace| workspace.rows >= rows;
        if !self.workspace.as_ref().is_some_and(fits) {
            self.workspace = None;
            let rows = rows.next_power_of_two().max(ROWS);
            let work = Work::new(backend, info, rows)?;
            self.workspace = Some(Workspace { work, rows });
        }
        let Some(Workspace { work, .. }) = &mut self.workspace else {
            return Ok(());
        };
        self.step.scores.reserve(decoder.head(), self.step.batch.scored())?;
        if let Some(table) = decoder.soft() {
            self.step.scores.reserve_soft(table, self.step.batch.scored())?;
        }
        let pass = Pass {
            arrays: &arrays,
            batch: &self.step.batch,
            kv: &self.kv,
            mask: self.step.inputs.mask,
            adapted: &[],
        };
        backend.copy_pages(&pass)?;
        let scores = &mut self.step.scores;
        let ran = self.graphs.run(backend.device(), pass.batch.shape(), || {
            let hidden = decoder.hidden(backend, &pass, work);
            hidden
                .and_then(|()| decoder.score(backend, &pass, work, scores))
                .map_err(|error| DeviceError(error.to_string()))
        });
        Ok(ran?)
    }

    /// Waits for the launched pass and reads its output.
    fn collect(&mut self, output: &mut BatchOutput) -> Result<(), String> {
        self.step.candidates.clear();
        let scored = &self.step.inputs.scorers;
        if !self.step.inputs.tokens.is_empty() {
            // A pass without scored rows is awaited by a read as well, so that a failure is its own.
            let read = self.step.scores.read(scored.len().max(1), &mut self.step.candidates);
            read.map_err(|error| error.to_string())?;
            self.step.candidates.truncate(scored.len());
            let tops = scored.iter().map(|row| row.tops as usize).sum();
            let read = self.step.scores.read_tops(tops, &mut output.tops);
            read.map_err(|error| error.to_string())?;
        }
        for (number, record) in self.step.candidates.iter().enumerate() {
            match record {
                Some(candidate) => output.candidates.push(*candidate),
                None => return Err(format!("the logits of scored row {number} are not finite")),
            }
        }
        Ok(())
    }
}

impl Executor for DeviceExecutor {
    fn spec(&self) -> ExecutorSpec {
        self.spec
    }

    fn begin(&mut self, batch: &Batch) -> Result<(), ExecuteError> {
        self.begun = false;
        self.launch(batch).map_err(ExecuteError)?;
        self.begun = true;
        Ok(())
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        output.candidates.clear();
        output.tops.clear();
        if !self.begun {
            self.begin(batch)?;
        }
        self.begun = false;
        self.collect(output).map_err(ExecuteError)
    }

    fn lost(&self) -> Option<String> {
        self.device().lost().map(str::to_owned)
    }
}

fn failed(error: DeviceError) -> LoadError {
    LoadError::Setup(error.0)
}
