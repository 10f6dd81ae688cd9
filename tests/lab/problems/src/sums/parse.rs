//! Parses a sum from its prompt.

use super::amount::Amount;
use super::{
    CONTAINERS, FACTORS, GAINS, LOSSES, MONEY, OBJECTS, OPENINGS, PEOPLE, Start, Step, Sum,
};

impl Sum {
    /// The sum of the prompt; `None` if it is not a prompt of this family.
    pub(crate) fn parse(prompt: &str) -> Option<Self> {
        let mut sentences = prompt.split(". ");
        let first = sentences.next()?;
        let person = *PEOPLE.iter().find(|person| {
            first.strip_prefix(person.name).is_some_and(|rest| rest.starts_with(" has "))
        })?;
        let words: Vec<&str> = first.split(' ').collect();
        let number = |text: &str| {
            if text.len() <= 3 { text.parse().ok() } else { None }
        };
        let known = |name: &str| OBJECTS.into_iter().chain([MONEY]).find(|known| *known == name);
        let (object, start) = match words[..] {
            [_, _, amount, object] if amount.len() <= 5 => {
                (known(object)?, Start::Loose(Amount::parse(amount)?))
            }
            [_, _, containers, container, "with", each, object, "in", "each"] => {
                let container = CONTAINERS.into_iter().find(|known| *known == container)?;
                let (containers, each) = (number(containers)?, number(each)?);
                (known(object)?, Start::Packed { containers, container, each })
            }
            _ => return None,
        };
        let mut steps = Vec::new();
        for (sentence, opening) in sentences.zip(OPENINGS) {
            let Some(told) = sentence.strip_prefix(opening) else {
                break;
            };
            let told = told.strip_prefix(' ')?.strip_prefix(person.pronoun)?.strip_prefix(' ')?;
            steps.push(Step::parse(told, object)?);
        }
        let sum = Self { person, object, start, steps };
        sum.amounts().is_some().then_some(sum)
    }
}

impl Step {
    fn parse(told: &str, object: &str) -> Option<Self> {
        if told.strip_prefix("sells half of the ") == Some(object) {
            return Some(Step::Halve);
        }
        let (verb, rest) = told.split_once(' ')?;
        if let Some(&(verb, factor)) = FACTORS.iter().find(|(name, _)| *name == verb) {
            return Some(Step::Multiply { verb, factor });
        }
        // No problem of this family has more than three digits; more could overflow.
        let count = rest.split(' ').next()?;
        let count = if count.len() <= 3 {
            count.parse().ok()?
        } else {
            return None;
        };
        let named = |verbs: &[&'static str]| verbs.iter().copied().find(|name| *name == verb);
        named(&GAINS)
            .map(|verb| Step::Gain { verb, count })
            .or_else(|| named(&LOSSES).map(|verb| Step::Lose { verb, count }))
    }
}
