//! Calls: conversations with functions. The answer is a call with names from the list and arguments
//! from the question, a sentence with the result of the last call, or the usual answer where the
//! functions do not fit. A function that hands over is called where no other fits; whoever has the
//! conversation then gives the usual answer.

mod catalogue;
mod json;
mod question;

use std::io;

use serde_json::Value;

use super::Facts;
use super::lists::List;
use super::snippets::Snippet;
use super::sums::{Sum, leading_number};
use super::wording::{self, Wording};
use crate::rng::Rng;
use catalogue::{Deed, Function, HANDOFF, Kind};
use question::{Operand, Question, Step};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
/// No conversation has more calls.
const CALLS: usize = 2;
const DEEDS: [Deed; 13] = [
    Deed::Add,
    Deed::Subtract,
    Deed::Multiply,
    Deed::Divide,
    Deed::Double,
    Deed::Triple,
    Deed::Halve,
    Deed::Weather,
    Deed::LookUp,
    Deed::Timer,
    Deed::Clock,
    Deed::Handoff,
    Deed::Other,
];

/// A conversation up to the answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dialogue {
    functions: Vec<Function>,
    /// True if the functions are listed; a client may leave them out after the last call.
    listed: bool,
    question: Question,
    /// The texts that the functions have returned.
    results: Vec<String>,
}

/// A call of one of the functions.
struct Call<'a> {
    function: &'a Function,
    operands: Vec<Operand>,
}

