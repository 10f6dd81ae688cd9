//! Documents show only commands that the binaries parse, with every flag and value, and explain only
//! messages that the sources hold. Their tables have every name that the code knows.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use asynclane_tests::process::{command, stderr};
use engine::decoding::{PRESETS, Registry};

/// A binary, ready to run with arguments.
type Program = fn(&[&str]) -> Command;

/// The beginnings of our commands, in a fence or between backticks, and the binary that parses them.
const OURS: [(&str, Program); 2] = [("asynclane ", command), ("cargo run --release -- ", command)];

/// Messages of the operating system.
const FOREIGN: &[&str] = &["Address already in use"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files below `folder` with this ending, without build outputs.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !["target", "node_modules"].contains(&&*name)
        {
            found.extend(files(&path, ending));
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found
}

/// Lines of shell fences; lines that end with a backslash are joined.
fn fenced(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(language) => inside = !inside && ["sh", "bash"].contains(&language),
            None if inside => lines.push(line),
            None => {}
        }
    }
    let joined = lines.join("\n").replace("\\\n", " ");
    let lines = joined.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// Text between single backticks.
fn quoted(text: &str) -> Vec<String> {
    let pieces = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    pieces.map(str::to_owned).collect()
}

/// The words of a command as a shell splits them, with quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for sign in line.chars() {
        match (quote, sign) {
            (Some(open), _) if sign == open => quote = None,
            (None, '"' | '\'') => quote = Some(sign),
            (None, ' ') => words.push(String::new()),
            _ => words.last_mut().unwrap().push(sign),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The binary of a line that begins one of our commands, and the arguments.
fn ours(line: &str) -> Option<(Program, &str)> {
    let mut programs = OURS.iter();
    programs.find_map(|(start, program)| Some((*program, line.strip_prefix(start)?)))
}

/// Why a binary does not parse these arguments; with `--help` it does nothing else.
fn refusal(program: Program, arguments: &str) -> Option<String> {
    let arguments = arguments.split(['|', '>', '&', ';']).next().unwrap_or_default();
    let mut words = words(arguments);
    words.push("--help".to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = program(&words).output().unwrap();
    (!output.status.success()).then(|| stderr(&output))
}

#[test]
fn commands_in_documents_are_commands() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for path in files(&root(), ".md") {
        let text = std::fs::read_to_string(&path).unwrap();
        for line in fenced(&text).iter().chain(&quoted(&text)) {
            let Some((program, arguments)) = ours(line) else {
                continue;
            };
            if let Some(why) = refusal(program, arguments) {
                wrong.push(format!("{}: {line}: {why}", path.display()));
            }
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 30, "{checked} commands");
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for page in files(&root().join("docs"), ".md") {
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        let listed = name == "SUMMARY.md" || summary.contains(&format!("({name})"));
        assert!(listed, "{name} is not in docs/SUMMARY.md");
    }
}

/// The table below a header row.
fn table<'a>(text: &'a str, header: &str) -> &'a str {
    let (_, table) = text.split_once(header).expect("the table is there");
    let ends = ["\n\n", "\n<!--"];
    let end = ends.iter().filter_map(|end| table.find(end)).min();
    end.map_or(table, |end| &table[..end])
}

#[test]
fn the_sources_hold_every_explained_message() {
    let page = std::fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let table = table(&page, "| message | cause | what to do |");
    let sources: String = files(&root().join("crates"), ".rs")
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let mut messages = 0;
    for row in table.lines().filter(|row| row.contains('`')) {
        let cell = row.split('|').nth(1).unwrap();
        for message in quoted(cell) {
            let said = sources.contains(&message) || FOREIGN.contains(&&*message);
            assert!(said, "no source holds {message:?}");
            messages += 1;
        }
    }
    assert!(messages >= 10, "{messages}");
}

#[test]
fn the_page_of_the_api_has_every_error_code() {
    let page = std::fs::read_to_string(root().join("docs/api.md")).unwrap();
    let rows = table(&page, "| code | status | cause |");
    let codes = rows.lines().filter_map(|row| row.strip_prefix("| `")?.split_once('`'));
    let listed: BTreeSet<&str> = codes.map(|(code, _)| code).collect();
    let source = std::fs::read_to_string(root().join("crates/server/src/error.rs")).unwrap();
    let words = source.split('"').skip(1).step_by(2);
    let is_name =
        |word: &&str| word.contains('_') || ["forbidden", "overloaded", "loading"].contains(word);
    let is_code =
        |word: &&str| is_name(word) && !word.ends_with("_error") || *word == "internal_error";
    let said: BTreeSet<&str> = words.filter(is_code).collect();
    let shown: Vec<_> = listed.symmetric_difference(&said).collect();
    assert!(shown.is_empty(), "in docs/api.md or error.rs alone: {shown:?}");
}

/// The names in backticks in the first cells of the table below a header row, with the second cells.
fn rows<'a>(page: &'a str, header: &str) -> Vec<(&'a str, &'a str)> {
    let mut rows = Vec::new();
    for row in table(page, header).lines() {
        let mut cells = row.trim_start_matches('|').split('|');
        let (Some(names), Some(second)) = (cells.next(), cells.next()) else {
            continue;
        };
        let names = names.split('`').skip(1).step_by(2);
        rows.extend(names.map(|name| (name, second.trim())));
    }
    rows
}

#[test]
fn the_page_of_the_decoders_has_every_name_and_setting() {
    let page = std::fs::read_to_string(root().join("docs/decoders.md")).unwrap();
    let registry = Registry::builtin();
    let named = |header: &str| -> BTreeSet<&str> {
        let rows = rows(&page, header);
        rows.into_iter().map(|(name, _)| name).collect()
    };
    let presets: BTreeSet<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    assert_eq!(named("| preset | schedule, commit rule, cache |"), presets);
    let schedules = registry.schedules().iter();
    let schedules: BTreeSet<&str> = schedules.map(|schedule| schedule.name).collect();
    assert_eq!(named("| schedule | lanes and open positions |"), schedules);
    let commits: BTreeSet<&str> = registry.commits().iter().map(|rule| rule.name).collect();
    assert_eq!(named("| rule | commits in a step |"), commits);
    let caches: BTreeSet<&str> = registry.caches().iter().map(|cache| cache.name).collect();
    assert_eq!(named("| cache | K/V that a forward pass reads |"), caches);
    let schedule = |name| registry.schedules().iter().find(move |info| info.name == name);
    let commit = |name| registry.commits().iter().find(move |info| info.name == name);
    let parts = ["asynclane", "block_wise"].into_iter().filter_map(schedule);
    let parts = parts.map(|info| info.settings).chain(
        ["threshold", "top_k", "entropy_bound"].into_iter().filter_map(commit).map(|c| c.settings),
    );
    let fused = registry.caches().iter().filter(|cache| cache.name == "fused");
    let parts = parts.chain(fused.map(|cache| cache.settings));
    let general = registry.general().iter().map(|setting| setting.name);
    let told: BTreeSet<&str> = parts.flatten().map(|setting| setting.name).chain(general).collect();
    let fields = registry.fields().iter().filter(|field| told.contains(field.name));
    let settings: BTreeSet<(&str, String)> =
        fields.map(|field| (field.name, field.kind.describe())).collect();
    let shown = rows(&page, "| setting | values |").into_iter();
    let shown: BTreeSet<(&str, String)> =
        shown.map(|(name, values)| (name, values.to_owned())).collect();
    assert_eq!(shown, settings);
}
