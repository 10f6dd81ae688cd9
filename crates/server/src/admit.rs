//! From a request body to sequences in the engine: parse, encode, limits, submit.

use std::sync::Arc;

use engine::{EventStream, Limits, Refusal, SubmitError};
use step::{Bias, Sampling, TokenId};
use text::{SpecialTokens, StreamOptions, TextError, TextStream, Tokenizer};

use crate::assemble::ChoiceAssembler;
use crate::choice::Choice;
use crate::code::is_code_shaped;
use crate::error::{ApiError, ErrorCode, clip};
use crate::ids::choice_seed;
use crate::request::{self, Checks, Endpoint, GenerationRequest, Input};
use crate::state::{AppState, Backend};

/// Most tokens of a chat answer whose request sets no limit.
pub const MAX_DEFAULT_TOKENS: u32 = 1024;
/// Temperatures below this are greedy.
const TINY_TEMPERATURE: f64 = 1e-5;

/// A request with its prompts as ids, within all limits.
#[derive(Debug)]
pub struct Prepared {
    /// The request.
    pub request: GenerationRequest,
    /// One per prompt.
    pub prompts: Vec<Prompt>,
}

/// One encoded prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its ids, at least one.
    pub ids: Arc<[TokenId]>,
    /// Its text, empty unless asked for by `echo`.
    pub echo: String,
    /// Whether it asks for code.
    pub code: bool,
    /// Budget of its choices.
    pub max_tokens: u32,
}

/// Parses and encodes `body`, off the async threads unless it is short.
///
/// # Errors
/// Every fault of the request.
pub async fn prepare(
    state: &AppState,
    endpoint: Endpoint,
    body: Vec<u8>,
) -> Result<Prepared, ApiError> {
    let backend = state.backend()?.clone();
    if body.len() <= state.settings().inline_encode_bytes {
        return prepare_now(&backend, endpoint, &body);
    }
    // A bound on the work at hand: short bodies overtake those that wait here.
    let permit = state
        .encoders()
        .acquire()
        .await
        .map_err(|_| ApiError::internal())?;
    let work = move || prepare_now(&backend, endpoint, &body);
    let prepared = tokio::task::spawn_blocking(work).await;
    drop(permit);
    prepared.map_err(|_| ApiError::internal())?
}

fn prepare_now(backend: &Backend, endpoint: Endpoint, body: &[u8]) -> Result<Prepared, ApiError> {
    let (model, limits) = (&backend.model, backend.engine.limits());
    let checks = Checks {
        model: &model.id,
        vocab_size: limits.vocab_size,
        decoding: &model.decoding,
    };
    let request = request::parse(endpoint, body, checks)?;
    let prompts = encode(&backend.tokenizer, &request, limits)?;
    Ok(Prepared { request, prompts })
}

/// The choices of a submitted request, in order: index = prompt × n + i.
///
/// # Errors
/// `overloaded`, or a sequence that can never be served.
pub fn submit(backend: &Backend, prepared: &Prepared, seed: i64) -> Result<Vec<Choice>, ApiError> {
    let request = &prepared.request;
    let mut requests = Vec::new();
    for prompt in &prepared.prompts {
        for choice in 0..request.n {
            requests.push(sequence(
                backend,
                request,
                prompt,
                choice_seed(seed, choice),
            ));
        }
    }
    let streams = backend
        .engine
        .submit(requests)
        .map_err(|error| refuse(backend, error, request))?;
    let options = StreamOptions {
        skip_special_tokens: request.output.skip_special_tokens,
        stop: request.stops.strings.clone(),
        include_stop_str_in_output: request.output.include_stop,
        min_tokens: request.stops.min_tokens as usize,
    };
    let text = TextStream::new(&backend.tokenizer, &options);
    let choice = |(index, events): (usize, EventStream)| {
        let echo = prepared.prompts[index / request.n as usize].echo.clone();
        Choice::new(events, ChoiceAssembler::new(index, text.clone(), echo))
    };
    Ok(streams.into_iter().enumerate().map(choice).collect())
}

fn sequence(
    backend: &Backend,
    request: &GenerationRequest,
    prompt: &Prompt,
    seed: u64,
) -> engine::Request {
    let model = &backend.model;
    let (fields, defaults) = (request.sampling, model.defaults);
    let temperature = fields.temperature.unwrap_or(defaults.temperature);
    let top_k = fields
        .top_k
        .map_or(defaults.top_k, |k| u32::try_from(k).unwrap_or(0));
    let sampling = Sampling {
        temperature: if temperature < TINY_TEMPERATURE {
            0.0
        } else {
            temperature as f32
        },
        top_p: fields.top_p.unwrap_or(defaults.top_p) as f32,
        min_p: fields.min_p.unwrap_or(defaults.min_p) as f32,
        top_k,
        seed,
        clock: 0,
    };
    // With ignore_eos the model's own stop ids never come up, those of the request still stop.
    let stops = &request.stops;
    let ban = |token: &TokenId| Bias {
        token: *token,
        amount: f32::NEG_INFINITY,
    };
    let (own, biases) = if stops.ignore_eos {
        (&[][..], model.stop_tokens.iter().map(ban).collect())
    } else {
        (&model.stop_tokens[..], Vec::new())
    };
    let mut stop_tokens = own.to_vec();
    for token in &stops.tokens {
        if !stop_tokens.contains(token) {
            stop_tokens.push(*token);
        }
    }
    engine::Request {
        prompt: prompt.ids.to_vec(),
        max_tokens: prompt.max_tokens,
        decoding: request.decoding.clone(),
        sampling,
        stop_tokens,
        min_tokens: stops.min_tokens.min(prompt.max_tokens),
        biases,
        code_prompt: prompt.code,
        trace: false,
    }
}

