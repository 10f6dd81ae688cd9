//! The executor on a CUDA device: the contract of [`crate::ModelExecutor`] on other kernels.
//!
//! A step is one upload and one download. [`step::Executor::begin`] launches it and returns, so that
//! the host has other work done while it runs. Rows that draw through a filter or want their most
//! probable tokens are scored by the host, which downloads their logits besides.

mod decoder;
mod graphs;
mod loader;
mod selftest;
mod sizing;

pub(crate) use decoder::{DeviceBlock, DeviceDecoder};
pub(crate) use loader::Loader;
pub use selftest::selftest;
pub(crate) use sizing::padded;
pub use sizing::{DeviceConfig, DeviceMemory, KvMemory};

use crate::arch::load_on;
use crate::inputs::{Inputs, Limits};
use crate::sampler::{candidate, top};
use crate::{Checkpoint, ExecutorConfig, LoadError, ModelInfo};
use candle_core::Tensor;
use decoder::Work;
use graphs::Graphs;
use kernels::device::{
    Array, AttentionScratch, BatchArrays, BatchLimits, Device, DeviceBatch, DeviceError,
    DevicePool, DeviceScores, PoolSizes, Precision, copy_pages,
};
use kernels::{Scored, Scorer, ScorerRow, Scores, WeightDtype, score};
use sizing::{ROWS, Step};
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec, set_words};

/// A dense model on a device.
pub struct DeviceModel {
    device: Device,
    decoder: DeviceDecoder,
    info: ModelInfo,
    warnings: Vec<String>,
    /// Bytes that were free before it was loaded.
    free: u64,
}

impl DeviceModel {
    /// Why there are no kernels on a device for a model, if there are none.
    #[must_use]
    pub fn unfit(info: &ModelInfo) -> Option<String> {
        Self::precision(info).err()
    }

    /// What a model's matrices are kept as, or why it has no kernels.
    pub(crate) fn precision(info: &ModelInfo) -> Result<Precision, String> {
        if info.experts.is_some() {
            return Err(format!("{}: no CUDA kernels for experts", info.family));
        }
        let precision = match info.dtype {
            WeightDtype::F32 => Precision::F32,
            WeightDtype::Bf16 => Precision::Bf16,
            WeightDtype::Int8 => return Err("no CUDA kernels for int8".to_owned()),
        };
        let sizes = PoolSizes {
            precision,
            layers: info.layers,
            groups: info.groups,
            head_width: info.head_width,
            page: 1,
            pages: 1,
        };
        sizes.check().map_err(|error| error.to_string())?;
        Ok(precision)
    }

    /// Copies the weights to the device, tensor by tensor.
    ///
    /// # Errors
    /// As [`crate::Model::load`]; if the model has experts, heads without kernels or matrices of
    /// bytes, or the device has no room.
    pub fn load(device: &Device, mut checkpoint: Checkpoint) -> Result<Self, LoadError> {
        let free = sizing::free(device)?;
        let (decoder, info) = load_on(device, &checkpoint.config, &mut checkpoint.weights)?;
        let (info, warnings) = checkpoint.told(info);
        Ok(Self {
            free,
            device: device.clone(),
            decoder,
            info,
            warnings,
        })
    }

    /// The facts about it.
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// What was odd about the checkpoint and does not matter, one line each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Bytes of keys and values per position, all layers, in the dtype of the matrices.
    #[must_use]
    pub fn kv_bytes_per_position(&self) -> usize {
        self.sizes(1, 1).slot_bytes()
    }

    fn sizes(&self, page: usize, pages: usize) -> PoolSizes {
        PoolSizes {
            precision: self.decoder.precision(),
            layers: self.info.layers,
            groups: self.info.groups,
            head_width: self.info.head_width,
            page,
            pages,
        }
    }
}

/// Arrays of a pass.
struct Room {
    work: Work,
    rows: usize,
}

/// Runs forward passes of one model on a device.
pub struct DeviceExecutor {
    model: DeviceModel,
    pool: DevicePool,
    spec: ExecutorSpec,
    limits: Limits,
    tile: usize,
    inputs: Inputs,
    batch: DeviceBatch,
    scratch: AttentionScratch,
    room: Option<Room>,
    graphs: Graphs,
    /// Normed scored rows, as many as are scored at a time.
    normed: Array,
    scores: DeviceScores,
    records: Vec<Option<Scored>>,
    /// Scored rows whose logits the host wants: their numbers among the scored and among all rows.
    hosted: Vec<(usize, u32)>,
    /// Their logits, as many as exist at a time.
    logits: Array,
    /// Whether a pass was launched whose output was not read.
    begun: bool,
    memory: DeviceMemory,
}

