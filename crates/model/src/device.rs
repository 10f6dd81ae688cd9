//! The executor on a CUDA device, with the same contract as [`crate::ModelExecutor`].
//!
//! A step is one upload and one download. [`step::Executor::begin`] launches the step and returns,
//! so that the host can work while the device computes. The host scores the rows that sample with a
//! filter or need their most probable tokens; it downloads the logits of these rows in addition.

mod graphs;
mod loader;
mod model;
mod precision;
mod selftest;
mod sizing;
mod transformer;

pub(crate) use loader::Loader;
pub use model::DeviceModel;
pub(crate) use precision::{padded, precision};
pub use selftest::selftest;
pub use sizing::{DeviceConfig, DeviceMemory, KvMemory};
pub(crate) use transformer::{DeviceBlock, DeviceTransformer};

use crate::inputs::{InputBounds, Inputs};
use crate::sampler::{candidate, top};
use crate::{ExecutorConfig, LoadError};
use candle_core::Tensor;
use graphs::Graphs;
use kernels::device::{
    Array, AttentionScratch, BatchArrays, BatchLimits, Device, DeviceBatch, DeviceError,
    DevicePool, DeviceScores, Precision, copy_pages,
};
use kernels::{Scored, Scorer, ScorerRow, Scores, score};
use sizing::{ROWS, Step};
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec, set_words};
use transformer::{Activations, Pass};

/// The arrays of a pass and their number of rows.
struct Workspace {
    work: Activations,
    rows: usize,
}

