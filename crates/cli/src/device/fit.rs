//! The check that a model fits onto a device, before a weight is read.

use anyhow::Result;
use model::{Checkpoint, DeviceConfig, DeviceMemory, KvMemory, ModelInfo, WeightDtype};

use crate::config::{Config, DEFAULT_ROWS};
use crate::exit;
use crate::kv;
use crate::memory::size;

/// Shortest sequence length that an error suggests.
const MIN_POSITIONS: u32 = 256;

/// The sizes of a model on a device under a configuration.
///
/// # Errors
/// An invalid size of memory.
pub fn sizes(config: &Config, info: &ModelInfo) -> Result<DeviceConfig> {
    Ok(DeviceConfig {
        page_size: config.engine.page_size,
        rows: config.row_budget(DEFAULT_ROWS),
        positions: config.max_model_len(info),
        sequences: config.engine.max_running,
        kv: match *config.engine.kv_memory {
            Some(bytes) => KvMemory::Bytes(bytes),
            None => KvMemory::Share(config.engine.device_memory),
        },
    })
}

/// The bytes of a device with `free` of `total` bytes that a model may take by default.
pub fn allowance(config: &Config, (free, total): (u64, u64)) -> u64 {
    let sizes = DeviceConfig {
        page_size: config.engine.page_size,
        rows: config.row_budget(DEFAULT_ROWS),
        positions: 0,
        sequences: config.engine.max_running,
        kv: KvMemory::Share(config.engine.device_memory),
    };
    sizes.allowance(free, total)
}

/// The memory that the configured model needs on a device with KV pages for one sequence.
///
/// # Errors
/// A model without kernels on a device.
pub fn least(
    config: &Config,
    checkpoint: &mut Checkpoint,
    info: &ModelInfo,
) -> Result<DeviceMemory> {
    let sizes =
        DeviceConfig { kv: KvMemory::Share(config.engine.device_memory), ..sizes(config, info)? };
    DeviceMemory::needed(checkpoint, info.formats.matrices, &sizes).map_err(exit::refused)
}

/// The same with the configured KV pages, if any.
///
/// # Errors
/// A model without kernels on a device; too little memory for one sequence.
fn needed(config: &Config, checkpoint: &mut Checkpoint, info: &ModelInfo) -> Result<DeviceMemory> {
    let least = least(config, checkpoint, info)?;
    let sizes = sizes(config, info)?;
    match sizes.kv {
        KvMemory::Share(_) => Ok(least),
        KvMemory::Bytes(bytes) if bytes < least.kv => Err(kv::too_little(config, info, least.kv)),
        KvMemory::Bytes(_) => {
            DeviceMemory::needed(checkpoint, info.formats.matrices, &sizes).map_err(exit::refused)
        }
    }
}

/// The configuration with the longest sequences that fit onto a device with this memory, free and in all.
///
/// # Errors
/// A checkpoint that cannot be loaded.
pub fn fitted(
    config: &Config,
    checkpoint: &mut Checkpoint,
    (free, total): (u64, u64),
) -> Result<Config> {
    kv::limit(config, checkpoint);
    let info = checkpoint.survey(*config.model.dtype).map_err(exit::refused)?.info;
    Ok(kv::longest(config, &info, |config| {
        let fits = |needed: DeviceMemory| {
            sizes(config, &info).is_ok_and(|sizes| needed.sum() <= sizes.allowance(free, total))
        };
        needed(config, checkpoint, &info).is_ok_and(fits)
    }))
}

/// A device that was found.
#[derive(Clone, Copy)]
pub struct FreeDevice<'a> {
    /// Its name.
    pub name: &'a str,
    /// Bytes that are free, and bytes in all.
    pub memory: (u64, u64),
}

/// The reason why the configured model does not fit onto a device, and a choice that fits.
///
/// # Errors
/// As [`needed`].
pub fn refusal(
    config: &Config,
    checkpoint: &mut Checkpoint,
    info: &ModelInfo,
    device: FreeDevice<'_>,
) -> Result<Option<String>> {
    let sizes = sizes(config, info)?;
    let needed = needed(config, checkpoint, info)?;
    let memory = device.memory;
    let room = sizes.allowance(memory.0, memory.1);
    if needed.sum() <= room {
        return Ok(None);
    }
    let found = match sizes.kv {
        KvMemory::Share(share) if room < memory.0 => {
            format!("{} allowed ({share} of {})", size(room), size(memory.1))
        }
        _ => format!("{} free", size(room)),
    };
    let auto = KvMemory::Share(config.engine.device_memory);
    let advice = advice(checkpoint, info.formats.matrices, sizes, auto, device)?;
    Ok(Some(format!(
        "{}: needs {} on {} ({} of weights in {}, {} for a step of up to {} rows, {} of KV \
         pages), {found}: {advice}",
        config.model.path,
        size(needed.sum()),
        device.name,
        size(needed.weights),
        info.formats.matrices.name(),
        size(needed.step),
        sizes.rows.max(sizes.positions),
        size(needed.kv),
    )))
}

/// A choice that fits. If fewer pages are enough, `auto` gets the rest of the memory.
fn advice(
    checkpoint: &mut Checkpoint,
    dtype: WeightDtype,
    sizes: DeviceConfig,
    auto: KvMemory,
    device: FreeDevice<'_>,
) -> Result<String> {
    let (free, total) = device.memory;
    let mut needed = |dtype, sizes: &DeviceConfig| {
        let needed = DeviceMemory::needed(checkpoint, dtype, sizes).map_err(exit::refused);
        needed.map(|needed| (needed.sum() <= sizes.allowance(free, total), needed))
    };
    let mut shorter =
        WeightDtype::ALL.into_iter().skip_while(|narrower| *narrower != dtype).skip(1);
    // Groups of some may not divide the matrices.
    let fitting = shorter.find(|narrower| needed(*narrower, &sizes).is_ok_and(|(fits, _)| fits));
    if let Some(fitting) = fitting {
        return Ok(format!("try --dtype {}", fitting.name()));
    }
    let mut shorter = DeviceConfig { kv: auto, ..sizes };
    let mut fewer_pages = "";
    if let KvMemory::Bytes(_) = sizes.kv {
        if let (true, needed) = needed(dtype, &shorter)? {
            let left = shorter.allowance(free, total) - needed.weights - needed.step;
            return Ok(match left >> 20 << 20 {
                whole if whole >= needed.kv => format!("try --kv-memory {}MiB", whole >> 20),
                _ => format!("try --kv-memory {}KiB", left >> 10),
            });
        }
        fewer_pages = " --kv-memory auto";
    }
    while shorter.positions / 2 >= MIN_POSITIONS {
        shorter.positions /= 2;
        let (length, rows) = (shorter.positions, shorter.rows.min(shorter.positions));
        if needed(dtype, &shorter)?.0 {
            return Ok(format!("try --max-model-len {length}{fewer_pages}"));
        }
        if needed(dtype, &DeviceConfig { rows, ..shorter })?.0 {
            return Ok(format!("try --max-model-len {length} --row-budget {rows}{fewer_pages}"));
        }
    }
    Ok("neither another dtype nor a shorter length fits, try --device cpu".to_owned())
}
