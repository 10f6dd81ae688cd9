//! The functions that conversations list: their names, their parameters and what they do.

use crate::rng::Rng;

/// The operation of a function. A question needs one or more of the first kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Add,
    Subtract,
    Multiply,
    Divide,
    Double,
    Triple,
    Halve,
    Weather,
    LookUp,
    Timer,
    Clock,
    /// Hands the question over to somebody who answers it.
    Handoff,
    /// Something that no question needs.
    Other,
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    Text,
}

/// A function as a conversation lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) parameters: Vec<(String, Kind)>,
}

const NAMES: [(Deed, &[&str]); 13] = [
    (Deed::Add, &["add", "plus", "sum", "add_numbers"]),
    (Deed::Subtract, &["subtract", "minus"]),
    (Deed::Multiply, &["multiply", "times"]),
    (Deed::Divide, &["divide"]),
    (Deed::Double, &["double"]),
    (Deed::Triple, &["triple"]),
    (Deed::Halve, &["halve"]),
    (Deed::Weather, &["get_weather", "weather"]),
    (Deed::LookUp, &["look_up", "search"]),
    (Deed::Timer, &["set_timer"]),
    (Deed::Clock, &["get_time"]),
    (Deed::Handoff, &["transfer_to_other", "transfer_to_adder", "transfer_to_helper"]),
    (Deed::Other, &["send_mail", "read_file", "final_answer", "translate"]),
];
/// The beginning of the names of functions that hand over the conversation.
pub(super) const HANDOFF: &str = "transfer_to_";
const PAIRS: [[&str; 2]; 4] = [["x", "y"], ["first", "second"], ["left", "right"], ["n", "m"]];
const SINGLES: [&str; 5] = ["x", "n", "a", "value", "number"];
const TEXTS: [&str; 5] = ["city", "name", "query", "place", "text"];

impl Function {
    /// A function for `deed`, under one of its names.
    pub(super) fn draw(deed: Deed, rng: &mut Rng) -> Self {
        let (_, names) = NAMES[deed as usize];
        let number = |name: &str| (name.to_owned(), Kind::Number);
        let text = |name: &str| (name.to_owned(), Kind::Text);
        let parameters = match deed {
            Deed::Add | Deed::Subtract | Deed::Multiply | Deed::Divide => {
                pair(rng).map(|name| (name, Kind::Number)).to_vec()
            }
            Deed::Double | Deed::Triple | Deed::Halve => vec![number(rng.pick(&SINGLES))],
            Deed::Weather | Deed::LookUp => vec![text(rng.pick(&TEXTS))],
            Deed::Timer => vec![number("minutes")],
            Deed::Clock | Deed::Handoff => Vec::new(),
            Deed::Other => match rng.below(4) {
                0 => Vec::new(),
                1 => vec![text(rng.pick(&TEXTS))],
                2 => vec![text(rng.pick(&TEXTS)), number(rng.pick(&SINGLES))],
                _ => vec![number(rng.pick(&SINGLES))],
            },
        };
        Self { name: rng.pick(names).to_owned(), parameters }
    }

    /// The operation of a function, by its name. `None` if no conversation of this family names it so.
    pub(super) fn deed(&self) -> Option<Deed> {
        let mut deeds = NAMES.iter();
        let found = deeds.find(|(_, names)| names.contains(&self.name.as_str()));
        found.map(|(deed, _)| *deed)
    }
}

/// Names of two parameters.
fn pair(rng: &mut Rng) -> [String; 2] {
    match rng.below(2) {
        0 => ["a", "b"].map(str::to_owned),
        _ => rng.pick(&PAIRS).map(str::to_owned),
    }
}
