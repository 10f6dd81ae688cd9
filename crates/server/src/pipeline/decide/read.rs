//! Runs the sequences of a plan and reads the probabilities of options.

use engine::{Event, EventStream, Handle, Refusal, SequenceStats, SubmitError};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use step::TopToken;

use super::Distribution;
use super::plan::{Plan, Reading};
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::assemble::Delta;
use crate::pipeline::record::Record;
use crate::pipeline::usage::UsageSum;
use crate::pipeline::waiting::WaitingTokens;

/// The labels of a sequence and its cost.
type Read = (usize, Vec<TopToken>, SequenceStats);

/// The probabilities of every question. Sequences run together, as many as the batch and the queue hold;
/// where they may share the K/V of their prompts, the first one runs before the others. Dropping the
/// future cancels those that run.
///
/// # Errors
/// `overloaded`, or a sequence that failed or can never be served.
pub async fn read(
    backend: &Backend,
    waiting: &WaitingTokens,
    plan: Plan,
    record: &mut Record,
    usage: &mut UsageSum,
) -> Result<Vec<Distribution>, ApiError> {
    let limits = backend.engine.limits();
    let window = limits.max_running.min(limits.max_waiting).max(1) as usize;
    let mut found: Vec<Vec<TopToken>> = vec![Vec::new(); plan.readings.len()];
    let mut running = FuturesUnordered::new();
    let mut next = 0;
    while next < plan.readings.len() || !running.is_empty() {
        let first_alone = plan.shares_pages && next == 1 && !running.is_empty();
        let has_room = running.len() < window && !first_alone;
        if has_room && let Some(reading) = plan.readings.get(next) {
            match start(&backend.engine, reading) {
                Ok(stream) => {
                    let place = waiting.enter(reading.tokens());
                    running.push(async move {
                        let read = finished(next, stream).await;
                        drop(place);
                        read
                    });
                    next += 1;
                    continue;
                }
                // A place comes with the end of another sequence.
                Err(SubmitError::Overloaded { .. }) if !running.is_empty() => {}
                Err(error) => return Err(refusal(error)),
            }
        }
        if let Some(read) = running.next().await {
            let (number, labels, stats): Read = read?;
            record.observe(&Delta { started: true, ..Delta::default() });
            usage.add_sequence(&stats);
            usage.add_cached(&stats);
            found[number] = labels;
        }
    }
    Ok(averaged(&plan, &found))
}

fn start(engine: &Handle, reading: &Reading) -> Result<EventStream, SubmitError> {
    let mut streams = engine.submit(vec![reading.request.clone()])?;
    streams.pop().ok_or(SubmitError::Stopped)
}

/// Waits for the end of a sequence.
async fn finished(number: usize, mut stream: EventStream) -> Result<Read, ApiError> {
    let mut labels = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Event::Labels(read) => labels = read.into_vec(),
            Event::Finished(finished) => return Ok((number, labels, finished.stats)),
            Event::Failed { message } | Event::Refused { message } => {
                tracing::error!("{message}");
                return Err(ApiError::internal());
            }
            Event::Started | Event::Tokens { .. } | Event::Step(_) => {}
        }
    }
    Err(ApiError::internal())
}

fn refusal(error: SubmitError) -> ApiError {
    match error {
        SubmitError::Overloaded { .. } => ApiError::overloaded(1),
        SubmitError::Stopped => ApiError::internal(),
        SubmitError::Refused(
            refusal @ (Refusal::TooLong { .. } | Refusal::TooManyPages { .. }),
        ) => {
            let rest = format!("do not fit: {refusal}");
            ApiError::field(ErrorCode::ContextLengthExceeded, "questions", rest)
        }
        SubmitError::Refused(refusal) => {
            let rest = format!("are refused: {refusal}");
            ApiError::field(ErrorCode::InvalidValue, "questions", rest)
        }
    }
}

/// The mean of all readings of each question, in the order of the readings.
fn averaged(plan: &Plan, found: &[Vec<TopToken>]) -> Vec<Distribution> {
    let blank = |count: &usize| Distribution { probabilities: vec![0.0; *count], mass: 0.0 };
    let mut sums: Vec<Distribution> = plan.options.iter().map(blank).collect();
    let mut readings = vec![0.0; sums.len()];
    for (reading, labels) in plan.readings.iter().zip(found) {
        let Some(tokens) = reading.request.extras.labels.as_ref().map(|labels| &labels.tokens)
        else {
            continue;
        };
        let slots = labels.chunks_exact(tokens.len());
        for (question, listed) in (reading.first..reading.first + reading.count).zip(slots) {
            let sum = &mut sums[question];
            let count = sum.probabilities.len();
            let logprob = |place: usize| {
                let found = listed.iter().find(|top| top.token == tokens[place]);
                found.map_or(f64::NEG_INFINITY, |top| f64::from(top.logprob))
            };
            let logprobs: Vec<f64> = (0..count).map(logprob).collect();
            sum.mass += logprobs.iter().map(|x| x.exp()).sum::<f64>();
            for (place, probability) in softmax(&logprobs, plan.temperature).into_iter().enumerate()
            {
                sum.probabilities[(place + reading.shift(count)) % count] += probability;
            }
            readings[question] += 1.0;
        }
    }
    for (sum, count) in sums.iter_mut().zip(readings) {
        sum.mass /= count;
        sum.probabilities.iter_mut().for_each(|p| *p /= count);
    }
    sums
}

/// The probabilities among `logprobs` alone, at a temperature; all alike if none is possible.
fn softmax(logprobs: &[f64], temperature: f64) -> Vec<f64> {
    let most = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        return vec![1.0 / logprobs.len() as f64; logprobs.len()];
    }
    let weights: Vec<f64> = logprobs.iter().map(|x| ((x - most) / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}
