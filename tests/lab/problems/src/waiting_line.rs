//! A waiting line that changes: the first family of ParallelBench (arXiv 2510.04767 §4.1). Where many
//! answers are right, tokens that are committed together must agree with each other.

use super::wording::Wording;
use crate::rng::Rng;

/// A line of customers and what happens to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingLine {
    customers: Vec<String>,
    change: Change,
}

/// ParallelBench's tasks. Places count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Copy,
    Reverse,
    Sort,
    Shuffle,
    Insert { place: usize, customer: String },
    InsertAnywhere { customer: String },
    Remove { place: usize },
    RemoveAny,
    Replace { place: usize, customer: String },
    ReplaceAny { customer: String },
}

const CHANGES: u32 = 10;
const NAMES: [&str; 24] = [
    "Abby", "Bruno", "Carla", "Derek", "Edith", "Felix", "Greta", "Hugo", "Ines", "Jonas", "Karin",
    "Louis", "Marta", "Nils", "Olga", "Pedro", "Quinn", "Rosa", "Simon", "Tessa", "Ugo", "Vera",
    "Wanda", "Yusuf",
];
const ASKED: &str = " Answer with the new line alone, names separated by commas.";

impl WaitingLine {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut names = NAMES.to_vec();
        let mut name = || {
            names
                .remove(rng.below(names.len() as u32) as usize)
                .to_owned()
        };
        let customer = name();
        let customers: Vec<_> = (0..6).map(|_| name()).collect();
        let count = rng.between(3, 5) as usize;
        let change = rng.below(CHANGES);
        let place = |last: usize, rng: &mut Rng| rng.between(1, last as u32) as usize;
        let change = match change {
            0 => Change::Copy,
            1 => Change::Reverse,
            2 => Change::Sort,
            3 => Change::Shuffle,
            4 => Change::Insert {
                place: place(count + 1, rng),
                customer,
            },
            5 => Change::InsertAnywhere { customer },
            6 => Change::Remove {
                place: place(count, rng),
            },
            7 => Change::RemoveAny,
            8 => Change::Replace {
                place: place(count, rng),
                customer,
            },
            _ => Change::ReplaceAny { customer },
        };
        Self {
            customers: customers[..count].to_vec(),
            change,
        }
    }

    pub(crate) fn prompt(&self) -> String {
        let line = self.customers.join(", ");
        format!("The waiting line is {line}. {}{ASKED}", self.change.asked())
    }

    pub(crate) fn parse(prompt: &str) -> Option<Self> {
        let rest = prompt.strip_prefix("The waiting line is ")?;
        let (line, asked) = rest.strip_suffix(ASKED)?.split_once(". ")?;
        let customers: Vec<_> = line.split(", ").map(str::to_owned).collect();
        let known = customers.iter().all(|name| NAMES.contains(&name.as_str()));
        let change = Change::parse(asked)?;
        let fits = change.place().is_none_or(|(place, may_follow)| {
            (1..=customers.len() + usize::from(may_follow)).contains(&place)
        });
        (known && (3..=5).contains(&customers.len()) && fits).then_some(Self { customers, change })
    }

    pub(crate) fn wording(&self) -> Wording {
        let lines = self.lines().into_iter();
        vec![lines.map(|line| line.join(", ")).collect()]
    }

    /// Whether the last line of the text is a right one.
    pub(crate) fn ends_right(&self, output: &str) -> bool {
        let last = output.trim_end().lines().next_back().unwrap_or_default();
        let last = last.rsplit(": ").next().unwrap_or_default();
        let last = last.strip_suffix('.').unwrap_or(last);
        self.lines().contains(&last.split(", ").collect())
    }

    /// Every right line.
    fn lines(&self) -> Vec<Vec<&str>> {
        let line: Vec<_> = self.customers.iter().map(String::as_str).collect();
        let inserted = |place: usize, customer| {
            let mut line = line.clone();
            line.insert(place, customer);
            line
        };
        let removed = |place: usize| {
            let mut line = line.clone();
            line.remove(place);
            line
        };
        let replaced = |place: usize, customer| {
            let mut line = line.clone();
            line[place] = customer;
            line
        };
        let places = 0..line.len();
        match &self.change {
            Change::Copy => vec![line],
            Change::Reverse => vec![line.into_iter().rev().collect()],
            Change::Sort => {
                let mut line = line;
                line.sort_unstable();
                vec![line]
            }
            Change::Shuffle => {
                let all = orders(&line).into_iter();
                all.filter(|order| *order != line).collect()
            }
            Change::Insert { place, customer } => vec![inserted(place - 1, customer)],
            Change::InsertAnywhere { customer } => (0..=line.len())
                .map(|place| inserted(place, customer))
                .collect(),
            Change::Remove { place } => vec![removed(place - 1)],
            Change::RemoveAny => places.map(removed).collect(),
            Change::Replace { place, customer } => vec![replaced(place - 1, customer)],
            Change::ReplaceAny { customer } => {
                places.map(|place| replaced(place, customer)).collect()
            }
        }
    }
}

