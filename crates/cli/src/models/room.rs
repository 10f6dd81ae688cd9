//! The room for a model on this machine.

use anyhow::Result;
use model::{Checkpoint, Device, DeviceModel, WeightDtype};
use serde::Serialize;

use crate::config::{Config, Text};
use crate::device::{self, Hardware};
use crate::kv;
use crate::memory::{self, Memory};
use crate::shelf::Entry;

/// Positions of the sequences that the list of models is for, or the model's maximum if that is less.
pub const POSITIONS: u32 = 4096;

/// The memory that is free for a model.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// `cpu` or the name of a CUDA device.
    pub device: String,
    /// Free bytes; on a CUDA device those that the default share allows. `None` if the system does not
    /// report them.
    pub free: Option<u64>,
    #[serde(skip)]
    is_cpu: bool,
}

impl Machine {
    /// The CUDA device of this machine if this build can use it, else the processor.
    pub fn found() -> Self {
        let device = Device::BUILT.then(|| Device::open(0).ok()).flatten();
        let found =
            device.and_then(|device| Some((device.name().to_owned(), device.memory().ok()?)));
        match found {
            None => Self { device: Hardware::CPU.to_owned(), free: memory::free(), is_cpu: true },
            Some((device, memory)) => {
                let free = device::allowance(&Config::default(), memory);
                Self { device, free: Some(free), is_cpu: false }
            }
        }
    }
}

/// The memory of a model in one dtype.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Room {
    /// The dtype of the matrices.
    pub dtype: &'static str,
    /// Bytes of the weights.
    pub weights: u64,
    /// Peak bytes: while the weights load, or of weights and KV pages; on a CUDA device also of the
    /// largest step.
    pub needed: u64,
    /// `fits`, `tight` (less than a tenth of the free memory is left), `too large`, or `unknown`.
    pub fit: &'static str,
}

impl Room {
    fn new(dtype: WeightDtype, memory: Memory, needed: u64, free: Option<u64>) -> Self {
        let fit = match free {
            None => "unknown",
            Some(free) if needed > free => "too large",
            Some(free) if needed > free - free / 10 => "tight",
            Some(_) => "fits",
        };
        Self { dtype: dtype.name(), weights: memory.weights, needed, fit }
    }
}

/// The configuration under which the list counts the memory of `entry`.
pub fn config(entry: &Entry) -> Config {
    let mut config = Config::default();
    config.model.path = entry.name.to_owned();
    config.model.max_model_len = POSITIONS;
    config.model.dtype = Text::literal(WeightDtype::F32.name());
    config
}

/// The room for `entry` in every dtype that suits it.
///
/// # Errors
/// A model that cannot be surveyed.
pub fn rooms(entry: &Entry, checkpoint: &mut Checkpoint, machine: &Machine) -> Result<Vec<Room>> {
    let config = config(entry);
    let needs = kv::needs(&config, checkpoint)?;
    let mut rooms = Vec::new();
    for (dtype, need) in needs.by_dtype() {
        let needed = match machine.is_cpu {
            true => need.most(),
            false => {
                let info = checkpoint.survey(dtype).map_err(crate::exit::refused)?.info;
                if DeviceModel::unfit(&info, None).is_some() {
                    continue;
                }
                device::least(&config, checkpoint, &info)?.sum()
            }
        };
        rooms.push(Room::new(dtype, need.memory, needed, machine.free));
    }
    Ok(rooms)
}
