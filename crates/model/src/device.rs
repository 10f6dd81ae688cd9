//! The executor on a CUDA device, with the same contract as [`crate::ModelExecutor`].
//!
//! A step is one upload and one download. [`step::Executor::begin`] launches the step and returns,
//! so that the host can work while the device computes. The host scores the rows that sample with a
//! filter or need their most probable tokens; it downloads the logits of these rows in addition.

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
use crate::inputs::{InputBounds, Inputs};
use crate::sampler::{self, candidate};
use crate::{ExecutorConfig, LoadError};
use candle_core::Tensor;
use graphs::Graphs;
use kernels::device::{
    Array, AttentionScratch, Device, DeviceBatch, DeviceError, DeviceScores, RowSet,
};
use kernels::{
    Accelerator, ArrayKind, Backend, Clock, DeviceKv, Pass, Scored, Scorer, ScorerRow, Scores,
    score,
};
use largest::{LargestStep, ROWS};
use std::ops::Range;
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

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
    inputs: Inputs,
    batch: DeviceBatch,
    workspace: Option<Workspace>,
    graphs: Graphs,
    scores: DeviceScores,
    records: Vec<Option<Scored>>,
    /// Rows that the host scores: their index among the scored rows and among all rows.
    hosted: Vec<(usize, u32)>,
    /// Logits of the rows that the host scores, one chunk at a time.
    logits: Array,
    /// Whether a pass was launched and its output was not read.
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
        let (graphs, refusal) = Graphs::new(model.backend.device());
        let warning =
            |error| format!("CUDA graphs unavailable, kernels launch one by one: {error}");
        model.warnings.extend(refusal.map(warning));
        let (on, info) = (&model.backend, &model.info);
        let device = on.device();
        let loaded = memory::free(device)?;
        let step = LargestStep::new(info, &config);
        let work = Work::new(on, info, step.rows).map_err(setup)?;
        let scratch = AttentionScratch::new(device, step.attention(info)).map_err(failed)?;
        let logits = on.array(ArrayKind::Sums, step.hosted(info), info.vocab_size);
        let logits = logits.map_err(setup)?;
        let mut scores = DeviceScores::default();
        let reserved = scores.reserve(model.decoder.head(), step.rows);
        reserved.map_err(failed)?;
        let mut batch = DeviceBatch::default();
        let reserved = batch.reserve(device, &step.batch(info));
        reserved.map_err(failed)?;
        let reserved = memory::free(device)?;
        let sizes = ExecutorConfig {
            page_size: config.page_size,
            pages: memory::pages(&model, &config)?,
            threads: None,
        };
        let (spec, bounds) = crate::executor::sizes(info, sizes)?;
        let kv = model.kv_sizes(bounds.page_size, bounds.pages);
        let [kv] = kv.as_slice() else {
            let family = info.family;
            return Err(LoadError::Setup(format!(
                "{family}: heads of several sizes"
            )));
        };
        let kv = on.kv_with(*kv, scratch).map_err(setup)?;
        let tile = kv.pool().tile(info.heads).map_err(failed)?;
        let memory = DeviceMemory {
            weights: model.free.saturating_sub(loaded),
            step: loaded.saturating_sub(reserved),
            kv: kv.pool().buffer().bytes() as u64,
        };
        Ok(Self {
            model,
            kv,
            spec,
            bounds,
            tile,
            inputs: Inputs::default(),
            batch,
            workspace: Some(Workspace {
                work,
                rows: step.rows,
            }),
            graphs,
            scores,
            records: Vec::new(),
            hosted: Vec::new(),
            logits,
            begun: false,
            memory,
        })
    }

    /// The device memory that it allocated.
    #[must_use]
    pub fn memory(&self) -> DeviceMemory {
        self.memory
    }

    /// The model it runs.
    #[must_use]
    pub fn model(&self) -> &DeviceModel {
        &self.model
    }

    /// The device it runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.model.backend.device()
    }

    /// Number of captured graphs.
    #[must_use]
    pub fn graphs(&self) -> usize {
        self.graphs.len()
    }

    /// Uploads a batch and launches its pass.
    fn launch(&mut self, batch: &Batch) -> Result<(), String> {
        self.inputs.fill(batch, &self.bounds)?;
        let hosted = self.inputs.scored.iter().zip(&self.inputs.scorers);
        let hosted = hosted
            .enumerate()
            .filter(|(_, (_, row))| is_hosted(&self.inputs, row));
        self.hosted.clear();
        self.hosted
            .extend(hosted.map(|(number, (&row, _))| (number, row)));
        self.pass().map_err(|error| error.to_string())
    }

    fn pass(&mut self) -> candle_core::Result<()> {
        let DeviceModel {
            backend: on,
            decoder,
            info,
            ..
        } = &self.model;
        let hosted: Vec<u32> = self.hosted.iter().map(|(_, row)| *row).collect();
        let arrays = self.inputs.arrays(&hosted, self.bounds.vocab);
        let limits = self.bounds.limits(self.tile, ROWS);
        on.upload(&arrays, &limits, &mut self.batch)?;
        let rows = self.batch.rows();
        let fits = |workspace: &Workspace| workspace.rows >= rows;
        if !self.workspace.as_ref().is_some_and(fits) {
            self.workspace = None;
            let rows = rows.next_power_of_two().max(ROWS);
            let work = Work::new(on, info, rows)?;
            self.workspace = Some(Workspace { work, rows });
        }
        let Some(Workspace { work, .. }) = &mut self.workspace else {
            return Ok(());
        };
        self.scores.reserve(decoder.head(), self.batch.scored())?;
        let pass = Pass {
            arrays: &arrays,
            batch: &self.batch,
            kv: &self.kv,
            mask: self.inputs.mask,
            clock: &Clock::start(None),
            canvas: None,
        };
        on.copy_pages(&pass)?;
        let scores = &mut self.scores;
        let ran = self.graphs.run(on.device(), pass.batch.shape(), || {
            let hidden = decoder.hidden(on, &pass, work);
            hidden
                .and_then(|()| decoder.score(on, &pass, work, scores))
                .map_err(|error| DeviceError(error.to_string()))
        });
        Ok(ran?)
    }

    /// Waits for the launched pass and reads its output.
    fn collect(&mut self, output: &mut BatchOutput) -> Result<(), String> {
        let hosted = self.on_host()?;
        self.records.clear();
        let count = self.inputs.scored.len();
        if !self.inputs.tokens.is_empty() {
            // A pass without scored rows is awaited by a read as well, so that a failure is its own.
            let read = self.scores.read(count.max(1), &mut self.records);
            read.map_err(|error| error.to_string())?;
            self.records.truncate(count);
        }
        emit(&self.records, hosted, output)
    }

    /// Scores on the host the rows that need it. Returns their index among the scored rows and
    /// their scores.
    fn on_host(&mut self) -> Result<Vec<(usize, Scores)>, String> {
        let (vocab, chunk) = (self.bounds.vocab, self.logits.rows());
        let mut all = Vec::new();
        for from in (0..self.hosted.len()).step_by(chunk.max(1)) {
            let range = from..(from + chunk).min(self.hosted.len());
            let numbers = self.hosted_logits(range.clone());
            let numbers = numbers.map_err(|error| error.to_string())?;
            for (row, &(number, _)) in numbers.chunks_exact(vocab).zip(&self.hosted[range]) {
                all.push((number, scored(&self.inputs, number, row)?));
            }
        }
        Ok(all)
    }

    /// The logits of a range of the rows that the host scores, row-major.
    fn hosted_logits(&mut self, range: Range<usize>) -> candle_core::Result<Vec<f32>> {
        let (on, decoder) = (&self.model.backend, &self.model.decoder);
        let Some(Workspace { work, .. }) = &mut self.workspace else {
            return Ok(Vec::new());
        };
        let arrays = self.inputs.arrays(&[], self.bounds.vocab);
        let pass = Pass {
            arrays: &arrays,
            batch: &self.batch,
            kv: &self.kv,
            mask: self.inputs.mask,
            clock: &Clock::start(None),
            canvas: None,
        };
        let rows = range.len();
        let normed = decoder.normed(on, &pass, work, &RowSet::Hosted(range))?;
        on.linear(decoder.head(), (normed, rows), &mut self.logits)?;
        on.download(&self.logits, rows)
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
}

