//! An accepted request: the deltas of all its choices, its usage and its end.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::SelectAll;
use schemars::JsonSchema;
use serde::Serialize;
use step::TokenId;
use text::Tokenizer;

use crate::error::{ApiError, ErrorCode};
use crate::pipeline::assemble::{Delta, Failure};
use crate::pipeline::best_of;
use crate::pipeline::choice::Choice;
use crate::pipeline::generation::{LogprobFields, Stops};
use crate::pipeline::lanes::Lanes;
use crate::pipeline::record::Record;
use crate::pipeline::usage::{Usage, UsageSum};

/// The facts that all parts of an answer share.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Unique id with the endpoint's prefix.
    pub id: String,
    /// The request's id.
    pub request_id: String,
    /// Unix time in seconds.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// `system_fingerprint`.
    pub fingerprint: String,
    /// The ends that the request asked for.
    pub stops: Stops,
    /// The log-probabilities that choices carry.
    pub logprobs: Option<LogprobFields>,
    /// Ids of every prompt.
    pub prompts: Vec<Arc<[TokenId]>>,
    /// Choices per prompt.
    pub n: usize,
    /// Sequences per prompt; the most likely ones are the choices.
    pub best_of: usize,
    /// True if the choices have parts: reasoning, text and calls.
    pub has_parts: bool,
    /// The canvas of the first prompt's choices.
    pub canvas: StartCanvas,
    /// The request field that gave the grammar, if there is one.
    pub grammar: Option<&'static str>,
    /// For the texts of single tokens.
    pub tokenizer: Arc<Tokenizer>,
}

/// A canvas before its first step.
#[derive(Clone, Debug, Default)]
pub struct StartCanvas {
    /// Budget in tokens.
    pub budget: u32,
    /// The given tokens on it.
    pub pins: Vec<decode::Pin>,
}

/// The stop string or the stop token of a request that ended a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StopReason<'a> {
    /// A string.
    Text(&'a str),
    /// A token's id.
    Token(TokenId),
}

impl Answer {
    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.prompts.len() * self.best_of
    }

    /// Number of choices.
    pub fn choices(&self) -> usize {
        self.prompts.len() * self.n
    }

    /// The prompt's ids of choice `index`.
    pub fn prompt_ids(&self, index: usize) -> &[TokenId] {
        &self.prompts[index / self.n]
    }

    /// The stop of the request that ended the choice of `delta`, if one did.
    pub fn stop_reason(&self, delta: &Delta) -> Option<StopReason<'_>> {
        let text = delta.stop_string.and_then(|index| self.stops.strings.get(index));
        let token = delta.stop_token.filter(|token| self.stops.tokens.contains(token));
        text.map(|text| StopReason::Text(text)).or(token.map(StopReason::Token))
    }
}

/// All choices of an accepted request. Dropping it cancels the sequences that still run.
pub struct Delivery {
    pub(super) answer: Answer,
    pub(super) choices: SelectAll<Choice>,
    pub(super) lanes: Lanes,
    pub(super) usage: UsageSum,
    pub(super) record: Record,
    /// Completes when the server aborts the requests that remain.
    pub(super) ending: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Delivery {
    /// The facts that all parts of the answer share.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// The first lanes of a traced sequence; none for others.
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The next delta of any choice; `None` once all have ended.
    ///
    /// # Errors
    /// A sequence failed, or the server aborts the request; nothing follows an error.
    pub async fn next(&mut self) -> Option<Result<Delta, ApiError>> {
        let next = tokio::select! {
            biased;
            () = &mut self.ending => {
                let error = ApiError::shutting_down();
                self.record.fail(&error);
                return Some(Err(error));
            }
            next = self.choices.next() => next?,
        };
        let delta = match next {
            Ok(delta) => delta,
            Err(failure) => {
                let error = self.error(failure);
                self.record.fail(&error);
                return Some(Err(error));
            }
        };
        self.usage.add_tokens(delta.token_ids.len());
        self.usage.add_reasoning(delta.reasoning_tokens);
        if let Some(stats) = &delta.stats {
            self.usage.add_sequence(stats);
            if delta.index.is_multiple_of(self.answer.best_of) {
                self.usage.add_cached(stats);
            }
        }
        self.record.observe(&delta);
        Some(Ok(delta))
    }

    /// The error that tells the client of `failure`.
    fn error(&self, failure: Failure) -> ApiError {
        match failure {
            Failure::Failed(message) => {
                let span = self.record.span();
                span.in_scope(|| tracing::error!("{message}"));
                ApiError::internal()
            }
            Failure::Refused(message) => {
                let field = self.answer.grammar.unwrap_or("response_format");
                let rest = format!("was refused during the generation: {message}");
                ApiError::field(ErrorCode::InvalidValue, field, rest)
            }
        }
    }

    /// The whole answer: every choice as the join of its deltas, by index, and the final usage. Of
    /// more sequences than choices, the most likely ones. Call it instead of [`Delivery::next`].
    ///
    /// # Errors
    /// A sequence failed, or the server aborted it.
    pub async fn collect(&mut self) -> Result<(Vec<Delta>, Usage), ApiError> {
        let mut joined: Vec<Delta> =
            (0..self.answer.sequences()).map(|index| Delta { index, ..Delta::default() }).collect();
        while let Some(delta) = self.next().await {
            let delta = delta?;
            joined[delta.index].join(delta);
        }
        let choices = self.choose(joined);
        Ok((choices, self.finish()))
    }

    /// The choices among `answers`, the joined deltas of every sequence, all ended. Only their
    /// tokens count as delivered.
    fn choose(&mut self, answers: Vec<Delta>) -> Vec<Delta> {
        let (n, best_of) = (self.answer.n, self.answer.best_of);
        if n == best_of {
            return answers;
        }
        let chosen = best_of::choose(answers, n, best_of);
        let tokens = chosen.iter().map(|choice| choice.token_ids.len()).sum();
        self.usage.replace_tokens(tokens);
        self.record.ended_as(&chosen);
        chosen
    }

    /// The request's totals up to now.
    pub fn running_usage(&self) -> Usage {
        self.usage.running()
    }

    /// The final usage; counts the request as answered in full. Call it once, after the last delta.
    pub fn finish(&mut self) -> Usage {
        let usage = self.usage.last();
        self.record.succeed(&usage);
        usage
    }
}
