//! One choice in flight: its sequence's events, merged into as few deltas as the reader needs.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use engine::EventStream;
use futures_util::Stream;

use crate::assemble::{ChoiceAssembler, Delta, Failure};

/// A stream of deltas; the last one has stats. Dropping it cancels the sequence.
#[derive(Debug)]
pub struct Choice {
    events: EventStream,
    assembler: ChoiceAssembler,
    done: bool,
}

impl Choice {
    /// Reads `events` into `assembler`.
    pub fn new(events: EventStream, assembler: ChoiceAssembler) -> Self {
        Self {
            events,
            assembler,
            done: false,
        }
    }
}

impl Stream for Choice {
    type Item = Result<Delta, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.done {
            return Poll::Ready(None);
        }
        let mut delta = this.assembler.delta();
        while !delta.started && !delta.is_visible() && delta.stats.is_none() {
            let first = pin!(this.events.next()).poll(context);
            let Poll::Ready(first) = first else {
                return Poll::Pending;
            };
            let mut next = match first {
                Some(event) => Some(event),
                None => {
                    this.done = true;
                    return Poll::Ready(Some(Err(Failure("the engine has stopped".to_owned()))));
                }
            };
            // Whatever is queued already goes into the same delta.
            while let Some(event) = next {
                if let Err(failure) = this.assembler.take(event, &mut delta) {
                    this.done = true;
                    return Poll::Ready(Some(Err(failure)));
                }
                next = this.events.try_next();
            }
        }
        this.done = delta.stats.is_some();
        Poll::Ready(Some(Ok(delta)))
    }
}
