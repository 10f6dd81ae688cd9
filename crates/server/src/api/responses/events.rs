//! The typed events of a streamed answer, numbered from 0.

use engine::FinishReason;
use serde_json::{Map, Value, json};

use super::output::{Event, Facts, Items};
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
    items: Items,
    /// The next number.
    number: u64,
    reason: Option<FinishReason>,
}

impl Writer {
    /// The writer of an answer with `facts`.
    pub fn new(facts: Facts) -> Self {
        Self {
            items: Items::new(&facts.id),
            facts,
            number: 0,
            reason: None,
        }
    }

    fn response(&mut self, name: &'static str, usage: Option<&Usage>, frame: &mut String) {
        let response = self.facts.response(&self.items, self.reason, usage);
        let members = Map::from_iter([("response".to_owned(), response)]);
        self.events(vec![(name, members)], frame);
    }

    fn events(&mut self, events: Vec<Event>, frame: &mut String) {
        for (name, members) in events {
            let mut event = Map::new();
            event.insert("type".to_owned(), Value::from(name));
            event.insert("sequence_number".to_owned(), json!(self.number));
            event.extend(members);
            sse::event(name, &event, frame);
            self.number += 1;
        }
    }
}

impl WriteEvents for Writer {
    fn open(&mut self, _: &Delivery, frame: &mut String) {
        for name in ["response.created", "response.in_progress"] {
            self.response(name, None, frame);
        }
    }

    fn delta(&mut self, delta: &Delta, _: &Delivery, frame: &mut String) {
        self.reason = self.reason.or(delta.finish);
        let mut events = Vec::new();
        self.items.take(delta.parts(), &mut events);
        self.events(events, frame);
    }

    fn finish(&mut self, usage: Usage, _: &Delivery, frame: &mut String) {
        let mut events = Vec::new();
        self.items.end(self.reason, &mut events);
        self.events(events, frame);
        let name = match self.reason {
            Some(FinishReason::Length) => "response.incomplete",
            _ => "response.completed",
        };
        self.response(name, Some(&usage), frame);
    }

    fn fail(&mut self, error: &ApiError, frame: &mut String) {
        let (_, _, code) = error.code.row();
        let mut members = Map::new();
        members.insert("code".to_owned(), json!(code));
        members.insert("message".to_owned(), json!(error.message));
        members.insert("param".to_owned(), json!(error.param));
        self.events(vec![("error", members)], frame);
    }
}
