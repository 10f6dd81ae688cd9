//! What runs the forward passes of a comparison: a model, a geometry with random weights, or no
//! model at all.

use anyhow::Result;
use model::{Checkpoint, ExecutorConfig, Model, ModelExecutor};
use sim::{Fidelity, SimConfig, SimExecutor};
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

use crate::args::{BenchArgs, Candidates};
use crate::config::Config;
use crate::exit;
use crate::load::{self, Loaded};

/// Sizes of a model that is built with random weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Its name on the command line.
    pub name: &'static str,
    width: usize,
    heads: usize,
    layers: usize,
    mlp: usize,
    vocab: usize,
}

/// Every geometry, LLaDA's architecture at several sizes.
pub const GEOMETRIES: &[Geometry] = &[
    Geometry {
        name: "demo",
        width: 192,
        heads: 6,
        layers: 6,
        mlp: 512,
        vocab: 1024,
    },
    Geometry {
        name: "llada-300m",
        width: 1024,
        heads: 16,
        layers: 24,
        mlp: 2816,
        vocab: 32_000,
    },
    Geometry {
        name: "llada-8b",
        width: 4096,
        heads: 32,
        layers: 32,
        mlp: 12_288,
        vocab: 126_464,
    },
];

impl Geometry {
    /// The geometry called `name`.
    ///
    /// # Errors
    /// An unknown name.
    pub fn named(name: &str) -> Result<Self> {
        let found = GEOMETRIES.iter().find(|geometry| geometry.name == name);
        found.copied().ok_or_else(|| {
            let known: Vec<&str> = GEOMETRIES.iter().map(|geometry| geometry.name).collect();
            let message = format!(
                "--geometry: expected one of {}, found {name}",
                known.join(", ")
            );
            exit::failure(exit::USAGE, message)
        })
    }

    /// Its `config.json`, with the ids of the demo model's tokenizer.
    fn config(&self, mask: u32, end: u32) -> String {
        let Self {
            width,
            heads,
            layers,
            mlp,
            vocab,
            ..
        } = self;
        format!(
            r#"{{"architectures": ["LLaDAModelLM"], "d_model": {width}, "n_heads": {heads},
            "n_layers": {layers}, "mlp_hidden_size": {mlp}, "vocab_size": {vocab},
            "max_sequence_length": 4096, "mask_token_id": {mask}, "eos_token_id": {end}}}"#
        )
    }
}

/// The configured model, with what the arguments put in its place.
///
/// # Errors
/// What keeps the model from loading; an unknown geometry.
pub fn load(args: &BenchArgs, config: &Config) -> Result<Loaded> {
    let mut loaded = load::load(config)?;
    if let Some(name) = &args.geometry {
        loaded = with_geometry(loaded, Geometry::named(name)?, config)?;
    }
    if args.candidates == Candidates::Model {
        return Ok(loaded);
    }
    let simulated = simulator(&loaded, Fidelity::Strict)?;
    Ok(Loaded {
        kernels: format!("{}, simulated candidates", loaded.kernels),
        executor: Box::new(Decided {
            model: loaded.executor,
            simulated,
        }),
        ..loaded
    })
}

/// The configured model's tokenizer and limits over an executor that costs next to nothing.
///
/// # Errors
/// As [`load`].
pub fn load_simulator(config: &Config) -> Result<Loaded> {
    let mut loaded = load::load(config)?;
    loaded.executor = Box::new(simulator(&loaded, Fidelity::Free)?);
    "no model".clone_into(&mut loaded.kernels);
    Ok(loaded)
}

/// Whether answers mean anything.
pub fn is_graded(args: &BenchArgs) -> bool {
    args.geometry.is_none() && args.candidates == Candidates::Model && args.url.is_none()
}

fn with_geometry(loaded: Loaded, geometry: Geometry, config: &Config) -> Result<Loaded> {
    let end = loaded.stop_tokens.first().copied().unwrap_or_default();
    let text = geometry.config(loaded.info.mask, end);
    // The first model gives back its memory before the second one takes some.
    drop(loaded.executor);
    let refused = |error: model::LoadError| exit::failure(exit::CHECKPOINT, error.to_string());
    let checkpoint = Checkpoint::synthetic(&text, 1).map_err(refused)?;
    let model = Model::load(checkpoint.with_dtype(config.dtype()?)).map_err(refused)?;
    let info = model.info().clone();
    let page = info.kv_bytes_per_position() as u64 * u64::from(config.engine.page_size);
    let sizes = ExecutorConfig {
        page_size: config.engine.page_size,
        pages: u32::try_from(config.kv_bytes()? / page.max(1)).unwrap_or(u32::MAX),
        threads: None,
    };
    Ok(Loaded {
        executor: Box::new(ModelExecutor::new(model, sizes).map_err(refused)?),
        info,
        filter: None,
        name: geometry.name.to_owned(),
        is_demo: false,
        ..loaded
    })
}

/// A simulated model of the loaded one's sizes and ids.
fn simulator(loaded: &Loaded, fidelity: Fidelity) -> Result<SimExecutor> {
    let ExecutorSpec {
        page_size,
        pages,
        vocab_size,
        max_positions,
        mask,
        ..
    } = loaded.executor.spec();
    let ends = &loaded.stop_tokens;
    let period = loaded.tokenizer.token_to_id(".");
    let reserved = |token: &u32| *token != mask && !ends.contains(token) && Some(*token) != period;
    let config = SimConfig {
        page_size,
        pages,
        vocab_size,
        max_positions,
        mask,
        stop_token: ends.first().copied().unwrap_or_default(),
        period,
        // Tokens that the tokenizer knows, so that a server can print them.
        words: (16..512.min(vocab_size)).filter(reserved).collect(),
        fidelity,
        ..SimConfig::default()
    };
    SimExecutor::new(config).map_err(|error| exit::failure(exit::ENGINE, error.to_string()))
}

/// The cost of a model's forward pass, the decisions of a simulated one.
struct Decided {
    model: Box<dyn Executor>,
    simulated: SimExecutor,
}

impl Executor for Decided {
    fn spec(&self) -> ExecutorSpec {
        self.model.spec()
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        self.model.execute(batch, output)?;
        self.simulated.execute(batch, output)
    }
}
