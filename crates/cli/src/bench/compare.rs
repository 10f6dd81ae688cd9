//! Rows in turns over problem sets, in rounds.

use anyhow::Result;
use demo::grade::grade;
use demo::problems::{self, Problem, Split, Task};

use super::arm::Arm;
use super::fleet::Fleet;
use super::report::{Entry, Report, Setup, TaskReport};
use super::tally::Tally;
use super::target::Ask;
use crate::args::BenchArgs;

/// The problems of one task, and what every row did with them, round by round.
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
    arms: &[Arm],
    setup: Setup,
) -> Result<Report> {
    let mut sets: Vec<Measured> = tasks
        .iter()
        .map(|task| Measured {
            task: *task,
            problems: problems::generate(*task, Split::Eval, args.seed, args.problems),
            tallies: vec![Vec::new(); arms.len()],
        })
        .collect();
    let rounds = args.rounds.clamp(1, args.problems.max(1));
    let size = args.problems.div_ceil(rounds).max(1);
    warm_up(fleet, arms, &sets[0].problems)?;
    for round in 0..rounds {
        for set in &mut sets {
            eprintln!("round {} of {rounds}: {}", round + 1, set.task);
            let from = (round * size).min(set.problems.len());
            let to = (from + size).min(set.problems.len());
            if from == to {
                continue;
            }
            let part = &set.problems[from..to];
            let tallies = turn(fleet, arms, part, (round, args))?;
            for (all, tally) in set.tallies.iter_mut().zip(tallies) {
                all.push(tally);
            }
        }
    }
    Ok(Report {
        setup,
        tasks: sets.iter().map(|set| rows(set, arms)).collect(),
    })
}

/// The first forward touches every page of the weights; nobody should pay for that.
fn warm_up(fleet: &mut Fleet, arms: &[Arm], problems: &[Problem]) -> Result<()> {
    let Some(problem) = problems.first() else {
        return Ok(());
    };
    for (at, arm) in arms.iter().enumerate() {
        let seen = arms[..at].iter().any(|other| other.place() == arm.place());
        if seen {
            continue;
        }
        fleet.answer(arm, &[ask(arm, problem)], 0)?;
    }
    Ok(())
}

/// One round: every row over `part`, in an order that begins elsewhere in every round, so that a
/// drift of the machine's speed favours none.
fn turn(
    fleet: &mut Fleet,
    arms: &[Arm],
    part: &[Problem],
    (round, args): (usize, &BenchArgs),
) -> Result<Vec<Tally>> {
    let mut tallies = vec![Tally::default(); arms.len()];
    let mut answers = vec![Vec::new(); arms.len()];
    for at in 0..arms.len() {
        let which = (at + round) % arms.len();
        let arm = &arms[which];
        eprintln!("  {}", arm.name);
        let asks: Vec<Ask<'_>> = part.iter().map(|problem| ask(arm, problem)).collect();
        let seed = args.seed.wrapping_add(round as u64);
        (tallies[which], answers[which]) = fleet.answer(arm, &asks, seed)?;
    }
    for ((tally, texts), arm) in tallies.iter_mut().zip(&answers).zip(arms) {
        let same = texts
            .iter()
            .zip(&answers[0])
            .filter(|(ours, first)| ours == first);
        tally.agreed = same.count() as u64;
        for (problem, answer) in part.iter().zip(texts) {
            tally.grade(grade(problem, &fleet.tokenizer(arm).decode(answer, true)));
        }
    }
    Ok(tallies)
}

fn ask<'a>(arm: &'a Arm, problem: &'a Problem) -> Ask<'a> {
    Ask {
        text: &problem.prompt,
        decoder: &arm.decoder,
        max_tokens: arm.max_tokens,
    }
}

fn rows(set: &Measured, arms: &[Arm]) -> TaskReport {
    let baseline = &set.tallies[0];
    let rows = arms.iter().zip(&set.tallies);
    TaskReport {
        task: set.task.name().to_owned(),
        decoders: rows
            .map(|(arm, tallies)| Entry::new(arm, tallies, baseline))
            .collect(),
    }
}
