//! Times of launches by the device's own clock.

use super::array::{Array, Precision};
use super::launch::{Division, MatrixFormat, ProductLaunch};
use super::matrix::{DeviceMatrix, MatrixSizes, Store};
use super::{Buffer, Device, Result, Roofline, refuse};
use crate::linear::Epilogue;
use std::sync::PoisonError;

/// Points in the work of a device.
pub(super) trait Marks: Send {
    /// Adds a point after all work so far.
    fn mark(&mut self) -> Result<()>;
    /// Waits for all work and returns the seconds from each point to the next.
    fn seconds(&mut self) -> Result<Vec<f64>>;
}

/// The launches that are being timed.
pub(super) struct Timing {
    marks: Box<dyn Marks>,
    kernels: Vec<&'static str>,
}

/// Runs of a kernel whose time is taken.
const RUNS: usize = 8;
/// Bytes of the matrices that launches use in turn, so that none is in the L2 cache.
const ROTATED: usize = 256 << 20;

/// A launch of a product and its time.
#[derive(Clone, Copy, Debug)]
pub struct LaunchTime {
    /// The launch.
    pub launch: ProductLaunch,
    /// Its time in a sequence of such launches.
    pub seconds: f64,
}

impl Device {
    /// Whether launches are being timed. They must be launched one by one, not as a graph.
    #[must_use]
    pub fn is_timing(&self) -> bool {
        self.timing().is_some()
    }

    fn timing(&self) -> std::sync::MutexGuard<'_, Option<Timing>> {
        self.timing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the end of a launch if launches are being timed.
    pub(super) fn launched(&self, kernel: &'static str) -> Result<()> {
        match &mut *self.timing() {
            Some(timing) => {
                timing.kernels.push(kernel);
                timing.marks.mark()
            }
            None => Ok(()),
        }
    }

    /// The kernels that `f` launches and the seconds of each: from the end of the launch before it to
    /// its own end, so the time between two kernels is part of the second one.
    ///
    /// # Errors
    /// If `f` or the device fails, or launches are being timed already.
    pub fn time_launches(
        &self,
        f: impl FnOnce() -> Result<()>,
    ) -> Result<Vec<(&'static str, f64)>> {
        let mut marks = self.driver.marks()?;
        marks.mark()?;
        let timing = Timing {
            marks,
            kernels: Vec::new(),
        };
        if self.timing().is_some() {
            return refuse("launches are being timed already");
        }
        *self.timing() = Some(timing);
        let done = f();
        // Always end, or later launches would be timed too.
        let timing = self.timing().take();
        done?;
        let Some(mut timing) = timing else {
            return refuse("launches were not timed");
        };
        let seconds = timing.marks.seconds()?;
        Ok(timing.kernels.into_iter().zip(seconds).collect())
    }

    /// The seconds from the begin to the end of what `f` gives to the device.
    ///
    /// # Errors
    /// If `f` or the device fails.
    pub fn time(&self, f: impl FnOnce() -> Result<()>) -> Result<f64> {
        let mut marks = self.driver.marks()?;
        marks.mark()?;
        f()?;
        marks.mark()?;
        Ok(marks.seconds()?.iter().sum())
    }

    /// Bytes per second that copies of `bytes` bytes within the device's memory read and write.
    ///
    /// # Errors
    /// If the device fails or is out of memory.
    pub fn copy_rate(&self, bytes: usize) -> Result<f64> {
        let (from, to) = (Buffer::new(self, bytes)?, Buffer::new(self, bytes)?);
        let [from, to] = [from.range(0, bytes)?, to.range(0, bytes)?];
        let copy = || self.driver.copy(to, from, bytes);
        copy()?;
        let seconds = self.time(|| (0..RUNS).try_for_each(|_| copy()))?;
        Ok((2 * bytes * RUNS) as f64 / seconds)
    }

    /// The rates of this device. That of its memory is measured by copies of `bytes` bytes, and that of
    /// the best products by this crate's product of `sizes`, unless it is slower than what an H200 can.
    /// The others are those of an H200 per multiprocessor.
    ///
    /// # Errors
    /// If the device fails, has no clock or is out of memory.
    pub fn rates(&self, bytes: usize, sizes: [usize; 3]) -> Result<Roofline> {
        let (tensor, limits) = (self.product_rate(sizes)?, self.limits());
        let known = Roofline::of(limits.multiprocessors);
        Ok(Roofline {
            memory: self.copy_rate(bytes)?,
            peak: match limits.warpgroups {
                true => known.peak.max(tensor),
                false => tensor,
            },
            ..known
        })
    }

    /// Floating-point operations per second of this crate's products `[rows, k] x [n, k]'` in bf16.
    ///
    /// # Errors
    /// If the device fails or is out of memory.
    pub fn product_rate(&self, [rows, k, n]: [usize; 3]) -> Result<f64> {
        let sizes = MatrixSizes {
            rows: n,
            k,
            biased: false,
            epilogue: Epilogue::None,
        };
        let matrix = DeviceMatrix::reserve(self, MatrixFormat::Bf16, sizes)?;
        let x = Array::padded(self, Precision::Bf16, rows, k)?;
        // About 0.01: products of zeros take less power, so that the clock may be higher.
        x.buffer().fill(0x3C)?;
        matrix.fill(0x3C)?;
        let out = Array::new(self, Precision::F32, rows, n)?;
        let product = || matrix.product(&x, rows, &out);
        product()?;
        let seconds = self.time(|| (0..RUNS).try_for_each(|_| product()))?;
        Ok((2 * rows * k * n * RUNS) as f64 / seconds)
    }
}