impl DeviceExecutor {
    /// Allocates the arrays of the largest step, then the KV pool.
    ///
    /// # Errors
    /// If a size is zero or too large, the model's heads have no kernels, or the device has no
    /// room.
    pub fn new(mut model: DeviceModel, config: DeviceConfig) -> Result<Self, LoadError> {
        let failed = |error: DeviceError| LoadError::Setup(error.to_string());
        let (graphs, refusal) = Graphs::new(&model.device);
        let warning = |error| format!("kernels are launched one by one: {error}");
        model.warnings.extend(refusal.map(warning));
        let (device, info) = (&model.device, &model.info);
        let loaded = sizing::free(device)?;
        let step = Step::new(info, &config);
        let work = model.decoder.work(info, step.rows).map_err(failed)?;
        let scratch = AttentionScratch::new(device, step.attention(info)).map_err(failed)?;
        let (precision, chunk) = (model.decoder.precision(), step.chunk());
        let normed = Array::padded(device, precision, chunk, info.width).map_err(failed)?;
        let hosted = step.hosted(info);
        let logits = Array::new(device, Precision::F32, hosted, info.vocab_size).map_err(failed)?;
        let mut scores = DeviceScores::default();
        let reserved = scores.reserve(&model.decoder.head, step.rows);
        reserved.map_err(failed)?;
        let batch = step.batch(device, info).map_err(failed)?;
        let reserved = sizing::free(device)?;
        let sizes = ExecutorConfig {
            page_size: config.page_size,
            pages: sizing::pages(&model, &config)?,
            threads: None,
        };
        let (spec, limits) = crate::executor::sizes(info, sizes)?;
        let pool = DevicePool::new(device, model.sizes(limits.page_size, limits.pages));
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
            limits,
            tile,
            inputs: Inputs::default(),
            batch,
            scratch,
            room: Some(Room {
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

    /// What it took of the device's memory.
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

    /// Passes whose launches were captured.
    #[must_use]
    pub fn graphs(&self) -> usize {
        self.graphs.len()
    }

    /// Uploads a batch and launches everything of its pass.
    fn launch(&mut self, batch: &Batch) -> Result<(), String> {
        self.inputs.fill(batch, &self.limits)?;
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
            tokens: self.limits.tokens,
            positions: self.limits.positions,
            vocab: self.limits.vocab,
            pages: self.limits.pages,
            page: self.limits.page_size,
            tile: self.tile,
            pad: ROWS,
        };
        let hosted: Vec<u32> = self.hosted.iter().map(|(_, row)| *row).collect();
        let arrays = arrays(&self.inputs, &hosted, limits.vocab);
        self.batch.upload(device, &arrays, &limits)?;
        let rows = self.batch.rows();
        let decoder = &self.model.decoder;
        if self.room.as_ref().is_none_or(|room| room.rows < rows) {
            self.room = None;
            let rows = rows.next_power_of_two().max(ROWS);
            let work = decoder.work(&self.model.info, rows)?;
            self.room = Some(Room { work, rows });
        }
        let Some(Room { work, .. }) = &self.room else {
            return Ok(());
        };
        self.scores.reserve(&decoder.head, self.batch.scored())?;
        copy_pages(&self.pool, &self.batch)?;
        let (batch, scratch, scores) = (&self.batch, &mut self.scratch, &self.scores);
        let (pool, normed, mask) = (&self.pool, &self.normed, self.inputs.mask);
        self.graphs.run(device, batch.shape(), || {
            decoder.hidden(work, batch, (pool, scratch))?;
            decoder.score(work, batch, (normed, scores), mask)
        })
    }

    /// Waits for the pass that was launched and reads what it made.
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

    /// What the host makes of the rows that need it, with their numbers among the scored.
    fn on_host(&mut self) -> Result<Vec<(usize, Scores)>, String> {
        let text = |error: DeviceError| error.to_string();
        let (vocab, logits, mut all) = (self.limits.vocab, &self.logits, Vec::new());
        let Some(Room { work, .. }) = &self.room else {
            return Ok(all);
        };
        for from in (0..self.hosted.len()).step_by(logits.rows()) {
            let range = from..(from + logits.rows()).min(self.hosted.len());
            let decoder = &self.model.decoder;
            decoder
                .logits(work, &self.batch, range.clone(), (&self.normed, logits))
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

/// Whether a row needs more than the device's record.
fn is_hosted(inputs: &Inputs, row: &ScorerRow) -> bool {
    let draw = &inputs.draws[row.draw as usize];
    let filtered = draw.top_p < 1.0 || draw.min_p > 0.0 || draw.top_k > 0;
    row.tops > 0 || (draw.temperature > 0.0 && filtered)
}

/// What the host makes of a scored row's logits.
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

/// Candidates and tops in row order.
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
