//! A request in the engine: the deltas of all its choices, its usage and its end.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use futures_util::stream::SelectAll;
use step::TokenId;
use text::Tokenizer;

use crate::api::trace::Lanes;
use crate::error::ApiError;
use crate::http::shutdown::Phase;
use crate::pipeline::admit::Prepared;
use crate::pipeline::assemble::Delta;
use crate::pipeline::best_of;
use crate::pipeline::choice::Choice;
use crate::pipeline::encode::Prompt;
use crate::pipeline::submit::submit;
use crate::pipeline::usage::{Usage, UsageSum};
use crate::record::Record;
use crate::request::{Endpoint, Output};
use crate::state::{AppState, Backend};

/// What is the same in every part of an answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Where the request came in.
    pub endpoint: Endpoint,
    /// Unique id with the endpoint's prefix.
    pub id: String,
    /// Unix time in seconds.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// `system_fingerprint`.
    pub fingerprint: String,
    /// How the answer is shaped.
    pub output: Output,
    /// Ids of every prompt.
    pub prompts: Vec<Arc<[TokenId]>>,
    /// Choices per prompt.
    pub n: usize,
    /// Sequences per prompt, of which the best are the choices.
    pub best_of: usize,
    /// Budget of the choices of the first prompt.
    pub budget: u32,
    /// For the texts of single tokens.
    pub tokenizer: Arc<Tokenizer>,
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
}

/// All choices of a request. Dropping it cancels what still runs.
pub struct Generation {
    answer: Answer,
    choices: SelectAll<Choice>,
    lanes: Lanes,
    usage: UsageSum,
    record: Record,
    ending: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Generation {
    /// Submits `prepared`; `record` ends with the error if that fails.
    ///
    /// # Errors
    /// As [`submit`].
    pub fn start(
        state: &AppState,
        backend: &Backend,
        prepared: Prepared,
        mut record: Record,
    ) -> Result<Self, ApiError> {
        let request = &prepared.request;
        let seed = request.seed.unwrap_or_else(|| state.ids().seed());
        let submitted =
            submit(state, backend, &prepared, seed).inspect_err(|error| record.fail(error))?;
        record.accepted(submitted.choices.len());
        let prompt_tokens = prepared.prompts.iter().map(Prompt::tokens).sum();
        let usage = UsageSum::new(request.decoding.label.clone(), seed, prompt_tokens);
        let prefix = match (request.trace, request.endpoint) {
            (true, _) => "trace",
            (false, Endpoint::Completions) => "cmpl",
            (false, Endpoint::Chat) => "chatcmpl",
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let answer = Answer {
            endpoint: request.endpoint,
            id: format!("{prefix}-{:016x}", state.ids().next()),
            created: now.map_or(0, |now| now.as_secs()),
            model: backend.model.id.clone(),
            fingerprint: backend.model.fingerprint.clone(),
            output: request.output,
            n: request.n as usize,
            best_of: request.best_of as usize,
            tokenizer: Arc::clone(&backend.tokenizer),
            budget: prepared
                .prompts
                .first()
                .map_or(0, |prompt| prompt.max_tokens),
            prompts: prepared
                .prompts
                .into_iter()
                .map(|prompt| prompt.ids)
                .collect(),
        };
        let ending = Box::pin(state.shutdown().reached(Phase::Ending));
        Ok(Self {
            answer,
            choices: submitted.choices.into_iter().collect(),
            lanes: submitted.lanes,
            usage,
            record,
            ending,
        })
    }

    /// What is the same in every part of the answer.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// The lanes that a traced sequence begins with.
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The next delta of any choice; `None` once all have ended.
    ///
    /// # Errors
    /// A sequence failed, or the server ends what is left: nothing more follows.
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
                self.record
                    .span()
                    .in_scope(|| tracing::error!("{}", failure.0));
                let error = ApiError::internal();
                self.record.fail(&error);
                return Some(Err(error));
            }
        };
        self.usage.add_tokens(delta.token_ids.len());
        if let Some(stats) = &delta.stats {
            self.usage.add_sequence(stats);
        }
        self.record.observe(&delta);
        Some(Ok(delta))
    }

    /// The choices among `answers`, the joined deltas of every sequence, all ended. Only their
    /// tokens count as delivered.
    pub fn choose(&mut self, answers: Vec<Delta>) -> Vec<Delta> {
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

    /// The request's totals so far.
    pub fn running_usage(&self) -> Usage {
        self.usage.running()
    }

    /// The final usage; the request counts as answered in full.
    pub fn finish(&mut self) -> Usage {
        let usage = self.usage.last();
        self.record.succeed(&usage);
        usage
    }
}
