//! The architectures, chosen by `config.json`.

mod arrays;
mod attention;
mod autoregressive;
mod block;
mod canvas;
mod conditioning;
mod decoder;
mod dflash;
mod drafting;
mod embedding;
mod experts;
mod gated;
mod gemma;
mod heads;
mod layer;
mod llada;
mod load;
mod mixture;
mod moe;
mod names;
mod nemotron;
mod network;
mod qwen;
mod shared_heads;
mod source;
mod stacked;
mod tensors;
mod work;

pub(crate) use network::Decoder;
pub(crate) use work::Work;

use crate::config::{DRAFTER, DrafterSpec, Keys, Spec};
use crate::files::Files;
use crate::weights::{DrafterFiles, Quantization, Weights};
use crate::{LoadError, ModelInfo, RowGate};
use kernels::{KvDtype, Storage, WeightDtype};
use load::Loader;
use step::{Attention, LogitShift, as_index};

/// A supported family of checkpoints.
pub struct Family {
    /// [`ModelInfo::family`].
    pub name: &'static str,
    /// The published checkpoints it was written for.
    pub about: &'static str,
    /// Its names in the key `architectures`, which takes precedence over `model_type`.
    pub architectures: &'static [&'static str],
    /// Its names in the key `model_type`, used if `architectures` is absent.
    pub model_types: &'static [&'static str],
    read: fn(&Keys) -> Result<Spec, LoadError>,
    names: &'static names::Names,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 17] = [
        llada::LLADA,
        qwen::DREAM,
        qwen::WEDLM,
        qwen::SDAR,
        qwen::FAST_DLLM_V2,
        qwen::A2D,
        qwen::CODA,
        qwen::RND1,
        qwen::STABLE_DIFFCODER,
        nemotron::NEMOTRON,
        moe::LLADA2,
        moe::LLADA_MOE,
        autoregressive::QWEN2,
        autoregressive::QWEN3,
        autoregressive::QWEN3_MOE,
        autoregressive::LLAMA,
        gemma::DIFFUSION_GEMMA,
    ];

    /// The family named in a configuration.
    fn find(config: &Keys) -> Result<Self, LoadError> {
        if config.get(DRAFTER).is_some() {
            let expected = "none: a drafter runs behind its target, as model.draft_model";
            return Err(config.refuse(DRAFTER, expected));
        }
        let listed = config.get("architectures").and_then(|list| list.get(0));
        let (key, named) = match (listed, config.get("model_type")) {
            (None, Some(named)) => ("model_type", Some(named)),
            (listed, _) => ("architectures", listed),
        };
        let named = named.and_then(|name| name.as_str());
        let known = |family: &Self| {
            let names = match key {
                "architectures" => family.architectures,
                _ => family.model_types,
            };
            named.is_some_and(|named| names.contains(&named))
        };
        Self::ALL.into_iter().find(known).ok_or_else(|| {
            let each = Self::ALL.map(|family| {
                let names = match key {
                    "architectures" => family.architectures,
                    _ => family.model_types,
                };
                names.join(", ")
            });
            config.refuse(key, format!("one of {}", each.join(", ")))
        })
    }
}

/// Refuses a configuration of no family and no drafter, or with a quantization that is not read.
pub(crate) fn supported(config: &Keys, files: &Files) -> Result<Option<Quantization>, LoadError> {
    if config.get(DRAFTER).is_none() {
        Family::find(config)?;
    }
    Quantization::read(config, files)
}

/// Loads the architecture named in the configuration, and its drafter.
pub(crate) fn load<S: Storage>(
    storage: &S,
    config: &Keys,
    weights: &mut Weights,
    drafter: Option<&mut DrafterFiles>,
) -> Result<(Decoder<S>, ModelInfo), LoadError> {
    let (mut spec, names) = read(config, weights)?;
    let drafter = drafter.map(|files| Ok((DrafterSpec::read(&files.config, &spec.info)?, files)));
    let drafter = drafter.transpose()?;
    let published = Family::find(config)?.names;
    let first_kv = 0;
    let loader =
        Loader { storage, weights: &mut *weights, spec: &spec, names, published, first_kv };
    let mut decoder = loader.decoder()?;
    weights.check_adapter()?;
    if let Some((drafts, files)) = drafter {
        files.begin(weights);
        decoder.drafter = Some(Box::new(dflash::load(storage, &decoder, files, &drafts)?));
        files.end(weights);
        drafts.join(&mut spec.info);
    }
    Ok((decoder, spec.info))
}

