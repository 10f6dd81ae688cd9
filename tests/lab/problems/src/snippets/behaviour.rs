//! The expected results of a snippet, computed in Rust, and the check of an output.

use super::{Body, Finish, Keep, Key, Map, Op, Operand, Snippet, Test};
use std::io;

use serde_json::{Map as Object, Value, json};

use crate::python;
use crate::rng::{self, Rng};

/// Inputs that reveal near misses: empty, zero, signs, the limit between "big" and "small", parity,
/// repeats and order.
const LISTS: [&[i64]; 5] =
    [&[], &[0], &[3, -7, 10, 4, 4, 15, -2, 0, 9, 11], &[12, 5, -1, -4], &[-6, -3, 8, 21, 7]];
const RANDOM_INPUTS: usize = 12;

impl Snippet {
    /// True if the text, taken as the body of the function, computes the right result for every
    /// test input.
    ///
    /// # Errors
    /// `python3` is missing.
    pub(crate) fn ends_right(&self, output: &str) -> io::Result<bool> {
        let inputs = self.inputs();
        let call = |input: &Input| (input.arguments(), self.expected(input));
        let calls: Vec<(Value, Value)> = inputs.iter().map(call).collect();
        python::returns(&self.parameters(), output, &calls)
    }

    fn inputs(&self) -> Vec<Input> {
        let mut rng = Rng::new(rng::hash(&self.prompt()));
        let mut number = |bound: u32| i64::from(rng.below(2 * bound + 1)) - i64::from(bound);
        match &self.body {
            Body::Loop { .. } => {
                let mut inputs: Vec<Input> =
                    LISTS.iter().map(|list| Input::List(list.to_vec())).collect();
                inputs.extend((0..RANDOM_INPUTS).map(|_| {
                    let length = number(4) + 5;
                    Input::List((0..length).map(|_| number(25)).collect())
                }));
                inputs
            }
            Body::Branch { add, limit, .. } => {
                // Both sides of the condition and the condition itself.
                let edge = limit - add;
                let near = [edge - 5, edge - 1, edge, edge + 1, edge + 5];
                near.iter().flat_map(|&first| [-3, 8].map(|b| Input::Pair(first, b))).collect()
            }
            Body::Chain { .. } | Body::Dict { .. } => {
                let mut inputs = vec![Input::Pair(0, 0), Input::Pair(4, 4), Input::Pair(-5, 3)];
                inputs.extend((0..RANDOM_INPUTS).map(|_| Input::Pair(number(30), number(30))));
                inputs
            }
        }
    }

    fn expected(&self, input: &Input) -> Value {
        match (&self.body, input) {
            (Body::Loop { keep, map, finish, .. }, Input::List(list)) => {
                let kept = list.iter().filter(|item| keep.is_none_or(|keep| keep.admits(**item)));
                finish.of(kept.map(|item| map.of(*item)).collect())
            }
            (Body::Chain { steps, .. }, Input::Pair(first, second)) => {
                json!(steps.iter().fold(*first, |value, (op, operand)| match operand {
                    Operand::Number(number) => op.of(value, *number),
                    Operand::Second => op.of(value, *second),
                }))
            }
            (Body::Dict { keys, .. }, Input::Pair(first, second)) => {
                let value = |key: &Key| (key.name().to_owned(), json!(key.of(*first, *second)));
                Value::Object(keys.iter().map(value).collect::<Object<_, _>>())
            }
            (Body::Branch { add, test, limit, arms, .. }, Input::Pair(first, second)) => {
                let value = first + add;
                let (op, number) = arms[usize::from(!test.holds(value, *limit))];
                json!(op.of(value, number) + second)
            }
            (_, Input::List(_) | Input::Pair(..)) => Value::Null,
        }
    }
}

/// The arguments of one call.
enum Input {
    List(Vec<i64>),
    Pair(i64, i64),
}

impl Input {
    fn arguments(&self) -> Value {
        match self {
            Input::List(list) => json!([list]),
            Input::Pair(first, second) => json!([first, second]),
        }
    }
}

impl Op {
    fn of(self, left: i64, right: i64) -> i64 {
        match self {
            Op::Add => left + right,
            Op::Subtract => left - right,
            Op::Multiply => left * right,
        }
    }
}

impl Test {
    fn holds(self, value: i64, limit: i64) -> bool {
        match self {
            Test::Above => value > limit,
            Test::Below => value < limit,
            Test::Equal => value == limit,
        }
    }
}

impl Keep {
    fn admits(self, item: i64) -> bool {
        match self {
            Keep::Positive => item > 0,
            Keep::Negative => item < 0,
            Keep::Even => item % 2 == 0,
            Keep::Odd => item % 2 != 0,
            Keep::Big => item > 10,
            Keep::Small => item < 10,
        }
    }
}

impl Map {
    fn of(self, item: i64) -> i64 {
        match self {
            Map::Negate => -item,
            Map::Square => item * item,
            Map::Add(number) => item + number,
            Map::Multiply(number) => item * number,
        }
    }
}

impl Finish {
    fn of(self, mut items: Vec<i64>) -> Value {
        match self {
            Finish::Sum => return json!(items.iter().sum::<i64>()),
            Finish::Count => return json!(items.len()),
            Finish::List => {}
            Finish::Sorted => items.sort_unstable(),
            Finish::Reversed => items.reverse(),
        }
        json!(items)
    }
}

impl Key {
    fn of(self, first: i64, second: i64) -> i64 {
        match self {
            Key::Sum => first + second,
            Key::Diff => first - second,
            Key::Prod => first * second,
            Key::Min => first.min(second),
            Key::Max => first.max(second),
            Key::First => first,
            Key::Last => second,
        }
    }
}
