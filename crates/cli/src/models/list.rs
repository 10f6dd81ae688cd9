//! `asynclane models`: the list, and the removal of a model.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::Result;
use engine::decoding::Decoders;
use engine::did_you_mean;
use serde::Serialize;

use super::room::{self, Machine, Room};
use crate::args::{ModelsArgs, ModelsCommand};
use crate::exit;
use crate::hub::{self, Cache, CachedModel};
use crate::kv;
use crate::names::shown;
use crate::shelf::{ALL, Entry, Evidence, Origin, id, names};

/// Bytes of a number of the published files, which are in bf16.
const STORED_BYTES: u64 = 2;

/// A model of the list.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    /// The id on the hub; none for an embedded model.
    id: Option<&'static str>,
    family: &'static str,
    parameters: usize,
    /// Bytes of the weights' files.
    bytes: u64,
    memory: Vec<Room>,
    decoder: String,
    verified: Evidence,
    /// True if the hub's cache holds it, or the binary does.
    is_here: bool,
}

/// The list as JSON.
#[derive(Serialize)]
struct List<'a> {
    machine: &'a Machine,
    /// Positions of the sequence whose keys and values count as needed.
    positions: u32,
    models: &'a [Row],
    cache: &'a Cache,
}

/// Lists the models, or removes one.
///
/// # Errors
/// A model that is not in the cache, or cannot be removed.
pub fn run(args: &ModelsArgs) -> Result<()> {
    let cache = hub::cache()?;
    if let Some(ModelsCommand::Rm { name, yes }) = &args.what {
        return remove(&cache, name, *yes);
    }
    let machine = Machine::found();
    let rows = ALL.iter().map(|entry| row(entry, &machine, &cache));
    let rows: Vec<Row> = rows.collect::<Result<_>>()?;
    if args.json {
        let positions = room::POSITIONS;
        let list = List { machine: &machine, positions, models: &rows, cache: &cache };
        tell!("{}", serde_json::to_string_pretty(&list)?);
        return Ok(());
    }
    print(&rows, &machine);
    print_cache(&cache);
    Ok(())
}

/// The row of `entry`.
///
/// # Errors
/// A model that cannot be surveyed.
fn row(entry: &Entry, machine: &Machine, cache: &Cache) -> Result<Row> {
    let config = room::config(entry);
    let mut checkpoint = kv::with_format(entry.checkpoint()?, &config);
    let memory = room::rooms(entry, &mut checkpoint, machine)?;
    let info = checkpoint.survey(*config.model.dtype).map_err(exit::refused)?.info;
    let (bytes, is_here) = match entry.origin {
        Origin::Embedded(_) => (checkpoint.stored_bytes(), true),
        Origin::Hub(id, _) => {
            let is_whole = |model: &CachedModel| model.id == id && !model.is_partial;
            (info.parameters as u64 * STORED_BYTES, cache.models.iter().any(is_whole))
        }
    };
    Ok(Row {
        name: entry.name,
        id: entry.id(),
        family: info.family,
        parameters: info.parameters,
        bytes,
        memory,
        decoder: Decoders::of(config.weights(&info)).default_preset().to_owned(),
        verified: entry.evidence,
        is_here,
    })
}

/// A number of bytes of a file.
fn stored(bytes: u64) -> String {
    match bytes {
        1_000_000_000.. => format!("{:.1} GB", bytes as f64 / 1e9),
        _ => format!("{:.0} MB", bytes as f64 / 1e6),
    }
}

/// The columns of the table, but for the memory.
const HEAD: [&str; 4] = ["NAME", "FAMILY", "FILES", "DECODER"];