impl Device {
    /// The times of all launches of a product `[rows, k] x [n, k]'` that this device can run.
    ///
    /// # Errors
    /// If the device fails, has no clock or is out of memory.
    pub fn launch_times(&self, format: MatrixFormat, sizes: [usize; 3]) -> Result<Vec<LaunchTime>> {
        self.rotated_launch_times(format, sizes, ROTATED)
    }

    /// As [`Self::launch_times`]; launches use matrices of `rotated` bytes in turn.
    fn rotated_launch_times(
        &self,
        format: MatrixFormat,
        sizes: [usize; 3],
        rotated: usize,
    ) -> Result<Vec<LaunchTime>> {
        let [rows, n, k] = sizes;
        let sizes = MatrixSizes {
            rows: n,
            k,
            biased: false,
            epilogue: Epilogue::None,
        };
        let count = rotated.div_ceil(n * k * format.bytes()).max(2);
        let matrices = (0..count).map(|_| {
            let matrix = DeviceMatrix::reserve(self, format, sizes)?;
            matrix.fill(0x3C)?;
            Ok(matrix)
        });
        let matrices: Vec<DeviceMatrix> = matrices.collect::<Result<_>>()?;
        let x = Array::padded(self, format.inputs(), rows, k)?;
        x.buffer().fill(0x3C)?;
        let out = Array::new(self, Precision::F32, rows, n)?;
        let launches =
            ProductLaunch::all(matrices[0].sizes(rows), self.limits(), Division::Divided);
        let timed = launches.map(|launch| {
            let run = |matrix: &DeviceMatrix| matrix.run_as(&launch, &x, (&out, Store::Overwrite));
            matrices.iter().try_for_each(run)?;
            let all = matrices.iter().cycle().take(count * RUNS);
            let seconds = self.time(|| all.clone().try_for_each(run))?;
            let seconds = seconds / (count * RUNS) as f64;
            Ok(LaunchTime { launch, seconds })
        });
        timed.collect()
    }
}

#[cfg(all(test, feature = "emulation"))]
mod tests {
    use super::*;

    /// On the emulation a block takes a microsecond.
    #[test]
    fn launches_are_timed_one_by_one() {
        let device = Device::emulated();
        let sizes = MatrixSizes {
            rows: 64,
            k: 64,
            biased: false,
            epilogue: Epilogue::None,
        };
        let matrix = DeviceMatrix::reserve(&device, MatrixFormat::F32, sizes).unwrap();
        let x = Array::padded(&device, Precision::F32, 130, 64).unwrap();
        let out = Array::new(&device, Precision::F32, 130, 64).unwrap();
        let run = |rows| matrix.product(&x, rows, &out);
        let near = |seconds: f64, blocks: f64| (seconds - blocks * 1e-6).abs() < 1e-12;
        let times = device.time_launches(|| {
            assert!(device.is_timing());
            assert!(device.time_launches(|| Ok(())).is_err());
            run(1)?;
            run(130)
        });
        let times = times.unwrap();
        assert!(!device.is_timing());
        let names: Vec<&str> = times.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["gemm_f32", "gemm_f32"]);
        assert!(near(times[0].1, 1.0) && near(times[1].1, 3.0), "{times:?}");
        assert!(near(device.time(|| run(130)).unwrap(), 3.0));
        // A failure ends the timing.
        assert!(device.time_launches(|| run(131)).is_err());
        assert!(!device.is_timing());
    }

    #[test]
    fn every_launch_is_timed() {
        let device = Device::emulated();
        let times = device.rotated_launch_times(MatrixFormat::F32, [2, 128, 320], 1 << 19);
        let times = times.unwrap();
        // Whole, and divided in two segments.
        let blocks: Vec<usize> = times.iter().map(|one| one.launch.blocks()).collect();
        assert_eq!(blocks, [2, 4, 4]);
        for LaunchTime { launch, seconds } in times {
            assert!(
                near_blocks(seconds, launch.blocks()),
                "{launch:?}: {seconds}"
            );
        }
    }

    fn near_blocks(seconds: f64, blocks: usize) -> bool {
        (seconds - blocks as f64 * 1e-6).abs() < 1e-12
    }

    #[test]
    fn rates_are_work_by_time() {
        let device = Device::emulated();
        // One block, a microsecond; a KiB in a microsecond.
        let products = device.product_rate([4, 64, 8]).unwrap();
        assert!(
            (products / (2.0 * 4.0 * 64.0 * 8.0 * 1e6) - 1.0).abs() < 1e-9,
            "{products}"
        );
        let copies = device.copy_rate(64 << 10).unwrap();
        assert!(
            (copies / (2.0 * 1024.0 * 1e6) - 1.0).abs() < 1e-9,
            "{copies}"
        );
        let rates = device.rates(64 << 10, [4, 64, 8]).unwrap();
        assert_eq!((rates.memory, rates.peak), (copies, Roofline::H200.peak));
        assert_eq!(rates.cache, Roofline::H200.cache);
        assert!(Device::counting().copy_rate(1).is_err());
    }
}
