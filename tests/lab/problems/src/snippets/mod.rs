//! Snippets: the body of a small Python function, from its docstring.

mod behaviour;
mod code;
mod parse;

use crate::rng::Rng;

const FUNCTIONS: [&str; 4] = ["apply", "solve", "calc", "run"];
const PAIRS: [Pair; 2] = [Pair { first: "a", second: "b" }, Pair { first: "x", second: "y" }];

/// A function to complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snippet {
    function: &'static str,
    body: Body,
}

/// The task of the docstring.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Body {
    /// Operations on the first of two numbers, one after the other.
    Chain { pair: Pair, steps: Vec<(Op, Operand)> },
    /// A list filtered, mapped and summed up.
    Loop { style: Style, keep: Option<Keep>, map: Map, finish: Finish },
    /// A dictionary of figures about two numbers.
    Dict { pair: Pair, keys: Vec<Key> },
    /// One of two operations, by a condition.
    Branch { pair: Pair, add: i64, test: Test, limit: i64, arms: [(Op, i64); 2] },
}

/// The names of two numeric parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    first: &'static str,
    second: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Add,
    Subtract,
    Multiply,
}

impl Op {
    const ALL: [Op; 3] = [Op::Add, Op::Subtract, Op::Multiply];

    fn asked(self) -> &'static str {
        match self {
            Op::Add => "add",
            Op::Subtract => "subtract",
            Op::Multiply => "multiply by",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operand {
    Number(i64),
    /// The second parameter.
    Second,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Loop,
    List,
}

impl Style {
    const ALL: [Style; 2] = [Style::Loop, Style::List];

    fn asked(self) -> &'static str {
        match self {
            Style::Loop => "Use a loop.",
            Style::List => "Use one list.",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    Positive,
    Negative,
    Even,
    Odd,
    Big,
    Small,
}

impl Keep {
    const ALL: [Keep; 6] =
        [Keep::Positive, Keep::Negative, Keep::Even, Keep::Odd, Keep::Big, Keep::Small];

    fn asked(self) -> &'static str {
        match self {
            Keep::Positive => "positive",
            Keep::Negative => "negative",
            Keep::Even => "even",
            Keep::Odd => "odd",
            Keep::Big => "big",
            Keep::Small => "small",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Map {
    Negate,
    Square,
    Add(i64),
    Multiply(i64),
}

impl Map {
    fn asked(self) -> String {
        match self {
            Map::Negate => "negate each".to_owned(),
            Map::Square => "square each".to_owned(),
            Map::Add(number) => format!("add {number} to each"),
            Map::Multiply(number) => format!("multiply each by {number}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    List,
    Sorted,
    Reversed,
    Sum,
    Count,
}

impl Finish {
    const ALL: [Finish; 5] =
        [Finish::List, Finish::Sorted, Finish::Reversed, Finish::Sum, Finish::Count];

    fn asked(self) -> &'static str {
        match self {
            Finish::List => "list",
            Finish::Sorted => "sorted list",
            Finish::Reversed => "reversed list",
            Finish::Sum => "sum",
            Finish::Count => "count",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Sum,
    Diff,
    Prod,
    Min,
    Max,
    First,
    Last,
}

impl Key {
    const ALL: [Key; 7] =
        [Key::Sum, Key::Diff, Key::Prod, Key::Min, Key::Max, Key::First, Key::Last];

    fn name(self) -> &'static str {
        match self {
            Key::Sum => "sum",
            Key::Diff => "diff",
            Key::Prod => "prod",
            Key::Min => "min",
            Key::Max => "max",
            Key::First => "first",
            Key::Last => "last",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    Above,
    Below,
    Equal,
}

impl Test {
    const ALL: [Test; 3] = [Test::Above, Test::Below, Test::Equal];

    fn asked(self) -> &'static str {
        match self {
            Test::Above => "above",
            Test::Below => "below",
            Test::Equal => "equal to",
        }
    }
}

impl Snippet {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let function = rng.pick(&FUNCTIONS);
        let pair = rng.pick(&PAIRS);
        let body = match rng.weighted(&[5, 8, 2, 2]) {
            0 => {
                let steps = (0..rng.between(2, 5)).map(|_| draw_chain_step(rng)).collect();
                Body::Chain { pair, steps }
            }
            1 => Body::Loop {
                style: rng.pick(&Style::ALL),
                keep: (rng.below(5) > 0).then(|| rng.pick(&Keep::ALL)),
                map: draw_map(rng),
                finish: rng.pick(&Finish::ALL),
            },
            2 => Body::Dict { pair, keys: draw_keys(rng) },
            _ => Body::Branch {
                pair,
                add: digit(rng),
                test: rng.pick(&Test::ALL),
                limit: digit(rng),
                arms: [0, 1].map(|_| (rng.pick(&Op::ALL), digit(rng))),
            },
        };
        Self { function, body }
    }

    pub(crate) fn prompt(&self) -> String {
        format!(
            "Complete the function.\ndef {}({}):\n    \"\"\"{}\"\"\"\n",
            self.function,
            self.parameters().join(", "),
            self.docstring()
        )
    }

    /// Names of the function's parameters.
    fn parameters(&self) -> Vec<&'static str> {
        match &self.body {
            Body::Loop { .. } => vec!["xs"],
            Body::Chain { pair, .. } | Body::Dict { pair, .. } | Body::Branch { pair, .. } => {
                vec![pair.first, pair.second]
            }
        }
    }

    fn docstring(&self) -> String {
        match &self.body {
            Body::Chain { pair, steps } => {
                let mut text = format!("Start with {}", pair.first);
                for (op, operand) in steps {
                    text += &format!(", then {} {}", op.asked(), pair.operand(*operand));
                }
                text + " and return it."
            }
            Body::Loop { style, keep, map, finish } => {
                let source = match keep {
                    Some(keep) => format!("Keep the {} numbers in xs", keep.asked()),
                    None => "Go over xs".to_owned(),
                };
                let (style, map, finish) = (style.asked(), map.asked(), finish.asked());
                format!("{style} {source}, {map} and return the {finish}.")
            }
            Body::Dict { pair, keys } => {
                let keys: Vec<&str> = keys.iter().map(|key| key.name()).collect();
                let Pair { first, second } = pair;
                format!("Return a dict with {} of {first} and {second}.", keys.join(", "))
            }
            Body::Branch { pair, add, test, limit, arms } => {
                let Pair { first, second } = pair;
                let [then, other] = arms.map(|(op, number)| format!("{} {number}", op.asked()));
                format!(
                    "Add {add} to {first}, if it is {} {limit} then {then} else {other}, \
                     and return it plus {second}.",
                    test.asked()
                )
            }
        }
    }
}

impl Pair {
    fn operand(self, operand: Operand) -> String {
        match operand {
            Operand::Number(number) => number.to_string(),
            Operand::Second => self.second.to_owned(),
        }
    }
}

fn digit(rng: &mut Rng) -> i64 {
    i64::from(rng.between(2, 9))
}

/// Only constants multiply, which bounds the results.
fn draw_chain_step(rng: &mut Rng) -> (Op, Operand) {
    let op = rng.pick(&Op::ALL);
    let second = op != Op::Multiply && rng.below(5) < 2;
    (op, if second { Operand::Second } else { Operand::Number(digit(rng)) })
}

fn draw_map(rng: &mut Rng) -> Map {
    match rng.below(4) {
        0 => Map::Negate,
        1 => Map::Square,
        2 => Map::Add(digit(rng)),
        _ => Map::Multiply(digit(rng)),
    }
}

/// Two to four different keys in any order.
fn draw_keys(rng: &mut Rng) -> Vec<Key> {
    let mut left = Key::ALL.to_vec();
    (0..rng.between(2, 4)).map(|_| left.remove(rng.below(left.len() as u32) as usize)).collect()
}
