//! Loads the configured model: executor, tokenizer, stop set.

mod draft;
mod tokenizer;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use decode::{Filter, Weights};
use engine::decoding::WeightKind;
use engine::{ByPriority, Capabilities, EngineConfig, did_you_mean};
use model::{
    Candle, Checkpoint, Cpu, Device, Files, FilterWeights, Host, LoadError, Model, ModelExecutor,
    ModelInfo, RowGate, TileSupport, WeightDtype,
};
use step::Executor;
use text::Tokenizer;

use demo::checkpoint::{DEMO, Embedded, FILTER};

use crate::config::{BackendChoice, Config, DEFAULT_ROWS, Training};
use crate::device::{self, Hardware, PlacedModel};
use crate::exit;
use crate::fit;
use crate::hub;
use crate::kv;
use crate::names::escaped;
use crate::progress;
use crate::shelf;

pub use draft::DraftModel;
pub use tokenizer::{chat_ids, configured_tokenizer, conversation_ids, tokenizer};
use tokenizer::{prepare, stop_tokens};

/// A model ready to run.
pub struct LoadedModel {
    /// Runs the forward passes.
    pub executor: Box<dyn Executor>,
    /// The checkpoint's tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// The facts of the model that the engine and the server need.
    pub info: ModelInfo,
    /// The training of its weights.
    pub weights: WeightKind,
    /// The network of `learned_filter`.
    pub filter: Option<Arc<Filter>>,
    /// The draft model, if one is configured.
    pub draft: Option<DraftModel>,
    /// Every id that ends a turn.
    pub stop_tokens: Vec<u32>,
    /// The model name in requests.
    pub name: String,
    /// True if it is an embedded demo model.
    pub is_demo: bool,
    /// The device and its kernels.
    pub hardware: Hardware,
    /// Maximum positions of a sequence.
    pub max_model_len: u32,
}

/// Loads a checkpoint on the CPU with the configured backend.
///
/// # Errors
/// As [`load`].
pub fn on_cpu(checkpoint: Checkpoint, config: &Config) -> Result<PlacedModel> {
    match *config.model.backend {
        BackendChoice::Cpu => {
            let mut placed = on_host(Cpu::default(), checkpoint, config)?;
            let refused = refused_tiles(placed.info.formats.matrices, TileSupport::detect());
            placed.warnings.extend(refused);
            Ok(placed)
        }
        BackendChoice::Candle => on_host(Candle::default(), checkpoint, config),
    }
}

fn on_host<B: Host + 'static>(
    backend: B,
    checkpoint: Checkpoint,
    config: &Config,
) -> Result<PlacedModel> {
    let (checkpoint, bar) = progress::shown(checkpoint);
    let model = Model::load_on(backend, checkpoint).map_err(exit::refused)?;
    drop(bar);
    let (info, warnings) = (model.info().clone(), model.warnings().to_vec());
    let executor = ModelExecutor::new(model, kv::sizes(config, &info)?).map_err(exit::refused)?;
    Ok(PlacedModel {
        warnings,
        hardware: Hardware {
            device: Hardware::CPU.to_owned(),
            threads: executor.threads(),
            kernels: format!("{} by {}", info.formats.matrices.name(), executor.instructions()),
            kv_position: info.kv_bytes_per_position(),
            memory: None,
            graph_bytes: Arc::default(),
            row_budget: config.row_budget(DEFAULT_ROWS),
        },
        executor: Box::new(executor),
        max_model_len: config.max_model_len(&info),
        info,
    })
}

