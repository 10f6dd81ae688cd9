//! Measured tables in documents: a table between markers is rendered from a result file, never
//! written by hand.
//!
//! ```text
//! <!-- table: tests/lab/records/FOLDER/NAME.json -->
//! (rendered)
//! <!-- end of table -->
//! ```
//!
//! Of a result over several problem sets, `FILE presets NAME NAME` shows these decoders or presets
//! in a short table, `FILE sets NAME NAME` shows their accuracy on each set, `FILE paired` shows all rows
//! beside the first one, and `FILE counts` what they cost on each set. Single numbers are in `values.rs`, tables of what requests may name in `registry.rs`, of equal runs in
//! `fidelity.rs`.

mod contexts;
mod counts;
mod diffusion;
mod fidelity;
mod forward;
mod ladder;
mod paired;
mod presets;
mod registry;
mod routers;
mod serving;
mod steps;
#[cfg(test)]
mod tests;
mod values;

use std::fmt::Write;

use crate::problem::Problem;
use crate::repository::File;
use crate::result::{Decoders, Entry, Infill, Peers, Report, Several};

const START: &str = "<!-- table: ";
const REGISTRY: &str = "<!-- registry: ";
const FIDELITY: &str = "<!-- fidelity: ";
const END: &str = "<!-- end of table -->";

/// One problem per table that is not what its result file says.
pub fn check(files: &[File]) -> Vec<Problem> {
    let documents = files.iter().filter(|file| file.path.ends_with(".md"));
    documents
        .filter_map(|file| {
            let what = match rendered(&file.text, files) {
                Ok(text) if text == file.text => return None,
                Ok(_) => {
                    "a table or value differs from its source: run `cargo xtask fix`".to_owned()
                }
                Err(why) => why,
            };
            Some(Problem::of_file("tables", &file.path, what))
        })
        .collect()
}

/// `text` with every table and value rendered anew.
///
/// # Errors
/// A marker without an end, a result file that is missing or unreadable.
pub fn rendered(text: &str, files: &[File]) -> Result<String, String> {
    let text = replaced(text, REGISTRY, &registry::table)?;
    let text = replaced(&text, FIDELITY, &|folder| fidelity::table(folder, files))?;
    let text = replaced(&text, START, &|marker| measured(marker, files))?;
    values::rendered(&text, files)
}

