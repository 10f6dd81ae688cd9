//! Configuration: defaults, overridden by files, environment and flags. Unknown keys are refused, and
//! all problems are reported together with their places.

mod file;
mod layers;
mod origin;
mod overrides;
mod print;
mod schema;
mod validate;
mod values;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use engine::decoding::{Decoders, Decoding, DecodingSpec, WeightKind};
use model::{ExpertSharing, KvDtype, ModelInfo, WeightDtype};
use server::Formats;
use step::Attention;
use tracing_subscriber::EnvFilter;

use crate::args::{CheckConfigArgs, ModelArgs, ServeArgs};
use crate::device::{BackendChoice, DeviceChoice};
use crate::exit;
use crate::hub;
use crate::kv;
use crate::published;

use layers::Layers;
use origin::Origins;
#[cfg(test)]
pub use overrides::variables;
pub use overrides::warn_of_unknown_variables;
pub use schema::Config;
use schema::{AUTO, Model};
pub use values::LogFormat;
use values::{
    dtype, edits, expert_sharing, kv_dtype, kv_memory, listen_address, log_filter, log_format,
    reasoning_parser, tool_parser, unknown_fields,
};

/// Most drafts of a step, by the range of `draft_length`.
const LONGEST_DRAFT: u32 = 32;

impl Config {
    /// Resolves files, environment, `--set` and flags, later ones over earlier ones, and validates the
    /// result.
    ///
    /// # Errors
    /// One line per problem.
    pub fn resolve(args: &ModelArgs, serve: Option<&ServeArgs>) -> Result<Self> {
        Ok(Self::traced(args, serve)?.0)
    }

    /// As [`resolve`](Self::resolve), with the origin of every value.
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

    /// The default decoder as the operator names it; nothing by default.
    ///
    /// # Errors
    /// A setting that is unknown or out of range.
    pub fn decoding(&self) -> Result<DecodingSpec> {
        Ok(match self.model.decoder.as_str() {
            AUTO => DecodingSpec::default(),
            named => DecodingSpec::parse(named)?,
        })
    }

    /// What settings of decoders mean for the configured model, whose weights are of this kind. The
    /// folder of a canvas model may have settings for it.
    ///
    /// # Errors
    /// A setting that is unknown or out of range, in the configuration or in the folder.
    pub fn decoders(&self, weights: WeightKind) -> Result<Decoders> {
        let configured = self.decoding()?;
        let published = match weights.attention {
            Attention::Canvas(_) => {
                let folder = hub::folder(&self.model.path)?;
                published::settings(Path::new(&*folder))?
            }
            _ => DecodingSpec::default(),
        };
        Ok(Decoders::new(weights, configured, published))
    }

    /// How weights were trained, from a model's properties and the key `model.edits`.
    ///
    /// # Errors
    /// An unknown value of the key.
    pub fn weights(&self, info: &ModelInfo) -> Result<WeightKind> {
        let given = edits(&self.model.edits)
            .map_err(|problem| exit::failure(exit::CONFIG, format!("model.edits: {problem}")))?;
        Ok(WeightKind {
            attention: info.attention,
            readout: info.readout,
            edits: given.unwrap_or_else(|| hub::is_editing_release(&self.model.path, info.family)),
            drafts: !self.model.draft_model.is_empty(),
        })
    }

    /// The decoder of the draft model, whose weights are of this kind. With full attention, `auto`
    /// fills the drafts in one forward pass, the cheapest way to have any.
    ///
    /// # Errors
    /// A setting that is unknown or out of range, settings that do not go together.
    pub fn draft_decoding(&self, weights: WeightKind) -> Result<Decoding> {
        let named = match (self.model.draft_decoder.as_str(), weights.attention) {
            (AUTO, Attention::Full) => "vanilla,tokens_per_step=32",
            (AUTO, _) => "",
            (named, _) => named,
        };
        let spec = DecodingSpec::parse(named);
        let decoding = spec.and_then(|spec| Decoders::of(weights).resolve(&spec));
        decoding
            .map_err(|error| exit::failure(exit::CONFIG, format!("model.draft_decoder: {error}")))
    }

    /// The same configuration for another model, without the settings of this one.
    pub fn with_model(&self, path: &str) -> Self {
        let model = Model {
            path: path.to_owned(),
            dtype: self.model.dtype.clone(),
            device: self.model.device.clone(),
            backend: self.model.backend.clone(),
            max_model_len: self.model.max_model_len,
            ..Model::default()
        };
        Self {
            model,
            ..self.clone()
        }
    }

