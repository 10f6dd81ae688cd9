//! Lists: copy, reverse or sort three to six digits or words.

use super::sums::OBJECTS;
use super::wording::Wording;
use crate::rng::Rng;

/// An operation and its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct List {
    action: Action,
    items: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Copy,
    Reverse,
    Sort,
}

const ACTIONS: [Action; 3] = [Action::Copy, Action::Reverse, Action::Sort];

impl Action {
    fn asked(self) -> &'static str {
        match self {
            Action::Copy => "Copy",
            Action::Reverse => "Reverse",
            Action::Sort => "Sort",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Action::Copy => "Copied",
            Action::Reverse => "Reversed",
            Action::Sort => "Sorted",
        }
    }
}

impl List {
    /// Words are copied or reversed; digits are sorted too.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let length = rng.between(3, 6);
        let (actions, items) = if rng.below(2) == 0 {
            (&ACTIONS[..2], (0..length).map(|_| rng.pick(&OBJECTS).to_owned()).collect())
        } else {
            (&ACTIONS[..], (0..length).map(|_| rng.below(10).to_string()).collect())
        };
        Self { action: rng.pick(actions), items }
    }

    pub(crate) fn parse(prompt: &str) -> Option<Self> {
        let (verb, rest) = prompt.split_once(" the list ")?;
        let action = ACTIONS.into_iter().find(|action| action.asked() == verb)?;
        let items: Vec<String> = split_items(rest.strip_suffix('.')?);
        items.iter().all(|item| is_item(item)).then_some(Self { action, items })
    }

    pub(crate) fn prompt(&self) -> String {
        format!("{} the list {}.", self.action.asked(), self.items.join(", "))
    }

    pub(crate) fn wording(&self) -> Wording {
        let given = self.items.join(", ");
        let result = self.result().join(", ");
        vec![vec![format!("The list is {given}. {} it is {result}.", self.action.done())]]
    }

    /// True if the last list that the text states is the right one.
    pub(crate) fn ends_right(&self, output: &str) -> bool {
        let Some((_, last)) = output.trim_end().rsplit_once(" it is ") else {
            return false;
        };
        let last = last.strip_suffix('.').unwrap_or(last);
        split_items(last) == self.result()
    }

    fn result(&self) -> Vec<String> {
        let mut items = self.items.clone();
        match self.action {
            Action::Copy => {}
            Action::Reverse => items.reverse(),
            // Items are single digits or words, so that spelling orders digits by value too.
            Action::Sort => items.sort_unstable(),
        }
        items
    }
}

fn split_items(text: &str) -> Vec<String> {
    text.split(", ").map(str::to_owned).collect()
}

fn is_item(item: &str) -> bool {
    OBJECTS.contains(&item) || matches!(item.as_bytes(), [digit] if digit.is_ascii_digit())
}