/// `text` with the table behind every line `start NAME -->` replaced by `table(NAME)`.
fn replaced(
    text: &str,
    start: &str,
    table: &dyn Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = marker(rest, start) {
        let behind = &rest[at + start.len()..];
        let (name, tail) = behind
            .split_once('\n')
            .ok_or("a table marker without a table")?;
        let name = name.trim().trim_end_matches("-->").trim();
        let end = tail.find(END).ok_or(format!("{name}: no `{END}`"))?;
        out.push_str(&rest[..rest.len() - tail.len()]);
        out.push_str(&table(name)?);
        rest = &tail[end..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Where `start` begins a line.
fn marker(text: &str, start: &str) -> Option<usize> {
    if text.starts_with(start) {
        return Some(0);
    }
    text.find(&format!("\n{start}")).map(|at| at + 1)
}

/// The table of the result file that `marker` names.
fn measured(marker: &str, files: &[File]) -> Result<String, String> {
    let (name, shown) = marker.split_once(' ').unwrap_or((marker, ""));
    let found = files.iter().find(|file| file.path == name);
    let file = found.ok_or(format!("{name}: the result file is missing"))?;
    let report = serde_json::from_str(&file.text).map_err(|error| format!("{name}: {error}"))?;
    shown_table(&report, shown).map_err(|why| format!("{name}: {why}"))
}

/// The table of a report: whole, or as `presets NAME`, `sets NAME`, `paired` or `counts` asks.
fn shown_table(report: &Report, shown: &str) -> Result<String, String> {
    let mut words = shown.split_whitespace();
    let how = words.next();
    let names: Vec<&str> = words.collect();
    match (how, report) {
        (Some("presets"), Report::Several(report)) => presets::table(report, &names),
        (Some("sets"), Report::Several(report)) => presets::sets(report, &names),
        (Some("paired"), Report::Several(report)) => Ok(paired::table(report)),
        (Some("counts"), Report::Several(report)) => Ok(counts::table(report)),
        (None, _) => Ok(table(report)),
        (Some(other), _) => Err(format!("`{other}` is not possible for this result")),
    }
}

fn table(report: &Report) -> String {
    match report {
        Report::Several(report) => several(report),
        Report::Decoders(report) => decoders(report),
        Report::Infill(report) => infill(report),
        Report::Peers(report) => peers(report),
        Report::Forward(report) => forward::table(report),
        Report::Contexts(report) => contexts::table(report),
        Report::Ladder(report) => ladder::table(report),
        Report::Steps(report) => steps::table(report),
        Report::Serving(report) => serving::table(report),
        Report::Diffusion(report) => diffusion::table(report),
        Report::Routers(report) => routers::table(report),
    }
}

/// The fastest decoder first, a mark on the Pareto front, accuracies per problem set behind.
fn several(report: &Several) -> String {
    let names: Vec<&str> = report.tasks.iter().map(|task| task.task.as_str()).collect();
    let mut out = format!(
        "{} held-out problems each of {}, {}, {}: `{}`\n\n",
        report.setup.problems,
        names.join(", "),
        report.setup.conditions(),
        report.setup.machine,
        shown(&report.setup.command),
    );
    out.push_str("| decoder | front | ratio | end % | strict % | NFE/token | positions/token ");
    out.push_str("| same answer % |");
    for name in &names {
        let _ = write!(out, " {name}: end / strict % |");
    }
    let _ = writeln!(out, "\n{}|", "|---".repeat(8 + names.len()));
    let mut sorted: Vec<usize> = (0..report.overall.len()).collect();
    let ratio = |index: &usize| report.overall[*index].ratio;
    sorted.sort_by(|a, b| ratio(b).total_cmp(&ratio(a)));
    for index in sorted {
        let row = &report.overall[index];
        let agreement = row.agreement.map(|share| format!("{share:.1}"));
        let _ = write!(
            out,
            "| `{}` | {} | {:.2}x | {:.1} | {:.1} | {:.3} | {:.1} | {} |",
            row.name,
            if row.pareto { "●" } else { "" },
            row.ratio,
            row.end,
            row.strict,
            row.nfe_per_token,
            row.positions_per_token,
            agreement.as_deref().unwrap_or("–"),
        );
        for task in &report.tasks {
            let of_task = task.decoders.get(index);
            let _ = match of_task {
                Some(entry) => write!(out, " {:.1} / {:.1} |", entry.end, entry.strict),
                None => write!(out, " – |"),
            };
        }
        out.push('\n');
    }
    derived(&mut out, report);
    out
}

/// What the presets would be by the rule of the comparison.
fn derived(out: &mut String, report: &Several) {
    // Presets are measured against the model's own sampler; beside another they mean nothing.
    let first = report.overall.first();
    let Some(first) = first.filter(|first| first.name == "vanilla") else {
        return;
    };
    if report.derived.is_empty() {
        return;
    }
    let rows = report.derived.iter().map(|row| {
        let surely = if row.surely { "surely " } else { "" };
        let (preset, within, decoder) = (&row.preset, row.within, &row.decoder);
        format!("*{preset}* ({surely}within {within} points) is `{decoder}`")
    });
    let _ = writeln!(
        out,
        "\nThe cheapest, or nearly, that lose no more than so many points against `{}` on every set, strict: {}.",
        first.name,
        rows.collect::<Vec<_>>().join(", ")
    );
}

fn infill(report: &Infill) -> String {
    let mut out = format!(
        "{} held-out {}, a hidden sentence of {} tokens on average, {}: `{}`\n\n",
        report.problems,
        report.task,
        report.hidden_tokens,
        report.machine,
        shown(&report.command),
    );
    out.push_str("| decoder | plain: strict % | same sentence % ");
    out.push_str("| with suffix: strict % | same sentence % | NFE/token |\n");
    out.push_str("|---|---|---|---|---|---|\n");
    for entry in &report.infill {
        let _ = writeln!(
            out,
            "| `{}` | {:.1} | {:.1} | {:.1} | {:.1} | {:.3} |",
            entry.name,
            entry.plain_strict,
            entry.plain_exact,
            entry.infill_strict,
            entry.infill_exact,
            entry.infill_nfe_per_token,
        );
    }
    out
}

fn peers(report: &Peers) -> String {
    let mut out = format!(
        "{} held-out {}, budget {}, {}, PyTorch {}: `{}`\n\n",
        report.problems,
        report.task,
        report.max_tokens,
        report.machine,
        report.torch,
        report.command,
    );
    out.push_str("| side | end % | strict % | NFE/token | TPS | ratio |\n");
    out.push_str("|---|---|---|---|---|---|\n");
    for row in &report.peers {
        let _ = writeln!(
            out,
            "| {} | {:.1} | {:.1} | {:.3} | {:.0} | {:.2}x |",
            row.name, row.end, row.strict, row.nfe_per_token, row.tps, row.ratio,
        );
    }
    out
}

/// A column and what a row has for it, if it has.
type Column = (&'static str, fn(&Entry) -> Option<String>);

/// What every row has, and what some results alone know.
const COLUMNS: [Column; 11] = [
    ("NFE/token", |e| Some(format!("{:.3}", e.nfe_per_token))),
    ("positions/token", |e| {
        Some(format!("{:.1}", e.positions_per_token))
    }),
    ("TPS", |e| Some(format!("{:.0}", e.tps))),
    ("ratio", |e| Some(format!("{:.2}x", e.ratio))),
    ("TTFT ms p50 / p99", |e| wait(e.latency.as_ref()?.ttft_ms)),
    ("TPOT ms", |e| wait(e.latency.as_ref()?.tpot_ms)),
    ("E2E ms", |e| wait(e.latency.as_ref()?.e2e_ms)),
    ("outside the model %", |e| {
        Some(format!("{:.2}", e.overhead?))
    }),
    ("M rows planned/s", |e| {
        Some(format!("{:.1}", e.scheduled_rows_per_second? / 1e6))
    }),
    ("MiB, first to last round", |e| {
        let (first, last) = (e.resident_mib.first()?, e.resident_mib.last()?);
        Some(format!("{first:.1} to {last:.1}"))
    }),
    ("MiB of idle streams", |e| {
        Some(format!("{:.1}", e.idle_streams_mib?))
    }),
];

/// The command of a result as it is run today: the laboratory has a binary of its own, results may
/// name the product's.
fn shown(command: &str) -> String {
    match command.strip_prefix("asynclane bench") {
        Some(rest) => format!("asynclane-lab bench{rest}"),
        None => command.to_owned(),
    }
}

fn wait([median, _, most]: [f64; 3]) -> Option<String> {
    Some(format!("{median:.1} / {most:.1}"))
}

fn decoders(report: &Decoders) -> String {
    let setup = &report.setup;
    let mut out = format!(
        "{} held-out {}, {}, {}: `{}`\n\n| decoder ",
        setup.problems,
        report.task.task,
        setup.conditions(),
        setup.machine,
        shown(&setup.command),
    );
    let rows = &report.task.decoders;
    let known = |column: &&Column| rows.iter().any(|row| column.1(row).is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(known).collect();
    let grades = if setup.ungraded { 0 } else { 2 };
    if grades > 0 {
        out.push_str("| end % | strict % ");
    }
    for (name, _) in &columns {
        let _ = write!(out, "| {name} ");
    }
    let _ = writeln!(out, "|\n{}|", "|---".repeat(1 + grades + columns.len()));
    for entry in rows {
        let _ = write!(out, "| `{}` |", entry.name);
        if grades > 0 {
            let _ = write!(out, " {:.1} | {:.1} |", entry.end, entry.strict);
        }
        for (_, value) in &columns {
            let _ = write!(out, " {} |", value(entry).as_deref().unwrap_or("–"));
        }
        out.push('\n');
    }
    out
}
