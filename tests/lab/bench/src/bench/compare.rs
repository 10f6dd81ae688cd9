//! Runs all rows over all problem sets, in rounds.

use anyhow::Result;
use problems::{Grade, Problem, Split, Task, grade};

use super::fleet::Fleet;
use super::report::{Entry, Report, Setup, TaskReport};
use super::row::BenchRow;
use super::tally::Tally;
use super::target::Ask;
use crate::args::BenchArgs;

/// The problems of one task, and the counts of every row by round.
struct Measured {
    task: Task,
    problems: Vec<Problem>,
    tallies: Vec<Vec<Tally>>,
}

/// Runs every row over every problem of every task.
///
/// # Errors
/// A problem that does not fit the context, a failed step.
pub fn run(
    args: &BenchArgs,
    fleet: &mut Fleet,
    tasks: &[Task],
    rows: &[BenchRow],
    setup: Setup,
) -> Result<Report> {
    let mut sets: Vec<Measured> = tasks
        .iter()
        .map(|task| Measured {
            task: *task,
            problems: problems::generate(*task, Split::Eval, args.seed, args.problems),
            tallies: vec![Vec::new(); rows.len()],
        })
        .collect();
    let rounds = args.rounds.clamp(1, args.problems.max(1));
    let size = args.problems.div_ceil(rounds).max(1);
    warm_up(fleet, rows, &sets[0].problems)?;
    for round in 0..rounds {
        for set in &mut sets {
            eprintln!("round {} of {rounds}: {}", round + 1, set.task);
            let start = (round * size).min(set.problems.len());
            let end = (start + size).min(set.problems.len());
            if start == end {
                continue;
            }
            let part = &set.problems[start..end];
            let tallies = turn(fleet, rows, part, (round, args))?;
            for (all, tally) in set.tallies.iter_mut().zip(tallies) {
                all.push(tally);
            }
        }
    }
    Ok(Report { setup, tasks: sets.iter().map(|set| task_report(set, rows)).collect() })
}

/// Runs one problem per target, because the first forward pass touches every page of the weights.
fn warm_up(fleet: &mut Fleet, rows: &[BenchRow], problems: &[Problem]) -> Result<()> {
    let Some(problem) = problems.first() else {
        return Ok(());
    };
    for (index, row) in rows.iter().enumerate() {
        let seen = rows[..index].iter().any(|other| other.target_key() == row.target_key());
        if seen {
            continue;
        }
        fleet.answer(row, &[ask(row, problem)], 0)?;
    }
    Ok(())
}

/// One round: every row over `part`. The order starts with another row in every round, so that a
/// drift of the machine's speed favours no row.
fn turn(
    fleet: &mut Fleet,
    rows: &[BenchRow],
    part: &[Problem],
    (round, args): (usize, &BenchArgs),
) -> Result<Vec<Tally>> {
    let mut tallies = vec![Tally::default(); rows.len()];
    let mut answers = vec![Vec::new(); rows.len()];
    for index in 0..rows.len() {
        let which = (index + round) % rows.len();
        let row = &rows[which];
        eprintln!("  {}", row.name);
        let asks: Vec<Ask<'_>> = part.iter().map(|problem| ask(row, problem)).collect();
        let seed = args.seed.wrapping_add(round as u64);
        (tallies[which], answers[which]) = fleet.answer(row, &asks, seed)?;
    }
    let mut first = Vec::new();
    for ((tally, texts), row) in tallies.iter_mut().zip(&answers).zip(rows) {
        let same = texts.iter().zip(&answers[0]).filter(|(ours, first)| ours == first);
        tally.agreed = same.count() as u64;
        let tokenizer = fleet.tokenizer(row);
        let grades = part.iter().zip(texts);
        let grades =
            grades.map(|(problem, answer)| grade(problem, &tokenizer.decode(answer, true)));
        let grades = grades.collect::<std::io::Result<Vec<Grade>>>()?;
        if first.is_empty() {
            first.clone_from(&grades);
        }
        tally.grade(&grades, &first);
    }
    Ok(tallies)
}

fn ask<'a>(row: &'a BenchRow, problem: &'a Problem) -> Ask<'a> {
    Ask { text: &problem.prompt, decoder: &row.decoder, max_tokens: row.max_tokens }
}

fn task_report(set: &Measured, rows: &[BenchRow]) -> TaskReport {
    let baseline = &set.tallies[0];
    let measured = rows.iter().zip(&set.tallies);
    TaskReport {
        task: set.task.name().to_owned(),
        decoders: measured.map(|(row, tallies)| Entry::new(row, tallies, baseline)).collect(),
    }
}
