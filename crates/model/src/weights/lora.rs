//! A LoRA adapter (arXiv 2106.09685) in PEFT's files: matrices of low rank that are added to those of the
//! checkpoint while they are read, or are for some rows.

use std::collections::{BTreeMap, BTreeSet};

use candle_core::{Device, Tensor};
use kernels::{Epilogue, Linear, Matrix, WeightDtype};
use serde_json::Value;

use super::shard::{Shards, is_or_ends_with};
use crate::config::Keys;
use crate::files::Files;
use crate::{LoadError, RowGate};

/// The adapter's configuration.
const CONFIG: &str = "adapter_config.json";
/// The adapter's weights.
const WEIGHTS: &str = "adapter_model.safetensors";
/// The prefix of PEFT before the name of a module.
const PREFIX: &str = "base_model.model.";
/// The ends of the names of the two factors.
const ENDS: [&str; 2] = [".lora_A.weight", ".lora_B.weight"];
/// The embedding of a token that was trained with the adapter.
const EMBEDDING: &str = "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta";
/// Rows of a matrix to which a product is added at once, so that they stay in the cache.
const STRIP: usize = 64;
/// Highest rank.
const MOST_RANK: usize = 4_096;
/// Keys whose presence with another value asks for something else than `W + s B A`.
const PLAIN: [(&str, &str); 10] = [
    ("peft_type", r#""LORA""#),
    ("bias", r#""none""#),
    ("use_dora", "false"),
    ("lora_bias", "false"),
    ("fan_in_fan_out", "false"),
    ("rank_pattern", "{}"),
    ("alpha_pattern", "{}"),
    ("modules_to_save", "null"),
    ("layer_replication", "null"),
    ("use_qalora", "false"),
];
/// Starts of the `init_lora_weights` that change the matrices beside the factors. PEFT can save such adapters in
/// the plain form.
const CHANGED_BASES: [&str; 4] = ["pissa", "olora", "corda", "loftq"];

/// An opened adapter.
pub(super) struct Lora {
    shards: Shards,
    /// The module of each matrix that is changed, by the matrix.
    modules: BTreeMap<String, String>,
    pub(super) rank: usize,
    pub(super) scale: f32,
    /// The rows that it changes, if these are not all.
    pub(super) gate: Option<RowGate>,
}

impl Lora {
    /// Opens `adapter_config.json` and `adapter_model.safetensors`. `shape` tells the shape of a matrix of
    /// the checkpoint, or what is found in its place; `has_module`, if a module of the checkpoint has a name
    /// or ends with it. An adapter for masks is checked when the model is loaded.
    ///
    /// # Errors
    /// A missing or malformed file, another kind of adapter, a tensor that is no factor of a matrix of the
    /// checkpoint, a target module of the checkpoint without tensors.
    pub(super) fn open<'a>(
        files: &Files,
        gate: Option<RowGate>,
        shape: impl Fn(&str) -> Result<&'a [usize], &'static str>,
        has_module: impl Fn(&str) -> bool,
    ) -> Result<Self, LoadError> {
        let config = Keys::parse(CONFIG, &files.open(CONFIG)?)?;
        let (rank, scale) = rank_and_scale(&config)?;
        let gate = stated_gate(&config, gate)?;
        let has_embedding = matches!(gate, Some(RowGate::Masks(_)));
        let shards = Shards::single(files, WEIGHTS)?;
        let mut modules = BTreeMap::new();
        for name in shards.names().filter(|name| !has_embedding || *name != EMBEDDING) {
            let module = module_of(name).ok_or_else(|| {
                let expected = format!("{PREFIX}MODULE{} or {}", ENDS[0], ENDS[1]);
                refuse(name, expected, "another name".to_owned())
            })?;
            let matrix = format!("{module}.weight");
            let found = match shape(&matrix) {
                _ if gate.is_some() => None,
                Ok([_, _]) => None,
                Ok(other) => Some(format!("shape {other:?}")),
                Err(found) => Some(found.to_owned()),
            };
            if let Some(found) = found {
                return Err(refuse(name, format!("the matrix {matrix} in the checkpoint"), found));
            }
            modules.insert(matrix, module.to_owned());
        }
        if modules.is_empty() {
            let expected = format!("{PREFIX}MODULE{}", ENDS[0]);
            return Err(refuse("tensors", expected, "none".to_owned()));
        }
        check_targets(&config, &modules, has_module)?;
        let lora = Self { shards, modules, rank, scale, gate };
        for matrix in lora.modules.keys().filter(|_| gate.is_none()) {
            if let Ok([rows, columns]) = shape(matrix) {
                lora.factors(matrix, [*rows, *columns], false)?;
            }
        }
        Ok(lora)
    }

    /// Adds `scale B A`, a product in f32, to the elements of a matrix `[rows, columns]`. Other tensors stay as
    /// they are.
    pub(super) fn merge(
        &self,
        name: &str,
        shape: &[usize],
        elements: &mut [f32],
    ) -> Result<(), LoadError> {
        let merged = self.gate.is_none() && self.modules.contains_key(name) && !elements.is_empty();
        let (true, &[rows, columns]) = (merged, shape) else {
            return Ok(());
        };
        let (a, b) = self.factors(name, [rows, columns], true)?;
        self.add_product([&a, &b], columns, elements)
            .map_err(|error| LoadError::Setup(error.to_string()))?;
        match elements.iter().position(|element| !element.is_finite()) {
            None => Ok(()),
            Some(index) => Err(LoadError::NotFinite {
                file: WEIGHTS.to_owned(),
                tensor: name.to_owned(),
                found: elements[index],
                index,
            }),
        }
    }

    /// Adds `B (scale A)` to the elements of a matrix with rows of `columns`, some rows at a time.
    fn add_product(
        &self,
        [a, b]: [&[f32]; 2],
        columns: usize,
        elements: &mut [f32],
    ) -> candle_core::Result<()> {
        let (rank, device) = (self.rank, &Device::Cpu);
        let scaled = |i: usize| self.scale * a[i % rank * columns + i / rank];
        let weight: Vec<f32> = (0..a.len()).map(scaled).collect();
        let matrix = Matrix { weight: &weight, k: rank, bias: None };
        let matrix = Linear::new(matrix, WeightDtype::F32, Epilogue::None)?;
        for (elements, b) in elements.chunks_mut(STRIP * columns).zip(b.chunks(STRIP * rank)) {
            let rows = b.len() / rank;
            let b = Tensor::from_slice(b, (rows, rank), device)?;
            let sums = Tensor::from_slice(elements, (rows, columns), device)?;
            let sums = matrix.forward_add(&b, &sums)?.flatten_all()?.to_vec1()?;
            elements.copy_from_slice(&sums);
        }
        Ok(())
    }

    /// True if the adapter has factors of a matrix.
    pub(super) fn changes(&self, name: &str) -> bool {
        self.modules.contains_key(name)
    }

    /// A matrix of the adapter that is not among those `used`.
    pub(super) fn unused(&self, used: &BTreeSet<String>) -> Option<LoadError> {
        let (matrix, module) = self.modules.iter().find(|(name, _)| !used.contains(*name))?;
        let (expected, found) = (
            format!("a matrix that the model uses, {matrix}"),
            "one that it does not use".to_owned(),
        );
        Some(refuse(&format!("{PREFIX}{module}{}", ENDS[0]), expected, found))
    }

    /// The embedding `[width]` that was trained with an adapter for masks, empty if not `reads`; `None` if
    /// there is none.
    pub(super) fn embedding(
        &self,
        width: usize,
        reads: bool,
    ) -> Result<Option<Vec<f32>>, LoadError> {
        if self.shards.shape(EMBEDDING).is_none() {
            return Ok(None);
        }
        let stored = self.shards.find(EMBEDDING, &[1, width])?;
        let mut values = Vec::new();
        if reads {
            stored.read(EMBEDDING, &mut values)?;
        }
        Ok(Some(values))
    }

    /// A `[rank, columns]` and B `[rows, rank]` of a matrix, empty if not `reads`.
    pub(super) fn factors(
        &self,
        matrix: &str,
        [rows, columns]: [usize; 2],
        reads: bool,
    ) -> Result<(Vec<f32>, Vec<f32>), LoadError> {
        let module = self.modules.get(matrix).map_or("", String::as_str);
        let factor = |end: &str, shape: [usize; 2]| {
            let name = format!("{PREFIX}{module}{end}");
            let stored = self.shards.find(&name, &shape)?;
            let mut values = Vec::new();
            if reads {
                stored.read(&name, &mut values)?;
            }
            Ok(values)
        };
        Ok((factor(ENDS[0], [self.rank, columns])?, factor(ENDS[1], [rows, self.rank])?))
    }
}

/// The module of a factor's name.
fn module_of(name: &str) -> Option<&str> {
    let name = name.strip_prefix(PREFIX)?;
    let ends = ENDS.iter();
    ends.filter_map(|end| name.strip_suffix(end)).find(|module| !module.is_empty())
}

/// The rows that an adapter changes: the given ones, or masks if it has a `mask_token_id`.
fn stated_gate(config: &Keys, gate: Option<RowGate>) -> Result<Option<RowGate>, LoadError> {
    if config.get("trainable_token_indices").is_some_and(|tokens| !tokens.is_null())
        && config.get("mask_token_id").is_none()
    {
        return Err(config.refuse("trainable_token_indices", "null, or a mask_token_id beside it"));
    }
    match (gate, config.get("mask_token_id")) {
        (Some(gate), _) => Ok(Some(gate)),
        (None, None) => Ok(None),
        (None, Some(_)) => {
            let mask = config.optional_count("mask_token_id")?;
            let mask = mask.and_then(|mask| u32::try_from(mask).ok());
            let gate = mask.map(RowGate::Masks);
            gate.map(Some).ok_or_else(|| config.refuse("mask_token_id", "a token's id"))
        }
    }
}

/// r, and alpha / r or, of rank-stabilised adapters (arXiv 2312.03732), alpha / √r.
fn rank_and_scale(config: &Keys) -> Result<(usize, f32), LoadError> {
    if config.get("peft_type").is_none() {
        return Err(config.refuse("peft_type", r#""LORA""#));
    }
    for (key, plain) in PLAIN {
        let stated = config.get(key).map(ToString::to_string);
        if stated.is_some_and(|stated| stated != plain && stated != "[]") {
            return Err(config.refuse(key, plain));
        }
    }
    let start = config.get("init_lora_weights").and_then(Value::as_str).unwrap_or_default();
    if CHANGED_BASES.iter().any(|changed| start.starts_with(changed)) {
        let expected = "an adapter of the unchanged base, as `path_initial_model_for_weight_conversion` saves it";
        return Err(config.refuse("init_lora_weights", expected));
    }
    let rank = config.count("r")?;
    if rank > MOST_RANK {
        return Err(config.refuse("r", format!("at most {MOST_RANK}")));
    }
    let alpha = config
        .optional_number("lora_alpha")?
        .ok_or_else(|| config.refuse("lora_alpha", "a positive number"))?;
    let divisor = match config.flag("use_rslora", false)? {
        true => (rank as f64).sqrt(),
        false => rank as f64,
    };
    Ok((rank, (alpha / divisor) as f32))
}

/// Checks that every module is a target, and that every target which is a module of the checkpoint has tensors.
/// Lists are often those of several architectures. A target that is one word and not a list is a pattern of
/// PEFT's own, and stands for what the file holds.
fn check_targets(
    config: &Keys,
    modules: &BTreeMap<String, String>,
    has_module: impl Fn(&str) -> bool,
) -> Result<(), LoadError> {
    let refuse_targets = |expected: &str| config.refuse("target_modules", expected);
    let targets = match config.get("target_modules") {
        Some(Value::Array(targets)) => targets,
        Some(Value::String(_)) => return Ok(()),
        _ => return Err(refuse_targets("a list of names")),
    };
    let targets = targets.iter().map(Value::as_str);
    let targets = targets.collect::<Option<BTreeSet<&str>>>();
    let targets = targets.ok_or_else(|| refuse_targets("a list of names"))?;
    let mut seen = BTreeSet::new();
    for module in modules.values() {
        let mut ends = targets.iter().filter(|target| is_or_ends_with(module, target));
        match ends.next() {
            Some(target) => seen.insert(*target),
            None => {
                return Err(refuse_targets(&format!("the module {module} among its names")));
            }
        };
    }
    let excludes = config.get("exclude_modules").is_some();
    let mut lost = targets.iter().filter(|target| !excludes && !seen.contains(**target));
    match lost.find(|target| has_module(target)) {
        Some(target) => {
            Err(refuse("tensors", format!("some of the target module {target}"), "none".to_owned()))
        }
        None => Ok(()),
    }
}

fn refuse(tensor: &str, expected: String, found: String) -> LoadError {
    LoadError::Tensor { file: WEIGHTS.to_owned(), tensor: tensor.to_owned(), expected, found }
}
