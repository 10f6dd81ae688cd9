//! The fields of requests in `docs/api.md` are those that the server reads, with the server's ranges.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use asynclane_tests::client::Connection;
use asynclane_tests::crowd::model;
use asynclane_tests::served::{MODEL, Served};
use serde_json::{Value, json};
use server::api::fields::promises;
use sim::SimExecutor;

/// The endpoints with a body that each accepts.
fn endpoints() -> [(&'static str, Value); 5] {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    [
        ("/v1/completions", json!({"model": MODEL, "prompt": "Hi", "max_tokens": 1})),
        ("/v1/chat/completions", json!({"model": MODEL, "messages": messages, "max_tokens": 1})),
        ("/v1/responses", json!({"model": MODEL, "input": "Hi", "max_output_tokens": 1})),
        ("/tokenize", json!({"prompt": "Hi"})),
        ("/detokenize", json!({"tokens": [7]})),
    ]
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const COMPLETIONS: &str = "/v1/completions";
const CHATS: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

/// Path and field of every row of the tables of fields: a row is about chats and completions unless it
/// says "chat only" or "completions only", and in the section of Responses about these.
fn documented(page: &str) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut section = "";
    for line in page.lines() {
        section = line.strip_prefix("## ").unwrap_or(section);
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [names, values, _] = cells[..] else {
            continue;
        };
        let paths = match section {
            "Responses" => &[RESPONSES][..],
            "Fields of a generation" if values.contains("chat only") => &[CHATS],
            "Fields of a generation" if values.contains("completions only") => &[COMPLETIONS],
            "Fields of a generation" => &[COMPLETIONS, CHATS],
            _ => &[],
        };
        for name in names.split('`').skip(1).step_by(2) {
            found.extend(paths.iter().map(|path| (*path, name.to_owned())));
        }
    }
    assert!(found.len() > 60, "{} fields", found.len());
    found
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
            let sent = self.connection.post_bytes(self.path, body.to_string().as_bytes());
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
fn the_page_has_the_fields_that_the_server_reads() {
    let executor = SimExecutor::new(model()).expect("the model is possible");
    let served = Served::over(Box::new(executor), 64, 2048);
    let page = read(&root().join("docs/api.md"));
    let documented = documented(&page);
    let named: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let registry = engine::decoding::Registry::builtin();
    let settings: BTreeSet<&str> = registry.fields().iter().map(|field| field.name).collect();
    let mut wrong = Vec::new();
    for (path, body) in endpoints() {
        let connection = served.client().connect().expect("the server listens");
        let mut probe = Probe { connection, path, body };
        for (_, field) in documented.iter().filter(|(endpoint, _)| *endpoint == path) {
            if !probe.knows(field) {
                wrong.push(format!("{path} does not read {field}"));
            }
        }
        for word in words() {
            if probe.knows(&word) && !named.contains(word.as_str()) {
                wrong.push(format!("{path} reads {word}, which docs/api.md does not name"));
            }
        }
        if ["/tokenize", "/detokenize"].contains(&path) {
            continue;
        }
        for setting in &settings {
            if !probe.knows(&format!("diffusion.{setting}")) {
                wrong.push(format!("{path} does not read diffusion.{setting}"));
            }
        }
        for option in ["include_usage", "continuous_usage_stats"] {
            if !(probe.knows(&format!("stream_options.{option}")) && named.contains(option)) {
                wrong.push(format!("{path}: stream_options.{option}"));
            }
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
        for (path, body) in endpoints() {
            let skipped = match path {
                COMPLETIONS => range.chat_only,
                CHATS => range.completions_only,
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
    line.split('`').skip(1).step_by(2).map(str::to_owned).collect()
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
