//! `asynclane inspect`: contents of a checkpoint, raw logits, this machine, a server's health.

mod decoders;
mod health;

use std::borrow::Cow;
use std::path::Path;

use anyhow::{Context, Result};
use engine::decoding::WeightKind;
use model::{
    Checkpoint, DeviceModel, DrafterInfo, ExpertInfo, LoadError, ModelInfo, TileSupport,
    WeightDtype,
};
use safetensors::tensor::{Dtype, TensorView};
use step::{Attention, LogitShift};

use crate::args::{CapacityArgs, InspectArgs, InspectCommand};
use crate::capacity;
use crate::config::Config;
use crate::determinism;
use crate::device;
use crate::exit;
use crate::fit;
use crate::hub;
use crate::kv;
use crate::load;
use crate::memory::{self, size};
use crate::models::room::POSITIONS;

/// Runs an inspection.
///
/// # Errors
/// A model that does not load, tokens out of range, an unhealthy server.
pub fn run(args: &InspectArgs) -> Result<()> {
    match &args.what {
        None | Some(InspectCommand::Model(_)) => model(args),
        Some(InspectCommand::Capacity(options)) => capacity(args, options),
        Some(InspectCommand::Device { selftest, steps }) => {
            machine_and_device();
            if steps.steps {
                let config = Config::resolve(&args.named(), None)?;
                device::steps::run(steps, &config)?;
            }
            if *selftest { crate::selftest::run() } else { Ok(()) }
        }
        Some(InspectCommand::Decoders { name }) => decoders::run(name.as_deref()),
        Some(InspectCommand::Logits { tokens, out, .. }) => logits(args, tokens, out),
        Some(InspectCommand::Determinism(options)) => {
            let named = args.named();
            determinism::run(options, || Config::resolve(&named, None))
        }
        Some(InspectCommand::Health(options)) => health::run(options, &args.model),
    }
}

fn model(args: &InspectArgs) -> Result<()> {
    let config = Config::resolve(&args.named(), None)?;
    let (path, checkpoint) = described(&config)?;
    let mut checkpoint = kv::with_format(checkpoint, &config);
    let tokenizer = load::configured_tokenizer(&path, &config)?;
    let survey = checkpoint.survey(*config.model.dtype).map_err(exit::refused)?;
    let info = &survey.info;
    kv::check_length(&config, info)?;
    tell!("family           {}", info.family);
    tell!("parameters       {}", info.parameters);
    tell!("layers           {}", info.layers);
    tell!("width            {}", info.width);
    if let Some(found) = checkpoint.quantization() {
        let how = match info.formats.matrices {
            WeightDtype::Blocks => "codes are kept",
            _ => "expanded when loaded",
        };
        tell!("quantized        {found}; {how}");
    }
    tell!("matrices         {}", load::kernels(info.formats.matrices));
    tell!(
        "heads            {} ({} for keys and values)",
        info.heads.num_heads,
        info.heads.num_kv_heads
    );
    tell!("head width       {}", info.heads.head_width);
    if let Some(canvas) = info.canvas {
        tell!("window           {}", canvas.window);
        tell!(
            "full attention   {} layers, {} heads of {} for keys and values",
            canvas.full_layers,
            canvas.full_heads.num_kv_heads,
            canvas.full_heads.head_width
        );
    }
    tell!("MLP width        {}", info.mlp_width);
    if let Some(ExpertInfo { count, chosen, .. }) = info.experts {
        tell!("experts          {count} ({chosen} for each row)");
    }
    print_attention(info);
    tell!("vocabulary       {}", info.vocabulary.size);
    tell!("max positions    {}", info.max_positions);
    let mask = info.vocabulary.mask.map_or_else(|| "none".to_owned(), |mask| mask.to_string());
    tell!("mask token       {mask}");
    tell!("end tokens       {:?}", info.vocabulary.end);
    tell!("chat template    {}", if tokenizer.chat_template().is_ok() { "yes" } else { "no" });
    let kv = info.kv_bytes_per_position();
    tell!("KV per position  {kv} bytes ({})", info.formats.kv.name());
    let page = config.engine.page_size;
    tell!(
        "KV pages         {} of {page} slots per GiB",
        (1 << 30) / (kv as u64 * u64::from(page)).max(1)
    );
    print_memory(&config, &mut checkpoint, info)?;
    let weights = config.weights(info);
    let decoders = config.decoders(weights)?;
    let decoder = decoders.spec(&decoders.blank()).to_string();
    tell!("presets          {}", presets(weights, &decoder));
    tell!("decoder          {decoder}");
    Ok(())
}

