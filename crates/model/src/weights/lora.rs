//! A LoRA adapter (arXiv 2106.09685) in PEFT's files: matrices of low rank that are added to those of the
//! checkpoint while they are read, or are for some rows.

use std::collections::{BTreeMap, BTreeSet};

use candle_core::{Device, Tensor};
use kernels::{Epilogue, Linear, Matrix, WeightDtype};
use regex::bytes::Regex;
use serde_json::Value;

use super::quantized::compiled;
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
/// Maximum number of patterns of ranks or alphas, each of which is matched against every module.
const MOST_PATTERNS: usize = 1_024;
/// Keys whose presence with another value asks for something else than `W + s B A`.
const PLAIN: [(&str, &str); 8] = [
    ("peft_type", r#""LORA""#),
    ("bias", r#""none""#),
    ("use_dora", "false"),
    ("lora_bias", "false"),
    ("fan_in_fan_out", "false"),
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
    /// The factors of each matrix that is changed, by the matrix.
    factors: BTreeMap<String, Factors>,
    /// The rows that it changes, if these are not all.
    pub(super) gate: Option<RowGate>,
}

/// Two factors of a matrix, B and A: `scale B A` is added to it.
struct Factors {
    /// Their module, without [`PREFIX`].
    module: String,
    rank: usize,
    scale: f32,
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
        check_kind(&config)?;
        let ranks = Ranks::read(&config)?;
        let gate = stated_gate(&config, gate)?;
        let has_embedding = matches!(gate, Some(RowGate::Masks(_)));
        let shards = Shards::single(files, WEIGHTS)?;
        let mut factors = BTreeMap::new();
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
            let (rank, scale) = ranks.of(&config, module)?;
            factors.insert(matrix, Factors { module: module.to_owned(), rank, scale });
        }
        if factors.is_empty() {
            let expected = format!("{PREFIX}MODULE{}", ENDS[0]);
            return Err(refuse("tensors", expected, "none".to_owned()));
        }
        check_targets(&config, &factors, has_module)?;
        let lora = Self { shards, factors, gate };
        for matrix in lora.factors.keys().filter(|_| gate.is_none()) {
            if let Ok([rows, columns]) = shape(matrix) {
                lora.read(matrix, [*rows, *columns], false)?;
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
        let merged = self.gate.is_none() && !elements.is_empty();
        let factors = self.factors.get(name).filter(|_| merged);
        let (Some(factors), &[rows, columns]) = (factors, shape) else {
            return Ok(());
        };
        let (a, b) = self.read(name, [rows, columns], true)?;
        factors
            .add_product([&a, &b], columns, elements)
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

    /// Rank and scale of the factors of a matrix, if the adapter has some.
    pub(super) fn rank_and_scale(&self, name: &str) -> Option<(usize, f32)> {
        self.factors.get(name).map(|factors| (factors.rank, factors.scale))
    }

    /// A matrix of the adapter that is not among those `used`.
    pub(super) fn unused(&self, used: &BTreeSet<String>) -> Option<LoadError> {
        let (matrix, factors) = self.factors.iter().find(|(name, _)| !used.contains(*name))?;
        let (expected, found) = (
            format!("a matrix that the model uses, {matrix}"),
            "one that it does not use".to_owned(),
        );
        Some(refuse(&format!("{PREFIX}{}{}", factors.module, ENDS[0]), expected, found))
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
    pub(super) fn read(
        &self,
        matrix: &str,
        [rows, columns]: [usize; 2],
        reads: bool,
    ) -> Result<(Vec<f32>, Vec<f32>), LoadError> {
        let factors = self.factors.get(matrix);
        let (module, rank) = factors.map_or(("", 0), |factors| (&*factors.module, factors.rank));
        let factor = |end: &str, shape: [usize; 2]| {
            let name = format!("{PREFIX}{module}{end}");
            let stored = self.shards.find(&name, &shape)?;
            let mut values = Vec::new();
            if reads {
                stored.read(&name, &mut values)?;
            }
            Ok(values)
        };
        Ok((factor(ENDS[0], [rank, columns])?, factor(ENDS[1], [rows, rank])?))
    }
}

impl Factors {
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

/// Checks that an adapter is factors beside an unchanged base.
fn check_kind(config: &Keys) -> Result<(), LoadError> {
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
    Ok(())
}

/// Ranks and alphas of an adapter, those of all modules and those of some.
struct Ranks {
    rank: usize,
    alpha: f64,
    rank_pattern: Vec<(Regex, usize)>,
    alpha_pattern: Vec<(Regex, f64)>,
    /// True for alpha / √r (arXiv 2312.03732) instead of alpha / r.
    is_stabilised: bool,
}

impl Ranks {
    fn read(config: &Keys) -> Result<Self, LoadError> {
        let rank = |keys: &Keys, key: &str| {
            let rank = keys.count(key)?;
            let refused = || keys.refuse(key, format!("at most {MOST_RANK}"));
            (rank <= MOST_RANK).then_some(rank).ok_or_else(refused)
        };
        let alpha = |keys: &Keys, key: &str| {
            let alpha = keys.optional_number(key)?;
            alpha.ok_or_else(|| keys.refuse(key, "a positive number"))
        };
        Ok(Self {
            rank: rank(config, "r")?,
            alpha: alpha(config, "lora_alpha")?,
            rank_pattern: patterns(config, "rank_pattern", rank)?,
            alpha_pattern: patterns(config, "alpha_pattern", alpha)?,
            is_stabilised: config.flag("use_rslora", false)?,
        })
    }

    /// Rank and scale of a module.
    fn of(&self, config: &Keys, module: &str) -> Result<(usize, f32), LoadError> {
        let rank = matching(config, "rank_pattern", &self.rank_pattern, module)?;
        let alpha = matching(config, "alpha_pattern", &self.alpha_pattern, module)?;
        let (rank, alpha) = (rank.unwrap_or(self.rank), alpha.unwrap_or(self.alpha));
        let divisor = match self.is_stabilised {
            true => (rank as f64).sqrt(),
            false => rank as f64,
        };
        Ok((rank, (alpha / divisor) as f32))
    }
}

/// The values of an object of patterns, which match the whole name of a module or its end after a dot.
fn patterns<T>(
    config: &Keys,
    key: &str,
    value: impl Fn(&Keys, &str) -> Result<T, LoadError>,
) -> Result<Vec<(Regex, T)>, LoadError> {
    if config.get(key).is_none() {
        return Ok(Vec::new());
    }
    let keys = config.nested(key)?;
    if keys.names().count() > MOST_PATTERNS {
        return Err(config.refuse(key, format!("at most {MOST_PATTERNS} patterns")));
    }
    let pattern = |name: &str| {
        let compiled = compiled(&keys, name, &format!(r"^(?:.*\.)?(?:{name})$"))?;
        Ok((compiled, value(&keys, name)?))
    };
    keys.names().map(pattern).collect()
}

/// The value whose pattern matches a module. The order of patterns is not known, so those that match have to agree.
fn matching<T: Copy + PartialEq>(
    config: &Keys,
    key: &str,
    patterns: &[(Regex, T)],
    module: &str,
) -> Result<Option<T>, LoadError> {
    let matches = |(pattern, _): &&(Regex, T)| pattern.is_match(module.as_bytes());
    let mut values = patterns.iter().filter(matches).map(|(_, value)| *value);
    let first = values.next();
    match values.all(|value| Some(value) == first) {
        true => Ok(first),
        false => Err(config.refuse(key, format!("one value for the module {module}"))),
    }
}

/// Checks that every module is a target, and that every target which is a module of the checkpoint has tensors.
/// Lists are often those of several architectures. A target that is one word and not a list is a pattern of
/// PEFT's own, and stands for what the file holds.
fn check_targets(
    config: &Keys,
    factors: &BTreeMap<String, Factors>,
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
    for Factors { module, .. } in factors.values() {
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
