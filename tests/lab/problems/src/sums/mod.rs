//! Sums: a quantity that changes in one to four steps, told in words.

mod amount;
mod operations;
mod parse;
mod tell;

use crate::rng::Rng;
use amount::Amount;
pub(crate) use operations::Operation;

/// Things with whole quantities.
pub(crate) const OBJECTS: [&str; 6] = ["apples", "eggs", "books", "pens", "coins", "cards"];

const MONEY: &str = "dollars";
const CONTAINERS: [&str; 6] = ["boxes", "bags", "jars", "baskets", "trays", "packs"];
const OPENINGS: [&str; 4] = ["Then", "Next", "After that", "Later"];
const PEOPLE: [Person; 8] = [
    Person { name: "Sam", pronoun: "he" },
    Person { name: "Tom", pronoun: "he" },
    Person { name: "Ben", pronoun: "he" },
    Person { name: "Leo", pronoun: "he" },
    Person { name: "Ana", pronoun: "she" },
    Person { name: "Eva", pronoun: "she" },
    Person { name: "Mia", pronoun: "she" },
    Person { name: "Zoe", pronoun: "she" },
];
const GAINS: [&str; 3] = ["finds", "gets", "buys"];
const LOSSES: [&str; 2] = ["loses", "sells"];
const FACTORS: [(&str, u32); 2] = [("doubles", 2), ("triples", 3)];
/// No quantity of a drawn problem is larger.
const CEILING: Amount = Amount::whole(60);
/// Largest quantity that is multiplied: a small model can memorize these products.
const MULTIPLIED: Amount = Amount::whole(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Person {
    name: &'static str,
    pronoun: &'static str,
}

/// A person, a thing, its quantity and the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sum {
    person: Person,
    object: &'static str,
    start: Start,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Loose(Amount),
    Packed { containers: u32, container: &'static str, each: u32 },
}

impl Start {
    fn amount(self) -> Amount {
        match self {
            Start::Loose(amount) => amount,
            Start::Packed { containers, each, .. } => Amount::whole(containers * each),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Gain { verb: &'static str, count: u32 },
    Lose { verb: &'static str, count: u32 },
    Multiply { verb: &'static str, factor: u32 },
    Halve,
}

impl Step {
    /// The quantity after the step; `None` if the step is not possible.
    fn apply(self, before: Amount) -> Option<Amount> {
        let halves = match self {
            Step::Gain { count, .. } => before.halves + 2 * u64::from(count),
            Step::Lose { count, .. } => before.halves.checked_sub(2 * u64::from(count))?,
            Step::Multiply { factor, .. } => before.halves * u64::from(factor),
            // Only a whole even number has a half that can be counted.
            Step::Halve if before.halves.is_multiple_of(4) => before.halves / 2,
            Step::Halve => return None,
        };
        Some(Amount { halves })
    }

    /// The right-hand operand, as in `12 + 5`.
    fn operation(self) -> String {
        match self {
            Step::Gain { count, .. } => format!("+ {count}"),
            Step::Lose { count, .. } => format!("- {count}"),
            Step::Multiply { factor, .. } => format!("* {factor}"),
            Step::Halve => "/ 2".to_owned(),
        }
    }

    fn told(self, object: &str) -> String {
        match self {
            Step::Gain { verb, count } => format!("{verb} {count} more {object}"),
            Step::Lose { verb, count } => format!("{verb} {count} {object}"),
            Step::Multiply { verb, .. } => format!("{verb} the number of {object}"),
            Step::Halve => format!("sells half of the {object}"),
        }
    }
}

impl Sum {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let person = rng.pick(&PEOPLE);
        let (object, start) = match rng.weighted(&[65, 20, 15]) {
            0 => (rng.pick(&OBJECTS), Start::Loose(Amount::whole(rng.between(3, 29)))),
            1 => {
                let (containers, each) = (rng.between(2, 6), rng.between(2, 6));
                let container = rng.pick(&CONTAINERS);
                (rng.pick(&OBJECTS), Start::Packed { containers, container, each })
            }
            _ => (MONEY, Start::Loose(Amount { halves: 2 * u64::from(rng.between(3, 29)) + 1 })),
        };
        let length = 1 + rng.weighted(&[2, 9, 5, 4]);
        let mut amount = start.amount();
        let mut steps = Vec::with_capacity(length);
        while steps.len() < length {
            let step = draw_step(object, rng);
            if matches!(step, Step::Multiply { .. }) && amount > MULTIPLIED {
                continue;
            }
            let fits = |after: &Amount| (Amount::whole(1)..=CEILING).contains(after);
            if let Some(after) = step.apply(amount).filter(fits) {
                amount = after;
                steps.push(step);
            }
        }
        Self { person, object, start, steps }
    }

    pub(crate) fn prompt(&self) -> String {
        let Self { person: Person { name, pronoun }, object, .. } = self;
        let mut text = match self.start {
            Start::Loose(amount) => format!("{name} has {amount} {object}."),
            Start::Packed { containers, container, each } => {
                format!("{name} has {containers} {container} with {each} {object} in each.")
            }
        };
        for (step, opening) in self.steps.iter().zip(OPENINGS) {
            text += &format!(" {opening} {pronoun} {}.", step.told(object));
        }
        text + &format!(" How many {object} does {name} have now?")
    }

    /// True if the first number that follows `####` is the right one.
    pub(crate) fn ends_right(&self, output: &str) -> bool {
        let end = self.amounts().and_then(|amounts| amounts.last().copied());
        let found = output.split("####").skip(1).find_map(leading_number);
        found.is_some_and(|number| Amount::parse(number) == end)
    }

    /// The quantity at the start and after each step.
    fn amounts(&self) -> Option<Vec<Amount>> {
        let mut amounts = vec![self.start.amount()];
        for step in &self.steps {
            amounts.push(step.apply(amounts[amounts.len() - 1])?);
        }
        Some(amounts)
    }
}

/// Money is found, got and lost, never traded or multiplied: half units must stay exact.
fn draw_step(object: &str, rng: &mut Rng) -> Step {
    let money = object == MONEY;
    match rng.weighted(if money { &[1, 1] } else { &[42, 42, 13, 3] }) {
        0 => Step::Gain {
            verb: rng.pick(if money { &GAINS[..2] } else { &GAINS[..] }),
            count: rng.between(1, 9),
        },
        1 => Step::Lose {
            verb: rng.pick(if money { &LOSSES[..1] } else { &LOSSES[..] }),
            count: rng.between(1, 9),
        },
        2 => {
            let (verb, factor) = rng.pick(&FACTORS);
            Step::Multiply { verb, factor }
        }
        _ => Step::Halve,
    }
}

/// The number at the start of the text, after blanks: digits, and a fraction if one follows.
pub(crate) fn leading_number(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    let fraction = text[whole..].strip_prefix('.').map_or(0, digits);
    let length = if fraction > 0 { whole + 1 + fraction } else { whole };
    (whole > 0).then(|| &text[..length])
}
