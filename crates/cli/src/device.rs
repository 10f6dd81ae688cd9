//! The device that computes: the CPU or a CUDA device.

mod fit;
pub mod steps;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::Result;
use model::{
    Checkpoint, Device, DeviceConfig, DeviceError, DeviceExecutor, DeviceLimits, DeviceMemory,
    DeviceModel, LoadError, MatrixFormat, ModelInfo, Roofline, WeightDtype,
};
use step::Executor;

use crate::config::{BackendChoice, Config, DeviceChoice, Text};
use crate::exit;
use crate::kv;
use crate::memory;
use crate::progress;

pub use fit::{allowance, least};

/// A model on its device, with its KV pages.
pub struct PlacedModel {
    /// Runs the forward passes.
    pub executor: Box<dyn Executor>,
    /// The facts of the model that the engine and the server need.
    pub info: ModelInfo,
    /// Lines for the log.
    pub warnings: Vec<String>,
    /// The device and its kernels.
    pub hardware: Hardware,
    /// Maximum positions of a sequence.
    pub max_model_len: u32,
}

/// A device with a model on it.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// `cpu` or the name of a CUDA device.
    pub device: String,
    /// Threads that compute.
    pub threads: usize,
    /// Dtype of the matrices and the instructions in use: `bf16 by avx512-bf16`.
    pub kernels: String,
    /// Bytes of keys and values per position, all layers.
    pub kv_position: usize,
    /// The memory in use on a CUDA device.
    pub memory: Option<DeviceMemory>,
    /// Bytes of it that graphs take at present; 0 on the CPU.
    pub graph_bytes: Arc<AtomicU64>,
    /// Maximum rows of a step.
    pub row_budget: u32,
}

impl Hardware {
    /// The name of the CPU as a device.
    pub const CPU: &str = "cpu";

    /// True if the model runs on the CPU.
    pub fn is_cpu(&self) -> bool {
        self.device == Self::CPU
    }
}

/// The device that a configured model computes on.
pub enum ComputeDevice {
    /// The CPU; if `auto` skips a device that exists, the reason.
    Cpu(Option<String>),
    /// A CUDA device, and the configuration with the longest sequences that fit.
    Cuda(Device, Box<Config>),
}

/// As [`compute_device`], `None` is the CPU; with the configuration whose sequences are the longest that fit. If
/// `auto` skips a device that exists, a warning says why.
///
/// # Errors
/// As [`compute_device`].
pub fn chosen(config: &Config, checkpoint: &mut Checkpoint) -> Result<(Option<Device>, Config)> {
    match compute_device(config, checkpoint)? {
        ComputeDevice::Cuda(device, fitted) => {
            if *fitted.model.dtype != *config.model.dtype {
                say!(
                    "warning: a card multiplies matrices in F16 as bf16; --dtype f32 keeps them exactly"
                );
            }
            Ok((Some(device), *fitted))
        }
        ComputeDevice::Cpu(reason) => {
            if let Some(reason) = reason {
                say!("warning: using the CPU: {reason}");
            }
            Ok((None, kv::fitted(config, checkpoint, 0)?))
        }
    }
}

/// The device that the configured model computes on.
///
/// # Errors
/// `cuda` without a device or without kernels for the model.
pub fn compute_device(config: &Config, checkpoint: &mut Checkpoint) -> Result<ComputeDevice> {
    let choice = *config.model.device;
    if *config.model.backend == BackendChoice::Candle {
        return Ok(ComputeDevice::Cpu(None));
    }
    if choice == DeviceChoice::Cpu || (choice == DeviceChoice::Auto && !Device::BUILT) {
        return Ok(ComputeDevice::Cpu(None));
    }
    match opened(config) {
        Err(reason) if matches!(choice, DeviceChoice::Cuda(_)) => {
            let message = format!("--device {choice}: {reason}");
            Err(exit::failure(exit::UNAVAILABLE, message))
        }
        Err(reason) => Ok(ComputeDevice::Cpu(Some(reason.to_string()))),
        Ok(device) => {
            let memory = device.memory();
            let memory = memory.map_err(|error| exit::refused(LoadError::Setup(error.0)))?;
            let found = fit::FreeDevice { name: device.name(), memory };
            let config = &for_device(config, checkpoint);
            let fitted = fit::fitted(config, checkpoint, memory)?;
            match unfit(&fitted, checkpoint, found)? {
                None => Ok(ComputeDevice::Cuda(device, Box::new(fitted))),
                Some(reason) => Ok(ComputeDevice::Cpu(Some(skipped(choice, reason)?))),
            }
        }
    }
}