/// Whether the host must score a row, because it needs more than the device's record.
fn is_hosted(inputs: &Inputs, row: &ScorerRow) -> bool {
    let draw = &inputs.draws[row.draw as usize];
    let filtered = draw.top_p < 1.0 || draw.min_p > 0.0 || draw.top_k > 0;
    row.tops > 0 || (draw.temperature > 0.0 && filtered)
}

/// Scores a row from its logits on the host.
fn scored(inputs: &Inputs, number: usize, logits: &[f32]) -> Result<Scores, String> {
    let scorer = Scorer {
        rows: std::slice::from_ref(&inputs.scorers[number]),
        biases: &inputs.biases,
        allowed: &inputs.allowed,
        draws: &inputs.draws,
        mask: inputs.mask,
    };
    let row = Tensor::from_slice(logits, (1, logits.len()), &candle_core::Device::Cpu);
    let scores = row.and_then(|row| score(&row, &scorer));
    scores.map_err(|error| error.to_string())
}

/// Appends candidates and tops to `output` in row order.
fn emit(
    records: &[Option<Scored>],
    hosted: Vec<(usize, Scores)>,
    output: &mut BatchOutput,
) -> Result<(), String> {
    let mut hosted = hosted.into_iter().peekable();
    for (number, record) in records.iter().enumerate() {
        if let Some((_, scores)) = hosted.next_if(|(at, _)| *at == number) {
            sampler::emit(scores, output);
            continue;
        }
        let Some(record) = record else {
            return Err(format!("the logits of scored row {number} are not finite"));
        };
        output.candidates.push(candidate(*record));
    }
    Ok(())
}

fn failed(error: DeviceError) -> LoadError {
    LoadError::Setup(error.0)
}
