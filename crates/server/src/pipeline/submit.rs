//! From an admitted request to sequences in the engine.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::{EventStream, Extras, LogitChanges, Refusal, Sender, SubmitError};
use step::{Bias, Sampling, TokenId};
use text::{
    CallStream, GrammarSpec, PartStream, ReasoningStream, SpecialTokens, StreamOptions, TextStream,
};

use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::http::shutdown::Phase;
use crate::pipeline::admit::AdmittedRequest;
use crate::pipeline::assemble::ChoiceAssembler;
use crate::pipeline::choice::Choice;
use crate::pipeline::deliver::{Answer, Delivery, StartCanvas};
use crate::pipeline::encode::Prompt;
use crate::pipeline::generation::{AnswerFormat, Generation};
use crate::pipeline::ids::choice_seed;
use crate::pipeline::lanes::Lanes;
use crate::pipeline::logprobs::Scorer;
use crate::pipeline::record::Record;
use crate::pipeline::thought::ThoughtCount;
use crate::pipeline::usage::UsageSum;
use crate::pipeline::written;
use crate::state::AppState;

/// Temperatures below this are greedy.
const TINY_TEMPERATURE: f64 = 1e-5;

/// Submits all sequences of an admitted request, or none: prompt x `best_of`. Ids of the answer
/// begin with `id_prefix`; `record` ends with the error if submission fails.
///
/// # Errors
/// `overloaded`, or a sequence that can never be served.
pub fn submit(
    state: &AppState,
    backend: &Backend,
    id_prefix: &str,
    admitted: AdmittedRequest,
    mut record: Record,
) -> Result<Delivery, ApiError> {
    let generation = &admitted.generation;
    let seed = generation.sampling.seed.unwrap_or_else(|| state.ids().seed());
    let mut requests = sequences(backend, &admitted, seed);
    for request in &mut requests {
        request.sender.client = record.client();
    }
    let lanes = match requests.first() {
        Some(first) if first.extras.trace => Lanes::new(first, &backend.engine.limits()),
        _ => Lanes::default(),
    };
    let pages = pages(backend, &admitted);
    let streams = backend
        .engine
        .submit(requests)
        .map_err(|error| refusal(backend, error, generation, pages))
        .inspect_err(|error| record.fail(error))?;
    let prompt_tokens = admitted.prompts.iter().map(Prompt::tokens).sum();
    record.accepted(streams.len(), prompt_tokens);
    let choices = choices(state, backend, &admitted, streams);
    let predicts = generation.prompts.prediction.is_some();
    let usage = UsageSum::new(generation.decoding.label.clone(), seed, prompt_tokens);
    let usage = usage.predicting(predicts);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let answer = Answer {
        id: format!("{id_prefix}-{:016x}", state.ids().next()),
        request_id: record.request_id().to_owned(),
        created: now.map_or(0, |now| now.as_secs()),
        model: backend.model.id.clone(),
        fingerprint: backend.model.fingerprint.clone(),
        stops: generation.stops.clone(),
        logprobs: generation.logprobs.clone(),
        n: generation.choices.n as usize,
        best_of: generation.choices.best_of as usize,
        has_parts: generation.format.has_parts(),
        grammar: generation.format.structured.as_ref().map(|given| given.field),
        tokenizer: Arc::clone(&backend.tokenizer),
        canvas: admitted.prompts.first().map(start).unwrap_or_default(),
        prompts: admitted.prompts.into_iter().map(|prompt| prompt.ids).collect(),
    };
    Ok(Delivery {
        answer,
        choices: choices.into_iter().collect(),
        lanes,
        usage,
        record,
        ending: Box::pin(state.shutdown().reached(Phase::Ending)),
    })
}

/// The canvas of a prompt's choices before their first step.
fn start(prompt: &Prompt) -> StartCanvas {
    StartCanvas { budget: prompt.max_tokens, pins: prompt.written.given.pins.clone() }
}

/// The engine's requests, in order: index = prompt x `best_of` + i.
fn sequences(backend: &Backend, admitted: &AdmittedRequest, seed: i64) -> Vec<engine::Request> {
    let mut requests = Vec::new();
    for prompt in &admitted.prompts {
        for choice in 0..admitted.generation.choices.best_of {
            let seed = choice_seed(seed, choice);
            requests.push(sequence(backend, admitted, prompt, seed));
        }
    }
    requests
}

