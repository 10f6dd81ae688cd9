//! Configuration: defaults, overridden by files, environment and flags. Unknown keys are refused, and
//! all problems are reported together with their places.

mod choice;
mod file;
mod layers;
mod log;
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
use model::ModelInfo;
use server::Formats;
use step::Attention;

use crate::args::{CheckConfigArgs, ModelArgs, ServeArgs};
use crate::exit;
use crate::hub;
use crate::published;

pub use choice::{BackendChoice, DeviceChoice};
use layers::Layers;
use origin::Origins;
#[cfg(test)]
pub use overrides::variables;
pub use overrides::warn_of_unknown_variables;
pub use schema::Config;
use schema::Model;
pub use schema::Training;
pub use values::AUTO;
pub use values::{LogFormat, Text, UnknownFields, Worded, listen_address};

/// Maximum rows of a step by default: on a fast CPU, and the most that a CUDA device is estimated with.
pub const DEFAULT_ROWS: u32 = 2_048;
/// Maximum number of drafts of a step, by the range of `draft_length`.
const MAX_DRAFTS: u32 = 32;

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
        let (mut config, origins, mut problems) = layers.finish();
        config.force = args.force;
        let known: BTreeSet<String> = problems.iter().map(|one| one.key.clone()).collect();
        let wrong = config.problems().into_iter();
        let wrong = wrong.filter(|(key, _)| !known.contains(*key));
        problems.extend(wrong.map(|(key, what)| origins.problem(key, what)));
        if problems.is_empty() {
            return Ok((config, origins));
        }
        let missing = problems.iter().any(|one| one.missing);
        let code = if missing { exit::NO_INPUT } else { exit::CONFIG };
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Err(exit::failure(code, lines.join("\n")))
    }

    /// The default decoder as the operator names it; nothing by default.
    ///
    /// # Errors
    /// A setting that is unknown or out of range.
    pub fn decoding(&self) -> Result<DecodingSpec> {
        Ok(match self.model.decoding.decoder.as_str() {
            AUTO => DecodingSpec::default(),
            named => DecodingSpec::parse(named)?,
        })
    }

    /// The decoders of the configured model, whose weights are of this kind. The folder of a canvas
    /// model may have settings for them.
    ///
    /// # Errors
    /// A setting that is unknown or out of range, in the configuration or in the folder.
    pub fn decoders(&self, weights: WeightKind) -> Result<Decoders> {
        let configured = self.decoding()?;
        let published = match weights.attention {
            Attention::Canvas(_) => {
                let found = hub::description(&self.model.path)?;
                let place = Path::new(&*found.place);
                let folder = if place.is_file() { place.parent() } else { Some(place) };
                published::settings(folder.unwrap_or(Path::new("")))?
            }
            _ => DecodingSpec::default(),
        };
        Ok(Decoders::new(weights, configured, published))
    }

    /// The kind of the weights, from a model's properties and the key `model.edits`.
    pub fn weights(&self, info: &ModelInfo) -> WeightKind {
        let by_name = || hub::is_editing_release(&self.model.path, info.family);
        WeightKind {
            attention: info.rows.attention,
            logit_shift: info.rows.logit_shift,
            edits: self.model.training.edits.unwrap_or_else(by_name),
            drafts: !self.model.decoding.draft_model.is_empty(),
            masks: info.vocabulary.mask.is_some(),
        }
    }

    /// The decoder of the draft model, whose weights are of this kind. With full attention, `auto`
    /// fills the drafts in one forward pass, the cheapest way to have any.
    ///
    /// # Errors
    /// A setting that is unknown or out of range, settings that do not go together.
    pub fn draft_decoding(&self, weights: WeightKind) -> Result<Decoding> {
        let named = match (self.model.decoding.draft_decoder.as_str(), weights.attention) {
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
        Self { model, ..self.clone() }
    }

    /// The configuration of the draft model, whose texts are as long as the verifier's.
    pub fn for_drafts(&self, verifier: &ModelInfo) -> Self {
        let mut config = self.with_model(&self.model.decoding.draft_model);
        config.model.decoding.draft_decoder.clone_from(&self.model.decoding.draft_decoder);
        let longest = self.max_model_len(verifier);
        config.model.max_model_len = longest.saturating_add(MAX_DRAFTS);
        config
    }

    /// Maximum positions of a sequence of this model.
    pub fn max_model_len(&self, info: &ModelInfo) -> u32 {
        let built = info.max_positions as u32;
        match self.model.max_model_len {
            0 => built,
            len => len.min(built),
        }
    }

    /// The address to listen on.
    pub fn listen_address(&self) -> String {
        listen_address(&self.server.listen)
    }

    /// Maximum time for the compilation of a grammar and for its work on one step; zero = no limit.
    pub fn grammar_timeout(&self) -> Duration {
        Duration::from_secs(self.structured.timeout)
    }

    /// The formats of calls and reasoning in answers, and of JSON objects.
    pub fn formats(&self) -> Formats {
        Formats {
            tools: *self.model.formats.tool_parser,
            reasoning: *self.model.formats.reasoning_parser,
            open_objects: self.structured.open_objects,
        }
    }

    /// Maximum rows of a step, where `enough` rows reach the device's full rate of rows.
    pub fn row_budget(&self, enough: u32) -> u32 {
        match self.engine.row_budget {
            0 => enough,
            rows => rows,
        }
    }

    /// Average rows per step for prefills and refreshes, `>= 1`, of a row budget.
    pub fn long_quantum(&self, row_budget: u32) -> u32 {
        match self.engine.long_quantum {
            0 => row_budget.div_ceil(2),
            rows => rows.min(row_budget),
        }
    }
}

/// `asynclane check-config`: prints the configuration of the files.
///
/// # Errors
/// Every problem of the files.
pub fn check(args: &CheckConfigArgs) -> Result<()> {
    let model = ModelArgs { config: args.files.clone(), ..ModelArgs::default() };
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
