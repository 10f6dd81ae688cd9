//! The commands that documents show exist, with every flag and value that they give them; the
//! messages that they explain are said; their links lead somewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use asynclane_tests::process::{command, stderr};

/// What begins a command of ours, in a fence or between backticks.
const OURS: [&str; 2] = ["asynclane ", "cargo run --release -- "];

/// Programs of others that fenced commands begin with, and who runs them.
const OTHERS: &[(&str, &str)] = &[
    ("cargo test --workspace", ".ci/run"),
    ("cargo run --release -p asynclane-demo", "crates/demo"),
    ("cargo run --release -p asynclane-model", "tests/bench"),
    (
        "curl -N http://127.0.0.1:8000/v1/chat/completions",
        "tests/tests/binary/readme.rs",
    ),
    (
        "curl http://127.0.0.1:8000/v1/chat/completions",
        "tests/tests/binary/readme.rs",
    ),
    (
        "curl http://127.0.0.1:8000/metrics",
        "tests/tests/binary/readme.rs",
    ),
    (
        "curl http://127.0.0.1:8000/v1/completions",
        "tests/tests/binary/readme.rs",
    ),
    ("export CUDA_HOME=", "crates/kernels/cuda/check"),
    (
        "cargo build --release --package asynclane-cli --features cuda",
        "crates/kernels/cuda/check",
    ),
    ("deploy/", "tests/routers/run"),
    ("tests/", ".ci/run"),
    ("pip install openai", "tests/clients"),
    ("cargo xtask verify", "crates/xtask"),
    ("git clone https://github.com/NVlabs/", "tests/bench/peers"),
    ("pip install torch", "tests/bench/peers"),
    ("python tests/bench/peers/", "tests/bench/peers"),
    ("docker ", "nobody here: deploy/README.md"),
    ("kubectl ", "nobody here: deploy/README.md"),
    ("install ", "nobody here: deploy/README.md"),
    ("systemctl ", "nobody here: deploy/README.md"),
];

/// Messages of the system.
const FOREIGN: &[&str] = &["Address already in use"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files below `folder` with this ending, build outputs aside.
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

/// Lines of fences in a shell's language, joined where they end with a backslash.
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
    let pieces = text
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    pieces.map(str::to_owned).collect()
}

/// The words of a command as a shell would split them; quotes hold blanks together.
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

/// Why the program does not understand these arguments; `--help` keeps it from doing what they say.
fn misunderstood(arguments: &str) -> Option<String> {
    let arguments = arguments
        .split(['|', '>', '&', ';'])
        .next()
        .unwrap_or_default();
    let mut words = words(arguments);
    words.push("--help".to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = command(&words).output().unwrap();
    (!output.status.success()).then(|| stderr(&output))
}

#[test]
fn commands_in_documents_are_commands() {
    let mut checked = 0;
    let mut wrong = Vec::new();
    for path in files(&root(), ".md") {
        let text = std::fs::read_to_string(&path).unwrap();
        let fenced = fenced(&text);
        // `asynclane budget=256` is a row of a comparison.
        let is_ours = |line: &&String| {
            let rest = OURS.iter().find_map(|start| line.strip_prefix(start));
            rest.is_some_and(|rest| !rest.split(' ').next().unwrap_or("").contains('='))
        };
        for line in fenced.iter().filter(|line| !is_ours(line)) {
            let known = OTHERS.iter().find(|(start, _)| line.starts_with(start));
            let who = known.map(|(_, who)| *who);
            if who.is_none() {
                wrong.push(format!("{}: nobody runs {line}", path.display()));
            }
        }
        for line in fenced.iter().chain(&quoted(&text)).filter(is_ours) {
            let arguments = OURS.iter().find_map(|start| line.strip_prefix(start));
            if let Some(why) = misunderstood(arguments.unwrap()) {
                wrong.push(format!("{}: {line}: {why}", path.display()));
            }
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 30, "{checked} commands");
}

#[test]
fn whoever_runs_a_documents_command_is_there() {
    for (start, who) in OTHERS {
        let there = who.starts_with("nobody here") || root().join(who).exists();
        assert!(there, "{who}, of {start}");
    }
    let said = std::fs::read_to_string(root().join("deploy/README.md")).unwrap();
    assert!(said.contains("Not run here"));
}

/// The anchors of a document's headings, as the pages of repositories make them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let title = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        title.chars().filter(kept).collect::<String>()
    };
    headings
        .map(|line| anchor(line).replace(' ', "-"))
        .collect()
}

/// What `[text](target)` points at, code aside.
fn targets(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let mut targets = Vec::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        if fenced {
            continue;
        }
        for link in line.split("](").skip(1) {
            targets.extend(link.split_once(')').map(|(target, _)| target));
        }
    }
    targets
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut followed = 0;
    let mut wrong = Vec::new();
    for path in files(&root(), ".md") {
        let text = std::fs::read_to_string(&path).unwrap();
        for target in targets(&text) {
            if target.contains("://") {
                continue;
            }
            followed += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            let is_there = file.exists()
                && (anchor.is_empty()
                    || std::fs::read_to_string(&file)
                        .is_ok_and(|text| anchors(&text).iter().any(|one| one == anchor)));
            if !is_there {
                wrong.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(followed > 100, "{followed} links");
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
    table.split_once("\n\n").map_or(table, |(table, _)| table)
}

#[test]
fn messages_that_the_documents_explain_are_said() {
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
            assert!(said, "nothing says {message:?}");
            messages += 1;
        }
    }
    assert!(messages >= 10, "{messages}");
}

#[test]
fn the_page_of_the_api_has_every_error_code() {
    let page = std::fs::read_to_string(root().join("docs/api.md")).unwrap();
    let rows = table(&page, "| code | status | cause |");
    let codes = rows
        .lines()
        .filter_map(|row| row.strip_prefix("| `")?.split_once('`'));
    let listed: BTreeSet<&str> = codes.map(|(code, _)| code).collect();
    let source = std::fs::read_to_string(root().join("crates/server/src/error.rs")).unwrap();
    let words = source.split('"').skip(1).step_by(2);
    let is_name =
        |word: &&str| word.contains('_') || ["forbidden", "overloaded", "loading"].contains(word);
    let is_code =
        |word: &&str| is_name(word) && !word.ends_with("_error") || *word == "internal_error";
    let said: BTreeSet<&str> = words.filter(is_code).collect();
    let shown: Vec<_> = listed.symmetric_difference(&said).collect();
    assert!(
        shown.is_empty(),
        "in docs/api.md or error.rs alone: {shown:?}"
    );
}