fn print(rows: &[Row], machine: &Machine) {
    let dtypes = rows.first().map_or(&[][..], |row| &row.memory);
    let dtypes: Vec<&str> = dtypes.iter().map(|room| room.dtype).collect();
    let line = |[name, family, files, decoder]: [&str; 4], memory: &[String], id: &str| {
        let cells: String = memory.iter().map(|cell| format!("{cell:<12}")).collect();
        tell!("{name:<15} {family:<15} {files:>8}  {cells}{decoder:<14} {id}");
    };
    let heads: Vec<String> = dtypes.iter().map(|dtype| dtype.to_uppercase()).collect();
    line(HEAD, &heads, "MODEL");
    for row in rows {
        let cell = |dtype: &&str| {
            let room = row.memory.iter().find(|room| room.dtype == *dtype);
            room.map_or("-".to_owned(), |room| {
                let mark = match room.fit {
                    "fits" | "unknown" => "",
                    "tight" => " tight",
                    _ => " no",
                };
                format!("{:.1}{mark}", room.needed as f64 / f64::from(1 << 30))
            })
        };
        let memory: Vec<String> = dtypes.iter().map(cell).collect();
        let here = if row.is_here { " (here)" } else { "" };
        let id = row.id.map_or("in this binary".to_owned(), |id| format!("{id}{here}"));
        line([row.name, row.family, &stored(row.bytes), &row.decoder], &memory, &id);
    }
    let free = machine.free.map_or("unknown".to_owned(), |free| {
        format!("{:.1} GiB free", free as f64 / f64::from(1 << 30))
    });
    tell!();
    tell!(
        "memory in GiB by dtype, with keys and values of {} positions; on {}, {free}: \"no\" does not fit, \
         \"tight\" leaves less than a tenth",
        room::POSITIONS,
        machine.device
    );
    print_evidence(rows);
}

/// Prints the evidence for the models, each kind once.
fn print_evidence(rows: &[Row]) {
    let mut told: Vec<Evidence> = Vec::new();
    for row in rows {
        if told.iter().any(|evidence| evidence.subject == row.verified.subject) {
            continue;
        }
        let same = rows.iter().filter(|other| other.verified.subject == row.verified.subject);
        let names: Vec<&str> = same.map(|row| row.name).collect();
        let names = match names.len() {
            0..=4 => names.join(", "),
            _ => "all others".to_owned(),
        };
        let Evidence { subject, when, by } = row.verified;
        tell!("verified ({names}): {subject}; {when}: {by}");
        told.push(row.verified);
    }
}

fn print_cache(cache: &Cache) {
    tell!();
    let folder = shown(&cache.folder.display().to_string());
    if cache.models.is_empty() {
        tell!("the hub's cache {folder} is empty; `asynclane pull NAME` downloads a model");
        return;
    }
    tell!("in the hub's cache {folder}; `asynclane models rm NAME` removes a model:");
    for model in &cache.models {
        let revision = |revision: &hub::Revision| {
            let commit: String = revision.commit.chars().take(8).collect();
            match revision.name == revision.commit {
                true => commit,
                false => format!("{} {commit}", revision.name),
            }
        };
        let revisions: Vec<String> = model.revisions.iter().map(revision).collect();
        let partial = if model.is_partial { ", a part" } else { "" };
        let revisions = shown(&revisions.join(", "));
        tell!("{:<45} {:>8}{partial}  {revisions}", shown(&model.id), stored(model.bytes));
    }
}

fn remove(cache: &Cache, name: &str, yes: bool) -> Result<()> {
    let repository = id(name).unwrap_or(name);
    let Some(model) = cache.find(repository) else {
        let mut known: Vec<&str> = cache.models.iter().map(|model| &*model.id).collect();
        names().for_each(|name| known.push(name));
        let message = format!(
            "{}: not in the hub's cache {}{}",
            shown(name),
            cache.folder.display(),
            did_you_mean(repository, known)
        );
        return Err(exit::failure(exit::NO_INPUT, message));
    };
    let what =
        format!("{}, {} in {}", shown(&model.id), stored(model.bytes), cache.folder.display());
    if !yes && !std::io::stdin().is_terminal() {
        let message = format!("{what}: --yes removes it without a question");
        return Err(exit::failure(exit::USAGE, message));
    }
    if !yes && !is_confirmed(&what)? {
        say!("nothing was removed");
        return Ok(());
    }
    cache.remove(model)?;
    say!("removed {what}");
    Ok(())
}

/// Asks on the terminal.
fn is_confirmed(what: &str) -> Result<bool> {
    let mut error = std::io::stderr();
    write!(error, "remove {what}? [y/N] ")?;
    error.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
