//! The executor of a comparison: the model, a geometry with random weights, or a simulation.

use anyhow::Result;
use model::Geometry;
use sim::{Fidelity, SimConfig, SimExecutor};
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

use crate::args::{BenchArgs, Candidates};
use cli::config::Config;
use cli::device::{self, Hardware};
use cli::exit;
use cli::load::{self, LoadedModel};

/// Loads the configured model, or what the arguments replace it with.
///
/// # Errors
/// A model that does not load, an unknown geometry.
pub fn load(args: &BenchArgs, config: &Config) -> Result<LoadedModel> {
    let mut loaded = load::load(config)?;
    if let Some(name) = &args.geometry {
        loaded = with_geometry(loaded, geometry(name)?, config)?;
    }
    if args.candidates == Candidates::Model {
        return Ok(loaded);
    }
    let simulated = simulator(&loaded, Fidelity::Strict)?;
    loaded.hardware.kernels.push_str(", simulated candidates");
    Ok(LoadedModel { executor: Box::new(Decided { model: loaded.executor, simulated }), ..loaded })
}

/// The configured model's tokenizer and limits over a simulated executor with almost no cost.
///
/// # Errors
/// As [`load`].
pub fn load_simulator(config: &Config) -> Result<LoadedModel> {
    let mut loaded = load::load(config)?;
    loaded.executor = Box::new(simulator(&loaded, Fidelity::Free)?);
    "no model".clone_into(&mut loaded.hardware.kernels);
    Ok(loaded)
}

/// True if answers are graded.
pub fn is_graded(args: &BenchArgs) -> bool {
    args.geometry.is_none() && args.candidates == Candidates::Model && args.url.is_none()
}

fn geometry(name: &str) -> Result<Geometry> {
    Geometry::named(name).ok_or_else(|| {
        let known = Geometry::ALL.map(|geometry| geometry.name).join(", ");
        let message = format!("--geometry: expected one of {known}, found {name}");
        exit::failure(exit::USAGE, message)
    })
}

fn with_geometry(loaded: LoadedModel, geometry: Geometry, config: &Config) -> Result<LoadedModel> {
    let end = loaded.stop_tokens.first().copied().unwrap_or_default();
    // Free the first model before the second one is allocated.
    drop(loaded.executor);
    let dtype = *config.model.dtype;
    let mask = loaded.info.vocabulary.mask.unwrap_or_default();
    let checkpoint = || {
        let random = geometry.checkpoint(mask, end).map_err(exit::refused);
        random.map(|random| cli::kv::with_format(random, config))
    };
    let (gpu, config) = device::chosen(config, &mut checkpoint()?)?;
    let placed = match gpu {
        Some(gpu) => device::on_device(&gpu, checkpoint()?, &config)?,
        None => load::on_cpu(checkpoint()?.with_dtype(dtype), &config)?,
    };
    Ok(LoadedModel {
        executor: placed.executor,
        hardware: Hardware {
            kv_position: placed.hardware.kv_position,
            memory: placed.hardware.memory,
            ..loaded.hardware
        },
        max_model_len: placed.max_model_len,
        info: placed.info,
        filter: None,
        name: geometry.name.to_owned(),
        is_demo: false,
        ..loaded
    })
}

/// A simulated model with the sizes and ids of the loaded one.
fn simulator(loaded: &LoadedModel, fidelity: Fidelity) -> Result<SimExecutor> {
    let ExecutorSpec { page_size, pages, vocab_size, max_positions, mask, attention, logit_shift } =
        loaded.executor.spec();
    // The simulation bans one token; of an autoregressive model it never reads it.
    let mask = mask.unwrap_or_default();
    let ends = &loaded.stop_tokens;
    let period = loaded.tokenizer.token_to_id(".");
    let reserved = |token: &u32| *token != mask && !ends.contains(token) && Some(*token) != period;
    let config = SimConfig {
        page_size,
        pages,
        vocab_size,
        max_positions,
        mask,
        attention,
        logit_shift,
        stop_token: ends.first().copied().unwrap_or_default(),
        period,
        // The tokenizer must know the tokens, so that a server can print them.
        words: (16..512.min(vocab_size)).filter(reserved).collect(),
        fidelity,
        ..SimConfig::default()
    };
    SimExecutor::new(config).map_err(|error| exit::failure(exit::ENGINE, error.to_string()))
}

/// Runs a model's forward pass for its cost and returns the candidates of a simulated one.
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
