//! The loaded model as the server sees it.

use std::sync::Arc;

use decode::Feature;
use engine::Handle;
use engine::decoding::{Decoders, Decoding};
use step::TokenId;
use text::{ChatTemplate, ReasoningFormat, Tokenizer, ToolFormat};

use crate::error::ApiError;
use crate::metrics::Metrics;

/// Sampling defaults of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingDefaults {
    /// 0 = greedy, the default of masked diffusion models.
    pub temperature: f64,
    /// Nucleus mass.
    pub top_p: f64,
    /// Minimum probability, as a share of the most probable token's.
    pub min_p: f64,
    /// 0 = off.
    pub top_k: u32,
}

impl Default for SamplingDefaults {
    fn default() -> Self {
        Self { temperature: 0.0, top_p: 1.0, min_p: 0.0, top_k: 0 }
    }
}

/// The formats in which the model's answers are written and read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    /// Calls of functions; `None` = as the chat template shows them.
    pub tools: Option<ToolFormat>,
    /// Reasoning; `None` = answers have none.
    pub reasoning: Option<ReasoningFormat>,
    /// True if objects of a JSON schema may have members that it does not name, as the
    /// specification says. Otherwise only where the schema says so.
    pub open_objects: bool,
}

/// The public facts of the model.
#[derive(Clone, Debug)]
pub struct ServedModel {
    /// The name requests must give; may hold `/`.
    pub id: String,
    /// Unix time in seconds.
    pub created: u64,
    /// `owned_by` of the models list.
    pub owner: String,
    /// True if it is the embedded demo model.
    pub is_demo: bool,
    /// The number of its weights.
    pub parameters: u64,
    /// The device on which it runs.
    pub device: String,
    /// `system_fingerprint`: version, device, number format.
    pub fingerprint: String,
    /// The ids that end a generation.
    pub stop_tokens: Vec<TokenId>,
    /// Sampling of a request that sets none.
    pub defaults: SamplingDefaults,
    /// The decoders that the settings of requests select.
    pub decoders: Decoders,
    /// The formats of its answers.
    pub formats: Formats,
}

/// A loaded model, ready to serve.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The engine.
    pub engine: Handle,
    /// The tokenizer, with its mask token and chat template.
    pub tokenizer: Arc<Tokenizer>,
    /// The public facts of the model.
    pub model: Arc<ServedModel>,
    /// The metrics whose observer the engine feeds.
    pub metrics: Metrics,
}

impl Backend {
    /// The format in which the model writes calls, or Hermes's if it is not known.
    pub fn tool_format(&self) -> ToolFormat {
        self.known_tool_format().unwrap_or(ToolFormat::Hermes)
    }

    /// The format in which the model writes calls.
    ///
    /// # Errors
    /// The mark of a format that the chat template shows and the server does not write.
    pub fn known_tool_format(&self) -> Result<ToolFormat, &'static str> {
        let template = self.tokenizer.chat_template();
        let found = || ToolFormat::of_template(template.map_or("", ChatTemplate::tool_source));
        self.model.formats.tools.map_or_else(found, Ok)
    }
    /// The decoder of a request that names none and asks for `features`.
    ///
    /// # Errors
    /// `internal_error` if the configured settings do not go together; `asynclane serve` refuses
    /// them at its start.
    pub fn default_decoding(&self, features: &[Feature]) -> Result<Decoding, ApiError> {
        self.model.decoders.default_for(features).map_err(|error| {
            tracing::error!(%error, "the configured decoder cannot be used");
            ApiError::internal()
        })
    }
}
