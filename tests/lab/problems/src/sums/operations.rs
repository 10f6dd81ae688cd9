//! A sum as operations on numbers, for answers that leave the arithmetic to functions.

use super::{Start, Step, Sum};
use crate::wording::Wording;

/// The change of the quantity in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Subtract,
    Multiply,
    Halve,
}

impl Sum {
    /// The first number, and each operation with its second number; packed things begin with a
    /// product. `None` where the first number is not whole.
    pub(crate) fn operations(&self) -> Option<(u32, Vec<(Operation, u32)>)> {
        let mut operations = Vec::new();
        let first = match self.start {
            Start::Loose(amount) if amount.halves.is_multiple_of(2) => {
                u32::try_from(amount.halves / 2).ok()?
            }
            Start::Loose(_) => return None,
            Start::Packed { containers, each, .. } => {
                operations.push((Operation::Multiply, each));
                containers
            }
        };
        operations.extend(self.steps.iter().map(|step| match *step {
            Step::Gain { count, .. } => (Operation::Add, count),
            Step::Lose { count, .. } => (Operation::Subtract, count),
            Step::Multiply { factor, .. } => (Operation::Multiply, factor),
            Step::Halve => (Operation::Halve, 2),
        }));
        Some((first, operations))
    }

    /// The answers that only state the quantity at the end, here `end`.
    pub(crate) fn closing(&self, end: &str) -> Wording {
        let (name, object) = (self.person.name, self.object);
        vec![
            vec![
                format!("The answer is {end} {object}."),
                format!("So in the end {name} has {end} {object}."),
            ],
            vec![format!("\n#### {end}")],
        ]
    }
}