/// Loads the configured model and allocates its KV pages.
///
/// # Errors
/// One line naming the file, the key or tensor, what was expected and what was found.
pub fn load(config: &Config) -> Result<LoadedModel> {
    let filter = filter(config)?;
    let path = &*fit::fetch(config)?;
    let opened = configured(path, config).map_err(|error| advised(&config.model.path, error))?;
    let mut surveyed = kv::with_format(opened, config);
    let survey = surveyed.survey(*config.model.dtype).map_err(exit::refused)?;
    kv::check_length(config, &survey.info)?;
    let weights = config.weights(&survey.info);
    check_decoder(config, weights, filter.as_deref())?;
    let (gpu, mut fitted) = device::chosen(config, &mut surveyed)?;
    let draft = draft::choose(&fitted, path, &survey.info)?;
    let beside = draft.as_ref().map_or(0, |draft| draft.bytes);
    if gpu.is_none() && beside > 0 {
        fitted = kv::fitted(config, &mut surveyed, beside)?;
    }
    let words = configured_tokenizer(path, config)?;
    let tokens = words.vocab_size();
    let placed = placed((gpu, &fitted), surveyed, tokens, beside)?;
    let shortened = kv::shortened(config, &survey.info, placed.max_model_len);
    let draft = draft.map(draft::DraftCheckpoint::load).transpose()?;
    let info = placed.info;
    let tokenizer = Arc::new(prepare(words, &info, config)?);
    for warning in &placed.warnings {
        say!("warning: {}", escaped(&warning.to_string(), ""));
    }
    if let Some(shortened) = shortened {
        say!("warning: {shortened}");
    }
    let is_demo = Embedded::named(&config.model.path).is_some();
    let folder = hub::served_name(&config.model.path);
    let name = match config.model.served_name.as_str() {
        "" if is_demo => config.model.path.clone(),
        "" => folder.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned()),
        name => name.to_owned(),
    };
    Ok(LoadedModel {
        stop_tokens: stop_tokens(&tokenizer, &info),
        hardware: placed.hardware,
        executor: placed.executor,
        max_model_len: placed.max_model_len,
        tokenizer,
        info,
        weights,
        filter,
        draft,
        name,
        is_demo,
    })
}

/// The error of a checkpoint, with what to do if it lies in the hub's cache.
fn advised(path: &str, error: anyhow::Error) -> anyhow::Error {
    match exit::number(&error) {
        Some(exit::CHECKPOINT) => {
            exit::failure(exit::CHECKPOINT, format!("{error}{}", hub::advice(path)))
        }
        _ => error,
    }
}

/// Loads a checkpoint of the configured model, whose tokenizer has `tokens` tokens, onto the device chosen for
/// it, beside a draft model that needs `beside` bytes, and allocates its KV pages.
///
/// # Errors
/// As [`load`].
fn placed(
    (gpu, config): (Option<Device>, &Config),
    mut surveyed: Checkpoint,
    tokens: usize,
    beside: u64,
) -> Result<PlacedModel> {
    kv::limit(config, &mut surveyed);
    match gpu {
        Some(gpu) => device::on_device(&gpu, surveyed.with_vocabulary(tokens), config),
        None if *config.model.dtype == WeightDtype::Int8w => {
            let message =
                "model.dtype: int8w needs a CUDA device, expected int8 or bf16 on the CPU";
            Err(exit::failure(exit::CONFIG, message))
        }
        None => {
            let needs = kv::needs(config, &mut surveyed)?;
            fit::check(config, &needs, beside)?;
            let dtype = *config.model.dtype;
            let halves = wide_halves(dtype, &surveyed);
            let checkpoint =
                surveyed.with_dtype(dtype).with_expert_sharing(*config.model.expert_sharing);
            let mut placed = on_cpu(checkpoint.with_vocabulary(tokens), config)?;
            placed.warnings.extend(halves);
            Ok(placed)
        }
    }
}

/// The checkpoint in a folder or file, to be loaded as configured.
///
/// # Errors
/// As [`load`].
fn prepared(path: &str, config: &Config) -> Result<Checkpoint> {
    let checkpoint = configured(path, config)?;
    let checkpoint = kv::with_format(checkpoint.with_dtype(*config.model.dtype), config);
    Ok(checkpoint.with_expert_sharing(*config.model.expert_sharing))
}

/// The folder in which Nemotron-Labs-Diffusion has an adapter for drafts.
const DRAFT_ADAPTER: &str = "linear_spec_lora";

