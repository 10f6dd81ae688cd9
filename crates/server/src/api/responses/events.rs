//! The typed events of a streamed answer, numbered from 0.

use serde_json::{Map, Value, json};

use super::output::{Cut, Facts, OutputItems};
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
    items: Items<OutputItems>,
    /// The next number.
    number: u64,
    cut: Option<Cut>,
}

impl Writer {
    /// The writer of an answer with `facts`.
    pub fn new(facts: Facts) -> Self {
        Self { items: Items::new(OutputItems::new(&facts.id)), facts, number: 0, cut: None }
    }

    fn response(&mut self, name: &'static str, usage: Option<&Usage>, frame: &mut String) {
        let response = self.facts.response(&self.items.done, self.cut, usage);
        self.events(vec![(name, json!({"response": response}))], frame);
    }

    fn events(&mut self, events: Vec<Event>, frame: &mut String) {
        for (name, members) in events {
            let mut event = Map::new();
            event.insert("type".to_owned(), Value::from(name));
            event.insert("sequence_number".to_owned(), json!(self.number));
            if let Value::Object(members) = members {
                event.extend(members);
            }
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
        self.cut = self.cut.or(Cut::of(delta));
        self.items.add(delta.parts());
        let events = self.items.take_events();
        self.events(events, frame);
    }

    fn finish(&mut self, usage: Usage, _: &Delivery, frame: &mut String) {
        self.items.end(self.cut.is_some());
        let events = self.items.take_events();
        self.events(events, frame);
        let name = match self.cut {
            Some(_) => "response.incomplete",
            None => "response.completed",
        };
        self.response(name, Some(&usage), frame);
    }

    fn fail(&mut self, error: &ApiError, frame: &mut String) {
        let (_, _, code) = error.code.row();
        let members = json!({"code": code, "message": error.message, "param": error.param});
        self.events(vec![("error", members)], frame);
    }
}
