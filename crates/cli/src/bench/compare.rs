//! Decoders in turns over problem sets, in rounds.

use anyhow::Result;
use demo::problems::{self, Problem, Split, Task};
use engine::decoding::Decoding;

use super::report::{Entry, Report, Setup, TaskReport, command};
use super::run::{Runner, Tally};
use crate::args::BenchArgs;

/// The problems of one task, and what every decoder did with them, round by round.
struct Measured {
    task: Task,
    problems: Vec<Problem>,
    tallies: Vec<Vec<Tally>>,
}

/// Runs every decoder over every problem of every task.
///
/// # Errors
/// A problem that does not fit the context, a failed step.
pub fn run(
    args: &BenchArgs,
    runner: &mut Runner,
    tasks: &[Task],
    decoders: &[(String, Decoding)],
) -> Result<Report> {
    let mut sets: Vec<Measured> = tasks
        .iter()
        .map(|task| Measured {
            task: *task,
            problems: problems::generate(*task, Split::Eval, args.seed, args.problems),
            tallies: vec![Vec::new(); decoders.len()],
        })
        .collect();
    let rounds = args.rounds.clamp(1, args.problems.max(1));
    let size = args.problems.div_ceil(rounds).max(1);
    // The first forward touches every page of the weights; nobody should pay for that.
    if let Some(problem) = sets[0].problems.first() {
        runner.run(&decoders[0].1, std::slice::from_ref(problem))?;
    }
    for round in 0..rounds {
        for set in &mut sets {
            eprintln!("round {} of {rounds}: {}", round + 1, set.task);
            let from = (round * size).min(set.problems.len());
            let to = (from + size).min(set.problems.len());
            if from == to {
                continue;
            }
            let part = &set.problems[from..to];
            for (tallies, tally) in set
                .tallies
                .iter_mut()
                .zip(turn(runner, decoders, part, round)?)
            {
                tallies.push(tally);
            }
        }
    }
    Ok(Report {
        setup: Setup {
            command: command(),
            machine: runner.machine(),
            problems: args.problems,
            max_tokens: args.max_tokens,
            concurrency: args.concurrency,
        },
        tasks: sets.iter().map(|set| rows(set, decoders)).collect(),
    })
}

/// One round: every decoder over `part`, in an order that begins elsewhere in every round, so
/// that a drift of the machine's speed favours none.
fn turn(
    runner: &mut Runner,
    decoders: &[(String, Decoding)],
    part: &[Problem],
    round: usize,
) -> Result<Vec<Tally>> {
    let mut tallies = vec![Tally::default(); decoders.len()];
    let mut answers = vec![Vec::new(); decoders.len()];
    for at in 0..decoders.len() {
        let which = (at + round) % decoders.len();
        let (name, decoding) = &decoders[which];
        eprintln!("  {name}");
        (tallies[which], answers[which]) = runner.run(decoding, part)?;
    }
    for (tally, texts) in tallies.iter_mut().zip(&answers) {
        let same = texts
            .iter()
            .zip(&answers[0])
            .filter(|(ours, first)| ours == first);
        tally.agreed = same.count() as u64;
    }
    Ok(tallies)
}

fn rows(set: &Measured, decoders: &[(String, Decoding)]) -> TaskReport {
    let baseline = &set.tallies[0];
    let rows = decoders.iter().zip(&set.tallies);
    TaskReport {
        task: set.task.name().to_owned(),
        decoders: rows
            .map(|((name, decoding), tallies)| Entry::new(name, &decoding.label, tallies, baseline))
            .collect(),
    }
}
