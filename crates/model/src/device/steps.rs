//! The time of a step on a device.

use super::{DeviceConfig, DeviceExecutor, DeviceModel, KvMemory};
use crate::LoadError;
use kernels::device::DeviceError;
use std::ops::Range;
use step::{
    Attention, Batch, BatchOutput, Denoise, Executor, ExecutorSpec, PageId, Position, Row,
    Sampling, Score, Segment, Slot,
};

/// Slots per KV page.
const PAGE: u32 = 16;
/// Steps whose time is taken.
const RUNS: usize = 9;
/// Spreads the tokens of rows over the vocabulary.
const SPREAD: u32 = 2_654_435_761;

/// A step that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLoad {
    /// Rows of the step, all scored.
    pub rows: u32,
    /// Rows of every sequence; the last sequence may have fewer.
    pub lane: u32,
    /// Slots that every row sees.
    pub slots: u32,
}

impl StepLoad {
    /// Number of sequences.
    pub fn sequences(&self) -> u32 {
        self.rows.div_ceil(self.lane.max(1))
    }

    /// An executor with room for this step and smaller ones.
    ///
    /// # Errors
    /// If the model's positions are fewer, or the device is out of memory.
    pub fn executor(&self, model: DeviceModel) -> Result<DeviceExecutor, LoadError> {
        let slots = u64::from(self.sequences()) * u64::from(self.slots.next_multiple_of(PAGE));
        let config = DeviceConfig {
            page_size: PAGE,
            rows: self.rows,
            positions: self.slots,
            sequences: self.sequences(),
            kv: KvMemory::Bytes(slots * model.kv_bytes_per_position() as u64),
        };
        DeviceExecutor::new(model, config)
    }

    /// Computes the keys and values of the slots before the step's rows, because steps over zeros take less
    /// time.
    ///
    /// # Errors
    /// If the step does not fit into the executor, or the device fails.
    pub fn prefill(&self, executor: &mut DeviceExecutor) -> Result<(), LoadError> {
        let lane = self.lane.clamp(1, self.slots.max(1));
        for first in (0..self.slots - lane).step_by(lane as usize) {
            let mut batch =
                self.batch_of(executor.spec(), first..(first + lane).min(self.slots - lane));
            batch.rows.iter_mut().for_each(|row| row.score = Score::None);
            let done = executor.execute(&batch, &mut BatchOutput::default());
            done.map_err(|error| LoadError::Setup(error.0))?;
        }
        Ok(())
    }

    /// Runs this step several times on a device: upload, launches, download. Returns the median of the
    /// seconds.
    ///
    /// # Errors
    /// If the step does not fit into the executor, or the device fails or has no clock.
    pub fn time(&self, executor: &mut DeviceExecutor) -> Result<f64, LoadError> {
        let (batch, device) = (self.batch(executor.spec()), executor.device().clone());
        let mut output = BatchOutput::default();
        let mut run = |executor: &mut DeviceExecutor| {
            let done = executor.execute(&batch, &mut output);
            done.map_err(|error| DeviceError(error.0))
        };
        self.prefill(executor)?;
        let failed = |error: DeviceError| LoadError::Setup(error.0);
        // The first pass may allocate memory, the second one is captured.
        run(executor).map_err(failed)?;
        run(executor).map_err(failed)?;
        let mut steps = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            steps.push(device.time(|| run(executor)).map_err(failed)?);
        }
        steps.sort_by(f64::total_cmp);
        Ok(steps[RUNS / 2])
    }

    /// The batch of the step of a model. Rows have different tokens, so that they choose different experts;
    /// those of a canvas model are denoised.
    pub fn batch(&self, spec: ExecutorSpec) -> Batch {
        let denoise = matches!(spec.attention, Attention::Canvas(_));
        let denoise = denoise.then_some(Denoise { conditioned: false });
        let mut batch = self.batch_of(spec, self.slots.saturating_sub(self.lane)..self.slots);
        batch.rows.iter_mut().for_each(|row| row.denoise = denoise);
        batch
    }

    /// A batch of these slots of every sequence, of which the last one may have only the last rows.
    fn batch_of(&self, spec: ExecutorSpec, slots: Range<u32>) -> Batch {
        let (mut batch, count) = (Batch::default(), self.slots.div_ceil(PAGE));
        for number in 0..self.sequences() {
            let (row, table) = (batch.rows.len() as u32, batch.pages.len() as u32);
            let rows = self.lane.min(self.rows - number * self.lane).min(slots.len() as u32);
            let pages = number * count..(number + 1) * count;
            batch.pages.extend(pages.map(PageId));
            batch.rows.extend((slots.end - rows..slots.end).zip(row..).map(|(slot, row)| {
                let number = slot.wrapping_mul(104_729).wrapping_add(row).wrapping_mul(SPREAD);
                let token = (number >> 8) % spec.vocab_size.max(1);
                let position = Position::new(slot);
                Row {
                    score: Score::Candidate,
                    ..Row::new(token, position, Slot::new(slot), Slot::new(slots.end))
                }
            }));
            batch.segments.push(Segment {
                rows: row..row + rows,
                pages: table..table + count,
                sampling: Sampling::GREEDY,
            });
        }
        batch
    }
}