/// Runs forward passes of one model on a device.
pub struct DeviceExecutor {
    model: DeviceModel,
    pool: DevicePool,
    spec: ExecutorSpec,
    bounds: InputBounds,
    tile: usize,
    inputs: Inputs,
    batch: DeviceBatch,
    scratch: AttentionScratch,
    workspace: Option<Workspace>,
    graphs: Graphs,
    /// Scored rows after the final norm, one chunk at a time.
    normed: Array,
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
        let failed = |error: DeviceError| LoadError::Setup(error.to_string());
        let (graphs, refusal) = Graphs::new(&model.device);
        let warning =
            |error| format!("CUDA graphs unavailable, kernels launch one by one: {error}");
        model.warnings.extend(refusal.map(warning));
        let (device, info) = (&model.device, &model.info);
        let loaded = sizing::free(device)?;
        let step = Step::new(info, &config);
        let work = model.transformer.activations(info, step.rows);
        let work = work.map_err(failed)?;
        let scratch = AttentionScratch::new(device, step.attention(info)).map_err(failed)?;
        let (precision, chunk) = (model.transformer.precision(), step.chunk());
        let normed = Array::padded(device, precision, chunk, info.width).map_err(failed)?;
        let hosted = step.hosted(info);
        let logits = Array::new(device, Precision::F32, hosted, info.vocab_size).map_err(failed)?;
        let mut scores = DeviceScores::default();
        let reserved = scores.reserve(&model.transformer.head, step.rows);
        reserved.map_err(failed)?;
        let batch = step.batch(device, info).map_err(failed)?;
        let reserved = sizing::free(device)?;
        let sizes = ExecutorConfig {
            page_size: config.page_size,
            pages: sizing::pages(&model, &config)?,
            threads: None,
        };
        let (spec, bounds) = crate::executor::sizes(info, sizes)?;
        let pool = DevicePool::new(device, model.sizes(bounds.page_size, bounds.pages));
        let pool = pool.map_err(failed)?;
        let tile = pool.tile(info.heads).map_err(failed)?;
        let memory = DeviceMemory {
            weights: model.free.saturating_sub(loaded),
            step: loaded.saturating_sub(reserved),
            kv: pool.buffer().bytes() as u64,
        };
        Ok(Self {
            model,
            pool,
            spec,
            bounds,
            tile,
            inputs: Inputs::default(),
            batch,
            scratch,
            workspace: Some(Workspace {
                work,
                rows: step.rows,
            }),
            graphs,
            normed,
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
        &self.model.device
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

    fn pass(&mut self) -> Result<(), DeviceError> {
        let device = &self.model.device;
        let limits = BatchLimits {
            tokens: self.bounds.tokens,
            positions: self.bounds.positions,
            vocab: self.bounds.vocab,
            pages: self.bounds.pages,
            page: self.bounds.page_size,
            tile: self.tile,
            pad: ROWS,
        };
        let hosted: Vec<u32> = self.hosted.iter().map(|(_, row)| *row).collect();
        let arrays = arrays(&self.inputs, &hosted, limits.vocab);
        self.batch.upload(device, &arrays, &limits)?;
        let rows = self.batch.rows();
        let transformer = &self.model.transformer;
        let fits = |workspace: &Workspace| workspace.rows >= rows;
        if !self.workspace.as_ref().is_some_and(fits) {
            self.workspace = None;
            let rows = rows.next_power_of_two().max(ROWS);
            let work = transformer.activations(&self.model.info, rows)?;
            self.workspace = Some(Workspace { work, rows });
        }
        let Some(Workspace { work, .. }) = &self.workspace else {
            return Ok(());
        };
        self.scores
            .reserve(&transformer.head, self.batch.scored())?;
        copy_pages(&self.pool, &self.batch)?;
        let (batch, scratch, scores) = (&self.batch, &mut self.scratch, &self.scores);
        let (pool, normed, mask) = (&self.pool, &self.normed, self.inputs.mask);
        self.graphs.run(device, batch.shape(), || {
            transformer.hidden(work, batch, (pool, scratch))?;
            transformer.score(Pass { work, batch }, normed, scores, mask)
        })
    }

    /// Waits for the launched pass and reads its output.
    fn collect(&mut self, output: &mut BatchOutput) -> Result<(), String> {
        let hosted = self.on_host()?;
        self.records.clear();
        let count = self.inputs.scored.len();
        if count > 0 {
            let read = self.scores.read(count, &mut self.records);
            read.map_err(|error| error.to_string())?;
        }
        emit(&self.records, hosted, output)
    }

    /// Scores on the host the rows that need it. Returns their index among the scored rows and
    /// their scores.
    fn on_host(&mut self) -> Result<Vec<(usize, Scores)>, String> {
        let text = |error: DeviceError| error.to_string();
        let (vocab, logits, mut all) = (self.bounds.vocab, &self.logits, Vec::new());
        let Some(Workspace { work, .. }) = &self.workspace else {
            return Ok(all);
        };
        for from in (0..self.hosted.len()).step_by(logits.rows()) {
            let range = from..(from + logits.rows()).min(self.hosted.len());
            let transformer = &self.model.transformer;
            let pass = Pass {
                work,
                batch: &self.batch,
            };
            transformer
                .logits(pass, range.clone(), &self.normed, logits)
                .map_err(text)?;
            let numbers = logits.read(range.len()).map_err(text)?;
            for (row, &(number, _)) in numbers.chunks_exact(vocab).zip(&self.hosted[range]) {
                all.push((number, scored(&self.inputs, number, row)?));
            }
        }
        Ok(all)
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

fn arrays<'a>(inputs: &'a Inputs, hosted: &'a [u32], vocab: usize) -> BatchArrays<'a> {
    BatchArrays {
        tokens: &inputs.tokens,
        positions: &inputs.positions,
        slots: &inputs.slots,
        visible: &inputs.visible,
        segments: &inputs.segments,
        pages: &inputs.pages,
        scored: &inputs.scored,
        scorers: &inputs.scorers,
        biases: &inputs.biases,
        allowed: &inputs.allowed,
        set_words: set_words(vocab as u32),
        hosted,
        draws: &inputs.draws,
        copies: &inputs.copies,
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
            output
                .candidates
                .extend(scores.records.into_iter().map(candidate));
            output.tops.extend(scores.tops.into_iter().map(top));
            continue;
        }
        let Some(record) = record else {
            return Err(format!("the logits of scored row {number} are not finite"));
        };
        output.candidates.push(candidate(*record));
    }
    Ok(())
}