impl Dialogue {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let (question, fits) = match rng.weighted(&[40, 26, 10, 8, 10, 3, 3]) {
            0 => (Question::arithmetic(false, rng), true),
            1 => (Question::Other(Box::new(Facts::Sums(countable(rng)))), true),
            2 => (Question::look_up(rng), true),
            3 => (Question::arithmetic(true, rng), false),
            4 => (Question::Other(Box::new(Facts::Sums(Sum::draw(rng)))), false),
            5 => (Question::Other(Box::new(Facts::Lists(List::draw(rng)))), false),
            _ => {
                let snippet = Snippet::draw(rng);
                (Question::Other(Box::new(Facts::Snippets(snippet))), false)
            }
        };
        let mut dialogue = Self {
            functions: functions(&question.steps(), fits, rng),
            listed: true,
            question,
            results: Vec::new(),
        };
        dialogue.listed = !dialogue.functions.is_empty();
        if dialogue.plan().is_some() {
            dialogue.advance(rng);
        }
        dialogue
    }

    /// Adds the results of none, some or all of the calls.
    fn advance(&mut self, rng: &mut Rng) {
        let calls = self.plan().map_or(0, |plan| plan.len());
        let handed = self.hands_over();
        let count = match rng.below(10) {
            0..4 => 0,
            4..8 => calls,
            _ => rng.below(calls as u32) as usize,
        };
        for _ in 0..count {
            let result = self.next_result(rng);
            self.results.push(result);
        }
        // Whoever takes over lists other functions, mostly none.
        let unlisted = if handed { 7 } else { 1 };
        if count == calls && rng.below(8) < unlisted {
            let used: Vec<&Function> = self.plan().iter().flatten().map(|c| c.function).collect();
            let mut kept: Vec<Function> = Vec::new();
            for function in used {
                if !kept.contains(function) {
                    kept.push(function.clone());
                }
            }
            self.functions = kept;
            self.listed = false;
        }
    }

    /// The result of the next call: at times another number than a calculator's, so that the answer
    /// must be read.
    fn next_result(&self, rng: &mut Rng) -> String {
        let plan = self.plan().unwrap_or_default();
        let call = &plan[self.results.len()];
        let given = |operand: &Operand| match operand {
            Operand::Given(text) => text.parse().ok(),
            Operand::Result => self.last_value().parse().ok(),
        };
        let numbers: Option<Vec<i64>> = call.operands.iter().map(given).collect();
        let deed = call.function.deed().unwrap_or(Deed::Other);
        let value = match (outcome(deed, &numbers.unwrap_or_default()), rng.below(10)) {
            (Some(value), 0..6) => value.to_string(),
            (_, 6) if deed.is_arithmetic() => format!("{}.5", rng.below(100)),
            _ if deed.is_arithmetic() => rng.below(200).to_string(),
            _ if deed == Deed::Handoff => {
                let name = call.function.name.trim_start_matches(HANDOFF);
                return format!("{{\"assistant\": \"{name}\"}}");
            }
            _ => return told(deed, rng),
        };
        match rng.below(10) {
            0 => format!("{{\"result\": {value}}}"),
            _ => value,
        }
    }

    /// The conversation as JSON: `tools` and `messages` of a request.
    pub(crate) fn prompt(&self) -> String {
        json::write(self).to_string()
    }

    pub(crate) fn parse(prompt: &str) -> Option<Self> {
        let dialogue = json::read(&serde_json::from_str(prompt).ok()?)?;
        // A look-up without a function for it has no answer.
        (!dialogue.wording().is_empty()).then_some(dialogue)
    }

    pub(crate) fn wording(&self) -> Wording {
        match self.plan() {
            None => self.question.plain(),
            Some(plan) => match plan.get(self.results.len()) {
                Some(call) => {
                    let (name, arguments) = (&call.function.name, self.arguments(call));
                    vec![vec![format!(
                        "{OPEN}\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n{CLOSE}"
                    )]]
                }
                None => self.closing(),
            },
        }
    }

    /// The answers after the last call.
    fn closing(&self) -> Wording {
        match self.hands_over() {
            true => self.question.plain(),
            false => self.question.closing(self.last_value()),
        }
    }

    /// True if the output ends with the right call where one is due, otherwise without a call and with
    /// the right number, list or function.
    ///
    /// # Errors
    /// `python3` is missing.
    pub(crate) fn ends_right(&self, output: &str) -> io::Result<bool> {
        let Some(plan) = self.plan() else {
            return Ok(!output.contains(OPEN) && self.answers_plainly(output)?);
        };
        Ok(match plan.get(self.results.len()) {
            Some(call) => {
                let due = format!(
                    "{{\"name\": \"{}\", \"arguments\": {}}}",
                    call.function.name,
                    self.arguments(call)
                );
                let found = output.trim().strip_prefix(OPEN);
                let found = found.and_then(|rest| rest.strip_suffix(CLOSE));
                let value = |text: &str| serde_json::from_str::<Value>(text).ok();
                found.and_then(value).is_some_and(|found| Some(found) == value(&due))
            }
            None if self.hands_over() => !output.contains(OPEN) && self.answers_plainly(output)?,
            None => !output.contains(OPEN) && states(&self.closing(), output),
        })
    }

    fn answers_plainly(&self, output: &str) -> io::Result<bool> {
        match &self.question {
            Question::Other(facts) => facts.ends_right(output),
            Question::Form { .. } => Ok(states(&self.question.plain(), output)),
        }
    }

    /// The calls that answer the question or hand it over. `None` if the functions do neither.
    fn plan(&self) -> Option<Vec<Call<'_>>> {
        self.fitting_calls().or_else(|| {
            let mut functions = self.functions.iter();
            let function = functions.find(|one| one.deed() == Some(Deed::Handoff))?;
            let operands = Vec::new();
            Some(vec![Call { function, operands }])
        })
    }

    /// True if the plan is to hand the question over.
    fn hands_over(&self) -> bool {
        let plan = self.plan().unwrap_or_default();
        plan.iter().any(|call| call.function.deed() == Some(Deed::Handoff))
    }

    /// The calls that answer the question. `None` if the functions do not fit it.
    fn fitting_calls(&self) -> Option<Vec<Call<'_>>> {
        let steps = self.question.steps();
        let fitting = |step: &Vec<Step>| {
            step.iter().find_map(|alternative| {
                let mut functions = self.functions.iter();
                let function = functions.find(|one| one.deed() == Some(alternative.deed))?;
                Some(Call { function, operands: alternative.operands.clone() })
            })
        };
        let plan: Option<Vec<Call<'_>>> = steps.iter().map(fitting).collect();
        plan.filter(|plan| (1..=CALLS).contains(&plan.len()))
    }

    /// The arguments of a call as JSON on one line.
    fn arguments(&self, call: &Call<'_>) -> String {
        let written = |((name, kind), operand): (&(String, Kind), &Operand)| {
            let value = match operand {
                Operand::Given(text) => text,
                Operand::Result => self.last_value(),
            };
            match kind {
                Kind::Number => format!("\"{name}\": {value}"),
                Kind::Text => format!("\"{name}\": \"{value}\""),
            }
        };
        let members = call.function.parameters.iter().zip(&call.operands);
        format!("{{{}}}", members.map(written).collect::<Vec<_>>().join(", "))
    }

    /// The number or text of the last result; empty before the first.
    fn last_value(&self) -> &str {
        let last = self.results.last().map_or("", String::as_str);
        let wrapped = last.strip_prefix("{\"result\": ");
        wrapped.and_then(|rest| rest.strip_suffix('}')).unwrap_or(last)
    }
}

