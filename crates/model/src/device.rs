//! The executor on a CUDA device, with the same contract as [`crate::ModelExecutor`].
//!
//! A step is one upload and one download. [`step::Executor::begin`] launches the step and returns,
//! so that the host can work while the device computes.

mod graphs;
mod largest;
mod memory;
mod model;
mod pass;
mod precision;
mod steps;

pub use memory::{DeviceConfig, DeviceMemory, KvMemory};
pub use model::DeviceModel;
pub use steps::StepLoad;

use crate::inputs::{self, InputBounds, PassRows};
use crate::{ExecutorConfig, LoadError};
use graphs::Graphs;
use kernels::device::{AttentionScratch, Device, DeviceError};
use kernels::{DeviceKv, LayerScratch};
use largest::LargestStep;
use pass::{DevicePass, Shared};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

/// Runs forward passes of one model on a device.
pub struct DeviceExecutor {
    model: DeviceModel,
    kv: DeviceKv,
    spec: ExecutorSpec,
    bounds: InputBounds,
    tile: usize,
    /// A pass over all rows, or one over the rows of the target and one over those of its drafter.
    passes: Vec<DevicePass>,
    graphs: Graphs,
    /// True if a pass was launched and its output was not read.
    begun: bool,
    memory: DeviceMemory,
}

impl DeviceExecutor {
    /// Allocates the arrays of the largest step, then the KV pool.
    ///
    /// # Errors
    /// If a size is zero or too large, the model's head width has no kernels, or the device is out
    /// of memory.
    pub fn new(mut model: DeviceModel, config: DeviceConfig) -> Result<Self, LoadError> {
        let setup = |error: candle_core::Error| LoadError::Setup(error.to_string());
        let pass_rows = PassRows::of(model.info.rows.drafter.is_some());
        let (mut graphs, refusal) = Graphs::new(model.backend.device());
        let warning =
            |error| format!("CUDA graphs unavailable, kernels launch one by one: {error}");
        model.warnings.extend(refusal.map(warning));
        let (backend, info) = (&model.backend, &model.info);
        let device = backend.device();
        let loaded = model::free(device)?;
        let step = LargestStep::new(info, &config);
        let passes = pass_rows.iter().map(|rows| {
            let step = if *rows == PassRows::Open { step.drafting(&config) } else { step };
            DevicePass::new(&model, *rows, &step)
        });
        let passes = passes.collect::<Result<Vec<_>, _>>()?;
        let mut scratch = LayerScratch {
            attention: AttentionScratch::new(device, &step.attention(info)).map_err(failed)?,
            ..LayerScratch::default()
        };
        for experts in model.decoder.grouped() {
            let reserved = scratch.experts.reserve(device, &experts.sizes(), step.rows);
            reserved.map_err(failed)?;
        }
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
        Ok(Self { model, kv, spec, bounds, tile, passes, graphs, begun: false, memory })
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

    /// Uploads a batch and launches its passes.
    fn launch(&mut self, batch: &Batch) -> Result<(), String> {
        let Self { model, kv, bounds, tile, passes, graphs, .. } = self;
        let shared = Shared { model, kv, bounds, tile: *tile };
        // The target's rows write what rows of the drafter read.
        passes.iter_mut().try_for_each(|pass| pass.launch(shared, graphs, batch))
    }

    /// Waits for the launched passes and reads their output.
    fn collect(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), String> {
        let [target, drafter] = self.passes.as_mut_slice() else {
            return self.passes.iter_mut().try_for_each(|pass| pass.collect(output));
        };
        let mut outputs = [BatchOutput::default(), BatchOutput::default()];
        for (pass, output) in [target, drafter].into_iter().zip(&mut outputs) {
            pass.collect(output)?;
        }
        inputs::merge(batch, outputs, output);
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
        self.collect(batch, output).map_err(ExecuteError)
    }

    fn lost(&self) -> Option<String> {
        self.device().lost().map(str::to_owned)
    }
}

fn failed(error: DeviceError) -> LoadError {
    LoadError::Setup(error.0)
}
