//! Tables of cases, checks of answers, and their parts.

use serde_json::Value;
use step::TokenId;

use super::MODEL;

/// A request with the fields of the usual body and these, which must succeed.
macro_rules! ask {
    ($server:expr, $path:ident $fields:tt) => {
        $server.ask($path, serde_json::json!($fields)).await
    };
}

/// A table of refusals: the fields of one or more requests, and the code and the parameter of their
/// errors.
macro_rules! refusals {
    ($($($fields:tt),+ => $code:ident $param:expr;)*) => {
        vec![$($((serde_json::json!($fields), stringify!($code), $param)),+),*]
    };
}

/// A table of rows, each of which ends with a semicolon.
macro_rules! rows {
    ($($($cell:expr),+;)*) => { [$(($($cell),+)),*] };
}

/// Checks that a value has the members of the pattern with their values, and lists of its lengths.
/// Null means absent too; an empty object stands for anything.
macro_rules! has {
    ($found:expr, $pattern:tt) => {
        crate::common::assert_has(&$found, &serde_json::json!($pattern))
    };
}

pub(crate) use {ask, has, refusals, rows};

/// Checks the shape of an error.
#[track_caller]
pub fn assert_error(answer: &Value) {
    let error = &answer["error"];
    let mut names: Vec<_> = error.as_object().expect("an error").keys().collect();
    names.sort_unstable();
    assert_eq!(names, ["code", "message", "param", "type"], "{answer}");
    let message = error["message"].as_str().unwrap();
    assert!((1..=500).contains(&message.chars().count()), "{message}");
    let param = error["param"].as_str().unwrap_or_default();
    assert!(message.contains(param), "{message} does not name {param}");
}

#[track_caller]
pub fn assert_has(found: &Value, pattern: &Value) {
    match pattern {
        Value::Object(members) => {
            for (name, value) in members {
                assert_has(&found[name], value);
            }
        }
        Value::Array(values) => {
            assert_eq!(items(found).len(), values.len(), "{found}");
            for (found, value) in items(found).iter().zip(values) {
                assert_has(found, value);
            }
        }
        value => assert_eq!(found, value),
    }
}

/// The elements of a list.
#[track_caller]
pub fn items(list: &Value) -> &[Value] {
    list.as_array().unwrap_or_else(|| panic!("a list: {list}"))
}

/// The text of an answer of any endpoint: its first choice, message or block.
#[track_caller]
pub fn text(answer: &Value) -> &str {
    let choice = &answer["choices"][0];
    let places = [
        &choice["text"],
        &choice["message"]["content"],
        &answer["output"][0]["content"][0]["text"],
        &answer["content"][0]["text"],
    ];
    let text = places.into_iter().find_map(Value::as_str);
    text.unwrap_or_else(|| panic!("no text: {answer}"))
}

/// The number of a prompt's tokens, cached ones included.
#[track_caller]
pub fn prompt_tokens(answer: &Value) -> u64 {
    let names = ["prompt_tokens", "input_tokens", "cache_read_input_tokens"];
    let counts = names.map(|name| answer["usage"][name].as_u64().unwrap_or_default());
    counts.iter().sum()
}

/// A list of token ids.
#[track_caller]
pub fn ids(list: &Value) -> Vec<TokenId> {
    serde_json::from_value(list.clone()).unwrap()
}

/// The parsed `data:` payloads of a stream that ends with `[DONE]`; checks the framing.
pub fn events(stream: &str) -> Vec<Value> {
    let body = stream.strip_suffix("data: [DONE]\n\n").expect("an end");
    let events = body.split_terminator("\n\n");
    let parse = |event: &str| data(event.strip_prefix("data: ").expect("only data lines"));
    events.map(parse).collect()
}

/// The named events of a stream, each with its data; checks the framing.
pub fn named_events(stream: &str) -> Vec<(String, Value)> {
    assert!(stream.ends_with("\n\n"), "{stream}");
    let events = stream.split_terminator("\n\n").map(|event| {
        let (name, line) = event.split_once('\n').expect("a name and data");
        let name = name.strip_prefix("event: ").expect("the name comes first");
        (name.to_owned(), data(line.strip_prefix("data: ").expect("data")))
    });
    events.collect()
}

/// The data of an event: no client may see a second line in it.
fn data(json: &str) -> Value {
    let has_lines = json.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']);
    assert!(!has_lines, "{json}");
    serde_json::from_str(json).unwrap()
}

/// The value of a series, by its name and labels as in the text.
pub fn series(metrics: &str, series: &str) -> f64 {
    let start = format!("{series} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&start));
    let value = value.unwrap_or_else(|| panic!("no {series} in\n{metrics}"));
    value.parse().unwrap()
}

/// The value of the server's metric `name` without other labels than the model.
pub fn metric(metrics: &str, name: &str) -> f64 {
    let name = format!("asynclane_{name}{{model_name=\"{MODEL}\"}}");
    series(metrics, &name)
}

/// The number of requests to `path` with this outcome.
pub fn outcomes(metrics: &str, path: &str, outcome: &str) -> f64 {
    let labels = format!("endpoint=\"{path}\",model_name=\"{MODEL}\",outcome=\"{outcome}\"");
    series(metrics, &format!("asynclane_requests_total{{{labels}}}"))
}

/// The statuses of all answers in `text`.
pub fn statuses(text: &str) -> Vec<&str> {
    let lines = text.match_indices("HTTP/1.1 ");
    let statuses = lines.map(|(start, found)| &text[start + found.len()..][..3]);
    statuses.collect()
}
