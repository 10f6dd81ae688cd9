//! `asynclane-lab bench`: decoders side by side on held-out demo problems.

mod arrivals;
mod compare;
mod decoders;
mod fleet;
mod infill;
mod latency;
mod overall;
mod paired;
pub mod report;
mod row;
mod table;
mod tally;
mod target;

use anyhow::Result;
use problems::{Problem, Split, Task};

use crate::args::{BenchArgs, BenchTarget};
use cli::config::Config;
use cli::exit;

use arrivals::LoadPattern;
use decoders::Listed;
use fleet::Fleet;
use report::{OneOrMore, Report, Setup};
use row::{Axes, BenchRow, Decoder};
use target::Ask;
pub use target::engine::{Runner, closed};
pub use target::sse::Lines;

/// Runs every decoder over every problem, in rounds, or reads an earlier result; prints the
/// tables.
///
/// # Errors
/// Unknown names, a model that does not load, a failed step, a file that cannot be read or
/// written.
pub fn run(args: &BenchArgs) -> Result<()> {
    if let Some(path) = &args.from {
        return show(args, &Report::load(path)?);
    }
    let (dtypes, kv_dtypes) =
        (names_in(&args.model.weights.dtype), names_in(&args.model.engine.kv_dtype));
    let mut model = args.model.clone();
    model.weights.dtype = dtypes.first().cloned();
    model.engine.kv_dtype = kv_dtypes.first().cloned();
    let config = Config::resolve(&model, None)?;
    let dtypes = or_configured(dtypes, config.model.dtype.as_str());
    let kv_dtypes = or_configured(kv_dtypes, config.engine.kv_dtype.as_str());
    let tasks = tasks(&args.task)?;
    let listed = decoders::parse(&args.decoders)?;
    let loads = loads(args)?;
    let problems = problems::generate(tasks[0], Split::Eval, args.seed, args.problems);
    if args.infill {
        return infill(args, &config, &tasks, (listed, &problems));
    }
    let axes = Axes { dtypes: &dtypes, kv_dtypes: &kv_dtypes, loads: &loads };
    let named: Vec<Decoder> = listed.iter().map(|listed| listed.decoder.clone()).collect();
    let rows = row::rows(args, &axes, &named);
    let mut fleet = Fleet::new(args, &config, &rows)?;
    let rows = admitted(rows, &listed, &fleet, &problems[0])?;
    let setup = Setup {
        command: report::command(),
        machine: fleet.machine(),
        problems: args.problems,
        max_tokens: OneOrMore::new(&args.max_tokens),
        concurrency: args.rate.is_empty().then(|| OneOrMore::new(&args.concurrency)),
        rate: (!args.rate.is_empty()).then(|| OneOrMore::new(&args.rate)),
        ungraded: !target::executor::is_graded(args) || args.target == [BenchTarget::Sim],
    };
    show(args, &compare::run(args, &mut fleet, &tasks, &rows, setup)?)
}

/// The names in a flag that takes a list here, such as `--dtype`.
fn names_in(flag: &Option<String>) -> Vec<String> {
    let names = flag.iter().flat_map(|names| names.split(','));
    names.map(|name| name.trim().to_owned()).collect()
}

/// The names, or the configured one if there are none.
fn or_configured(names: Vec<String>, configured: &str) -> Vec<String> {
    match names.is_empty() {
        true => vec![configured.to_owned()],
        false => names,
    }
}

/// The patterns of arrival, one row per decoder and pattern.
///
/// # Errors
/// A number of 0, or an empty list.
fn loads(args: &BenchArgs) -> Result<Vec<LoadPattern>> {
    let refused = |message: &str| Err(exit::failure(exit::USAGE, message));
    if args.problems == 0 {
        return refused("--problems: expected at least 1, found 0");
    }
    if args.max_tokens.is_empty() || args.target.is_empty() || args.concurrency.is_empty() {
        return refused("--max-tokens, --target, --concurrency: expected at least one value each");
    }
    if args.concurrency.contains(&0) {
        return refused("--concurrency: expected at least 1, found 0");
    }
    if args.rate.iter().any(|rate| !rate.is_finite() || *rate <= 0.0) {
        return refused("--rate: expected a positive number of requests per second");
    }
    if args.url.is_some() && args.target != [BenchTarget::Http] {
        return refused("--url: expected --target http, found another");
    }
    Ok(match args.rate.as_slice() {
        [] => args.concurrency.iter().map(|&count| LoadPattern::Closed(count)).collect(),
        rates => rates.iter().map(|&rate| LoadPattern::Open(rate)).collect(),
    })
}