/// Opens the configured CUDA device with its kernels.
///
/// # Errors
/// As [`Device::open`].
pub fn opened(config: &Config) -> std::result::Result<Device, DeviceError> {
    let device = Device::open(config.model.device.ordinal())?;
    Ok(if config.model.untested_kernels { device.with_untested() } else { device })
}

/// The configuration with the dtype that `auto` means on a device.
pub fn for_device(config: &Config, checkpoint: &Checkpoint) -> Config {
    let mut config = config.clone();
    let dtype = checkpoint.dtype_on_device(*config.model.dtype);
    if dtype != *config.model.dtype {
        config.model.dtype = Text::literal(dtype.name());
    }
    config
}

/// The reason why a device cannot compute the configured model: no kernels, or too little memory. Reads no
/// weights.
fn unfit(
    config: &Config,
    checkpoint: &mut Checkpoint,
    found: fit::FreeDevice<'_>,
) -> Result<Option<String>> {
    let dtype = *config.model.dtype;
    let info = checkpoint.survey(dtype).map_err(exit::refused)?.info;
    match DeviceModel::unfit(&info, *config.engine.kv_dtype) {
        None => fit::refusal(config, checkpoint, &info, found),
        reason => Ok(reason),
    }
}

/// The reason against a device, if the choice allows another one.
fn skipped(choice: DeviceChoice, reason: String) -> Result<String> {
    match choice {
        DeviceChoice::Cuda(_) => {
            let message = format!("--device {choice}: {reason}");
            Err(exit::failure(exit::CHECKPOINT, message))
        }
        DeviceChoice::Auto | DeviceChoice::Cpu => Ok(reason),
    }
}

/// Loads the configured model onto a device.
///
/// # Errors
/// A model that cannot be loaded; too little memory.
pub fn on_device(device: &Device, checkpoint: Checkpoint, config: &Config) -> Result<PlacedModel> {
    let checkpoint = checkpoint.with_dtype(*config.model.dtype);
    let (checkpoint, bar) = progress::shown(checkpoint);
    let refused = |error: LoadError| match device.lost() {
        Some(_) => exit::failure(exit::DEVICE, format!("the device failed: {error}")),
        None => exit::refused(error),
    };
    let model = DeviceModel::load(device, checkpoint).map_err(refused)?;
    drop(bar);
    let info = model.info().clone();
    let kv_position = model.kv_bytes_per_position();
    let row_budget = config.row_budget(enough_rows(device.limits(), info.formats.matrices));
    let sizes = DeviceConfig { rows: row_budget, ..fit::sizes(config, &info)? };
    let executor = DeviceExecutor::new(model, sizes).map_err(refused)?;
    let kernels = match info.formats.matrices {
        WeightDtype::F32 => "f32 without tensor cores".to_owned(),
        dtype => format!("{} on tensor cores", dtype.name()),
    };
    Ok(PlacedModel {
        warnings: executor.model().warnings().to_vec(),
        hardware: Hardware {
            device: device.name().to_owned(),
            threads: 1,
            kernels: format!("{kernels} of {}", device.name()),
            kv_position,
            memory: Some(executor.memory()),
            graph_bytes: executor.graph_bytes(),
            row_budget,
        },
        executor: Box::new(executor),
        max_model_len: config.max_model_len(&info),
        info,
    })
}

/// The rows of a step that reach the full rate of a device. Products in int8 are twice as fast as those in
/// bf16, to which the other formats are widened, so it takes more rows until they outlast the weights.
fn enough_rows(limits: DeviceLimits, matrices: WeightDtype) -> u32 {
    let format = match matrices {
        WeightDtype::Int8 => MatrixFormat::Int8,
        _ => MatrixFormat::Bf16,
    };
    Roofline::of(limits).enough_rows(limits, format)
}

/// The CUDA device of this machine in one line, or why there is none.
pub fn describe() -> String {
    let found = Device::open(0).and_then(|device| Ok((device.memory()?, device)));
    match found {
        Ok(((free, total), device)) => {
            let (free, total) = (memory::size(free), memory::size(total));
            format!("{}, {total}, {free} free", device.name())
        }
        Err(reason) => reason.to_string(),
    }
}

/// The name of the processor and the number of threads that it runs at once.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {threads} threads", name.unwrap_or(std::env::consts::ARCH).trim())
}

#[cfg(test)]
mod tests;