/// Prints the rows that a row sees, the row of a prediction, and the drafter.
fn print_attention(info: &ModelInfo) {
    match info.rows.drafter {
        None => {
            tell!("attention        {}", attention(info.rows.attention));
            tell!("predictions      {}", logit_shift(info.rows.logit_shift));
        }
        Some(DrafterInfo { layers, heads, block, mask }) => {
            tell!("attention        causal");
            tell!(
                "drafter          DFlash: {layers} layers, {} heads of {} for keys and values, blocks of \
                 {block}, mask token {mask}",
                heads.num_kv_heads,
                heads.head_width
            );
        }
    }
}

/// Prints the memory of weights and KV pages.
fn print_memory(config: &Config, checkpoint: &mut Checkpoint, info: &ModelInfo) -> Result<()> {
    let longest = config.max_model_len(info);
    let kv = info.kv_bytes_per_position() as u64 * u64::from(longest);
    tell!("KV at full length {} for one sequence of {longest} positions", size(kv));
    let usual = usual(config);
    kv::limit(&usual, checkpoint);
    dtypes(checkpoint, info)?;
    let with = |length: u32| match length < longest {
        true => format!(" with {length} positions"),
        false => String::new(),
    };
    let fitted = kv::fitted(config, checkpoint, 0)?;
    if let (Ok(needs), Some(free)) = (kv::needs(&fitted, checkpoint), memory::free()) {
        let shorter = with(fitted.max_model_len(info));
        let verdict = needs.refusal(free).unwrap_or_else(|| {
            let (needed, dtype) = (size(needs.bytes()), needs.dtype.name());
            format!("needs {needed} in {dtype}{shorter}, {} free", size(free))
        });
        tell!("on this CPU      {verdict}");
    }
    let usual = device::for_device(&usual, checkpoint);
    let info = &checkpoint.survey(*usual.model.dtype).map_err(exit::refused)?.info;
    if DeviceModel::unfit(info, *config.engine.kv_dtype).is_none() {
        let needed = device::least(&usual, checkpoint, info)?;
        tell!(
            "on a device      {} of weights, {} for the largest step, {} of KV pages at least{}",
            size(needed.weights),
            size(needed.step),
            size(needed.kv),
            with(usual.max_model_len(info)),
        );
    }
    Ok(())
}

/// The configuration with sequences as long as in the list of models, unless a length is configured.
fn usual(config: &Config) -> Config {
    let mut usual = config.clone();
    if config.model.max_model_len == 0 {
        usual.model.max_model_len = POSITIONS;
    }
    usual
}

/// The presets that suit the weights; the one of the default `decoder` is marked.
fn presets(weights: WeightKind, decoder: &str) -> String {
    let default = decoder.split(',').next();
    let names = weights.presets().map(|preset| match default == Some(preset.name) {
        true => format!("{} (default)", preset.name),
        false => preset.name.to_owned(),
    });
    names.collect::<Vec<_>>().join(", ")
}

fn attention(attention: Attention) -> String {
    match attention {
        Attention::Full => "full".to_owned(),
        Attention::BlocksAfterPrompt(length) => {
            format!("full in the prompt and in blocks of {length} after it, causal across")
        }
        Attention::Blocks(length) => format!("full in blocks of {length}, causal across"),
        Attention::OpenBlock(length) => {
            format!("causal, full in the open block of {length}, which causal rows begin")
        }
        Attention::Causal => "causal, committed tokens in front of masks".to_owned(),
        Attention::Canvas(length) => format!("full in canvases of {length}, causal before"),
    }
}

fn logit_shift(logit_shift: LogitShift) -> &'static str {
    match logit_shift {
        LogitShift::None => "at their own row",
        LogitShift::One => "at the row before",
    }
}

