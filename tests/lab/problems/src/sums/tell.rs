//! The valid answers of a sum: every sentence with its allowed wordings.

use super::amount::Amount;
use super::{OPENINGS, Person, Start, Step, Sum};
use crate::wording::Wording;

impl Sum {
    pub(crate) fn wording(&self) -> Wording {
        let Self { person: Person { name, .. }, object, .. } = self;
        let amounts = self.amounts().expect("checked when the sum was drawn or parsed");
        let mut wording = vec![self.opening()];
        for ((step, opening), pair) in self.steps.iter().zip(OPENINGS).zip(amounts.windows(2)) {
            let sentences = self.step_sentences(*step, pair[0], pair[1]);
            let place = |sentence: &String| format!(" {opening} {sentence}.");
            wording.push(sentences.iter().map(place).collect());
        }
        let end = amounts[amounts.len() - 1];
        wording.push(vec![
            String::new(),
            format!(" The answer is {end} {object}."),
            format!(" So in the end {name} has {end} {object}."),
        ]);
        wording.push(vec![format!("\n#### {end}")]);
        wording
    }

    fn opening(&self) -> Vec<String> {
        let Self { person: Person { name, .. }, object, .. } = self;
        match self.start {
            Start::Loose(amount) => vec![
                format!("{name} starts with {amount} {object}."),
                format!("At first {name} has {amount} {object}."),
                format!("{name} has {amount} {object} at first."),
            ],
            Start::Packed { containers, container, each } => vec![format!(
                "There are {containers} {container} with {each} {object} each, so {name} starts \
                 with {containers} * {each} = {} {object}.",
                containers * each
            )],
        }
    }

    /// The sentences that a step may be told in, without opening word and period.
    fn step_sentences(&self, step: Step, before: Amount, after: Amount) -> Vec<String> {
        let Self { person: Person { pronoun, .. }, object, .. } = self;
        let left = format!("{before} {}", step.operation());
        match step {
            Step::Gain { verb, count } => vec![
                format!("{pronoun} has {left} = {after} {object}"),
                format!(
                    "{pronoun} {verb} {count} more, so now {pronoun} has {left} = {after} {object}"
                ),
                format!("{left} = {after}, so now {pronoun} has {after} {object}"),
            ],
            Step::Lose { verb, count } => vec![
                format!("{pronoun} has {left} = {after} {object} left"),
                format!("{pronoun} {verb} {count}, so {pronoun} has {left} = {after} {object}"),
                format!("{left} = {after}, so {pronoun} has {after} {object} left"),
            ],
            Step::Multiply { .. } => vec![
                format!("{pronoun} has {left} = {after} {object}"),
                format!("the number of {object} becomes {left} = {after}"),
            ],
            Step::Halve => vec![
                format!("{pronoun} has {left} = {after} {object} left"),
                format!("{pronoun} keeps half, which is {left} = {after} {object}"),
            ],
        }
    }
}
