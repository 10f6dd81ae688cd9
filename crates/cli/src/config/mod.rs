//! Configuration: files, environment and flags over the defaults, unknown keys refused, every
//! problem named at once with where it stands.

mod file;
mod layers;
mod origin;
mod overrides;
mod print;
mod schema;
mod validate;
mod values;

use std::collections::BTreeSet;

use anyhow::Result;
use engine::decoding::DecodingSpec;
use model::{ExpertSharing, WeightDtype};
use step::{Attention, Readout};
use tracing_subscriber::EnvFilter;

use crate::args::{CheckConfigArgs, ModelArgs, ServeArgs};
use crate::device::DeviceChoice;
use crate::exit;

use layers::Layers;
use origin::Origins;
pub use overrides::unread;
#[cfg(test)]
pub use overrides::variables;
pub use schema::Config;
use schema::{AUTO, Model};
pub use values::LogFormat;
use values::{dtype, expert_sharing, kv_memory, log_filter, log_format};

impl Config {
    /// Files, then environment, `--set` and flags over them; refuses what cannot work.
    ///
    /// # Errors
    /// One line per problem.
    pub fn resolve(args: &ModelArgs, serve: Option<&ServeArgs>) -> Result<Self> {
        Ok(Self::traced(args, serve)?.0)
    }

    /// As [`resolve`](Self::resolve), with where every value comes from.
    fn traced(args: &ModelArgs, serve: Option<&ServeArgs>) -> Result<(Self, Origins)> {
        let mut layers = Layers::default();
        for path in &args.config {
            layers.file(path);
        }
        layers.overrides(args, serve);
        let (config, origins, mut problems) = layers.finish();
        let known: BTreeSet<String> = problems.iter().map(|one| one.key.clone()).collect();
        let wrong = config.problems().into_iter();
        let wrong = wrong.filter(|(key, _)| !known.contains(*key));
        problems.extend(wrong.map(|(key, what)| origins.problem(key, what)));
        if problems.is_empty() {
            return Ok((config, origins));
        }
        let missing = problems.iter().any(|one| one.missing);
        let code = if missing {
            exit::NO_INPUT
        } else {
            exit::CONFIG
        };
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Err(exit::failure(code, lines.join("\n")))
    }

    /// The decoder of a request that names none, for weights trained with `attention` and read at
    /// `readout`.
    ///
    /// # Errors
    /// A setting that is unknown or out of range.
    pub fn decoding(&self, attention: Attention, readout: Readout) -> Result<DecodingSpec> {
        let named = match self.model.decoder.as_str() {
            AUTO => "",
            named => named,
        };
        Ok(DecodingSpec::parse(named)?.suited_to(attention, readout))
    }

    /// The same for another model, without what was said about this one.
    pub fn with_model(&self, path: &str) -> Self {
        let model = Model {
            path: path.to_owned(),
            dtype: self.model.dtype.clone(),
            device: self.model.device.clone(),
            max_model_len: self.model.max_model_len,
            ..Model::default()
        };
        Self {
            model,
            ..self.clone()
        }
    }

    /// How matrices are kept and multiplied.
    ///
    /// # Errors
    /// No such dtype.
    pub fn dtype(&self) -> Result<WeightDtype> {
        dtype(&self.model.dtype)
            .map_err(|problem| exit::failure(exit::CONFIG, format!("model.dtype: {problem}")))
    }

    /// What computes.
    ///
    /// # Errors
    /// No such device.
    pub fn device(&self) -> Result<DeviceChoice> {
        DeviceChoice::named(&self.model.device)
            .map_err(|problem| exit::failure(exit::CONFIG, format!("model.device: {problem}")))
    }

    /// How rows of a block agree on experts.
    ///
    /// # Errors
    /// No such way, or a number out of range.
    pub fn expert_sharing(&self) -> Result<Option<ExpertSharing>> {
        expert_sharing(&self.model.expert_sharing).map_err(|problem| {
            exit::failure(exit::CONFIG, format!("model.expert_sharing: {problem}"))
        })
    }

    /// What is logged, and how it looks.
    ///
    /// # Errors
    /// Not a filter, no such format.
    pub fn log(&self) -> Result<(EnvFilter, LogFormat)> {
        let refused =
            |key| move |problem| exit::failure(exit::CONFIG, format!("telemetry.{key}: {problem}"));
        let filter = log_filter(&self.telemetry.log).map_err(refused("log"))?;
        let format = log_format(&self.telemetry.log_format).map_err(refused("log_format"))?;
        Ok((filter, format))
    }

    /// Rows of a step for prefills and refreshes, `>= 1`.
    pub fn long_quantum(&self) -> u32 {
        match self.engine.long_quantum {
            0 => self.engine.row_budget.div_ceil(2),
            rows => rows,
        }
    }

    /// Bytes for KV pages; none where they suit what computes.
    ///
    /// # Errors
    /// Not a size.
    pub fn kv_bytes(&self) -> Result<Option<u64>> {
        kv_memory(&self.engine.kv_memory)
            .map_err(|problem| exit::failure(exit::CONFIG, format!("engine.kv_memory: {problem}")))
    }
}

/// `asynclane check-config`: prints the configuration that the files resolve to.
///
/// # Errors
/// Every problem of the files.
pub fn check(args: &CheckConfigArgs) -> Result<()> {
    let model = ModelArgs {
        config: args.files.clone(),
        ..ModelArgs::default()
    };
    show(&model, None)
}

/// Prints what files, environment and flags resolve to, with where each value comes from.
///
/// # Errors
/// As [`Config::resolve`].
pub fn show(args: &ModelArgs, serve: Option<&ServeArgs>) -> Result<()> {
    let (config, origins) = Config::traced(args, serve)?;
    let key = serve.is_some_and(|serve| serve.api_key.is_some());
    print!("{}", print::text(&config, &origins, key)?);
    Ok(())
}

#[cfg(test)]
mod tests;