/// True if the output ends with the number of `wording`, or is one of the wordings where
/// they end without a number.
fn states(wording: &[Vec<String>], output: &str) -> bool {
    let last = wording.last().and_then(|last| last.first());
    match last.and_then(|text| text.split("#### ").nth(1)) {
        Some(due) => output.split("####").skip(1).find_map(leading_number) == Some(due),
        None => wording::accepts(wording, output),
    }
}

/// A sum of whole things in at most [`CALLS`] operations.
fn countable(rng: &mut Rng) -> Sum {
    loop {
        let sum = Sum::draw(rng);
        let operations = sum.operations().map_or(CALLS + 1, |(_, all)| all.len());
        // Short sums are more frequent than the family draws them: long ones make long rows.
        if operations == 1 || (operations <= CALLS && rng.below(operations as u32) == 0) {
            return sum;
        }
    }
}

/// Up to three functions in any order: with one for each step, or with none for one of the steps;
/// of the latter, half can hand over.
fn functions(steps: &[Vec<Step>], fits: bool, rng: &mut Rng) -> Vec<Function> {
    let mut deeds: Vec<Deed> = Vec::new();
    let mut barred: Vec<Deed> = Vec::new();
    if fits {
        for alternatives in steps {
            let deed = alternatives[rng.below(alternatives.len() as u32) as usize].deed;
            if !alternatives.iter().any(|one| deeds.contains(&one.deed)) {
                deeds.push(deed);
            }
            barred.extend(alternatives.iter().map(|one| one.deed));
        }
    } else if !steps.is_empty() {
        let missing = &steps[rng.below(steps.len() as u32) as usize];
        barred.extend(missing.iter().map(|one| one.deed));
    }
    if !fits && rng.below(2) == 0 {
        deeds.push(Deed::Handoff);
    }
    let least = if fits { 1 } else { 0 };
    let count = (least + rng.weighted(&[5, 3, 2])).max(deeds.len());
    while deeds.len() < count {
        let deed = rng.pick(&DEEDS);
        if deed == Deed::Other || !(barred.contains(&deed) || deeds.contains(&deed)) {
            deeds.push(deed);
        }
    }
    let mut functions: Vec<Function> = Vec::new();
    while let Some(last) = deeds.len().checked_sub(1) {
        let deed = deeds.swap_remove(rng.below(last as u32 + 1) as usize);
        let function = Function::draw(deed, rng);
        match functions.iter().any(|other| other.name == function.name) {
            true => deeds.push(deed),
            false => functions.push(function),
        }
    }
    functions
}

/// The true result of an arithmetic function on whole numbers.
fn outcome(deed: Deed, numbers: &[i64]) -> Option<i64> {
    match (deed, numbers) {
        (Deed::Add, [a, b]) => a.checked_add(*b),
        (Deed::Subtract, [a, b]) => a.checked_sub(*b).filter(|value| *value >= 0),
        (Deed::Multiply, [a, b]) => a.checked_mul(*b),
        (Deed::Divide, [a, b]) => a.checked_rem(*b).filter(|rest| *rest == 0).map(|_| a / b),
        (Deed::Double, [a]) => a.checked_mul(2),
        (Deed::Triple, [a]) => a.checked_mul(3),
        (Deed::Halve, [a]) => (a % 2 == 0).then_some(a / 2),
        _ => None,
    }
}

/// Texts of functions that are no number.
fn told(deed: Deed, rng: &mut Rng) -> String {
    let text = match deed {
        Deed::Weather => rng.pick(&["sunny", "rainy", "cloudy", "windy", "cold", "warm", "snow"]),
        Deed::LookUp => rng.pick(&["a teacher", "a baker", "a singer", "a city", "not known"]),
        Deed::Clock => {
            return format!("{}:{}", rng.between(10, 23), rng.between(10, 59));
        }
        _ => rng.pick(&["done", "ok", "started"]),
    };
    text.to_owned()
}
