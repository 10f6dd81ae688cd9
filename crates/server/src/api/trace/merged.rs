//! The steps of a traced sequence. Beyond [`UNREAD`] they are merged as they come: a client that reads
//! slowly costs the memory of a few steps and one canvas.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{FinishReason, StepTrace};
use text::{Part, Tokenizer};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::steps::{StepEvent, Steps};
use crate::error::ApiError;
use crate::pipeline::assemble::reason_name;
use crate::pipeline::deliver::Delivery;
use crate::pipeline::usage::Usage;

/// Most steps that wait for the client before further ones are merged.
const UNREAD: usize = 64;

/// Reads a delivery to its end, whoever reads what it merges. Dropping it cancels the sequence.
pub struct Merged {
    shared: Arc<Shared>,
    /// Returns the delivery at its end; then none.
    reader: Option<JoinHandle<Delivery>>,
}

/// The events since the last news.
#[derive(Debug)]
pub struct News {
    /// The steps, as one.
    pub step: Option<StepEvent>,
    /// The text of these steps, or the rest of the text at the end.
    pub text: String,
    /// The parts that the text completes, where answers have parts.
    pub parts: Vec<Part>,
    /// The end, once.
    pub end: Option<End>,
}

/// The end of the sequence.
#[derive(Debug)]
pub enum End {
    /// Completely answered.
    Done {
        /// The reason of the end, by the API's name.
        reason: &'static str,
        /// The final usage.
        usage: Usage,
    },
    /// With an error.
    Failed(ApiError),
}

#[derive(Debug)]
struct Shared {
    tokenizer: Arc<Tokenizer>,
    state: Mutex<State>,
    /// Something changed.
    news: Notify,
}

#[derive(Debug)]
struct State {
    /// The oldest steps, each with its text.
    unread: VecDeque<News>,
    /// The steps after them.
    steps: Steps,
    text: String,
    parts: Vec<Part>,
    reason: &'static str,
    end: Option<Result<(), ApiError>>,
}

impl Merged {
    /// Begins to read `delivery`.
    pub fn new(delivery: Delivery) -> Self {
        let tokenizer = Arc::clone(&delivery.answer().tokenizer);
        let state = State {
            unread: VecDeque::new(),
            steps: Steps::new(delivery.lanes().clone()),
            text: String::new(),
            parts: Vec::new(),
            reason: reason_name(FinishReason::Stop),
            end: None,
        };
        let shared = Arc::new(Shared { tokenizer, state: Mutex::new(state), news: Notify::new() });
        let reader = tokio::spawn(read(delivery, Arc::clone(&shared)));
        Self { shared, reader: Some(reader) }
    }

    /// Waits for a step or the end. After the end, call it no more.
    pub async fn next(&mut self) -> News {
        loop {
            let (mut news, ended) = self.shared.take();
            if let Some(reason) = ended {
                news.end = Some(self.done(reason).await);
            }
            if news.step.is_some() || news.end.is_some() {
                return news;
            }
            self.shared.news.notified().await;
        }
    }

    async fn done(&mut self, reason: &'static str) -> End {
        let delivery = match self.reader.take() {
            Some(reader) => reader.await.ok(),
            None => None,
        };
        match delivery {
            Some(mut delivery) => End::Done { reason, usage: delivery.finish() },
            None => End::Failed(ApiError::internal()),
        }
    }
}

impl Drop for Merged {
    fn drop(&mut self) {
        if let Some(reader) = &self.reader {
            reader.abort();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The news, without the end of a completely answered sequence: of that, the reason.
    fn take(&self) -> (News, Option<&'static str>) {
        let mut state = self.state();
        if let Some(news) = state.unread.pop_front() {
            return (news, None);
        }
        let step = state.steps.take(&self.tokenizer);
        let end = state.end.take();
        // The engine sends the text of a step before the step.
        let (text, parts) = match step.is_some() || end.is_some() {
            true => (std::mem::take(&mut state.text), std::mem::take(&mut state.parts)),
            false => Default::default(),
        };
        let (end, ended) = match end {
            Some(Ok(())) => (None, Some(state.reason)),
            Some(Err(error)) => (Some(End::Failed(error)), None),
            None => (None, None),
        };
        let news = News { step, text, parts, end };
        (news, ended)
    }
}

impl State {
    /// Adds a step; `is_last` of a delta's steps has its text.
    fn push(&mut self, step: &StepTrace, is_last: bool, tokenizer: &Tokenizer) {
        self.steps.push(step);
        if self.unread.len() >= UNREAD {
            return;
        }
        let (text, parts) = match is_last {
            true => (std::mem::take(&mut self.text), std::mem::take(&mut self.parts)),
            false => Default::default(),
        };
        let step = self.steps.take(tokenizer);
        self.unread.push_back(News { step, text, parts, end: None });
    }
}

/// Takes the deltas of `delivery` into `shared`.
async fn read(mut delivery: Delivery, shared: Arc<Shared>) -> Delivery {
    loop {
        let next = delivery.next().await;
        let mut state = shared.state();
        match next {
            Some(Ok(delta)) => {
                state.text.push_str(&delta.text);
                state.reason = delta.finish_name().unwrap_or(state.reason);
                state.parts.extend(delta.parts.unwrap_or_default());
                for (number, step) in delta.steps.iter().enumerate() {
                    state.push(step, number + 1 == delta.steps.len(), &shared.tokenizer);
                }
            }
            Some(Err(error)) => state.end = Some(Err(error)),
            None => state.end = Some(Ok(())),
        }
        let ended = state.end.is_some();
        drop(state);
        shared.news.notify_one();
        if ended {
            return delivery;
        }
    }
}
