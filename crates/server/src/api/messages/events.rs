//! The events of a streamed answer.

use serde_json::json;

use super::envelope;
use super::output::{Blocks, End, Facts, usage_of};
use crate::api::items::{Event, Items};
use crate::api::stream::WriteEvents;
use crate::error::ApiError;
use crate::http::sse;
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Delivery;
use crate::pipeline::usage::Usage;

/// Writes the events of one answer.
#[derive(Debug)]
pub struct Writer {
    facts: Facts,
    blocks: Items<Blocks>,
    end: Option<End>,
}

impl Writer {
    /// The writer of an answer with `facts`.
    pub fn new(facts: Facts) -> Self {
        Self { facts, blocks: Items::new(Blocks), end: None }
    }
}

impl WriteEvents for Writer {
    fn open(&mut self, delivery: &Delivery, frame: &mut String) {
        let usage = delivery.running_usage();
        let message = self.facts.message(Vec::new(), None, &usage);
        let start = json!({"type": "message_start", "message": message});
        let events = vec![("message_start", start), ("ping", json!({"type": "ping"}))];
        write(events, frame);
    }

    fn delta(&mut self, delta: &Delta, _: &Delivery, frame: &mut String) {
        self.blocks.add(delta.parts());
        if let Some(end) = self.facts.stop(delta) {
            self.end = Some(end);
        }
        write(self.blocks.take_events(), frame);
    }

    fn finish(&mut self, usage: Usage, _: &Delivery, frame: &mut String) {
        self.blocks.end(false);
        let mut events = self.blocks.take_events();
        let end = self.end.as_ref();
        let delta = json!({
            "stop_reason": end.map(|end| end.reason),
            "stop_sequence": end.and_then(|end| end.stop.clone()),
        });
        let last = json!({"type": "message_delta", "delta": delta, "usage": usage_of(&usage)});
        events.push(("message_delta", last));
        events.push(("message_stop", json!({"type": "message_stop"})));
        write(events, frame);
    }

    fn fail(&mut self, error: &ApiError, frame: &mut String) {
        sse::event("error", &envelope::body(error, Some(&self.facts.request_id)), frame);
    }
}

fn write(events: Vec<Event>, frame: &mut String) {
    for (name, event) in events {
        sse::event(name, &event, frame);
    }
}
