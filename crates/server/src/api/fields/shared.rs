//! The fields that both OpenAI endpoints share, and their conversion to a [`Generation`].

use decode::Feature;
use engine::Penalties;
use engine::decoding::DecodingSpec;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use text::ToolFormat;

use super::body::JsonBody;
use super::diffusion::{self, Diffusion};
use super::optional::OptionalFields;
use super::stops::{self, StopStrings};
use super::structured::{Grammars, StructuredFields};
use super::table::Fields;
use super::tools::Tools;
use super::types::{Int, List, MAX_COUNT, Object, Required, Share, Temperature, TokenNumber};
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::encode::MAX_DEFAULT_TOKENS;
use crate::pipeline::generation::{
    FieldNames, Generation, Input, SamplingFields, Stops, Structured, TextFields,
};

/// `n` and `best_of`.
pub type Choices = Int<1, 128>;
/// The number of most probable tokens with a log-probability.
pub type Tops = Int<0, 20>;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct SharedFields {
    /// The served model's name.
    model: Required<String>,
    /// 0 is greedy, the default.
    temperature: Option<Temperature>,
    /// The most probable tokens that have this share of probability together.
    top_p: Option<Share>,
    /// Tokens at least this share as probable as the most probable one.
    min_p: Option<Share>,
    /// So many most probable tokens; -1 and 0 are off.
    top_k: Option<Int<-1, MAX_COUNT>>,
    /// The seed of the sampling noise; random without it.
    seed: Option<Int<{ i64::MIN }, { i64::MAX }>>,
    /// Choices per prompt; 1 where an answer has one.
    n: Option<Choices>,
    /// The answer ends before these strings.
    stop: Option<StopStrings>,
    /// The answer ends at one of these tokens, at most 64.
    stop_token_ids: Option<List<TokenNumber>>,
    /// Bans the model's end tokens.
    ignore_eos: Option<bool>,
    /// Nothing ends the answer earlier.
    min_tokens: Option<Int<0, MAX_COUNT>>,
    /// Keeps the stop string in the text.
    include_stop_str_in_output: Option<bool>,
    /// The answer has the token ids of prompt and text.
    return_token_ids: Option<bool>,
    /// Leaves special tokens out of the text; true by default.
    skip_special_tokens: Option<bool>,
    /// Answers as server-sent events.
    stream: Option<bool>,
    /// Only with `stream`.
    stream_options: Option<Object<StreamOptionsFields>>,
    /// The decoder: a preset, settings, or both.
    diffusion: Option<Diffusion>,
    /// Accepted, without effect.
    #[serde(rename = "user")]
    _user: Option<String>,
}

/// `stream_options`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "StreamOptions")]
struct StreamOptionsFields {
    /// A last chunk has the usage.
    include_usage: Option<bool>,
    /// Every chunk has the running totals.
    continuous_usage_stats: Option<bool>,
}

/// The shared fields of one request, each checked for its type and range.
#[derive(Clone, Debug)]
pub struct Shared {
    fields: SharedFields,
    optional: OptionalFields,
    grammars: Grammars,
    stops: Stops,
    spec: DecodingSpec,
}

/// The fields of one endpoint besides the shared ones.
#[derive(Clone, Debug)]
pub struct OwnFields {
    /// The prompts.
    pub input: Input,
    /// The names of its fields.
    pub names: FieldNames,
    /// Budget in tokens; `None` = the rest of the context.
    pub max_tokens: Option<u32>,
    /// Log-probabilities, with this many of the most probable tokens.
    pub logprobs: Option<Tops>,
    /// Sequences per prompt; `None` = `n`.
    pub best_of: Option<Choices>,
    /// The text after the generation.
    pub suffix: Option<String>,
    /// Whether text prompts get special tokens.
    pub add_special_tokens: bool,
    /// The prompt precedes the text.
    pub echo: bool,
    /// The final message is continued.
    pub continued: bool,
    /// The functions that the answer may call; `None` on an endpoint without any.
    pub tools: Option<Tools>,
    /// Hints without effect.
    pub ignored: Vec<&'static str>,
}

/// How an answer is shaped.
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

impl Shared {
    /// The fields, after those of the struct `T`, an endpoint's own.
    pub fn fields<T: DeserializeOwned + JsonSchema>() -> Fields {
        Fields::of::<T>()
            .and::<SharedFields>()
            .and::<OptionalFields>()
            .and::<StructuredFields>()
    }

    /// Reads the fields.
    ///
    /// # Errors
    /// Type and range faults.
    pub fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<Self, ApiError> {
        let vocab_size = backend.engine.limits().vocab_size;
        let fields: SharedFields = body.read()?;
        let optional: OptionalFields = body.read()?;
        let grammars = body.read::<StructuredFields>()?;
        let grammars = grammars.grammars(backend.model.formats.open_objects)?;
        let stops = Stops {
            strings: fields.stop.clone().unwrap_or_default().0,
            tokens: stops::stop_tokens(fields.stop_token_ids.as_ref(), vocab_size)?,
            ignore_eos: fields.ignore_eos.unwrap_or(false),
            min_tokens: fields.min_tokens.map_or(0, Int::count),
        };
        optional.biases(vocab_size)?;
        let spec = diffusion::spec(fields.diffusion.as_ref(), &backend.model.decoders)?;
        Ok(Self {
            fields,
            optional,
            grammars,
            stops,
            spec,
        })
    }

