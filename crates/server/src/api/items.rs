//! The items of an answer, such as texts and calls, built part by part.

use serde_json::Value;
use text::Part;

/// An event: its type and its object.
pub type Event = (&'static str, Value);

/// The kind of an item.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Text.
    Text,
    /// Reasoning.
    Reasoning,
    /// A call of a function.
    Call {
        /// The id of the call.
        id: String,
        /// The function.
        name: String,
    },
}

/// The item that is being written.
#[derive(Clone, Debug)]
pub struct Open {
    /// Its index among the items.
    pub index: usize,
    /// Its kind.
    pub kind: Kind,
    /// Its text up to now; the arguments of a call.
    pub text: String,
}

/// The events and the objects of an endpoint's items.
pub trait Form {
    /// Adds the events of an item that begins.
    fn begin(&self, open: &Open, events: &mut Vec<Event>);

    /// Adds the event of more `text` of an item.
    fn append(&self, open: &Open, text: &str, events: &mut Vec<Event>);

    /// Adds the events of an item that ends, cut or complete; returns its object.
    fn close(&self, open: &Open, is_cut: bool, events: &mut Vec<Event>) -> Value;
}

/// The items of one answer.
#[derive(Clone, Debug)]
pub struct Items<F> {
    /// Complete items.
    pub done: Vec<Value>,
    /// Events that no stream has sent.
    pub events: Vec<Event>,
    form: F,
    open: Option<Open>,
}

impl<F: Form> Items<F> {
    /// No items.
    pub fn new(form: F) -> Self {
        Self { done: Vec::new(), events: Vec::new(), form, open: None }
    }

    /// Adds `parts`.
    pub fn add(&mut self, parts: Vec<Part>) {
        for part in parts {
            match part {
                Part::Text(text) => self.text(Kind::Text, &text),
                Part::Reasoning(text) => self.text(Kind::Reasoning, &text),
                Part::Call { id, name, .. } => self.begin(Kind::Call { id, name }),
                Part::Arguments { text, .. } => self.append(&text),
            }
        }
    }

    /// Ends the last item; an answer without any has an empty text.
    pub fn end(&mut self, is_cut: bool) {
        if self.open.is_none() && self.done.is_empty() {
            self.begin(Kind::Text);
        }
        self.close(is_cut);
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn text(&mut self, kind: Kind, text: &str) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.begin(kind);
        }
        self.append(text);
    }

    fn begin(&mut self, kind: Kind) {
        self.close(false);
        let open = Open { index: self.done.len(), kind, text: String::new() };
        self.form.begin(&open, &mut self.events);
        self.open = Some(open);
    }

    fn append(&mut self, text: &str) {
        if let Some(open) = &mut self.open {
            open.text.push_str(text);
            self.form.append(open, text, &mut self.events);
        }
    }

    fn close(&mut self, is_cut: bool) {
        if let Some(open) = self.open.take() {
            let item = self.form.close(&open, is_cut, &mut self.events);
            self.done.push(item);
        }
    }
}
