//! A driver that takes the time of every launch.

use crate::{Result, refuse};
use kernels::device::{Captured, Device, DeviceLimits, Driver, Kernel, MapRows, Marks, TensorMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The kernels of a timed device since the last [`Self::take`], and points between them.
#[derive(Clone)]
pub struct KernelTimes {
    driver: Arc<dyn Driver>,
    all: Arc<Mutex<Points>>,
}

#[derive(Default)]
struct Points {
    marks: Option<Box<dyn Marks>>,
    kernels: Vec<&'static str>,
}

impl KernelTimes {
    fn all(&self) -> MutexGuard<'_, Points> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all launches and marks the start of the next.
    ///
    /// # Errors
    /// If the device fails or has no clock.
    pub fn start(&self) -> Result<()> {
        let mut marks = self.driver.marks()?;
        marks.mark()?;
        *self.all() = Points { marks: Some(marks), kernels: Vec::new() };
        Ok(())
    }

    /// The kernels since [`Self::start`] and the seconds of each: from the end of the launch before it to
    /// its own end, so the time between two kernels is part of the second one.
    ///
    /// # Errors
    /// If the device fails, or nothing was started.
    pub fn take(&self) -> Result<Vec<(&'static str, f64)>> {
        let Points { marks, kernels } = std::mem::take(&mut *self.all());
        let Some(mut marks) = marks else {
            return refuse("launches were not timed");
        };
        Ok(kernels.into_iter().zip(marks.seconds()?).collect())
    }
}

/// A device that takes the time of every launch of another. It captures nothing, so that kernels launch one
/// by one, and none overlaps another.
#[must_use]
pub fn timed(device: &Device) -> (Device, KernelTimes) {
    let times = KernelTimes { driver: device.driver(), all: Arc::default() };
    let alone = DeviceLimits { overlap: false, ..device.limits() };
    (Device::new(TimingDriver(times.clone(), alone)), times)
}

struct TimingDriver(KernelTimes, DeviceLimits);

impl Driver for TimingDriver {
    fn name(&self) -> &str {
        self.0.driver.name()
    }

    fn memory(&self) -> Result<(u64, u64)> {
        self.0.driver.memory()
    }

    fn limits(&self) -> DeviceLimits {
        self.1
    }

    fn lost(&self) -> Option<&str> {
        self.0.driver.lost()
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.0.driver.allocate(bytes)
    }

    fn free(&self, address: u64) {
        self.0.driver.free(address);
    }

    fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<()> {
        self.0.driver.fill(address, byte, bytes)
    }

    fn upload(&self, destination: u64, bytes: &[u8]) -> Result<()> {
        self.0.driver.upload(destination, bytes)
    }

    fn download(&self, bytes: &mut [u8], source: u64) -> Result<()> {
        self.0.driver.download(bytes, source)
    }

    fn tensor_map(&self, rows: MapRows) -> Result<TensorMap> {
        self.0.driver.tensor_map(rows)
    }

    fn bulk_refusal(&self) -> Option<String> {
        self.0.driver.bulk_refusal()
    }

    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 3], args: &[u8]) -> Result<()> {
        // SAFETY: by the caller's promise.
        unsafe { self.0.driver.launch(kernel, grid, args) }?;
        let mut all = self.0.all();
        let Some(marks) = &mut all.marks else {
            return Ok(());
        };
        marks.mark()?;
        all.kernels.push(kernel.name);
        Ok(())
    }

    fn begin_capture(&self) -> Result<()> {
        refuse("launches are timed one by one")
    }

    fn end_capture(&self) -> Result<Box<dyn Captured>> {
        refuse("launches are timed one by one")
    }

    fn marks(&self) -> Result<Box<dyn Marks>> {
        self.0.driver.marks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{emulated, planned};
    use kernels::device::{LaunchTime, MatrixFormat};
    use model::{DeviceModel, Geometry, StepLoad, WeightDtype};
    use step::{BatchOutput, Executor};

    const LOAD: StepLoad = StepLoad { rows: 5, lane: 3, slots: 9 };

    /// On the emulation a block takes a microsecond, so the times are the blocks of the listed launches.
    #[test]
    fn a_timed_step_has_the_launches_of_the_listed_one() {
        let geometry = Geometry::named("demo").unwrap();
        let checkpoint = || geometry.checkpoint(5, 1).unwrap().with_dtype(WeightDtype::Bf16);
        let (listed, unknown) = planned(&LOAD, checkpoint(), DeviceLimits::default()).unwrap();
        assert_eq!(unknown, [""; 0]);
        let (device, times) = timed(&emulated());
        let model = DeviceModel::load(&device, checkpoint()).unwrap();
        let mut executor = LOAD.executor(model).unwrap();
        assert!(times.take().is_err(), "nothing was started");
        times.start().unwrap();
        let mut output = BatchOutput::default();
        executor.execute(&LOAD.batch(executor.spec()), &mut output).unwrap();
        let kernels = times.take().unwrap();
        let want = listed.iter().map(|launch| (launch.kernel, launch.blocks as f64));
        let got = kernels.iter().map(|(name, seconds)| (*name, (seconds * 1e6).round()));
        assert!(got.eq(want), "{kernels:?}");
        assert_eq!(executor.graphs(), 0);
    }

    #[test]
    fn a_step_takes_as_long_as_its_launches() {
        let geometry = Geometry::named("demo").unwrap();
        let checkpoint = || geometry.checkpoint(5, 1).unwrap().with_dtype(WeightDtype::Bf16);
        let (listed, _) = planned(&LOAD, checkpoint(), DeviceLimits::default()).unwrap();
        let model = DeviceModel::load(&emulated(), checkpoint()).unwrap();
        let mut executor = LOAD.executor(model).unwrap();
        let seconds = LOAD.time(&mut executor).unwrap();
        // Graphs of the step, and of the two that computed the keys and values before.
        assert_eq!(executor.graphs(), 2);
        let sum: f64 = listed.iter().map(|launch| launch.blocks as f64 * 1e-6).sum();
        assert!((seconds / sum - 1.0).abs() < 1e-9, "{seconds} of {sum}");
        // A larger step does not fit.
        let larger = StepLoad { slots: 80, ..LOAD };
        assert!(larger.time(&mut executor).is_err());
    }

    #[test]
    fn every_launch_of_a_product_is_timed() {
        let device = emulated();
        let times = device.launch_times(MatrixFormat::F32, [2, 128, 320], 1 << 19);
        let times = times.unwrap();
        // Whole, and divided in two segments.
        let blocks: Vec<usize> = times.iter().map(|one| one.launch.blocks()).collect();
        assert_eq!(blocks, [2, 4, 4]);
        for LaunchTime { launch, seconds } in times {
            let want = launch.blocks() as f64 * 1e-6;
            assert!((seconds - want).abs() < 1e-12, "{seconds} s, {launch:?}");
        }
    }
}