impl Change {
    fn asked(&self) -> String {
        match self {
            Self::Copy => "Copy it.".to_owned(),
            Self::Reverse => "Reverse it.".to_owned(),
            Self::Sort => "Sort it by name.".to_owned(),
            Self::Shuffle => "Put it into any other order.".to_owned(),
            Self::Insert { place, customer } => format!("Insert {customer} at place {place}."),
            Self::InsertAnywhere { customer } => format!("Insert {customer} at any place."),
            Self::Remove { place } => format!("Remove place {place}."),
            Self::RemoveAny => "Remove any one customer.".to_owned(),
            Self::Replace { place, customer } => format!("Replace place {place} by {customer}."),
            Self::ReplaceAny { customer } => format!("Replace any one customer by {customer}."),
        }
    }

    fn parse(asked: &str) -> Option<Self> {
        let fixed = [
            Self::Copy,
            Self::Reverse,
            Self::Sort,
            Self::Shuffle,
            Self::RemoveAny,
        ];
        if let Some(change) = fixed.into_iter().find(|change| change.asked() == asked) {
            return Some(change);
        }
        let asked = asked.strip_suffix('.')?;
        let name = |name: &str| NAMES.contains(&name).then(|| name.to_owned());
        if let Some(place) = asked.strip_prefix("Remove place ") {
            return Some(Self::Remove {
                place: place.parse().ok()?,
            });
        }
        if let Some(customer) = asked.strip_prefix("Replace any one customer by ") {
            return Some(Self::ReplaceAny {
                customer: name(customer)?,
            });
        }
        if let Some(rest) = asked.strip_prefix("Replace place ") {
            let (place, customer) = rest.split_once(" by ")?;
            return Some(Self::Replace {
                place: place.parse().ok()?,
                customer: name(customer)?,
            });
        }
        let (customer, place) = asked.strip_prefix("Insert ")?.split_once(" at ")?;
        let customer = name(customer)?;
        match place.strip_prefix("place ") {
            Some(place) => Some(Self::Insert {
                place: place.parse().ok()?,
                customer,
            }),
            None => (place == "any place").then_some(Self::InsertAnywhere { customer }),
        }
    }

    /// Its place, and whether that may be the one behind the line.
    fn place(&self) -> Option<(usize, bool)> {
        match self {
            Self::Insert { place, .. } => Some((*place, true)),
            Self::Remove { place } | Self::Replace { place, .. } => Some((*place, false)),
            _ => None,
        }
    }
}

/// All orders of a line.
fn orders<'a>(line: &[&'a str]) -> Vec<Vec<&'a str>> {
    if line.is_empty() {
        return vec![Vec::new()];
    }
    let each = 0..line.len();
    each.flat_map(|first| {
        let mut rest = line.to_vec();
        let name = rest.remove(first);
        orders(&rest).into_iter().map(move |mut order| {
            order.insert(0, name);
            order
        })
    })
    .collect()
}
