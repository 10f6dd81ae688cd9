//! One choice in flight: merges the events of its sequence into deltas.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use engine::EventStream;
use futures_util::Stream;

use crate::pipeline::assemble::{ChoiceAssembler, Delta, Failure};
use crate::pipeline::waiting::Share;

/// A stream of deltas; the last one has stats. Dropping it, or a stop string, cancels the
/// sequence.
#[derive(Debug)]
pub struct Choice {
    /// `None` after the end.
    events: Option<EventStream>,
    assembler: ChoiceAssembler,
    /// Held until the sequence runs.
    waiting: Option<Share>,
}

impl Choice {
    /// Reads `events` into `assembler`; drops `waiting` when the sequence runs.
    pub fn new(events: EventStream, assembler: ChoiceAssembler, waiting: Share) -> Self {
        Self { events: Some(events), assembler, waiting: Some(waiting) }
    }
}

impl Stream for Choice {
    type Item = Result<Delta, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(events) = &mut this.events else {
            return Poll::Ready(None);
        };
        let mut delta = this.assembler.delta();
        while !delta.is_news() {
            let Poll::Ready(mut next) = pin!(events.next()).poll(context) else {
                return Poll::Pending;
            };
            if next.is_none() {
                this.events = None;
                let message = "the engine has stopped".to_owned();
                return Poll::Ready(Some(Err(Failure::Failed(message))));
            }
            // Events that are queued already go into the same delta.
            while let Some(event) = next {
                if let Err(failure) = this.assembler.take(event, &mut delta) {
                    this.events = None;
                    return Poll::Ready(Some(Err(failure)));
                }
                next = if delta.stats.is_none() { events.try_next() } else { None };
            }
        }
        if delta.stats.is_some() {
            this.events = None;
        }
        if delta.started || this.events.is_none() {
            this.waiting = None;
        }
        Poll::Ready(Some(Ok(delta)))
    }
}
