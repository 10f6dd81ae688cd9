//! The fields that all generating endpoints share, and the generation that they describe.

use decode::Feature;
use engine::Penalties;
use engine::decoding::DecodingSpec;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use text::ToolFormat;

use super::body::JsonBody;
use super::canvas;
use super::conversation::Chat;
use super::diffusion::{self, Diffusion};
use super::numbers::{Count, Int};
use super::sampling::SamplingFields;
use super::stops::{self, StopFields};
use super::structured::{Grammars, StructuredFields};
use super::table::Fields;
use super::tools::Tools;
use super::types::Object;
use super::xargs::XargsFields;
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::generation::{Generation, Input, Structured};
use crate::pipeline::written::FIELD;

/// `n` and `best_of`.
pub type ChoiceCount = Int<1, 128>;
/// The number of most probable tokens with a log-probability.
pub type Tops = Int<0, 20>;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct SharedFields {
    /// The served model's name.
    model: Option<String>,
    /// The number of choices per prompt; 1 where an answer has one.
    n: Option<ChoiceCount>,
    /// Answers as server-sent events.
    stream: Option<bool>,
    /// Allowed only with `stream`.
    stream_options: Option<Object<StreamOptionsFields>>,
    /// Keeps the stop string in the text.
    include_stop_str_in_output: Option<bool>,
    /// Adds the token ids of prompt and text to the answer.
    return_token_ids: Option<bool>,
    /// Leaves special tokens out of the text; true by default.
    skip_special_tokens: Option<bool>,
    /// Keeps only this number of tokens of a prompt, its last ones.
    truncate_prompt_tokens: Option<Count<1>>,
    /// Waiting sequences with lower values start first.
    priority: Option<Int<{ i32::MIN as i64 }, { i32::MAX as i64 }>>,
    /// The decoder: a preset, settings, or both.
    diffusion: Option<Diffusion>,
    /// vLLM's fields for canvases of noise.
    vllm_xargs: Option<Object<XargsFields>>,
    /// Accepted, without effect.
    #[serde(rename = "user")]
    _user: Option<String>,
}

/// `stream_options`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "StreamOptions")]
struct StreamOptionsFields {
    /// Sends the usage in a last chunk.
    include_usage: Option<bool>,
    /// Sends the running totals in every chunk.
    continuous_usage_stats: Option<bool>,
}

/// A generation whose shared fields are read. An endpoint sets its own fields and finishes it.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The generation.
    pub generation: Generation,
    /// The shape of the answer.
    pub options: AnswerOptions,
    /// The fault of a field that the endpoint does not support; faults of supported fields come first.
    pub unsupported: Option<ApiError>,
    model: Option<String>,
    grammars: Grammars,
    spec: DecodingSpec,
    /// True if the answer has the listed tokens of its log-probabilities alone.
    writes_listed: bool,
}

/// The shape of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerOptions {
    /// Choices carry token ids.
    pub return_token_ids: bool,
    /// As a stream, or as one JSON object.
    pub stream: Option<StreamOptions>,
}

/// `stream_options` of a streamed answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// A last chunk carries the usage.
    pub include_usage: bool,
    /// Every chunk carries the running totals.
    pub continuous: bool,
}

impl Draft {
    /// The fields of the struct `T`, an endpoint's own, and then these.
    pub fn fields<T: DeserializeOwned + JsonSchema>() -> Fields {
        Fields::new::<T>()
            .and::<SharedFields>()
            .and::<SamplingFields>()
            .and::<StopFields>()
            .and::<StructuredFields>()
    }