/// The checkpoint in a folder or file with the configured adapter, attention and drafter.
///
/// # Errors
/// As [`load`].
pub fn configured(path: &str, config: &Config) -> Result<Checkpoint> {
    let checkpoint = checkpoint(path)?;
    let blocks = Some(config.model.training.prompt_blocks).filter(|length| *length > 0);
    let training = &config.model.training;
    let mut names = [path, &config.model.path].into_iter();
    let by_name = names.any(hub::is_introspective_release);
    let next_tokens = training.introspective.unwrap_or(by_name);
    let trained = checkpoint.with_blocks_after_prompt(blocks).with_next_tokens(next_tokens);
    draft::in_layers(adapted(trained, training)?, config)
}

/// The checkpoint in a folder or file with the configured adapter.
///
/// # Errors
/// As [`load`].
fn adapted(checkpoint: Checkpoint, training: &Training) -> Result<Checkpoint> {
    let files = match training.lora.as_str() {
        "" => return Ok(checkpoint),
        folder => {
            hub::check_links(folder)?;
            Files::folder(folder)
        }
    };
    let is_for_drafts =
        Path::new(&training.lora).file_name().is_some_and(|name| name == DRAFT_ADAPTER);
    let gate = match training.lora_mask {
        0 => is_for_drafts.then_some(RowGate::OpenBlocks),
        mask => Some(RowGate::Masks(mask)),
    };
    checkpoint.with_lora(&files, gate).map_err(missing_or_refused)
}

/// The error of a file that the operator named beside the model.
fn missing_or_refused(error: LoadError) -> anyhow::Error {
    match error {
        LoadError::MissingFile { .. } => exit::failure(exit::NO_INPUT, error.to_string()),
        _ => exit::refused(error),
    }
}

/// Logits of one full forward pass on the CPU, row-major, and the number of tokens with a logit.
///
/// # Errors
/// As [`load`]; tokens that are out of range.
pub fn logits(config: &Config, tokens: &[u32]) -> Result<(Vec<f32>, usize)> {
    let checkpoint = prepared(&fit::fetch(config)?, config)?;
    match *config.model.backend {
        BackendChoice::Cpu => logits_on(Cpu::default(), checkpoint, tokens),
        BackendChoice::Candle => logits_on(Candle::default(), checkpoint, tokens),
    }
}

fn logits_on<B: Host>(
    backend: B,
    checkpoint: Checkpoint,
    tokens: &[u32],
) -> Result<(Vec<f32>, usize)> {
    let (checkpoint, _bar) = progress::shown(checkpoint);
    let model = Model::load_on(backend, checkpoint).map_err(exit::refused)?;
    let logits = model.logits(tokens);
    let logits = logits.map_err(|error| exit::failure(exit::USAGE, error.to_string()))?;
    Ok((logits, model.info().vocabulary.size))
}

/// The configuration and headers of an embedded model, a folder or a GGUF file.
///
/// # Errors
/// As [`load`].
pub fn checkpoint(path: &str) -> Result<Checkpoint> {
    let folder = Path::new(path);
    let files = if let Some(embedded) = Embedded::named(path) {
        Files::memory(embedded.files())
    } else if hub::is_gguf(path) {
        Files::gguf_file(folder)
    } else if folder.is_dir() {
        Files::folder(folder)
    } else {
        let found = match folder.exists() {
            true => "neither a folder nor a GGUF file",
            false => "no such file or folder",
        };
        let hint = did_you_mean(path, shelf::names());
        let message = format!(
            "{path}: {found}{hint}; expected a Hugging Face folder, a GGUF file, an id on the hub, or a \
             name of `asynclane models`, such as `demo`"
        );
        return Err(exit::failure(exit::NO_INPUT, message));
    };
    Checkpoint::open(&files).map_err(exit::refused)
}

/// A dtype and its instructions on this CPU, for logs and labels.
pub fn kernels(dtype: WeightDtype) -> String {
    format!("{} by {}", dtype.name(), dtype.instructions())
}

