//! The table of request fields in `tests/README.md` is complete, and its tests exist; the ranges in
//! `docs/api.md` are those of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use asynclane_tests::client::Connection;
use asynclane_tests::crowd::model;
use asynclane_tests::served::{MODEL, Served};
use serde_json::{Value, json};
use server::api::fields::promises;
use sim::SimExecutor;

/// The endpoints by their letter in the table, with a body that each accepts.
fn endpoints() -> [(&'static str, &'static str, Value); 5] {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    [
        (
            "C",
            "/v1/completions",
            json!({"model": MODEL, "prompt": "Hi", "max_tokens": 1}),
        ),
        (
            "H",
            "/v1/chat/completions",
            json!({"model": MODEL, "messages": messages, "max_tokens": 1}),
        ),
        (
            "R",
            "/v1/responses",
            json!({"model": MODEL, "input": "Hi", "max_output_tokens": 1}),
        ),
        ("T", "/tokenize", json!({"prompt": "Hi"})),
        ("D", "/detokenize", json!({"tokens": [7]})),
    ]
}

/// A row of the table.
#[derive(Debug)]
struct Row {
    /// `C`, `H`, `R`, `T`, `D`.
    endpoints: BTreeSet<String>,
    level: String,
    /// `file::function`, separated by commas.
    tests: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The table by field.
fn table() -> BTreeMap<String, Row> {
    let readme = read(&root().join("tests/README.md"));
    let mut lines = readme.lines();
    assert!(
        lines.any(|line| line == "| field | endpoints | level | tests |"),
        "the README has the table"
    );
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    let mut table = BTreeMap::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [field, endpoints, level, tests] = cells[..] else {
            panic!("expected four cells, found {row}");
        };
        let field = field.trim_matches('`').to_owned();
        let parsed = Row {
            endpoints: endpoints.split(' ').map(str::to_owned).collect(),
            level: level.to_owned(),
            tests: tests
                .split(", ")
                .map(|test| test.trim_matches('`').to_owned())
                .collect(),
        };
        assert!(
            table.insert(field, parsed).is_none(),
            "twice in the table: {row}"
        );
    }
    table
}

/// All quoted names and all names of struct fields in the sources of the server's endpoints.
fn words() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let mut folders = vec![root().join("crates/server/src/api")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the sources are there") {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = read(&path);
            let quoted = source.split('"');
            let fields = source.lines().filter_map(|line| {
                let line = line.trim().trim_start_matches("pub ");
                line.split_once(": ").map(|(name, _)| name)
            });
            let names = quoted.chain(fields).filter(|word| is_name(word));
            words.extend(names.map(str::to_owned));
        }
    }
    assert!(words.contains("top_logprobs") && words.contains("user"));
    words
}

fn is_name(word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !word.is_empty() && word.bytes().all(is_part)
}

/// Asks the server which fields it reads: a field is known if some value of it is refused by name.
struct Probe {
    connection: Connection,
    path: &'static str,
    body: Value,
}

impl Probe {
    fn knows(&mut self, field: &str) -> bool {
        // One of these has the wrong type for any field.
        [json!(-1.5), json!(true)].into_iter().any(|value| {
            let mut body = self.body.clone();
            match field.split_once('.') {
                None => body[field] = value,
                Some((parent, child)) => body[parent] = json!({child: value}),
            }
            if field.starts_with("stream_options.") {
                body["stream"] = json!(true);
            }
            let sent = self
                .connection
                .post_bytes(self.path, body.to_string().as_bytes());
            let answer = sent.expect("the server answers");
            if answer.status == 200 {
                return false;
            }
            let error = &answer.json()["error"];
            let unread = ["unknown_parameter", "unsupported_parameter"];
            error["param"] == field && !unread.iter().any(|code| error["code"] == *code)
        })
    }
}