/// Runs `--infill`, a separate comparison.
fn infill(
    args: &BenchArgs,
    config: &Config,
    tasks: &[Task],
    (listed, problems): (Vec<Listed>, &[Problem]),
) -> Result<()> {
    if tasks.len() > 1 {
        let message = format!("--infill: expected one --task, found {}", args.task);
        return Err(exit::failure(exit::USAGE, message));
    }
    let loaded = cli::load::load(config)?;
    let machine = format!("{}, {}", cli::device::processor(), loaded.hardware.kernels);
    let mut runner = Runner::new(loaded, config)?;
    let mut decoders = Vec::new();
    for Listed { decoder, optional } in listed {
        if decoder.model.is_some() {
            let message =
                format!("--infill: expected decoders of one model, found {}", decoder.name);
            return Err(exit::failure(exit::USAGE, message));
        }
        let ask =
            Ask { text: &problems[0].prompt, decoder: &decoder, max_tokens: args.max_tokens[0] };
        if takes(&decoder.name, optional, target::Target::admits(&runner, &ask))? {
            decoders.push((decoder.name, decoder.decoding));
        }
    }
    let report = infill::run(args, &mut runner, (&decoders, machine), problems)?;
    print!("{}", report.table());
    args.json.as_ref().map_or(Ok(()), |path| report::write(&report, path))
}

/// Prints the tables and writes the requested files.
fn show(args: &BenchArgs, report: &Report) -> Result<()> {
    print!("{}", table::text(report));
    if let Some(path) = &args.json {
        report.save(path)?;
    }
    Ok(())
}

/// Parses families separated by commas or blanks; `all` stands for every family but calls.
pub fn tasks(text: &str) -> Result<Vec<Task>> {
    let mut tasks: Vec<Task> = Vec::new();
    for name in text.split([',', ' ', ';']).filter(|name| !name.is_empty()) {
        let named = match name {
            decoders::ALL => Task::ALL.to_vec(),
            _ => vec![name.parse().map_err(|e| exit::failure(exit::USAGE, format!("{e}")))?],
        };
        for task in named {
            if !tasks.contains(&task) {
                tasks.push(task);
            }
        }
    }
    if tasks.is_empty() {
        return Err(exit::failure(exit::USAGE, "--task names no family"));
    }
    Ok(tasks)
}

/// The rows that their targets can run. A row from `all` that cannot run is left out; a decoder that
/// was named is an error.
fn admitted(
    rows: Vec<BenchRow>,
    listed: &[Listed],
    fleet: &Fleet,
    problem: &Problem,
) -> Result<Vec<BenchRow>> {
    let mut admitted = Vec::new();
    for row in rows {
        let ask = Ask { text: &problem.prompt, decoder: &row.decoder, max_tokens: row.max_tokens };
        let optional = listed.iter().any(|one| one.optional && one.decoder == *row.decoder);
        if takes(&row.name, optional, fleet.admits(&row, &ask))? {
            admitted.push(row);
        }
    }
    match admitted.is_empty() {
        true => Err(exit::failure(exit::USAGE, "the model runs none of --decoders")),
        false => Ok(admitted),
    }
}

/// True if a decoder runs; a warning says why an optional one does not.
fn takes(name: &str, optional: bool, answer: Result<()>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(why) if optional => {
            eprintln!("left out: {name}: {why}");
            Ok(false)
        }
        Err(why) => Err(exit::failure(exit::USAGE, format!("{name}: {why}"))),
    }
}

#[cfg(test)]
mod tests;