/// A warning if the processor has a tile unit for this dtype that the system does not let it use.
fn refused_tiles(dtype: WeightDtype, support: TileSupport) -> Option<String> {
    let has_tiles = matches!(dtype, WeightDtype::Bf16 | WeightDtype::Int8);
    let is_slower = has_tiles && support == TileSupport::Refused;
    is_slower.then(|| {
        format!(
            "the processor lists AMX, but the system refuses the permission to use it; matrices are \
             multiplied as {}",
            kernels(dtype)
        )
    })
}

/// A warning if large matrices in F16 are multiplied in f32 on a processor that has products of bf16.
fn wide_halves(dtype: WeightDtype, checkpoint: &Checkpoint) -> Option<String> {
    let is_wide = checkpoint.dtype_on_device(dtype) != dtype;
    let has_products = WeightDtype::Bf16.instructions() != WeightDtype::F32.instructions();
    (is_wide && has_products).then(|| {
        "matrices in F16 are multiplied exactly, in f32; --dtype bf16 rounds them and is about twice \
         as fast"
            .to_owned()
    })
}

/// The engine's configuration for this model.
pub fn engine_config(config: &Config, loaded: &LoadedModel) -> EngineConfig {
    EngineConfig {
        max_running: config.engine.max_running,
        max_waiting: config.engine.max_waiting,
        row_budget: loaded.hardware.row_budget,
        long_quantum: config.long_quantum(loaded.hardware.row_budget),
        // So that no part of a prompt makes a step longer than its rows say.
        prefill_chunk: config.engine.prefill_chunk.min(loaded.hardware.row_budget),
        grammar_timeout: config.grammar_timeout(),
        prefix_cache: config.engine.prefix_cache,
        max_model_len: Some(loaded.max_model_len),
        classes: loaded.tokenizer.classes(),
        wait_order: Arc::new(ByPriority),
        capabilities: Capabilities {
            filter: loaded.filter.clone(),
            edits: loaded.weights.edits,
            drafts: loaded.draft.is_some(),
            block_drafts: loaded.info.rows.drafter.is_some(),
            masks: loaded.weights.masks,
        },
    }
}

/// Refuses a default decoder that does not go with the weights or the filter.
fn check_decoder(config: &Config, weights: WeightKind, filter: Option<&Filter>) -> Result<()> {
    let decoders = config.decoders(weights)?;
    let decoding = decoders.resolve(&decoders.blank())?;
    weights.admits(&decoding, filter.map(Filter::size)).map_err(|fault| {
        let message = format!("model.decoder: {}: {}", fault.setting, fault.message);
        exit::failure(exit::CONFIG, message)
    })
}

/// The configured filter; the demo model has an embedded one.
fn filter(config: &Config) -> Result<Option<Arc<Filter>>> {
    let file = match config.model.training.filter.as_str() {
        "" if config.model.path == DEMO.name => {
            let files = Files::memory(DEMO.files());
            FilterWeights::open(&files, FILTER)
        }
        "" => return Ok(None),
        path => FilterWeights::read(Path::new(path)),
    };
    Ok(Some(Arc::new(network(file.map_err(missing_or_refused)?)?)))
}

/// The filter network with these weights.
///
/// # Errors
/// Layers whose sizes do not match.
pub fn network(weights: FilterWeights) -> Result<Filter> {
    Ok(Filter::new(Weights {
        first: weights.first,
        first_bias: weights.first_bias,
        second: weights.second,
        second_bias: weights.second_bias,
    })?)
}

#[cfg(test)]
mod tests {
    use super::{TileSupport, WeightDtype, refused_tiles};

    #[test]
    fn a_refused_tile_unit_is_said_where_it_would_be_used() {
        let said = |dtype, support| refused_tiles(dtype, support).is_some();
        assert!(said(WeightDtype::Bf16, TileSupport::Refused));
        assert!(said(WeightDtype::Int8, TileSupport::Refused));
        assert!(!said(WeightDtype::F32, TileSupport::Refused));
        assert!(!said(WeightDtype::Bf16, TileSupport::Ready));
        assert!(!said(WeightDtype::Int8, TileSupport::Absent));
    }
}
