//! The question of a conversation: arithmetic, a look-up, or a problem of another family.

use super::catalogue::Deed;
use crate::Facts;
use crate::lists::List;
use crate::rng::Rng;
use crate::snippets::Snippet;
use crate::sums::{Operation, Sum};
use crate::wording::Wording;

/// The user's question.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Question {
    /// One of the forms of the deed, filled with the values in the order of the call.
    Form { deed: Deed, form: &'static str, values: Vec<String> },
    /// A problem of another family.
    Other(Box<Facts>),
}

/// A call that answers a part of the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) deed: Deed,
    pub(super) operands: Vec<Operand>,
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operand {
    /// A number or text of the question.
    Given(String),
    /// The result of the call before.
    Result,
}

/// The forms of a question; `@` is the first value, `&` the second.
const FORMS: [(Deed, &[&str]); 11] = [
    (
        Deed::Add,
        &[
            "What is @ plus &?",
            "What is @ + &?",
            "Add @ and &.",
            "How much is @ plus &?",
            "@ + &?",
            "Calculate @ + &.",
        ],
    ),
    (
        Deed::Subtract,
        &[
            "What is @ minus &?",
            "What is @ - &?",
            "Subtract & from @.",
            "How much is @ minus &?",
            "@ - &?",
            "Calculate @ - &.",
        ],
    ),
    (
        Deed::Multiply,
        &[
            "What is @ times &?",
            "What is @ * &?",
            "Multiply @ by &.",
            "How much is @ times &?",
            "@ * &?",
            "Calculate @ * &.",
        ],
    ),
    (
        Deed::Divide,
        &[
            "What is @ divided by &?",
            "What is @ / &?",
            "Divide @ by &.",
            "How much is @ divided by &?",
            "@ / &?",
            "Calculate @ / &.",
        ],
    ),
    (Deed::Double, &["Double @.", "What is twice @?"]),
    (Deed::Triple, &["Triple @.", "What is three times @?"]),
    (Deed::Halve, &["Halve @.", "What is half of @?"]),
    (Deed::Weather, &["What is the weather in @?", "How is the weather in @?"]),
    (Deed::LookUp, &["Look up @.", "Who is @?"]),
    (Deed::Timer, &["Set a timer for @ minutes.", "Start a timer for @ minutes."]),
    (Deed::Clock, &["What time is it?"]),
];
const PLACES: [&str; 6] = ["Paris", "London", "Rome", "Berlin", "Tokyo", "Oslo"];
const PEOPLE: [&str; 8] = ["Tom", "Zoe", "Eva", "Ben", "Leo", "Sam", "Ana", "Mia"];
/// Signs and factors of the arithmetic deeds, in the order of [`FORMS`].
const SIGNS: [(&str, Option<u32>); 7] = [
    ("+", None),
    ("-", None),
    ("*", None),
    ("/", None),
    ("*", Some(2)),
    ("*", Some(3)),
    ("/", Some(2)),
];

impl Question {
    /// A question of arithmetic. `small` keeps it in the range that the model computes itself.
    pub(super) fn arithmetic(small: bool, rng: &mut Rng) -> Self {
        let (deed, forms) = FORMS[rng.weighted(&[30, 25, 20, 12, 5, 4, 4])];
        let numbers = if small { small_numbers(deed, rng) } else { large_numbers(deed, rng) };
        Self::Form {
            deed,
            form: rng.pick(forms),
            values: numbers.iter().map(u32::to_string).collect(),
        }
    }

    /// A question that only a function can answer.
    pub(super) fn look_up(rng: &mut Rng) -> Self {
        let (deed, forms) = FORMS[7 + rng.weighted(&[4, 3, 2, 1])];
        let values = match deed {
            Deed::Timer => vec![rng.between(1, 99).to_string()],
            Deed::Clock => Vec::new(),
            Deed::Weather => vec![rng.pick(&PLACES).to_owned()],
            _ => vec![rng.pick(&PEOPLE).to_owned()],
        };
        Self::Form { deed, form: rng.pick(forms), values }
    }

    /// The text of the user.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Form { form, values, .. } => {
                let value = |index: usize| values.get(index).map_or("", String::as_str);
                // Values hold no placeholder, so that the order of the replacements is free.
                form.replace('&', value(1)).replace('@', value(0))
            }
            Self::Other(facts) => facts.prompt(),
        }
    }

    /// Reads a question; the caller compares its text with the given one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        for (deed, forms) in FORMS {
            for form in forms {
                let values = captured(form, text);
                let numeric = deed.is_arithmetic() || deed == Deed::Timer;
                let fits = |values: &Vec<String>| !numeric || values.iter().all(|v| is_short(v));
                if let Some(values) = values.filter(fits) {
                    return Some(Self::Form { deed, form, values });
                }
            }
        }
        let facts = Sum::parse(text)
            .map(Facts::Sums)
            .or_else(|| Snippet::parse(text).map(Facts::Snippets))
            .or_else(|| List::parse(text).map(Facts::Lists))?;
        Some(Self::Other(Box::new(facts)))
    }

    /// The calls that answer the question, each with its alternatives, the best one first. Empty
    /// where no function of this family answers it.
    pub(super) fn steps(&self) -> Vec<Vec<Step>> {
        match self {
            Self::Form { deed, values, .. } => {
                let operands = values.iter().cloned().map(Operand::Given).collect();
                vec![alternatives(*deed, operands)]
            }
            Self::Other(facts) => match &**facts {
                Facts::Sums(sum) => sum_steps(sum).unwrap_or_default(),
                _ => Vec::new(),
            },
        }
    }

    /// The answers without functions; empty where there is none.
    pub(super) fn plain(&self) -> Wording {
        match self {
            Self::Other(facts) => facts.wording(),
            Self::Form { deed, values, .. } => match equation(*deed, values) {
                Some((left, end)) => vec![
                    vec![format!("{left} = {end}. The answer is {end}.")],
                    vec![format!("\n#### {end}")],
                ],
                None => Vec::new(),
            },
        }
    }

    /// The answers after the last call, whose result is `end`.
    pub(super) fn closing(&self, end: &str) -> Wording {
        let stated = vec![format!("The answer is {end}.")];
        match self {
            Self::Other(facts) => match &**facts {
                Facts::Sums(sum) => sum.closing(end),
                _ => Vec::new(),
            },
            Self::Form { deed, .. } if deed.is_arithmetic() => {
                vec![stated, vec![format!("\n#### {end}")]]
            }
            Self::Form { .. } => vec![stated],
        }
    }
}

