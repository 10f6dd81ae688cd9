//! Texts of held-out problems, a question of each kind about each, and the right options.

use problems::{Problem, Split, Task, generate};
use serde_json::{Value, json};

/// Options of a choice, and levels of a score.
const OPTIONS: u64 = 4;
const LEVELS: u64 = 10;
/// Numbers of a level of a sum's result.
const WIDTH: u64 = 5;

/// What is decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// A sum and its answer, in which the result stands.
    Answered,
    /// A list.
    List,
    /// A sum without an answer: the result has to be computed.
    Sum,
}

impl Text {
    pub(super) const ALL: [Self; 3] = [Self::Answered, Self::List, Self::Sum];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::List => "list",
            Self::Sum => "sum",
        }
    }
}

/// A text, its questions and the right options.
pub(super) struct Case {
    pub(super) input: Value,
    pub(super) questions: Value,
    pub(super) right: [usize; 3],
}

/// Up to `count` texts of a kind.
pub(super) fn cases(text: Text, seed: u64, count: usize) -> Vec<Case> {
    let task = if text == Text::List { Task::Lists } else { Task::Sums };
    // Some prompts are in other words than the questions need, some lists have words.
    let problems = generate(task, Split::Eval, seed, 4 * count);
    let case = |(number, problem)| match text {
        Text::List => list(number, problem),
        _ => sum(number, problem, text == Text::Answered),
    };
    (0..).zip(&problems).filter_map(case).take(count).collect()
}

/// A list of digits: is one in it, which is the last, how many there are.
fn list(number: u64, problem: &Problem) -> Option<Case> {
    let (_, told) = problem.prompt.strip_suffix('.')?.split_once(" list ")?;
    let items: Vec<u64> = told.split(", ").map(|item| item.parse().ok()).collect::<Option<_>>()?;
    let is_true = number.is_multiple_of(2);
    let digits = (0..10).map(|step| (number * 7 + step * 3) % 10);
    let said = digits.clone().find(|digit| items.contains(digit) == is_true)?;
    let (last, place) = (*items.last()?, as_index(number % OPTIONS));
    let mut options: Vec<u64> = digits.filter(|digit| *digit != last).take(3).collect();
    options.insert(place, last);
    let levels: Vec<Value> = (0..LEVELS).map(|level| json!({"label": level.to_string()})).collect();
    Some(Case {
        input: json!(format!("The list is {told}.")),
        questions: questions(
            &format!("{said} is in the list."),
            ("What is the last of the list?", &options),
            ("How many are in the list?", &levels),
        ),
        right: [usize::from(!is_true), place, items.len()],
    })
}

/// A sum, or a sum and its answer. `number` decides what is asked.
fn sum(number: u64, problem: &Problem, answered: bool) -> Option<Case> {
    let right: u64 = problem.answer.rsplit("#### ").next()?.trim().parse().ok()?;
    let (told, question) = problem.prompt.rsplit_once(". ")?;
    let is_true = number.is_multiple_of(2);
    // Too high and too low alike, so that only the sum tells.
    let miss = 1 + number % 5;
    let said = match (is_true, number / 2 % 2) {
        (true, _) => right,
        (false, 0) if right >= miss => right - miss,
        (false, _) => right + miss,
    };
    // The right value has any rank among the four, and any place.
    let (place, rank) = (number % OPTIONS, (number / OPTIONS % OPTIONS).min(right));
    let lowest = right - rank;
    let options: Vec<u64> =
        (0..OPTIONS).map(|index| lowest + (rank + index + OPTIONS - place) % OPTIONS).collect();
    let levels = (0..LEVELS).map(|level| {
        let lowest = level * WIDTH;
        json!({"label": format!("{lowest} to {}", lowest + WIDTH - 1)})
    });
    let levels: Vec<Value> = levels.collect();
    let input = match answered {
        true => json!([
            {"role": "user", "content": problem.prompt},
            {"role": "assistant", "content": problem.answer},
        ]),
        false => json!(format!("{told}.")),
    };
    Some(Case {
        input,
        questions: questions(
            &format!("{question} It is {said}."),
            (question, &options),
            (question, &levels),
        ),
        right: [usize::from(!is_true), as_index(place), as_index((right / WIDTH).min(LEVELS - 1))],
    })
}

/// A predicate, a choice and a score.
fn questions(statement: &str, choice: (&str, &[u64]), score: (&str, &[Value])) -> Value {
    let choices = choice.1.iter().map(|value| json!({"value": value.to_string()}));
    json!([
        {"type": "predicate", "instructions": statement},
        {"type": "choice", "instructions": choice.0, "choices": choices.collect::<Vec<_>>()},
        {"type": "score", "instructions": score.0, "levels": score.1},
    ])
}

fn as_index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
