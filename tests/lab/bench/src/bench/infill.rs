//! Infilling: decoders write a hidden middle sentence with and without the text that follows it.

use std::fmt::Write;

use anyhow::Result;
use engine::decoding::Decoding;
use engine::{Given, Request};
use problems::{Problem, is_strict};
use serde::Serialize;

use super::report::{command, round};
use super::target::engine::{Runner, closed};
use crate::args::BenchArgs;

/// A comparison of infilling.
#[derive(Debug, Serialize)]
pub struct InfillReport {
    /// The command that wrote it.
    pub command: String,
    /// Processor and thread count.
    pub machine: String,
    /// Problem family.
    pub task: String,
    /// Held-out problems whose answer has a middle sentence.
    pub problems: usize,
    /// Mean length of the hidden sentences.
    pub hidden_tokens: f64,
    /// One entry per decoder.
    pub infill: Vec<InfillEntry>,
}

/// One decoder's row; accuracies in percent.
#[derive(Debug, Serialize)]
pub struct InfillEntry {
    /// As named on the command line.
    pub name: String,
    /// Without the suffix: the whole answer with the generated sentence is valid.
    pub plain_strict: f64,
    /// Without the suffix: the generated sentence equals the hidden one.
    pub plain_exact: f64,
    /// With the suffix: the whole answer is valid.
    pub infill_strict: f64,
    /// With the suffix: the generated sentence equals the hidden one.
    pub infill_exact: f64,
    /// Forward passes per output token with the suffix.
    pub infill_nfe_per_token: f64,
}

/// An answer with a hidden sentence.
#[derive(Debug)]
struct Gap<'a> {
    problem: &'a Problem,
    before: &'a str,
    hidden: &'a str,
    after: &'a str,
}

#[derive(Clone, Copy, Debug)]
struct Accuracy {
    strict: f64,
    exact: f64,
    nfe_per_token: f64,
}

/// Runs every decoder over every gap, without and with the suffix; `machine` goes into the report.
///
/// # Errors
/// A gap that does not fit the context, a failed step.
pub fn run(
    args: &BenchArgs,
    runner: &mut Runner,
    (decoders, machine): (&[(String, Decoding)], String),
    problems: &[Problem],
) -> Result<InfillReport> {
    let gaps: Vec<Gap<'_>> = problems.iter().enumerate().filter_map(gap).collect();
    let mut hidden = 0;
    for gap in &gaps {
        hidden += runner.tokenizer().encode(gap.hidden, false)?.len();
    }
    let mut infill = Vec::with_capacity(decoders.len());
    for (name, decoding) in decoders {
        eprintln!("{name}");
        let plain = write(runner, &gaps, decoding, (false, args.concurrency[0]))?;
        let filled = write(runner, &gaps, decoding, (true, args.concurrency[0]))?;
        infill.push(InfillEntry {
            name: name.clone(),
            plain_strict: plain.strict,
            plain_exact: plain.exact,
            infill_strict: filled.strict,
            infill_exact: filled.exact,
            infill_nfe_per_token: filled.nfe_per_token,
        });
    }
    Ok(InfillReport {
        command: command(),
        machine,
        task: args.task.clone(),
        problems: gaps.len(),
        hidden_tokens: round(hidden as f64 / gaps.len().max(1) as f64, 1),
        infill,
    })
}

impl InfillReport {
    /// The table for the terminal.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{} {}, a hidden sentence of {} tokens, {}\n{:<28} {:>13} {:>13} {:>14} {:>14} {:>10}\n",
            self.problems,
            self.task,
            self.hidden_tokens,
            self.machine,
            "decoder",
            "plain strict",
            "plain exact",
            "infill strict",
            "infill exact",
            "NFE/token"
        );
        for entry in &self.infill {
            let _ = writeln!(
                out,
                "{:<28} {:>13.1} {:>13.1} {:>14.1} {:>14.1} {:>10.3}",
                entry.name,
                entry.plain_strict,
                entry.plain_exact,
                entry.infill_strict,
                entry.infill_exact,
                entry.infill_nfe_per_token
            );
        }
        out
    }
}

/// Hides one of the middle sentences of the reference answer, if there is one; the problem's number
/// selects it.
fn gap((number, problem): (usize, &Problem)) -> Option<Gap<'_>> {
    let answer = &problem.answer;
    let mut ends: Vec<usize> = answer
        .match_indices(['.', '\n'])
        .map(|(index, _)| index + 1)
        // A point inside a number ends no sentence.
        .filter(|end| !answer[*end..].starts_with(|next: char| next.is_ascii_digit()))
        .collect();
    ends.dedup();
    let middles = ends.len().checked_sub(2).filter(|count| *count > 0)?;
    let gap = number % middles;
    Some(Gap {
        problem,
        before: &answer[..ends[gap]],
        hidden: &answer[ends[gap]..ends[gap + 1]],
        after: &answer[ends[gap + 1]..],
    })
}

fn write(
    runner: &mut Runner,
    gaps: &[Gap<'_>],
    decoding: &Decoding,
    (sighted, concurrency): (bool, usize),
) -> Result<Accuracy> {
    let mut requests = Vec::with_capacity(gaps.len());
    for gap in gaps {
        let tokenizer = runner.tokenizer();
        let mut prompt = crate::conversation::ids(&gap.problem.prompt, tokenizer)?;
        prompt.extend(tokenizer.encode(gap.before, false)?);
        let hidden = tokenizer.encode(gap.hidden, false)?;
        let after = tokenizer.encode(gap.after, false)?;
        requests.push(Request {
            given: Given { suffix: if sighted { after } else { Vec::new() }, ..Given::default() },
            code_prompt: server::is_code_shaped(&gap.problem.prompt),
            ..Request::new(prompt, hidden.len() as u32, decoding.clone())
        });
    }
    let arrivals = closed(requests.len(), concurrency);
    let (tally, answers) = runner.run(requests, arrivals)?;
    let (mut strict, mut exact) = (0, 0);
    for (gap, answer) in gaps.iter().zip(&answers) {
        let middle = runner.tokenizer().decode(answer, true);
        let whole = format!("{}{middle}{}", gap.before, gap.after);
        strict += usize::from(is_strict(gap.problem, &whole));
        exact += usize::from(middle == gap.hidden);
    }
    let percent = |count: usize| round(100.0 * count as f64 / gaps.len().max(1) as f64, 1);
    Ok(Accuracy {
        strict: percent(strict),
        exact: percent(exact),
        nfe_per_token: round(tally.forwards as f64 / tally.tokens.max(1) as f64, 3),
    })
}