impl Deed {
    pub(super) fn is_arithmetic(self) -> bool {
        FORMS[..SIGNS.len()].iter().any(|(deed, _)| *deed == self)
    }
}

/// A deed with one number is a product or a quotient too.
fn alternatives(deed: Deed, operands: Vec<Operand>) -> Vec<Step> {
    let general = match deed {
        Deed::Double => Some((Deed::Multiply, 2)),
        Deed::Triple => Some((Deed::Multiply, 3)),
        Deed::Halve => Some((Deed::Divide, 2)),
        _ => None,
    };
    let general = general.map(|(deed, second): (Deed, u32)| {
        let second = Operand::Given(second.to_string());
        Step { deed, operands: [operands.clone(), vec![second]].concat() }
    });
    let exact = Step { deed, operands };
    [exact].into_iter().chain(general).collect()
}

/// One call for each step of a sum; each later one takes the result before.
fn sum_steps(sum: &Sum) -> Option<Vec<Vec<Step>>> {
    let (first, operations) = sum.operations()?;
    let step = |(number, (operation, second)): (usize, &(Operation, u32))| {
        let left = match number {
            0 => Operand::Given(first.to_string()),
            _ => Operand::Result,
        };
        let both = vec![left.clone(), Operand::Given(second.to_string())];
        match operation {
            Operation::Add => alternatives(Deed::Add, both),
            Operation::Subtract => alternatives(Deed::Subtract, both),
            Operation::Multiply if *second == 2 => alternatives(Deed::Double, vec![left]),
            Operation::Multiply if *second == 3 => alternatives(Deed::Triple, vec![left]),
            Operation::Multiply => alternatives(Deed::Multiply, both),
            Operation::Halve => alternatives(Deed::Halve, vec![left]),
        }
    };
    Some(operations.iter().enumerate().map(step).collect())
}

/// The left-hand side and the value of an arithmetic question. `None` for other questions, and
/// for values that are not whole.
fn equation(deed: Deed, values: &[String]) -> Option<(String, u32)> {
    let index = FORMS.iter().position(|(known, _)| *known == deed)?;
    let (sign, factor) = *SIGNS.get(index)?;
    let numbers: Option<Vec<u32>> = values.iter().map(|value| value.parse().ok()).collect();
    let (left, right) = match (numbers?.as_slice(), factor) {
        ([left, right], None) => (*left, *right),
        ([left], Some(factor)) => (*left, factor),
        _ => return None,
    };
    let end = match sign {
        "+" => left.checked_add(right)?,
        "-" => left.checked_sub(right)?,
        "*" => left.checked_mul(right)?,
        _ if right > 0 && left % right == 0 => left / right,
        _ => return None,
    };
    Some((format!("{left} {sign} {right}"), end))
}

/// Numbers of the range of the drills.
fn small_numbers(deed: Deed, rng: &mut Rng) -> Vec<u32> {
    match deed {
        Deed::Add => vec![rng.between(3, 51), rng.between(1, 9)],
        Deed::Subtract => {
            let right = rng.between(1, 9);
            vec![rng.between(right + 1, 60), right]
        }
        Deed::Multiply => {
            let right = rng.between(2, 6);
            vec![rng.between(2, 20.min(60 / right)), right]
        }
        Deed::Divide | Deed::Halve => {
            let left = vec![2 * rng.between(1, 30)];
            let right = if deed == Deed::Divide { vec![2] } else { vec![] };
            [left, right].concat()
        }
        _ => vec![rng.between(2, 20)],
    }
}

/// Any numbers below 100, which are one token each: a call only copies them.
fn large_numbers(deed: Deed, rng: &mut Rng) -> Vec<u32> {
    let mut number = || rng.between(1, 99);
    match deed {
        Deed::Double | Deed::Triple | Deed::Halve => vec![number()],
        Deed::Subtract => {
            let (one, other) = (number(), number());
            vec![one.max(other), one.min(other)]
        }
        _ => vec![number(), number()],
    }
}

/// The values of `form` in `text`: short numbers or words, in the order of the call.
fn captured(form: &str, text: &str) -> Option<Vec<String>> {
    let mut values = [None, None];
    let mut rest = text;
    let mut form = form;
    while let Some(index) = form.find(['@', '&']) {
        rest = rest.strip_prefix(&form[..index])?;
        let slot = usize::from(form[index..].starts_with('&'));
        form = &form[index + 1..];
        let length = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        if !(1..=12).contains(&length) {
            return None;
        }
        values[slot] = Some(rest[..length].to_owned());
        rest = &rest[length..];
    }
    (rest == form).then(|| values.into_iter().flatten().collect())
}

/// True if a text is a number of one to three digits without leading zeros.
fn is_short(text: &str) -> bool {
    let number = text.parse::<u32>();
    text.len() <= 3 && number.is_ok_and(|number| number.to_string() == text)
}
