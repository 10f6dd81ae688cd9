//! The length of sequences, and the KV pages on the CPU with the memory that they leave.

use std::iter::successors;

use anyhow::Result;
use model::{Checkpoint, ExecutorConfig, ModelInfo, Survey, WeightDtype};

use crate::config::{BackendChoice, Config};
use crate::exit;
use crate::memory::{self, Need, Needs};

/// Default bytes for KV pages on the CPU where a sequence of full length needs no more, or more than
/// [`MAX_CPU_KV_BYTES`].
const DEFAULT_CPU_KV_BYTES: u64 = 512 << 20;
/// Maximum bytes for KV pages on the CPU that nobody has asked for.
const MAX_CPU_KV_BYTES: u64 = 8 << 30;

/// Fewest positions of a sequence that are chosen for a small memory.
const LEAST_POSITIONS: u32 = 1024;

/// The configuration with the longest sequences that fit: of the configured length, or of the model's context or
/// its half, quarter and so on. If none fits, the shortest, so that a refusal names what else is too large.
pub fn longest(config: &Config, info: &ModelInfo, mut fits: impl FnMut(&Config) -> bool) -> Config {
    let is_auto = config.model.max_model_len == 0;
    let half = |length: &u32| Some(length / 2).filter(|half| is_auto && *half >= LEAST_POSITIONS);
    let mut chosen = config.clone();
    for length in successors(Some(config.max_model_len(info)), half) {
        chosen.model.max_model_len = length;
        if fits(&chosen) {
            break;
        }
    }
    chosen
}

/// The configuration with the longest sequences whose keys and values fit into the memory of the CPU beside
/// `drafts` bytes of a draft model.
///
/// # Errors
/// A checkpoint that cannot be loaded.
pub fn fitted(config: &Config, checkpoint: &mut Checkpoint, drafts: u64) -> Result<Config> {
    limit(config, checkpoint);
    let dtype = read_as(config);
    let Survey { info, memory } = checkpoint.survey(dtype).map_err(exit::refused)?;
    // A tenth is left for everything else.
    let free = memory::free().map(|free| free.saturating_sub(drafts) / 10 * 9);
    Ok(longest(config, &info, |config| {
        let fits = |sizes| {
            let need = Need { memory, kv: pool_bytes(&sizes, &info) };
            free.is_none_or(|free| need.most() <= free)
        };
        sizes(config, &info).is_ok_and(fits)
    }))
}

/// A line about sequences that are shorter than the model's context because more does not fit.
pub fn shortened(config: &Config, info: &ModelInfo, length: u32) -> Option<String> {
    let built = config.max_model_len(info);
    let line = || {
        let bytes = info.kv_bytes_per_position() as u64 * u64::from(built);
        format!(
            "sequences are limited to {length} positions: keys and values for the model's {built} would take {} \
             (model.max_model_len)",
            memory::size(bytes)
        )
    };
    (length < built).then(line)
}

/// Limits a checkpoint to the configured length.
pub fn limit(config: &Config, checkpoint: &mut Checkpoint) {
    let positions = Some(config.model.max_model_len as usize);
    checkpoint.limit(positions.filter(|positions| *positions > 0));
}

/// Refuses a configured length that the model was not built for.
///
/// # Errors
/// One line with both lengths.
pub fn check_length(config: &Config, info: &ModelInfo) -> Result<()> {
    let (asked, built) = (config.model.max_model_len, config.max_model_len(info));
    if asked <= built {
        return Ok(());
    }
    let message = format!(
        "model.max_model_len: expected at most {built}, the context of {}, found {asked}",
        config.model.path
    );
    Err(exit::failure(exit::CONFIG, message))
}

/// Bytes for KV pages on the CPU if none are configured, where a sequence of full length needs `needed`.
fn cpu_default(needed: u64) -> u64 {
    match needed <= MAX_CPU_KV_BYTES {
        true => DEFAULT_CPU_KV_BYTES.max(needed),
        false => DEFAULT_CPU_KV_BYTES,
    }
}

/// The KV pages that fit into the configured memory on the CPU; by default one sequence of full length
/// fits if it needs at most 8 GiB.
///
/// # Errors
/// Too little memory for one sequence.
pub fn sizes(config: &Config, info: &ModelInfo) -> Result<ExecutorConfig> {
    let page = info.kv_bytes_per_position() as u64 * u64::from(config.engine.page_size);
    let needed = config.max_model_len(info).div_ceil(config.engine.page_size);
    let default = cpu_default(u64::from(needed) * page);
    let bytes = config.engine.kv_memory.unwrap_or(default);
    let pages = u32::try_from(bytes / page.max(1)).unwrap_or(u32::MAX);
    if pages < needed {
        return Err(too_little(config, info, u64::from(needed) * page));
    }
    Ok(ExecutorConfig { page_size: config.engine.page_size, pages, threads: None })
}