    /// Reads the fields.
    ///
    /// # Errors
    /// Type and range faults; `stream_options` without `stream`.
    pub fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<Self, ApiError> {
        let vocab_size = backend.engine.limits().vocab_size;
        let fields: SharedFields = body.read()?;
        let sampling = body.read::<SamplingFields>()?.sampling(vocab_size)?;
        let grammars = body.read::<StructuredFields>()?;
        let grammars = grammars.grammars(backend.model.formats.open_objects)?;
        let stops = body.read::<StopFields>()?.stops(vocab_size)?;
        let mut spec = diffusion::spec(fields.diffusion.as_ref(), &backend.model.decoders)?;
        let options = AnswerOptions {
            return_token_ids: fields.return_token_ids.unwrap_or(false),
            stream: fields.stream()?,
        };
        let xargs = fields.vllm_xargs.clone().filter(|Object(given)| !given.is_empty());
        let xargs = xargs.map(|Object(given)| given.xargs(&mut spec, backend)).transpose()?;
        let xargs = xargs.unwrap_or_default();
        let decoding = diffusion::resolve(&spec, backend, &[])?;
        let canvas = fields.diffusion.as_ref().and_then(|fields| fields.raw("canvas"));
        let canvas = canvas::pieces(canvas, vocab_size)?;
        if canvas.is_some() {
            refuse_budget(body)?;
        }
        let canvas = canvas.or(xargs.canvas);
        let mut generation = Generation::new(Input::Texts(Vec::new()), decoding);
        let n = fields.n.map_or(1, Int::count);
        (generation.choices.n, generation.choices.best_of) = (n, n);
        let truncate = fields.truncate_prompt_tokens.map(Int::count);
        generation.prompts.truncate = truncate.map(|tokens| tokens as usize);
        generation.prompts.canvas = canvas;
        generation.sampling = sampling;
        generation.stops = stops;
        generation.stops.keeps_eos = xargs.reads_only;
        let writes_listed = xargs.writes_listed;
        generation.text.stop_string = fields.include_stop_str_in_output.unwrap_or(false);
        generation.text.special_tokens = !fields.skip_special_tokens.unwrap_or(true);
        let priority = fields.priority.map_or(0, Int::get);
        generation.priority = i32::try_from(priority).expect("its range is that of 32 bits");
        let (model, unsupported) = (fields.model, None);
        Ok(Self { generation, options, unsupported, model, grammars, spec, writes_listed })
    }

    /// Refuses several choices, and a canvas, where an answer is one text.
    ///
    /// # Errors
    /// `n` above 1; `diffusion.canvas`.
    pub fn one_choice(&self) -> Result<(), ApiError> {
        if self.generation.prompts.canvas.is_some() {
            let rest = "is for chats and completions of OpenAI's API";
            let code = ErrorCode::UnsupportedParameter;
            return Err(ApiError::field(code, FIELD, rest));
        }
        match self.generation.choices.n {
            1 => Ok(()),
            n => Err(invalid("n", format!("must be 1 here, got {n}"))),
        }
    }

    /// Adds the grammar of the field `name`.
    pub fn structure(&mut self, name: &'static str, structured: Structured) {
        self.grammars.add(name, structured);
    }

    /// Sets the prompt to a chat of the field `prompt`, whose template writes its own special tokens;
    /// its tools are left.
    pub fn chat(&mut self, prompt: &'static str, chat: Chat) -> Tools {
        let generation = &mut self.generation;
        generation.prompts.input = Input::Chat(chat.conversation);
        generation.prompts.add_special_tokens = false;
        generation.names.prompt = prompt;
        generation.ignored = chat.ignored;
        chat.tools
    }

