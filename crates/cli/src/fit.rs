//! The check that a model fits on this machine, before its weights are downloaded or read.

use std::borrow::Cow;
use std::path::Path;

use anyhow::Result;
use model::{Checkpoint, Device, Files, WeightDtype};

use crate::config::{BackendChoice, Config, DeviceChoice};
use crate::device::{self, ComputeDevice};
use crate::exit;
use crate::hub::{self, Missing};
use crate::kv;
use crate::memory::{self, Needs, size};
use crate::names::shown;

/// The folder or GGUF file of the configured model. Weights that are not here are downloaded if the model
/// fits, or if the user insists.
///
/// # Errors
/// As [`hub::folder`]; a model that does not fit.
pub fn fetch(config: &Config) -> Result<Cow<'_, str>> {
    let path = &config.model.path;
    let found = hub::description(path)?;
    let Some(missing) = found.missing else {
        return Ok(found.place);
    };
    match missing.is_gguf {
        true => check_file(config, missing)?,
        false => check_planned(config, &found.place, missing)?,
    }
    hub::folder(path)
}

/// A model of which only the configuration is in `folder`.
///
/// # Errors
/// A file that cannot be read, a configuration that this server does not read.
pub fn planned(folder: &Path, config: &Config) -> Result<Checkpoint> {
    let blocks = Some(config.model.training.prompt_blocks).filter(|length| *length > 0);
    let planned = Checkpoint::planned_in(&Files::folder(folder)).map_err(exit::refused)?;
    Ok(planned.with_blocks_after_prompt(blocks))
}

/// A model of which only this `config.json` is here.
///
/// # Errors
/// As [`planned`].
pub fn from_file(path: &Path) -> Result<Checkpoint> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        exit::failure(exit::NO_INPUT, message)
    })?;
    Checkpoint::planned(&text).map_err(exit::refused)
}

/// Refuses the configured model if it does not fit into the free memory beside `drafts` bytes of a draft
/// model.
///
/// # Errors
/// One line with the needed bytes, the free bytes and a suggestion.
pub fn check(config: &Config, needs: &Needs, drafts: u64) -> Result<()> {
    let refusal = memory::free().and_then(|free| needs.refusal(free.saturating_sub(drafts)));
    let beside = match drafts {
        0 => String::new(),
        bytes => format!("; beside {} of the draft model", size(bytes)),
    };
    refusal.map_or(Ok(()), |refusal| {
        refuse(config, &format!("{}: {refusal}{beside}", config.model.path))
    })
}

/// Refuses a model that does not fit, unless the user insists.
fn refuse(config: &Config, reason: &str) -> Result<()> {
    if config.force {
        say!("warning: {reason}");
        return Ok(());
    }
    Err(exit::failure(exit::CHECKPOINT, format!("{reason} (--force goes on)")))
}

/// The bytes of missing files, in words.
pub fn to_download(missing: Missing) -> String {
    missing.bytes.map_or("an unknown number of bytes".to_owned(), size)
}

/// Checks a model by its configuration in `folder`.
fn check_planned(config: &Config, folder: &str, missing: Missing) -> Result<()> {
    let mut planned = kv::with_format(planned(Path::new(folder), config)?, config);
    let info = planned.survey(*config.model.dtype).map_err(exit::refused)?.info;
    kv::check_length(config, &info)?;
    let facts = format!(
        "{}: {:.2} billion parameters, {} to download",
        shown(&config.model.path),
        info.parameters as f64 / 1e9,
        to_download(missing)
    );
    if let ComputeDevice::Cuda(device, config) = device::compute_device(config, &mut planned)? {
        let needed = size(device::least(&config, &mut planned, &info)?.sum());
        say!("{facts}, {needed} of {} in {}", device.name(), info.formats.matrices.name());
        return Ok(());
    }
    let needs = kv::needs(&kv::fitted(config, &mut planned, 0)?, &mut planned)?;
    let refusal = memory::free().and_then(|free| needs.refusal(free));
    if let Some(refusal) = refusal {
        return refuse(config, &format!("{facts}: {refusal}"));
    }
    say!("{facts}, {} of memory in {}", size(needs.bytes()), needs.dtype.name());
    Ok(())
}

/// Checks a model whose configuration is inside the file to be downloaded: on the CPU its blocks take no
/// less memory than the file.
fn check_file(config: &Config, missing: Missing) -> Result<()> {
    let facts = format!("{}: {} to download", shown(&config.model.path), to_download(missing));
    let is_cpu = *config.model.device == DeviceChoice::Cpu
        || *config.model.backend == BackendChoice::Candle
        || !Device::BUILT;
    let keeps_blocks = *config.model.dtype == WeightDtype::Blocks;
    if let (Some(bytes), Some(free), true) = (missing.bytes, memory::free(), is_cpu && keeps_blocks)
        && bytes > free
    {
        let free = size(free);
        let message = format!(
            "{facts}: needs as much memory at least, {free} free: try a file of fewer bits a weight"
        );
        return refuse(config, &message);
    }
    say!("{facts}, as much memory at least");
    Ok(())
}
