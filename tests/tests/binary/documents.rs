//! The commands that documents show exist, with every flag and value that they give them, and the
//! messages that they explain are said.

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

#[test]
fn messages_that_the_readme_explains_are_said() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, table) = readme
        .split_once("| message | cause | what to do |")
        .unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
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