/// The memory that the configured model needs.
///
/// # Errors
/// A checkpoint that cannot be loaded; too little memory for the pages of one sequence.
pub fn needs(config: &Config, checkpoint: &mut Checkpoint) -> Result<Needs> {
    limit(config, checkpoint);
    let pool = |info: &ModelInfo| Ok(pool_bytes(&sizes(config, info)?, info));
    Needs::survey(checkpoint, read_as(config), pool)
}

/// The dtype that weights are read as on the CPU.
fn read_as(config: &Config) -> WeightDtype {
    match (*config.model.dtype, *config.model.backend) {
        // Candle widens all but int8 to f32.
        (WeightDtype::Bf16 | WeightDtype::Int4 | WeightDtype::Blocks, BackendChoice::Candle) => {
            WeightDtype::F32
        }
        (dtype, _) => dtype,
    }
}

/// Bytes of all KV pages.
fn pool_bytes(sizes: &ExecutorConfig, info: &ModelInfo) -> u64 {
    let slots = u64::from(sizes.pages) * u64::from(sizes.page_size);
    slots.saturating_mul(info.kv_bytes_per_position() as u64)
}

/// A checkpoint with the configured number format of keys and values. `auto` is f32 where products are, and
/// bf16 beside shorter weights.
pub fn with_format(checkpoint: Checkpoint, config: &Config) -> Checkpoint {
    match *config.engine.kv_dtype {
        Some(dtype) => checkpoint.with_kv_dtype(dtype),
        None if *config.model.backend == BackendChoice::Candle => checkpoint,
        None => checkpoint.with_kv_of_matrices(),
    }
}

/// The error of a KV memory that is smaller than the `needed` bytes of one sequence.
pub fn too_little(config: &Config, info: &ModelInfo, needed: u64) -> anyhow::Error {
    let found = match *config.engine.kv_memory {
        None => {
            format!("{} ({})", config.engine.kv_memory.as_str(), memory::size(DEFAULT_CPU_KV_BYTES))
        }
        Some(_) => config.engine.kv_memory.as_str().to_owned(),
    };
    let message = format!(
        "engine.kv_memory: expected at least {} KiB for one sequence of {} positions \
         (model.max_model_len), found {found}",
        needed.div_ceil(1024),
        config.max_model_len(info),
    );
    exit::failure(exit::CONFIG, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Text;
    use model::KvDtype;

    #[test]
    fn sequences_are_as_long_as_fits() {
        let text = include_str!("shelf/diffusiongemma-26b.json");
        let mut checkpoint = Checkpoint::planned(text).unwrap();
        let info = checkpoint.survey(WeightDtype::Int4).unwrap().info;
        let chosen = |length, most: u32| {
            let mut config = Config::default();
            config.model.max_model_len = length;
            let chosen = longest(&config, &info, |config| config.model.max_model_len <= most);
            chosen.max_model_len(&info)
        };
        let built = info.max_positions as u32;
        assert_eq!(built, 1 << 18);
        for (most, expected) in [(u32::MAX, built), (built - 1, built / 2), (9000, 8192), (1, 1024)]
        {
            assert_eq!(chosen(0, most), expected);
        }
        // A configured length stays.
        assert_eq!(chosen(5000, 1), 5000);
        let said = shortened(&Config::default(), &info, 8192).unwrap();
        assert!(
            said.starts_with(
                "sequences are limited to 8192 positions: keys and values for the model's 262144"
            ),
            "{said}"
        );
        assert_eq!(shortened(&Config::default(), &info, built), None);
    }

    #[test]
    fn keys_and_values_are_as_precise_as_products() {
        let format = |dtype: WeightDtype, more: fn(&mut Config)| {
            let mut config = Config::default();
            more(&mut config);
            let text = include_str!("shelf/diffusiongemma-26b.json");
            let mut checkpoint = with_format(Checkpoint::planned(text).unwrap(), &config);
            checkpoint.survey(dtype).unwrap().info.formats.kv
        };
        for dtype in WeightDtype::ALL {
            let expected = match dtype {
                WeightDtype::F32 => KvDtype::F32,
                _ => KvDtype::Bf16,
            };
            assert_eq!(format(dtype, |_| ()), expected, "{}", dtype.name());
            let asked = format(dtype, |config| config.engine.kv_dtype = Text::literal("int8"));
            assert_eq!(asked, KvDtype::Int8);
            let candle = format(dtype, |config| config.model.backend = Text::literal("candle"));
            assert_eq!(candle, KvDtype::F32);
        }
    }

    #[test]
    fn by_default_a_sequence_of_full_length_fits() {
        assert_eq!(cpu_default(1 << 20), DEFAULT_CPU_KV_BYTES);
        assert_eq!(cpu_default(4 << 30), 4 << 30);
        // A context that few requests fill gets the default; `--kv-memory` asks for more.
        assert_eq!(cpu_default(30 << 30), DEFAULT_CPU_KV_BYTES);
    }
}
