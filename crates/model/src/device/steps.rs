//! The launches of a step, listed without a device.

use super::{DeviceConfig, DeviceExecutor, DeviceModel, KvMemory};
use crate::{Checkpoint, LoadError, WeightDtype};
use kernels::device::{Device, LaunchCost};
use step::{Batch, Executor, PageId, Position, Row, Sampling, Score, Segment, Slot};

/// Slots per KV page.
const PAGE: u32 = 16;

/// A step whose launches are listed.
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
    #[must_use]
    pub fn sequences(&self) -> u32 {
        self.rows.div_ceil(self.lane.max(1))
    }

    /// The launches of this step with matrices in `dtype`, in their order, with what they move and
    /// compute; and the names of launched kernels for which that is not known. The executor runs on a device that computes nothing; no weight is read.
    ///
    /// # Errors
    /// If the model has no device kernels, or the step does not fit into its positions.
    pub fn launches(
        &self,
        checkpoint: &mut Checkpoint,
        dtype: WeightDtype,
    ) -> Result<(Vec<LaunchCost>, Vec<&'static str>), LoadError> {
        let (device, launches) = Device::planning();
        let model = checkpoint.count(dtype, |checkpoint| {
            DeviceModel::load_from(&device, checkpoint)
        })?;
        let slots = u64::from(self.sequences() * self.slots.div_ceil(PAGE) * PAGE);
        let config = DeviceConfig {
            page_size: PAGE,
            rows: self.rows,
            positions: self.slots,
            sequences: self.sequences(),
            kv: KvMemory::Bytes(slots * model.kv_bytes_per_position() as u64),
        };
        let mut executor = DeviceExecutor::new(model, config)?;
        // Launches of the setup are not part of a step.
        drop(launches.take());
        let begun = executor.begin(&self.batch());
        begun.map_err(|error| LoadError::Setup(error.0))?;
        Ok(launches.take())
    }

    fn batch(&self) -> Batch {
        let (mut batch, count) = (Batch::default(), self.slots.div_ceil(PAGE));
        for number in 0..self.sequences() {
            let (row, table) = (batch.rows.len() as u32, batch.pages.len() as u32);
            let rows = self.lane.min(self.rows - row).min(self.slots);
            let pages = number * count..(number + 1) * count;
            batch.pages.extend(pages.map(PageId));
            batch
                .rows
                .extend((self.slots - rows..self.slots).map(|at| Row {
                    score: Score::Candidate,
                    ..Row::new(0, Position::new(at), Slot::new(at), Slot::new(self.slots))
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