/// Checks a model whose blocks begin after the prompt.
const ONLY_FULL: &str = "a model with full attention, which blocks after the prompt need";

/// Checks a model whose rows are said to be strictly causal.
const ONLY_BLOCKS: &str = "a model with block-causal attention, which I-DLM's weights were made of";

/// The properties of the model that a configuration describes, without the number of parameters.
pub(crate) fn info(
    config: &Keys,
    weights: &Weights,
    drafter: Option<&DrafterFiles>,
) -> Result<ModelInfo, LoadError> {
    let mut info = read(config, weights)?.0.info;
    if let Some(files) = drafter {
        DrafterSpec::read(&files.config, &info)?.join(&mut info);
    }
    Ok(info)
}

/// Lets causal weights that predict the next token read masks, as an adapter taught them.
fn read_masks(info: &mut ModelInfo, mask: u32) -> Result<(), LoadError> {
    let refuse = |key: &str, expected: String, found: String| LoadError::Key {
        file: "adapter_config.json".to_owned(),
        key: key.to_owned(),
        expected,
        found,
    };
    if (info.rows.attention, info.rows.logit_shift) != (Attention::Causal, LogitShift::One) {
        let expected = "causal weights that predict the next token".to_owned();
        return Err(refuse("mask_token_id", expected, info.family.to_owned()));
    }
    let size = info.vocabulary.size;
    if as_index(mask) >= size {
        return Err(refuse("mask_token_id", format!("a token below {size}"), mask.to_string()));
    }
    info.vocabulary.mask = Some(mask);
    Ok(())
}

/// Checks that open blocks exist, whose rows an adapter changes.
fn check_open_blocks(config: &Keys, info: &ModelInfo) -> Result<(), LoadError> {
    match info.rows.attention {
        Attention::OpenBlock(_) => Ok(()),
        _ => Err(config.refuse("model_type", "nemotron_labs_diffusion, for an adapter for drafts")),
    }
}

/// The specification in the configuration and the names of its tensors.
fn read(config: &Keys, weights: &Weights) -> Result<(Spec, &'static names::Names), LoadError> {
    let family = Family::find(config)?;
    let mut spec = (family.read)(config)?;
    let names = match weights.is_gguf() {
        // Its tensors are found by their published names.
        true if spec.canvas.is_some() => family.names,
        true if weights.shape("blk.0.attn_qkv.weight").is_some() => &names::GGUF_FUSED,
        true => &names::GGUF,
        false => family.names,
    };
    if spec.head_if_stored {
        let shape = [spec.info.vocabulary.embedding_size, spec.info.width];
        spec.info.vocabulary.tied = !weights.has(&format!("{}.weight", names.head), &shape);
    }
    spec.check_divisors(config)?;
    spec.info.max_positions = weights.positions.unwrap_or(usize::MAX).min(spec.info.max_positions);
    spec.info.formats.matrices = weights.dtype;
    let is_short = weights.kv_of_matrices && weights.dtype != WeightDtype::F32;
    let kv = if is_short { KvDtype::Bf16 } else { KvDtype::F32 };
    spec.info.formats.kv = weights.kv_dtype.unwrap_or(kv);
    if let Some(length) = weights.prompt_blocks {
        spec.info.rows.attention = match spec.info.rows.attention {
            Attention::Full => Attention::BlocksAfterPrompt(length),
            _ => return Err(config.refuse("model_type", ONLY_FULL)),
        };
    }
    if weights.next_tokens {
        let rows = &mut spec.info.rows;
        match (rows.attention, rows.logit_shift) {
            (Attention::Blocks(_), LogitShift::None) | (Attention::Causal, LogitShift::One) => {}
            _ => return Err(config.refuse("model_type", ONLY_BLOCKS)),
        }
        (rows.attention, rows.logit_shift) = (Attention::Causal, LogitShift::One);
    }
    match weights.gate() {
        Some(RowGate::Masks(mask)) => read_masks(&mut spec.info, mask)?,
        Some(RowGate::OpenBlocks) => check_open_blocks(config, &spec.info)?,
        None => {}
    }
    spec.info.rows.gate = weights.gate();
    if let (Some(info), Some(experts)) = (&mut spec.info.experts, &spec.experts) {
        info.shared_width = experts.shared;
    }
    if let Some(tokens) = weights.vocabulary {
        spec.info.leave_out_padding(tokens);
    }
    Ok((spec, names))
}