/// The sequences in flight, in the order of `streams`.
fn choices(
    state: &AppState,
    backend: &Backend,
    admitted: &AdmittedRequest,
    streams: Vec<EventStream>,
) -> Vec<Choice> {
    let generation = &admitted.generation;
    let options = StreamOptions {
        skip_special_tokens: !generation.text.special_tokens,
        shown: shown(backend, generation).into(),
        stop: generation.stops.strings.clone(),
        include_stop_str_in_output: generation.text.stop_string,
        min_tokens: generation.stops.min_tokens as usize,
    };
    let text = TextStream::new(&backend.tokenizer, &options);
    let scorer = logprobs(generation).map(|_| {
        let specials = generation.text.detokenizer();
        Scorer::new(backend.tokenizer.detokenizer(specials))
    });
    let choice = |(index, events): (usize, EventStream)| {
        let prompt = &admitted.prompts[index / generation.choices.best_of as usize];
        let parts = parts(state, &generation.format, prompt);
        let assembler = ChoiceAssembler::new(index, text.clone(), prompt.echo.clone())
            .traced(generation.trace)
            .scored(scorer.clone())
            .before(prompt.written.tail())
            .thinking(thought(backend, &options, parts.as_ref()))
            .split(parts);
        let waiting = state.waiting_tokens().enter(prompt.tokens());
        Choice::new(events, assembler, waiting)
    };
    streams.into_iter().enumerate().map(choice).collect()
}

/// The special tokens that the text shows in any case: marks of calls and of reasoning.
fn shown(backend: &Backend, generation: &Generation) -> Vec<TokenId> {
    let mut shown = Vec::new();
    if generation.format.reads_calls {
        shown.extend(generation.format.calls.special_tokens(&backend.tokenizer));
    }
    if let Some(reasoning) = generation.format.reasoning {
        shown.extend(reasoning.special_tokens(&backend.tokenizer));
    }
    shown
}

/// The stream of the parts of an answer to `prompt`, if answers have parts.
fn parts(state: &AppState, format: &AnswerFormat, prompt: &Prompt) -> Option<PartStream> {
    let calls = || {
        let tools = match format.structured.as_ref().map(|given| &given.spec) {
            Some(GrammarSpec::Tools(grammar)) => grammar.tools.as_slice(),
            _ => &[],
        };
        let schemas = tools.iter().map(|tool| (tool.name.as_str(), &tool.parameters));
        let stream = CallStream::new(format.calls).with_schemas(schemas);
        stream.with_seed(state.ids().next())
    };
    let reasoning = format.reasoning;
    format.has_parts().then(|| PartStream {
        reasoning: reasoning.map(|_| ReasoningStream::new(prompt.reasoning)),
        calls: format.reads_calls.then(calls),
    })
}

/// The count of the reasoning that `parts` splits off, in a text with these `options`.
fn thought(
    backend: &Backend,
    options: &StreamOptions,
    parts: Option<&PartStream>,
) -> Option<ThoughtCount> {
    let stream = parts?.reasoning.clone()?;
    let detokenizer = backend.tokenizer.detokenizer(SpecialTokens::Skip);
    Some(ThoughtCount::new(detokenizer.showing(Arc::clone(&options.shown)), stream))
}

/// The log-probabilities that the engine computes: the requested ones, and the ones that rank the
/// request's sequences.
fn logprobs(generation: &Generation) -> Option<u8> {
    let ranked = (generation.choices.best_of > generation.choices.n).then_some(0);
    generation.logprobs.as_ref().map(|given| given.count).or(ranked)
}