#[test]
fn the_table_has_the_fields_that_the_server_reads() {
    let executor = SimExecutor::new(model()).expect("the model is possible");
    let served = Served::over(Box::new(executor), 64, 2048);
    let table = table();
    let parents: BTreeSet<_> = table
        .keys()
        .filter_map(|field| field.split_once('.'))
        .collect();
    let parents: BTreeSet<_> = parents.into_iter().map(|(parent, _)| parent).collect();
    let mut names: BTreeSet<String> = words();
    let registry = engine::decoding::Registry::builtin();
    let settings = registry.fields().iter();
    names.extend(settings.map(|field| field.name.to_owned()));
    let nested = parents.iter().flat_map(|parent| {
        let child = move |name: &String| format!("{parent}.{name}");
        names.iter().map(child).collect::<Vec<_>>()
    });
    let candidates: BTreeSet<String> = nested.chain(table.keys().cloned()).collect();
    let candidates: BTreeSet<String> = candidates.into_iter().chain(names.clone()).collect();
    let mut wrong = Vec::new();
    for (name, path, body) in endpoints() {
        let connection = served.client().connect().expect("the server listens");
        let mut probe = Probe {
            connection,
            path,
            body,
        };
        for field in &candidates {
            let listed = table
                .get(field)
                .is_some_and(|row| row.endpoints.contains(name));
            match (listed, probe.knows(field)) {
                (true, false) => wrong.push(format!("{path} does not read the listed {field}")),
                (false, true) => wrong.push(format!("{path} reads {field}, which is not listed")),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether `function` is a test in the source `file`.
fn find_test(file: &str, function: &str) -> bool {
    let Some(start) = file.find(&format!("fn {function}(")) else {
        return false;
    };
    let before = file[..start].trim_end_matches("async ").trim_end();
    let attributes = before.lines().rev().map(str::trim);
    attributes
        .take_while(|line| line.starts_with("#["))
        .any(|line| line.contains("test"))
}

/// A name without case and underscores: the same for a field, a type and a function.
fn plain(text: &str) -> String {
    text.replace('_', "").to_lowercase()
}

#[test]
fn every_field_is_covered_by_the_named_tests() {
    let mut wrong = Vec::new();
    for (field, row) in table() {
        if !["must", "may"].contains(&row.level.as_str()) {
            wrong.push(format!(
                "{field}: expected must or may, found {}",
                row.level
            ));
        }
        let name = field
            .split_once('.')
            .map_or(field.as_str(), |(_, child)| child);
        let mut is_named = false;
        for test in &row.tests {
            let Some((file, function)) = test.split_once("::") else {
                wrong.push(format!("{field}: expected FILE::TEST, found {test}"));
                continue;
            };
            let path = root().join(file);
            let source = std::fs::read_to_string(&path).unwrap_or_default();
            if !find_test(&source, function) {
                wrong.push(format!("{field}: there is no test {test}"));
            }
            is_named |= plain(&source).contains(&plain(name));
        }
        if !is_named {
            wrong.push(format!("{field}: no file of its tests names it"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A field with a range in `docs/api.md`.
#[derive(Debug)]
struct Range {
    field: String,
    low: f64,
    /// Absent for `integer ≥ LOW`.
    high: Option<f64>,
    chat_only: bool,
    completions_only: bool,
}

/// The rows of the page whose second cell begins with `LOW to HIGH` or `integer ≥ LOW`.
fn ranges() -> Vec<Range> {
    let page = read(&root().join("docs/api.md"));
    let mut ranges = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [fields, values, _] = cells[..] else {
            continue;
        };
        let number = |word: &str| word.trim_end_matches(',').parse::<f64>().ok();
        let words: Vec<_> = values.split(' ').collect();
        let (low, high) = match words[..] {
            [low, "to", high, ..] => match (number(low), number(high)) {
                (Some(low), Some(high)) => (low, Some(high)),
                _ => continue,
            },
            ["integer", "≥", low, ..] => (number(low).expect("a number"), None),
            _ => continue,
        };
        for field in fields.split(", ") {
            ranges.push(Range {
                field: field.trim_matches('`').to_owned(),
                low,
                high,
                chat_only: values.contains("chat only"),
                completions_only: values.contains("on completions"),
            });
        }
    }
    ranges
}

/// A body of `endpoint` with `field` at `value`.
fn with_field(body: &Value, field: &str, value: f64) -> Value {
    let mut body = body.clone();
    body[field] = match value.fract() == 0.0 {
        true => json!(value as i64),
        false => json!(value),
    };
    if field == "top_logprobs" {
        body["logprobs"] = json!(true);
    }
    body
}

#[test]
fn the_ranges_in_the_documents_are_those_of_the_server() {
    let executor = SimExecutor::new(model()).expect("the model is possible");
    let served = Served::over(Box::new(executor), 1024, 4096);
    let client = served.client();
    let ranges = ranges();
    assert!(ranges.len() >= 12, "{ranges:?}");
    for range in &ranges {
        for (name, path, body) in endpoints() {
            let skipped = match name {
                "C" => range.chat_only,
                "H" => range.completions_only,
                _ => true,
            };
            if skipped {
                continue;
            }
            let ends = [Some(range.low), range.high].into_iter().flatten();
            for inside in ends {
                let body = with_field(&body, &range.field, inside);
                let answer = client.post(path, &body);
                let named = answer.status != 200 && answer.json()["error"]["param"] == range.field;
                assert!(!named, "{path} refuses {} {inside}", range.field);
            }
            let beyond = [Some(range.low - 1.0), range.high.map(|high| high + 1.0)];
            for outside in beyond.into_iter().flatten() {
                let body = with_field(&body, &range.field, outside);
                let answer = client.post(path, &body);
                assert_eq!(answer.status, 400, "{path} takes {} {outside}", range.field);
                assert_eq!(answer.json()["error"]["param"], range.field.as_str());
            }
        }
    }
}

/// The names in backquotes after the line that begins with `lead`, in one paragraph.
fn listed(page: &str, lead: &str) -> BTreeSet<String> {
    let line = page.lines().find(|line| line.starts_with(lead));
    let line = line.unwrap_or_else(|| panic!("no line begins with {lead}"));
    line.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[test]
fn neutral_unsupported_and_hint_fields_are_listed() {
    let page = read(&root().join("docs/api.md"));
    let neutral = promises::NEUTRAL.map(str::to_owned);
    assert_eq!(listed(&page, "Neutral: "), BTreeSet::from(neutral));
    let hints = promises::HINTS.map(str::to_owned);
    assert_eq!(listed(&page, "Hints: "), BTreeSet::from(hints));
    let unsupported = promises::UNSUPPORTED.map(|(name, _)| name.to_owned());
    assert_eq!(listed(&page, "Unsupported: "), BTreeSet::from(unsupported));
}