    /// The finished generation of an endpoint that has `tools` or none: checks combinations of fields,
    /// then the model.
    ///
    /// # Errors
    /// The first fault.
    pub fn finish(
        self,
        tools: Option<Tools>,
        backend: &Backend,
    ) -> Result<(AnswerOptions, Generation), ApiError> {
        let mut generation = self.generation;
        if generation.prompts.canvas.is_some() {
            generation.stops.max_tokens = None;
        }
        let stops = &generation.stops;
        let budget = stops.max_tokens.unwrap_or(generation.default_budget());
        if stops.min_tokens > budget {
            let found = stops.min_tokens;
            let rest = format!("must be in 0..max_tokens ({budget}), got {found}");
            return Err(invalid("min_tokens", rest));
        }
        stops::check_size(&stops.strings)?;
        let format = &mut generation.format;
        format.structured = self.grammars.one(stops)?;
        format.reads_calls = tools.as_ref().is_some_and(Tools::is_active);
        format.calls = call_format(backend, format.reads_calls)?;
        if let Some(tools) = tools {
            format.reasoning = backend.model.formats.reasoning;
            format.structured = tools.grammar(format.calls, format.structured.take(), stops)?;
        }
        if let Some(error) = self.unsupported {
            return Err(error);
        }
        let listed = generation.logprobs.as_ref().and_then(|fields| fields.listed.clone());
        match (&listed, &generation.format.structured) {
            (Some(_), Some(given)) => {
                let rest = format!("does not go with {}", given.field);
                return Err(invalid("logprob_token_ids", rest));
            }
            (None, _) if self.writes_listed => {
                let rest = "needs logprob_token_ids, the tokens that may be written";
                return Err(invalid("vllm_xargs.diffusion_constrained", rest));
            }
            _ => {}
        }
        generation.sampling.only = listed.filter(|_| self.writes_listed);
        let penalties = generation.sampling.penalties;
        let asked = [
            (Feature::Grammar, generation.format.structured.is_some()),
            (Feature::Penalties, penalties != Penalties::default()),
        ];
        let asked = asked.into_iter().filter(|(_, asked)| *asked);
        let features: Vec<Feature> = asked.map(|(feature, _)| feature).collect();
        generation.decoding = diffusion::resolve(&self.spec, backend, &features)?;
        check_model(self.model.as_deref(), backend)?;
        Ok((self.options, generation))
    }
}

/// Refuses fields that say how long a canvas is.
fn refuse_budget(body: &JsonBody<'_>) -> Result<(), ApiError> {
    const LENGTHS: [&str; 3] = ["max_tokens", "max_completion_tokens", "suffix"];
    match body.fields().find(|(name, _)| LENGTHS.contains(name)) {
        None => Ok(()),
        Some((name, _)) => Err(invalid(name, "does not go with diffusion.canvas, which says it")),
    }
}

impl SharedFields {
    fn stream(&self) -> Result<Option<StreamOptions>, ApiError> {
        let options = self.stream_options.as_ref().map(|Object(given)| {
            let continuous = given.continuous_usage_stats.unwrap_or(false);
            StreamOptions {
                include_usage: given.include_usage.unwrap_or(false) || continuous,
                continuous,
            }
        });
        match (self.stream.unwrap_or(false), options) {
            (true, options) => Ok(Some(options.unwrap_or_default())),
            (false, None) => Ok(None),
            (false, Some(_)) => {
                Err(invalid("stream_options", "is only allowed when stream is true"))
            }
        }
    }
}

/// `model` of a count.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ModelField {
    /// The served model's name.
    model: Option<String>,
}

impl ModelField {
    /// Refuses a model that is not the served one.
    ///
    /// # Errors
    /// `model_not_found`.
    pub fn check(&self, backend: &Backend) -> Result<(), ApiError> {
        check_model(self.model.as_deref(), backend)
    }
}

/// Refuses a model that is not the served one; a request may leave it out.
///
/// # Errors
/// `model_not_found`.
pub fn check_model(model: Option<&str>, backend: &Backend) -> Result<(), ApiError> {
    match model {
        Some(model) if model != backend.model.id => Err(ApiError::model_not_found(model)),
        _ => Ok(()),
    }
}

fn invalid(param: &str, rest: impl AsRef<str>) -> ApiError {
    ApiError::field(ErrorCode::InvalidValue, param, rest)
}

/// The model's format of calls, which must be known if the answer `has_calls`.
fn call_format(backend: &Backend, has_calls: bool) -> Result<ToolFormat, ApiError> {
    match backend.known_tool_format() {
        Err(mark) if has_calls => {
            let rest = format!(
                "need a format of calls that this server writes; the model's chat template shows \
                 another one with {mark} (the setting model.tool_parser names one)"
            );
            let code = ErrorCode::UnsupportedParameter;
            Err(ApiError::field(code, "tools", rest))
        }
        found => Ok(found.unwrap_or(ToolFormat::Hermes)),
    }
}