fn sequence(
    backend: &Backend,
    admitted: &AdmittedRequest,
    prompt: &Prompt,
    seed: u64,
) -> engine::Request {
    let (generation, model) = (&admitted.generation, &backend.model);
    let (fields, defaults) = (&generation.sampling, model.defaults);
    let temperature = fields.temperature.unwrap_or(defaults.temperature);
    let top_k = fields.top_k.map_or(defaults.top_k, |k| u32::try_from(k).unwrap_or(0));
    let sampling = Sampling {
        temperature: if temperature < TINY_TEMPERATURE { 0.0 } else { temperature as f32 },
        top_p: fields.top_p.unwrap_or(defaults.top_p) as f32,
        min_p: fields.min_p.unwrap_or(defaults.min_p) as f32,
        top_k,
        seed,
        clock: 0,
        scale: 1.0,
    };
    // With ignore_eos the model's own stop ids are banned; the request's own stop ids still stop.
    let stops = &generation.stops;
    let ban = |token: &TokenId| Bias::ban(*token);
    let mut biases = fields.biases.clone();
    let own = if stops.keeps_eos {
        &[][..]
    } else if stops.ignore_eos {
        biases.extend(model.stop_tokens.iter().map(ban));
        &[][..]
    } else {
        &model.stop_tokens[..]
    };
    let mut stop_tokens = own.to_vec();
    for token in &stops.tokens {
        if !stop_tokens.contains(token) {
            stop_tokens.push(*token);
        }
    }
    let decoding = generation.decoding.clone();
    engine::Request {
        sampling,
        stop_tokens,
        min_tokens: stops.min_tokens.min(prompt.max_tokens),
        given: prompt.written.given.clone(),
        logits: LogitChanges { biases, penalties: fields.penalties, only: fields.only.clone() },
        extras: Extras {
            logprobs: logprobs(generation),
            listed: generation.logprobs.as_ref().and_then(|given| given.listed.clone()),
            trace: generation.trace,
            ..Extras::default()
        },
        constraint: admitted.constraint.clone(),
        code_prompt: prompt.code,
        sender: Sender { priority: generation.priority, ..Sender::default() },
        ..engine::Request::new(prompt.ids.to_vec(), prompt.max_tokens, decoding)
    }
}

/// KV pages that the largest sequence of a request may need.
fn pages(backend: &Backend, admitted: &AdmittedRequest) -> u32 {
    let limits = backend.engine.limits();
    let decoding = &admitted.generation.decoding;
    let needed = |prompt: &Prompt| {
        let tokens = u32::try_from(prompt.tokens()).unwrap_or(u32::MAX);
        limits.worst_case_pages(tokens, prompt.max_tokens, decoding)
    };
    admitted.prompts.iter().map(needed).max().unwrap_or(0)
}

/// Seconds after which a request whose sequences need up to `pages` KV pages each may find a place:
/// one for every batch of waiting sequences, as many as places and pages allow, and one more while
/// too few pages are free.
fn retry_after(limits: engine::Limits, load: engine::Load, pages: u32) -> u32 {
    let by_memory = limits.pages / pages.max(1);
    let batch = limits.max_running.min(by_memory).max(1);
    let free = limits.pages.saturating_sub(load.pages_used);
    load.waiting / batch + u32::from(free < pages)
}

fn refusal(backend: &Backend, error: SubmitError, generation: &Generation, pages: u32) -> ApiError {
    match error {
        SubmitError::Overloaded { .. } => {
            let (limits, load) = (backend.engine.limits(), backend.engine.load());
            ApiError::overloaded(retry_after(limits, load, pages))
        }
        SubmitError::Stopped => ApiError::internal(),
        SubmitError::Refused(
            refusal @ (Refusal::TooLong { .. } | Refusal::TooManyPages { .. }),
        ) => {
            let rest = format!("does not fit: {refusal}");
            ApiError::field(ErrorCode::ContextLengthExceeded, generation.names.max_tokens, rest)
        }
        SubmitError::Refused(refusal @ Refusal::UnknownToken { .. }) => {
            let field = generation.names.prompt;
            ApiError::field(ErrorCode::InvalidValue, field, format!("is refused: {refusal}"))
        }
        SubmitError::Refused(Refusal::Rule { field, message }) => {
            ApiError::field(ErrorCode::InvalidValue, format!("diffusion.{field}"), message)
        }
        SubmitError::Refused(Refusal::Field { field: "canvas", message }) => {
            ApiError::field(ErrorCode::InvalidValue, written::FIELD, message)
        }
        SubmitError::Refused(Refusal::Field { field, message }) => {
            ApiError::field(ErrorCode::InvalidValue, field.to_owned(), message)
        }
    }
}

#[cfg(test)]
mod tests;
