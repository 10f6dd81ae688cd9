//! Times of launches by the device's own clock.

use super::array::{Array, Precision};
use super::launch::{DeviceLimits, Division, MatrixFormat, ProductLaunch};
use super::matrix::{DeviceMatrix, MatrixSizes, Store};
use super::selftest::random;
use super::{Buffer, Device, Result};
use crate::linear::{Epilogue, Matrix};

/// Points in the work of a device.
pub trait Marks: Send {
    /// Adds a point after all earlier work.
    fn mark(&mut self) -> Result<()>;
    /// Waits for all work and returns the seconds from each point to the next.
    fn seconds(&mut self) -> Result<Vec<f64>>;
}

/// Runs of a kernel whose time is taken.
const RUNS: usize = 8;
/// Rows of random numbers, after which a timed matrix has the same again.
const RANDOM_ROWS: usize = 1024;
/// Bytes of a copy that no L2 cache holds.
#[cfg(feature = "cuda")]
const COPIED: usize = 128 << 20;

/// A launch of a product and its time.
#[derive(Clone, Copy, Debug)]
pub struct LaunchTime {
    /// The launch.
    pub launch: ProductLaunch,
    /// Its time in a sequence of such launches.
    pub seconds: f64,
}

impl Device {
    /// The seconds from the begin to the end of what `f` gives to the device.
    pub fn time(&self, f: impl FnOnce() -> Result<()>) -> Result<f64> {
        let mut marks = self.driver.marks()?;
        marks.mark()?;
        f()?;
        marks.mark()?;
        Ok(marks.seconds()?.iter().sum())
    }

    /// Measures the rate of the memory for the choice of launches. The limits stay as they are if too little
    /// memory is free or the driver has no clock.
    #[cfg(feature = "cuda")]
    pub(super) fn measure_memory(&mut self) -> Result<()> {
        let (free, _) = self.memory()?;
        if free < 4 * COPIED as u64 || self.driver.marks().is_err() {
            return Ok(());
        }
        let rate = self.copy_rate(COPIED)? / 1e9;
        self.limits.memory_rate = (rate.round() as u32).max(1);
        Ok(())
    }

    /// Bytes per second that copies of `bytes` bytes within the device's memory read and write.
    pub fn copy_rate(&self, bytes: usize) -> Result<f64> {
        let (source, destination) = (Buffer::new(self, bytes)?, Buffer::new(self, bytes)?);
        let [source, destination] = [source.range(0, bytes)?, destination.range(0, bytes)?];
        let copy = || self.driver.copy(destination, source, bytes);
        copy()?;
        let seconds = self.time(|| (0..RUNS).try_for_each(|_| copy()))?;
        Ok((2 * bytes * RUNS) as f64 / seconds)
    }

    /// The times of all launches of a product `[rows, k] x [n, k]'` that this device can run. They use
    /// matrices of `rotated` bytes in turn; with more than the L2 cache has, none is in it. All numbers are
    /// random: a card multiplies constant ones faster, because they take less power. No launch overlaps another.
    pub fn launch_times(
        &self,
        format: MatrixFormat,
        sizes: [usize; 3],
        rotated: usize,
    ) -> Result<Vec<LaunchTime>> {
        let device = &self.clone().with_overlap(false);
        let [rows, n, k] = sizes;
        let sizes = MatrixSizes { rows: n, k, biased: false, epilogue: Epilogue::None };
        let count = rotated.div_ceil(format.bytes(n * k)).max(2);
        let numbers = random(1, n.min(RANDOM_ROWS) * k);
        let part = Matrix { weight: &numbers, k, bias: None };
        let part = DeviceMatrix::new(device, format, part, Epilogue::None)?;
        let matrices = (0..count).map(|_| {
            let matrix = DeviceMatrix::reserve(device, format, sizes)?;
            matrix.repeat(&part)?;
            Ok(matrix)
        });
        let matrices: Vec<DeviceMatrix> = matrices.collect::<Result<_>>()?;
        let x = Array::padded(device, format.inputs(), rows, k)?;
        x.write(0, &random(2, rows * k))?;
        let out = Array::new(device, Precision::F32, rows, n)?;
        // Launches with bulk copies are timed too, if none is chosen yet.
        let limits = DeviceLimits { ring: device.bulk_refusal().is_none(), ..device.limits() };
        let launches = ProductLaunch::all(matrices[0].sizes(rows), limits, Division::Divided);
        let timed = launches.map(|launch| {
            let run = |matrix: &DeviceMatrix| matrix.run_as(&launch, &x, &out, Store::Overwrite);
            matrices.iter().try_for_each(run)?;
            let all = matrices.iter().cycle().take(count * RUNS);
            let seconds = device.time(|| all.clone().try_for_each(run))?;
            let seconds = seconds / (count * RUNS) as f64;
            Ok(LaunchTime { launch, seconds })
        });
        timed.collect()
    }
}