    /// `n`.
    pub fn n(&self) -> u32 {
        self.fields.n.map_or(1, Int::count)
    }

    /// Refuses several choices, where an answer has one.
    ///
    /// # Errors
    /// `n` above 1.
    pub fn one_choice(&self) -> Result<(), ApiError> {
        match self.n() {
            1 => Ok(()),
            n => Err(invalid("n", format!("must be 1 here, got {n}"))),
        }
    }

    /// Adds the grammar of the field `name`.
    pub fn structure(&mut self, name: &'static str, structured: Structured) {
        self.grammars.add(name, structured);
    }

    /// Adds the stop strings of the field `param`.
    ///
    /// # Errors
    /// Too many, one that is empty or too long.
    pub fn stop_at(&mut self, param: &str, stops: &[String]) -> Result<(), ApiError> {
        stops::add(&mut self.stops.strings, param, stops)
    }

    /// Whether the answer is a stream.
    pub fn is_stream(&self) -> bool {
        self.fields.stream.unwrap_or(false)
    }

    /// The request with the fields `own` of its endpoint: checks combinations of fields, then
    /// support, then the model.
    ///
    /// # Errors
    /// The first fault.
    pub fn generation(
        self,
        own: OwnFields,
        backend: &Backend,
    ) -> Result<(AnswerOptions, Generation), ApiError> {
        let stream = self.stream()?;
        let n = self.n();
        let best_of = own.best_of.map_or(n, Int::count);
        self.check_min_tokens(own.max_tokens)?;
        stops::check_size(&self.stops.strings)?;
        let structured = self.grammars.one(&self.stops)?;
        let reads_calls = own.tools.as_ref().is_some_and(Tools::is_active);
        let calls = call_format(backend, reads_calls)?;
        let reasoning = own.tools.as_ref().and(backend.model.formats.reasoning);
        let structured = match own.tools {
            Some(tools) => tools.grammar(calls, structured, &self.stops)?,
            None => {
                self.optional.support()?;
                structured
            }
        };
        let penalties = self.optional.penalties();
        let asked = [
            (Feature::Grammar, structured.is_some()),
            (Feature::Penalties, penalties != Penalties::default()),
        ];
        let asked = asked.into_iter().filter(|(_, asked)| *asked);
        let features: Vec<Feature> = asked.map(|(feature, _)| feature).collect();
        let decoding = diffusion::resolve(&self.spec, backend, &features)?;
        check_model(Some(&self.fields.model.0), backend)?;
        let fields = self.fields;
        let options = AnswerOptions {
            return_token_ids: fields.return_token_ids.unwrap_or(false),
            stream,
        };
        let generation = Generation {
            suffix: own.suffix,
            add_special_tokens: own.add_special_tokens,
            truncate: self.optional.truncate(),
            continued: own.continued,
            max_tokens: own.max_tokens,
            sampling: SamplingFields {
                temperature: fields.temperature.map(|given| given.0),
                top_p: fields.top_p.map(|given| given.0),
                min_p: fields.min_p.map(|given| given.0),
                top_k: fields.top_k.map(Int::get),
            },
            seed: fields.seed.map(Int::get),
            n,
            best_of,
            biases: self.optional.biases(backend.engine.limits().vocab_size)?,
            penalties,
            structured,
            calls,
            reads_calls,
            reasoning,
            stops: self.stops,
            text: TextFields {
                stop_string: fields.include_stop_str_in_output.unwrap_or(false),
                special_tokens: !fields.skip_special_tokens.unwrap_or(true),
                echo: own.echo,
            },
            logprobs: own.logprobs.map(Tops::byte),
            priority: self.optional.priority(),
            names: own.names,
            ignored: own.ignored,
            ..Generation::new(own.input, decoding)
        };
        Ok((options, generation))
    }

    fn stream(&self) -> Result<Option<StreamOptions>, ApiError> {
        let options = self.fields.stream_options.as_ref().map(|Object(given)| {
            let continuous = given.continuous_usage_stats.unwrap_or(false);
            StreamOptions {
                include_usage: given.include_usage.unwrap_or(false) || continuous,
                continuous,
            }
        });
        match (self.is_stream(), options) {
            (true, options) => Ok(Some(options.unwrap_or_default())),
            (false, None) => Ok(None),
            (false, Some(_)) => Err(invalid(
                "stream_options",
                "is only allowed when stream is true",
            )),
        }
    }

    fn check_min_tokens(&self, max_tokens: Option<u32>) -> Result<(), ApiError> {
        let (min_tokens, most) = (
            self.stops.min_tokens,
            max_tokens.unwrap_or(MAX_DEFAULT_TOKENS),
        );
        if min_tokens <= most {
            return Ok(());
        }
        let rest = format!("must be in 0..max_tokens ({most}), got {min_tokens}");
        Err(invalid("min_tokens", rest))
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

/// How the model writes calls; it must be known if the answer `reads` any.
fn call_format(backend: &Backend, reads: bool) -> Result<ToolFormat, ApiError> {
    match backend.known_tool_format() {
        Err(mark) if reads => {
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
