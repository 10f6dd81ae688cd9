//! Families of problems with graders: drawn from a seed, read back from a prompt.
#![deny(missing_docs)]

mod calls;
mod drills;
mod grade;
mod lists;
mod python;
mod rng;
mod snippets;
mod sums;
mod wording;

use std::fmt;
use std::io;
use std::str::FromStr;

use serde::Serialize;

pub use drills::{Drill, drills};
pub use grade::{Grade, grade, is_strict};
use rng::Rng;
use wording::Wording;

/// A family of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// A quantity that changes in one to four steps, told in words.
    Sums,
    /// The body of a small Python function, from its docstring.
    Snippets,
    /// Copying, reversing or sorting a short list.
    Lists,
    /// A conversation with functions: a call, an answer after a call, or an answer without one.
    Calls,
}

impl Task {
    /// The families whose prompt is one text of the user, in the order in which tables show them.
    /// The word `all` stands for them.
    pub const ALL: [Task; 3] = [Task::Sums, Task::Snippets, Task::Lists];
    /// The families of the demo models; the prompts of calls are conversations.
    pub const EVERY: [Task; 4] = [Task::Sums, Task::Snippets, Task::Lists, Task::Calls];

    /// The family's name in arguments, files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Task::Sums => "sums",
            Task::Snippets => "snippets",
            Task::Lists => "lists",
            Task::Calls => "calls",
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Task {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let expected = "sums, snippets, lists or calls";
        Task::EVERY
            .into_iter()
            .find(|task| task.name() == name)
            .ok_or_else(|| UnknownName::new("task", expected, name))
    }
}

/// The one of two disjoint sets of prompts that a problem is drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// Prompts that a model may be trained on: nine in ten.
    Train,
    /// Held-out prompts: one in ten, by a hash of the prompt text.
    Eval,
}

impl Split {
    /// The set of a prompt. It depends on the text alone, so a held-out prompt is in no training set,
    /// whatever the seed.
    pub fn of(prompt: &str) -> Self {
        if rng::hash(prompt).is_multiple_of(10) { Split::Eval } else { Split::Train }
    }
}

impl FromStr for Split {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "train" => Ok(Split::Train),
            "eval" => Ok(Split::Eval),
            _ => Err(UnknownName::new("split", "train or eval", name)),
        }
    }
}

/// An unknown name of a task or split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    key: &'static str,
    expected: &'static str,
    found: String,
}

impl UnknownName {
    fn new(key: &'static str, expected: &'static str, found: &str) -> Self {
        Self { key, expected, found: found.to_owned() }
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found {:?}", self.key, self.expected, self.found)
    }
}

impl std::error::Error for UnknownName {}

/// A problem: its prompt, one valid answer, and the facts that the grader needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Problem {
    /// The family.
    pub task: Task,
    /// The user's text, before any chat template. Of calls it is JSON: `messages` and, where
    /// functions are listed, `tools`, in the form of a request.
    pub prompt: String,
    /// One of the valid answers, without a stop token.
    pub answer: String,
    #[serde(skip)]
    pub(crate) facts: Facts,
}

/// The content of a prompt, by family.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Facts {
    Sums(sums::Sum),
    Snippets(snippets::Snippet),
    Lists(lists::List),
    Calls(Box<calls::Dialogue>),
}

impl Facts {
    pub(crate) fn wording(&self) -> Wording {
        match self {
            Facts::Sums(sum) => sum.wording(),
            Facts::Snippets(snippet) => snippet.wording(),
            Facts::Lists(list) => list.wording(),
            Facts::Calls(dialogue) => dialogue.wording(),
        }
    }

    /// True if an output ends right.
    pub(crate) fn ends_right(&self, output: &str) -> io::Result<bool> {
        Ok(match self {
            Facts::Sums(sum) => sum.ends_right(output),
            Facts::Snippets(snippet) => snippet.ends_right(output)?,
            Facts::Lists(list) => list.ends_right(output),
            Facts::Calls(dialogue) => dialogue.ends_right(output)?,
        })
    }

    fn draw(task: Task, rng: &mut Rng) -> Self {
        match task {
            Task::Sums => Facts::Sums(sums::Sum::draw(rng)),
            Task::Snippets => Facts::Snippets(snippets::Snippet::draw(rng)),
            Task::Lists => Facts::Lists(lists::List::draw(rng)),
            Task::Calls => Facts::Calls(Box::new(calls::Dialogue::draw(rng))),
        }
    }

    fn parse(task: Task, prompt: &str) -> Option<Self> {
        match task {
            Task::Sums => sums::Sum::parse(prompt).map(Facts::Sums),
            Task::Snippets => snippets::Snippet::parse(prompt).map(Facts::Snippets),
            Task::Lists => lists::List::parse(prompt).map(Facts::Lists),
            Task::Calls => calls::Dialogue::parse(prompt).map(Box::new).map(Facts::Calls),
        }
    }

    fn prompt(&self) -> String {
        match self {
            Facts::Sums(sum) => sum.prompt(),
            Facts::Snippets(snippet) => snippet.prompt(),
            Facts::Lists(list) => list.prompt(),
            Facts::Calls(dialogue) => dialogue.prompt(),
        }
    }
}

impl Problem {
    /// Parses a problem from its prompt. `None` if the text is not word for word a prompt of a family. The answer is the first of the valid wordings.
    pub fn from_prompt(prompt: &str) -> Option<Self> {
        let (task, facts) =
            Task::EVERY.into_iter().find_map(|task| Some((task, Facts::parse(task, prompt)?)))?;
        // The family parsers read words and numbers; comparing the whole prompt checks the rest.
        if facts.prompt() != prompt {
            return None;
        }
        let answer =
            facts.wording().iter().map(|alternatives| alternatives[0].as_str()).collect::<String>();
        Some(Self { task, prompt: prompt.to_owned(), answer, facts })
    }
}

/// `count` problems of one family and split. The same arguments give the same problems, and a
/// longer draw begins with the shorter one. A prompt may occur twice.
pub fn generate(task: Task, split: Split, seed: u64, count: usize) -> Vec<Problem> {
    let mut rng = Rng::new(seed ^ rng::hash(task.name()));
    let mut problems = Vec::with_capacity(count.min(1 << 20));
    while problems.len() < count {
        let facts = Facts::draw(task, &mut rng);
        let answer = wording::write(&facts.wording(), &mut rng);
        let prompt = facts.prompt();
        if Split::of(&prompt) == split {
            problems.push(Problem { task, prompt, answer, facts });
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A valid wording passes the judgement of the end too, for snippets by running it.
    #[test]
    fn what_is_strictly_right_ends_right() {
        for task in Task::EVERY.into_iter() {
            for problem in generate(task, Split::Eval, 8, 200) {
                let right = problem.facts.ends_right(&problem.answer);
                assert!(right.expect("python3 runs"), "{problem:?}");
            }
        }
    }
}