fn encode(
    tokenizer: &Tokenizer,
    request: &GenerationRequest,
    limits: Limits,
) -> Result<Vec<Prompt>, ApiError> {
    let field = request.endpoint.prompt_field();
    let echo = request.output.echo;
    let fault = |error| encode_fault(error, field);
    let mut prompts = Vec::with_capacity(request.input.prompts());
    let mut push = |ids: Vec<TokenId>, text: String| {
        let max_tokens = budget(request, ids.len(), limits)?;
        let code = is_code_shaped(&text);
        let echo = if echo { text } else { String::new() };
        prompts.push(Prompt {
            ids: ids.into(),
            echo,
            code,
            max_tokens,
        });
        Ok::<_, ApiError>(())
    };
    match &request.input {
        Input::Texts(texts) => {
            for text in texts {
                push(tokenizer.encode(text, true).map_err(fault)?, text.clone())?;
            }
        }
        Input::Ids(lists) => {
            let specials = match request.output.skip_special_tokens {
                true => SpecialTokens::Skip,
                false => SpecialTokens::KeepButMask,
            };
            for ids in lists {
                let mut detokenizer = tokenizer.detokenizer(specials);
                let text = detokenizer.push(ids) + &detokenizer.finish();
                push(ids.clone(), text)?;
            }
        }
        Input::Chat(messages) => {
            let template = tokenizer.chat_template().map_err(fault)?;
            let text = template.render(messages, true).map_err(fault)?;
            push(tokenizer.encode(&text, false).map_err(fault)?, text)?;
        }
    }
    Ok(prompts)
}

/// The budget of a prompt of `length` tokens, which must fit the context with it.
fn budget(request: &GenerationRequest, length: usize, limits: Limits) -> Result<u32, ApiError> {
    let field = request.endpoint.prompt_field();
    if length == 0 {
        return Err(ApiError::field(
            ErrorCode::InvalidValue,
            field,
            "has no tokens",
        ));
    }
    let context = limits.max_model_len;
    let exceeded = |param, rest| ApiError::field(ErrorCode::ContextLengthExceeded, param, rest);
    let used = u32::try_from(length).unwrap_or(u32::MAX);
    let rest = context.checked_sub(used);
    match (rest, request.max_tokens) {
        (Some(rest), Some(max_tokens)) if max_tokens <= rest => Ok(max_tokens),
        (Some(rest), None) if rest > 0 => Ok(rest.min(MAX_DEFAULT_TOKENS)),
        (Some(rest), Some(_)) => {
            let rest = format!(
                "must be at most {rest}: the prompt takes {used} of max_model_len {context} tokens"
            );
            Err(exceeded(request.max_tokens_field, rest))
        }
        _ => Err(exceeded(
            field,
            format!("has {used} tokens, max_model_len is {context}"),
        )),
    }
}

fn encode_fault(error: TextError, field: &str) -> ApiError {
    match error {
        TextError::NoChatTemplate => {
            let rest = "needs a chat template, which this model does not have";
            ApiError::field(ErrorCode::UnsupportedParameter, field, rest)
        }
        TextError::Refused(why) => {
            let rest = format!("was refused by the chat template: {}", clip(&why));
            ApiError::field(ErrorCode::InvalidValue, field, rest)
        }
        TextError::Encode(_) => ApiError::field(
            ErrorCode::InvalidValue,
            field,
            "cannot be encoded by this model",
        ),
        TextError::Render(_) => ApiError::field(
            ErrorCode::InvalidValue,
            field,
            "cannot be put into the chat template",
        ),
        TextError::Io { .. } | TextError::Malformed { .. } | TextError::Value { .. } => {
            tracing::error!(%error, "the chat template is unusable");
            ApiError::internal()
        }
    }
}

fn refuse(backend: &Backend, error: SubmitError, request: &GenerationRequest) -> ApiError {
    match error {
        SubmitError::Overloaded { waiting } => {
            let running = backend.engine.limits().max_running.max(1);
            ApiError::overloaded(waiting / running)
        }
        SubmitError::Stopped => ApiError::internal(),
        SubmitError::Refused(
            refusal @ (Refusal::TooLong { .. } | Refusal::TooManyPages { .. }),
        ) => {
            let rest = format!("does not fit: {refusal}");
            ApiError::field(
                ErrorCode::ContextLengthExceeded,
                request.max_tokens_field,
                rest,
            )
        }
        SubmitError::Refused(refusal @ Refusal::UnknownToken { .. }) => {
            let field = request.endpoint.prompt_field();
            ApiError::field(
                ErrorCode::InvalidValue,
                field,
                format!("is refused: {refusal}"),
            )
        }
    }
}
