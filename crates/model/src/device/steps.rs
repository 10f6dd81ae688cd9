//! The launches of a step: listed without a device, timed on one.

use super::{DeviceConfig, DeviceExecutor, DeviceModel, KvMemory};
use crate::{Checkpoint, LoadError, WeightDtype};
use kernels::device::{Device, DeviceError, DeviceLimits, LaunchCost};
use step::{Batch, BatchOutput, Executor, PageId, Position, Row, Sampling, Score, Segment, Slot};

/// Slots per KV page.
const PAGE: u32 = 16;
/// Steps whose time is taken.
const RUNS: usize = 9;

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

/// The times of a step on a device, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTimes {
    /// The median of several steps: upload, launches, download.
    pub step: f64,
    /// The kernels of one step that were launched one by one, with the time between kernels.
    pub launches: Vec<(&'static str, f64)>,
}

impl StepLoad {
    /// Number of sequences.
    #[must_use]
    pub fn sequences(&self) -> u32 {
        self.rows.div_ceil(self.lane.max(1))
    }

    /// The launches of this step on a device with these limits, with matrices in `dtype`, in order, with
    /// what they move and compute; and the names of launched kernels for which that depends on what a
    /// device computes, such as the chosen experts. The executor runs on a device that computes nothing;
    /// no weight is read.
    ///
    /// # Errors
    /// If the model has no device kernels, or the step does not fit into its positions.
    pub fn launches(
        &self,
        checkpoint: &mut Checkpoint,
        dtype: WeightDtype,
        limits: DeviceLimits,
    ) -> Result<(Vec<LaunchCost>, Vec<&'static str>), LoadError> {
        let (device, launches) = Device::planning(limits);
        let model = checkpoint.count(dtype, |checkpoint| {
            DeviceModel::load_from(&device, checkpoint)
        })?;
        let mut executor = self.executor(model)?;
        // Launches of the setup are not part of a step.
        drop(launches.take());
        let begun = executor.begin(&self.batch());
        begun.map_err(|error| LoadError::Setup(error.0))?;
        Ok(launches.take())
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

    /// Runs this step on a device and takes its times.
    ///
    /// # Errors
    /// If the step does not fit into the executor, or the device fails or has no clock.
    pub fn time(&self, executor: &mut DeviceExecutor) -> Result<StepTimes, LoadError> {
        let (batch, device) = (self.batch(), executor.device().clone());
        let mut output = BatchOutput::default();
        let mut run = |executor: &mut DeviceExecutor| {
            let done = executor.execute(&batch, &mut output);
            done.map_err(|error| DeviceError(error.0))
        };
        let failed = |error: DeviceError| LoadError::Setup(error.0);
        // The first pass may allocate memory, the second one is captured.
        run(executor).map_err(failed)?;
        run(executor).map_err(failed)?;
        let mut steps = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            steps.push(device.time(|| run(executor)).map_err(failed)?);
        }
        steps.sort_by(f64::total_cmp);
        Ok(StepTimes {
            step: steps[RUNS / 2],
            launches: device.time_launches(|| run(executor)).map_err(failed)?,
        })
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

#[cfg(all(test, feature = "emulation"))]
mod tests {
    use super::*;
    use crate::Geometry;

    /// On the emulation a block takes a microsecond, so the times are the blocks of the listed launches.
    #[test]
    fn a_timed_step_has_the_launches_of_the_listed_one() {
        let geometry = Geometry::named("demo").unwrap();
        let load = StepLoad {
            rows: 5,
            lane: 3,
            slots: 40,
        };
        let dtype = WeightDtype::Bf16;
        let (listed, unknown) = load
            .launches(
                &mut geometry.checkpoint(5, 1).unwrap(),
                dtype,
                DeviceLimits::default(),
            )
            .unwrap();
        assert_eq!(unknown, [""; 0]);
        let checkpoint = geometry.checkpoint(5, 1).unwrap().with_dtype(dtype);
        let model = DeviceModel::load(&Device::emulated(), checkpoint).unwrap();
        let mut executor = load.executor(model).unwrap();
        let times = load.time(&mut executor).unwrap();
        assert_eq!(executor.graphs(), 1);
        let want = listed
            .iter()
            .map(|launch| (launch.kernel, launch.blocks as f64));
        let got = times
            .launches
            .iter()
            .map(|(name, seconds)| (*name, (seconds * 1e6).round()));
        assert!(got.eq(want), "{:?}", times.launches);
        let sum: f64 = times.launches.iter().map(|(_, seconds)| seconds).sum();
        assert!(
            (times.step / sum - 1.0).abs() < 1e-9,
            "{} of {sum}",
            times.step
        );
        // A larger step does not fit.
        let larger = StepLoad { slots: 80, ..load };
        assert!(larger.time(&mut executor).is_err());
    }
}
