//! The executor on a CUDA device: the contract of [`crate::ModelExecutor`] on other kernels.
//!
//! A step is one upload and one download. Rows that draw through a filter or want their most
//! probable tokens are scored by the host, which downloads their logits besides.

mod decoder;
mod loader;
mod selftest;
mod sizing;

pub(crate) use decoder::{DeviceBlock, DeviceDecoder};
pub(crate) use loader::Loader;
pub use selftest::{Check, selftest};
pub(crate) use sizing::padded;
pub use sizing::{DeviceConfig, DeviceMemory, KvMemory};

use crate::arch::load_on;
use crate::inputs::{Inputs, Limits};
use crate::sampler::{candidate, top};
use crate::{Checkpoint, ExecutorConfig, LoadError, ModelInfo};
use candle_core::Tensor;
use decoder::Work;
use kernels::device::{
    Array, AttentionScratch, BatchArrays, BatchLimits, Device, DeviceBatch, DeviceError,
    DevicePool, DeviceScores, PoolSizes, Precision, score_rows,
};
use kernels::{Scored, Scorer, ScorerRow, Scores, WeightDtype, score};
use sizing::Step;
use std::ops::Range;
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

/// Fewest rows that work is allocated for.
const FEWEST_ROWS: usize = 64;

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
    /// Normed scored rows and their logits, as many as exist at a time.
    scored: (Array, Array),
    scores: DeviceScores,
    records: Vec<Option<Scored>>,
    memory: DeviceMemory,
}

impl DeviceExecutor {
    /// Allocates the arrays of the largest step, then the KV pool.
    ///
    /// # Errors
    /// If a size is zero or too large, the model's heads have no kernels, or the device has no
    /// room.
    pub fn new(model: DeviceModel, config: DeviceConfig) -> Result<Self, LoadError> {
        let failed = |error: DeviceError| LoadError::Setup(error.to_string());
        let (device, info) = (&model.device, &model.info);
        let loaded = sizing::free(device)?;
        let step = Step::new(info, &config);
        let work = model.decoder.work(info, step.rows).map_err(failed)?;
        let scratch = AttentionScratch::new(device, step.attention(info)).map_err(failed)?;
        let (precision, chunk) = (
            model.decoder.precision(),
            sizing::logit_rows(info.vocab_size),
        );
        let normed = Array::padded(device, precision, chunk, info.width).map_err(failed)?;
        let logits = Array::new(device, Precision::F32, chunk, info.vocab_size).map_err(failed)?;
        let mut scores = DeviceScores::default();
        scores.reserve(device, step.rows).map_err(failed)?;
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
            scored: (normed, logits),
            scores,
            records: Vec::new(),
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

    fn pass(&mut self, output: &mut BatchOutput) -> Result<(), String> {
        let inputs = &self.inputs;
        let arrays = arrays(inputs);
        let limits = BatchLimits {
            tokens: self.limits.tokens,
            positions: self.limits.positions,
            vocab: self.limits.vocab,
            pages: self.limits.pages,
            page: self.limits.page_size,
            tile: self.tile,
        };
        let text = |error: DeviceError| error.to_string();
        self.batch
            .upload(&self.model.device, &arrays, &limits)
            .map_err(text)?;
        let rows = inputs.tokens.len();
        if self.room.as_ref().is_none_or(|room| room.rows < rows) {
            self.room = None;
            let rows = rows.next_power_of_two().max(FEWEST_ROWS);
            let work = self
                .model
                .decoder
                .work(&self.model.info, rows)
                .map_err(text)?;
            self.room = Some(Room { work, rows });
        }
        let Some(Room { work, .. }) = &self.room else {
            return Ok(());
        };
        let kv = (&self.pool, &mut self.scratch);
        self.model
            .decoder
            .hidden(work, &self.batch, kv)
            .map_err(text)?;
        let count = inputs.scored.len();
        if count == 0 {
            return Ok(());
        }
        self.scores
            .reserve(&self.model.device, count)
            .map_err(text)?;
        let mut hosted = Vec::new();
        for from in (0..count).step_by(self.scored.1.rows()) {
            let range = from..(from + self.scored.1.rows()).min(count);
            let (normed, logits) = (&self.scored.0, &self.scored.1);
            let decoder = &self.model.decoder;
            let arrays = (normed, logits);
            decoder
                .logits(work, &self.batch, range.clone(), arrays)
                .map_err(text)?;
            // Before the device applies the biases.
            hosted.extend(on_host(inputs, logits, range.clone())?);
            let mask = inputs.mask;
            score_rows(logits, &self.batch, range, mask, &self.scores).map_err(text)?;
        }
        self.records.clear();
        self.scores.read(count, &mut self.records).map_err(text)?;
        emit(&self.records, hosted, output)
    }
}

impl Executor for DeviceExecutor {
    fn spec(&self) -> ExecutorSpec {
        self.spec
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        output.candidates.clear();
        output.tops.clear();
        self.inputs
            .fill(batch, &self.limits)
            .map_err(ExecuteError)?;
        self.pass(output).map_err(ExecuteError)
    }
}

fn arrays(inputs: &Inputs) -> BatchArrays<'_> {
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

/// What the host makes of the rows of a range that need it, with their numbers among the scored.
fn on_host(
    inputs: &Inputs,
    logits: &Array,
    range: Range<usize>,
) -> Result<Vec<(usize, Scores)>, String> {
    let mut all = Vec::new();
    let vocab = logits.width();
    let mut bytes = vec![0; vocab * size_of::<f32>()];
    for (at, number) in range.enumerate() {
        let row = &inputs.scorers[number];
        if !is_hosted(inputs, row) {
            continue;
        }
        let download = logits.buffer().download(at * bytes.len(), &mut bytes);
        download.map_err(|error| error.to_string())?;
        let numbers = bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b));
        let scorer = Scorer {
            rows: std::slice::from_ref(row),
            biases: &inputs.biases,
            allowed: &inputs.allowed,
            draws: &inputs.draws,
            mask: inputs.mask,
        };
        let row = Tensor::from_iter(numbers, &candle_core::Device::Cpu);
        let scores = row.and_then(|row| score(&row.reshape((1, vocab))?, &scorer));
        all.push((number, scores.map_err(|error| error.to_string())?));
    }
    Ok(all)
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
