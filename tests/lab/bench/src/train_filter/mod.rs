//! `asynclane-lab train-filter`: trains the network of `learned_filter` on a model's own answers
//! (Learn2PD, arXiv 2509.25188).

mod fit;
mod replay;
mod score;

use std::path::Path;

use anyhow::{Context, Result};
use engine::decoding::{Decoding, DecodingSpec};
use model::FilterWeights;
use problems::Split;

use crate::args::TrainFilterArgs;
use crate::bench::{self, Runner};
use cli::config::Config;
use cli::exit;
use cli::load;

use replay::{Example, Known};

/// Minimum prompts of a family: of ten, one is for validation and one for the test.
const PARTS: usize = 10;
/// Thresholds in the printed result.
const THRESHOLDS: [f32; 4] = [0.8, 0.9, 0.96, 0.99];

/// Generates the answers, replays them, trains on the recorded steps and writes the filter.
///
/// # Errors
/// A model that does not load, a prompt that does not fit, too few prompts, a failed step, a file
/// that cannot be read or written.
pub fn run(args: &TrainFilterArgs) -> Result<()> {
    let config = Config::resolve(&args.model, None)?;
    if !(args.learning_rate > 0.0 && args.learning_rate.is_finite()) {
        let message =
            format!("--learning-rate: expected more than 0, found {}", args.learning_rate);
        return Err(exit::failure(exit::USAGE, message));
    }
    let prompts = prompts(args)?;
    let sets = examples(args, &config, &prompts)?;
    let settings = fit::Settings {
        hidden: args.hidden as usize,
        epochs: args.epochs,
        learning_rate: args.learning_rate,
        seed: args.seed,
    };
    let lines = (args.epochs / 10).max(1);
    let (weights, best) = fit::fit(&sets.train, &sets.validation, settings, |check| {
        if check.epoch % lines == 0 {
            eprintln!(
                "epoch {}: loss {:.4}, validation {:.4}",
                check.epoch, check.train, check.validation
            );
        }
    });
    println!(
        "loss {:.4}, validation {:.4} (lowest, epoch {})",
        best.train, best.validation, best.epoch
    );
    report(&sets, &weights)?;
    let file = weights.to_file()?;
    std::fs::write(&args.out, file).with_context(|| args.out.display().to_string())
}

/// Examples by the part of their prompt.
#[derive(Debug, Default)]
struct Sets {
    train: Vec<Example>,
    validation: Vec<Example>,
    test: Vec<Example>,
}

impl Sets {
    /// The ninth of ten prompts is for validation, the tenth for the test.
    fn of(&mut self, prompt: usize) -> &mut Vec<Example> {
        match prompt % PARTS {
            8 => &mut self.validation,
            9 => &mut self.test,
            _ => &mut self.train,
        }
    }
}

/// The prompts by family.
fn prompts(args: &TrainFilterArgs) -> Result<Vec<Vec<String>>> {
    let families: Vec<Vec<String>> = match &args.prompts {
        Some(path) => vec![read(path)?],
        None => {
            let draw = |task| problems::generate(task, Split::Train, args.seed, args.problems);
            let tasks = bench::tasks(&args.task)?.into_iter().map(draw);
            tasks.map(|drawn| drawn.into_iter().map(|problem| problem.prompt).collect()).collect()
        }
    };
    match families.iter().map(Vec::len).min() {
        Some(count) if count < PARTS => {
            let flag = args.prompts.as_ref().map_or("--problems", |_| "--prompts");
            let message = format!("{flag}: expected at least {PARTS} prompts, found {count}");
            Err(exit::failure(exit::USAGE, message))
        }
        _ => Ok(families),
    }
}

fn read(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path);
    let text = text
        .map_err(|error| exit::failure(exit::NO_INPUT, format!("{}: {error}", path.display())))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    Ok(lines.map(str::to_owned).collect())
}

/// Generates the reference decoder's answers and replays them.
fn examples(args: &TrainFilterArgs, config: &Config, prompts: &[Vec<String>]) -> Result<Sets> {
    let mut runner = Runner::new(load::load(config)?, config)?;
    let decoding = reference(args.block_length)?;
    let mut sets = Sets::default();
    for (number, family) in prompts.iter().enumerate() {
        let (count, total) = (family.len(), prompts.len());
        eprintln!("answering {count} prompts ({} of {total})", number + 1);
        let mut requests = Vec::with_capacity(family.len());
        for prompt in family {
            requests.push(runner.ask(prompt, args.max_tokens, &decoding)?);
        }
        let arrivals = bench::closed(requests.len(), args.concurrency);
        let (_, answers) = runner.run(requests.clone(), arrivals)?;
        for (index, (request, answer)) in requests.iter().zip(&answers).enumerate() {
            let known = Known {
                prompt: &request.prompt,
                answer,
                budget: request.max_tokens,
                stops: &request.stop_tokens,
            };
            let seen = replay::replay(runner.executor(), known, args.block_length)?;
            sets.of(index).extend(seen);
        }
    }
    Ok(sets)
}

/// The decoder of the answers: one token per step.
fn reference(block_length: u32) -> Result<Decoding> {
    let settings = format!(
        "schedule=block_wise,block_length={block_length},commit=top_k,tokens_per_step=1,cache=dual"
    );
    Ok(DecodingSpec::parse(&settings)?.resolve()?)
}

fn report(sets: &Sets, weights: &FilterWeights) -> Result<()> {
    let filter = load::network(weights.clone())?;
    let parts = [&sets.train, &sets.validation, &sets.test];
    let [train, validation, test] = parts.map(Vec::len);
    println!("steps: {train} trained on, {validation} validated, {test} tested");
    println!("accepted of the test's masks  precision %  recall %");
    for threshold in THRESHOLDS {
        let score = score::of_filter(&sets.test, &filter, threshold);
        line(&format!("filter > {threshold}"), score);
    }
    for threshold in THRESHOLDS {
        let score = score::of_confidence(&sets.test, threshold);
        line(&format!("confidence >= {threshold}"), score);
    }
    Ok(())
}

fn line(what: &str, score: score::Score) {
    let (precision, recall) = (score.precision(), score.recall());
    println!("{what:<28}  {precision:>11.2}  {recall:>8.1}");
}
