//! The functions that conversations list: their names, their parameters and what they do.

use crate::rng::Rng;

/// What a function does. A question needs one or more of the first kinds.
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

const NAMES: [(Deed, &[&str]); 12] = [
    (
        Deed::Add,
        &["add", "plus", "sum", "total", "add_up", "addition"],
    ),
    (
        Deed::Subtract,
        &["subtract", "minus", "take_away", "difference", "sub"],
    ),
    (
        Deed::Multiply,
        &["multiply", "times", "product", "mul", "multiplication"],
    ),
    (
        Deed::Divide,
        &["divide", "divided_by", "quotient", "div", "division"],
    ),
    (Deed::Double, &["double", "twice"]),
    (Deed::Triple, &["triple", "three_times"]),
    (Deed::Halve, &["halve", "half"]),
    (Deed::Weather, &["weather", "get_weather", "forecast"]),
    (Deed::LookUp, &["look_up", "lookup", "find_person"]),
    (Deed::Timer, &["set_timer", "start_timer", "timer"]),
    (Deed::Clock, &["get_time", "clock", "current_time"]),
    (
        Deed::Other,
        &[
            "search",
            "send_mail",
            "play_song",
            "open_door",
            "book_room",
            "read_file",
            "transfer_to_other",
            "translate",
        ],
    ),
];
const DECORATIONS: [(&str, &str); 10] = [
    ("", ""),
    ("calc_", ""),
    ("math_", ""),
    ("do_", ""),
    ("my_", ""),
    ("", "_numbers"),
    ("", "_two"),
    ("", "_tool"),
    ("", "_ints"),
    ("", "_2"),
];
const PAIRS: [[&str; 2]; 14] = [
    ["a", "b"],
    ["x", "y"],
    ["first", "second"],
    ["left", "right"],
    ["n", "m"],
    ["p", "q"],
    ["one", "other"],
    ["num1", "num2"],
    ["lhs", "rhs"],
    ["u", "v"],
    ["i", "j"],
    ["value", "amount"],
    ["start", "change"],
    ["first_number", "second_number"],
];
const SINGLES: [&str; 8] = ["x", "n", "a", "value", "number", "count", "amount", "v"];
const TEXTS: [&str; 8] = [
    "city", "name", "query", "place", "text", "key", "title", "word",
];

impl Function {
    /// A function for `deed`, under one of its names.
    pub(super) fn draw(deed: Deed, rng: &mut Rng) -> Self {
        let (_, names) = NAMES[deed as usize];
        let plain = rng.below(10) < 6;
        let (before, after) = if plain {
            DECORATIONS[0]
        } else {
            rng.pick(&DECORATIONS)
        };
        let number = |name: &str| (name.to_owned(), Kind::Number);
        let text = |name: &str| (name.to_owned(), Kind::Text);
        let parameters = match deed {
            Deed::Add | Deed::Subtract | Deed::Multiply | Deed::Divide => {
                pair(rng).map(|name| (name, Kind::Number)).to_vec()
            }
            Deed::Double | Deed::Triple | Deed::Halve => vec![number(rng.pick(&SINGLES))],
            Deed::Weather | Deed::LookUp => vec![text(rng.pick(&TEXTS))],
            Deed::Timer => vec![number(rng.pick(&["minutes", "duration", "time"]))],
            Deed::Clock => Vec::new(),
            Deed::Other => match rng.below(4) {
                0 => Vec::new(),
                1 => vec![text(rng.pick(&TEXTS))],
                2 => vec![text(rng.pick(&TEXTS)), number(rng.pick(&SINGLES))],
                _ => vec![number(rng.pick(&SINGLES))],
            },
        };
        Self {
            name: format!("{before}{}{after}", rng.pick(names)),
            parameters,
        }
    }

    /// What the function does, by its name. `None` if no conversation of this family names it so.
    pub(super) fn deed(&self) -> Option<Deed> {
        DECORATIONS.iter().find_map(|(before, after)| {
            let base = self.name.strip_prefix(before)?.strip_suffix(after)?;
            let mut deeds = NAMES.iter();
            let found = deeds.find(|(_, names)| names.contains(&base));
            found.map(|(deed, _)| *deed)
        })
    }
}

/// Names of two parameters: usual ones, or any two letters, so that names are read and not known.
fn pair(rng: &mut Rng) -> [String; 2] {
    match rng.below(10) {
        0..5 => ["a", "b"].map(str::to_owned),
        5..9 => rng.pick(&PAIRS).map(str::to_owned),
        _ => {
            let first = rng.below(26);
            let second = (first + 1 + rng.below(25)) % 26;
            [first, second].map(|at| char::from(b'a' + at as u8).to_string())
        }
    }
}