    /// The configuration of the draft model, whose texts are as long as those of the model that verifies.
    pub fn for_drafts(&self, verifier: &ModelInfo) -> Self {
        let mut config = self.with_model(&self.model.draft_model);
        config
            .model
            .draft_decoder
            .clone_from(&self.model.draft_decoder);
        let longest = kv::longest(self, verifier);
        config.model.max_model_len = longest.saturating_add(LONGEST_DRAFT);
        config
    }

    /// The dtype of the weight matrices.
    ///
    /// # Errors
    /// An unknown dtype.
    pub fn dtype(&self) -> Result<WeightDtype> {
        dtype(&self.model.dtype)
            .map_err(|problem| exit::failure(exit::CONFIG, format!("model.dtype: {problem}")))
    }

    /// The device to compute on.
    ///
    /// # Errors
    /// An unknown device.
    pub fn device(&self) -> Result<DeviceChoice> {
        DeviceChoice::named(&self.model.device)
            .map_err(|problem| exit::failure(exit::CONFIG, format!("model.device: {problem}")))
    }

    /// What computes on the CPU.
    ///
    /// # Errors
    /// An unknown backend.
    pub fn backend(&self) -> Result<BackendChoice> {
        BackendChoice::named(&self.model.backend)
            .map_err(|problem| exit::failure(exit::CONFIG, format!("model.backend: {problem}")))
    }

    /// How the rows of a block share experts.
    ///
    /// # Errors
    /// An unknown method, or a number out of range.
    pub fn expert_sharing(&self) -> Result<Option<ExpertSharing>> {
        expert_sharing(&self.model.expert_sharing).map_err(|problem| {
            exit::failure(exit::CONFIG, format!("model.expert_sharing: {problem}"))
        })
    }

    /// The address to listen on.
    pub fn listen_address(&self) -> String {
        listen_address(&self.server.listen)
    }

    /// Whether unknown fields of a request are refused.
    pub fn rejects_unknown_fields(&self) -> bool {
        unknown_fields(&self.server.unknown_fields) == Ok(true)
    }

    /// Longest time for the compilation of a grammar and for its work on one step; zero = no limit.
    pub fn grammar_timeout(&self) -> Duration {
        Duration::from_secs(self.structured.timeout)
    }

    /// How answers are written and read.
    ///
    /// # Errors
    /// An unknown parser.
    pub fn formats(&self) -> Result<Formats> {
        let refused =
            |key| move |problem| exit::failure(exit::CONFIG, format!("model.{key}: {problem}"));
        let model = &self.model;
        Ok(Formats {
            tools: tool_parser(&model.tool_parser).map_err(refused("tool_parser"))?,
            reasoning: reasoning_parser(&model.reasoning_parser)
                .map_err(refused("reasoning_parser"))?,
            open_objects: self.structured.open_objects,
        })
    }

    /// Filter and format of the log.
    ///
    /// # Errors
    /// An invalid filter, an unknown format.
    pub fn log(&self) -> Result<(EnvFilter, LogFormat)> {
        let refused =
            |key| move |problem| exit::failure(exit::CONFIG, format!("telemetry.{key}: {problem}"));
        let filter = log_filter(&self.telemetry.log).map_err(refused("log"))?;
        let format = log_format(&self.telemetry.log_format).map_err(refused("log_format"))?;
        Ok((filter, format))
    }

    /// Average rows per step for prefills and refreshes, `>= 1`.
    pub fn long_quantum(&self) -> u32 {
        match self.engine.long_quantum {
            0 => self.engine.row_budget.div_ceil(2),
            rows => rows,
        }
    }

    /// The number format of keys and values; `None` for `auto`: f32 on the CPU, the dtype of the
    /// matrices on a device.
    ///
    /// # Errors
    /// An unknown format.
    pub fn kv_dtype(&self) -> Result<Option<KvDtype>> {
        kv_dtype(&self.engine.kv_dtype)
            .map_err(|problem| exit::failure(exit::CONFIG, format!("engine.kv_dtype: {problem}")))
    }

    /// Bytes for KV pages; `None` for `auto`.
    ///
    /// # Errors
    /// An invalid size.
    pub fn kv_bytes(&self) -> Result<Option<u64>> {
        kv_memory(&self.engine.kv_memory)
            .map_err(|problem| exit::failure(exit::CONFIG, format!("engine.kv_memory: {problem}")))
    }
}

/// `asynclane check-config`: prints the configuration of the files.
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

/// Prints the configuration of files, environment and flags with the origin of each value.
///
/// # Errors
/// As [`Config::resolve`].
pub fn show(args: &ModelArgs, serve: Option<&ServeArgs>) -> Result<()> {
    let (config, origins) = Config::traced(args, serve)?;
    let key = serve.is_some_and(|serve| serve.api_key.is_some());
    tell!("{}", print::text(&config, &origins, key)?.trim_end());
    Ok(())
}

#[cfg(test)]
mod tests;