/// Prints upper bounds of speed and capacity by device.
fn capacity(args: &InspectArgs, options: &CapacityArgs) -> Result<()> {
    let config = Config::resolve(&args.named(), None)?;
    let checkpoint = match &options.config_json {
        Some(path) => fit::from_file(path)?,
        None => described(&config)?.1,
    };
    let mut checkpoint = kv::with_format(checkpoint, &config);
    let survey = checkpoint.survey(*config.model.dtype).map_err(exit::refused)?;
    let info = &survey.info;
    let context = capacity::context(options.context, config.max_model_len(info))?;
    let on_cpu = capacity::bytes_per_weight(info, survey.memory.weights, None);
    // Blocks have records of their own on a card, beside a table in bf16.
    let kv = *config.engine.kv_dtype;
    let is_own = info.formats.matrices == WeightDtype::Blocks;
    let is_own = is_own && DeviceModel::unfit(info, kv).is_none();
    let on_card = match is_own {
        true => {
            let needed = device::least(&config, &mut checkpoint, info)?;
            capacity::bytes_per_weight(info, needed.weights, Some(size_of::<u16>()))
        }
        false => on_cpu,
    };
    let here = capacity::measure(info, on_cpu);
    let kv = capacity::kv_bytes(info, options.kv_bytes, kv);
    let report = capacity::report(info, [on_card, kv], context, &options.machine, here)?;
    tell!("{}", report.trim_end());
    kv::limit(&usual(&config), &mut checkpoint);
    dtypes(&mut checkpoint, info)
}

/// The place of a model, and the model by its headers, or by its configuration alone if its weights are not
/// downloaded. A GGUF file has its configuration inside and is downloaded if it fits.
fn described(config: &Config) -> Result<(Cow<'_, str>, Checkpoint)> {
    let found = hub::description(&config.model.path)?;
    let place = match found.missing {
        None => found.place,
        Some(missing) if missing.is_gguf => fit::fetch(config)?,
        Some(missing) => {
            let bytes = fit::to_download(missing);
            let planned = fit::planned(Path::new(&*found.place), config)?;
            tell!("weights          not downloaded ({bytes}): by the configuration alone");
            return Ok((found.place, planned));
        }
    };
    let checkpoint = load::configured(&place, config)?;
    Ok((place, checkpoint))
}

/// Prints the memory of the weights in every dtype.
fn dtypes(checkpoint: &mut Checkpoint, info: &ModelInfo) -> Result<()> {
    let blocks = (info.formats.matrices == WeightDtype::Blocks).then_some(WeightDtype::Blocks);
    for dtype in WeightDtype::ALL.into_iter().chain(blocks) {
        let name = dtype.name();
        let memory = match checkpoint.survey(dtype) {
            Ok(survey) => survey.memory,
            Err(reason @ LoadError::Group { .. }) => {
                tell!("weights in {name:<5} not possible: {reason}");
                continue;
            }
            Err(error) => return Err(exit::refused(error)),
        };
        let (weights, loading) = (size(memory.weights), size(memory.loading));
        tell!("weights in {name:<5} {weights} in memory, {loading} while they load");
    }
    Ok(())
}

/// Prints the processor, the instructions for each dtype and the CUDA device.
fn machine_and_device() {
    tell!("{}", device::processor());
    for dtype in WeightDtype::ALL {
        tell!("{}", load::kernels(dtype));
    }
    let amx = match TileSupport::detect() {
        TileSupport::Absent => "none",
        TileSupport::Refused => "listed by the processor, refused by the system",
        TileSupport::Ready => "ready",
    };
    tell!("AMX: {amx}");
    tell!("CUDA: {}", device::describe());
}

fn logits(args: &InspectArgs, tokens: &[u32], out: &Path) -> Result<()> {
    let config = Config::resolve(&args.named(), None)?;
    let (logits, vocab) = load::logits(&config, tokens)?;
    let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
    let shape = vec![tokens.len(), vocab];
    let view = TensorView::new(Dtype::F32, shape, &bytes)?;
    let file = safetensors::serialize([("logits", view)], None)?;
    std::fs::write(out, file).with_context(|| out.display().to_string())
}
