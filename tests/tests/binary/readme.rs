//! The requests that the README and the documents offer do what these say.

use std::path::Path;

use asynclane_tests::process::Server;
use asynclane_tests::reply::Reply;
use problems::{Problem, is_strict};
use serde_json::{Value, json};

/// The beginnings of a command that streams and of one that does not.
const STREAM: &str = "curl -N http://127.0.0.1:8000";
const PLAIN: &str = "curl http://127.0.0.1:8000";
const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// The README, then every page of `docs/`.
fn documents() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths = vec![root.join("README.md")];
    let pages = std::fs::read_dir(root.join("docs")).expect("the documents are there");
    let mut pages: Vec<_> = pages.map(|page| page.expect("a page").path()).collect();
    pages.retain(|page| page.extension().is_some_and(|ending| ending == "md"));
    pages.sort();
    paths.extend(pages);
    let text = paths.iter().map(std::fs::read_to_string);
    text.collect::<Result<_, _>>().expect("documents are texts")
}

/// The commands in fences that send a request to the server.
fn requests(documents: &str) -> Vec<&str> {
    let lines = documents.lines();
    lines.filter(|line| line.starts_with("curl ")).collect()
}

/// The JSON body of a command: what stands in single quotes after `-d`.
fn data(command: &str) -> Option<Value> {
    let (_, body) = command.split_once("-d '")?;
    let (body, _) = body.split_once('\'').expect("the body is quoted");
    Some(serde_json::from_str(body).unwrap_or_else(|error| panic!("{error} in {body}")))
}

/// The body of the first command that begins so and holds `field`.
fn body(command: &str, path: &str, field: &str) -> Value {
    let documents = documents();
    let begin = format!("{command}{path} ");
    let mut commands = requests(&documents).into_iter();
    let found = commands.find(|line| line.starts_with(&begin) && line.contains(field));
    data(found.expect("a document has the command")).expect("it has a body")
}

/// The answer in the fence that follows a command's fence, if there is one.
fn shown<'a>(documents: &'a str, command: &str) -> Option<&'a str> {
    let (_, rest) = documents.split_once(command)?;
    let answer = rest.trim_start().strip_prefix("```")?.trim_start();
    let (_, answer) = answer.strip_prefix("```")?.split_once('\n')?;
    answer.split("\n```").next()
}

/// True if `whole` has all that `part` has.
fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|found| holds(found, value)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            let pairs = whole.iter().zip(part);
            whole.len() == part.len() && pairs.into_iter().all(|(a, b)| holds(a, b))
        }
        (Value::Number(whole), Value::Number(part)) => {
            let rounded = |number: &serde_json::Number| (number.as_f64().unwrap() * 100.0).round();
            rounded(whole) == rounded(part)
        }
        _ => whole == part,
    }
}

/// The text of a chat, a completion or a stream.
fn text_of(answer: &str) -> String {
    let Ok(answer) = serde_json::from_str::<Value>(answer) else {
        let data = answer.lines().filter_map(|line| line.strip_prefix("data: "));
        let deltas = data.filter_map(|event| serde_json::from_str::<Value>(event).ok());
        let texts = deltas.filter_map(|event| {
            event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)
        });
        return texts.collect();
    };
    let choice = &answer["choices"][0];
    let text = choice["message"]["content"].as_str().or(choice["text"].as_str());
    text.unwrap_or_default().to_owned()
}

/// Every request is answered, and as the document shows: with this text, or with JSON that holds what is
/// shown, numbers to two decimals. The metrics have the shown names.
#[test]
fn every_request_of_a_document_is_answered_as_shown() {
    let documents = documents();
    let commands = requests(&documents);
    assert!(commands.len() >= 7, "{commands:?}");
    let server = Server::start(&[]);
    for command in commands {
        let mut starts = [STREAM, PLAIN].into_iter();
        let rest = starts.find_map(|start| command.strip_prefix(start));
        let rest = rest.unwrap_or_else(|| panic!("expected {STREAM} or {PLAIN}: {command}"));
        let path = rest.split(' ').next().unwrap_or_default();
        let answer = match data(command) {
            Some(body) => server.client().post(path, &body),
            None => server.client().get(path),
        };
        let found = answer.text();
        assert_eq!(answer.status, 200, "{command}: {found}");
        let shown = shown(&documents, command);
        let shown = shown.unwrap_or_else(|| panic!("no answer is shown: {command}: {found}"));
        match serde_json::from_str::<Value>(shown) {
            _ if text_of(&found).trim_end() == shown => {}
            Ok(part) => {
                let whole = serde_json::from_str(&found).expect("JSON");
                assert!(holds(&whole, &part), "{command}: {found}");
            }
            Err(_) if path == "/metrics" => {
                let names = shown.lines().filter_map(|line| line.split([' ', '{']).next());
                names.for_each(|name| assert!(found.contains(name), "{name}"));
            }
            Err(_) => assert_eq!(text_of(&found).trim_end(), shown, "{command}"),
        }
    }
}

/// The problem of a chat's first message.
fn problem(body: &Value) -> Problem {
    let prompt = body["messages"][0]["content"].as_str().expect("a prompt");
    Problem::from_prompt(prompt).expect("a problem of the demo model")
}

#[test]
fn the_first_command_streams_a_correct_answer() {
    let mut body = body(STREAM, CHAT, "stream");
    assert_eq!(body["stream"], true, "curl -N is for streams");
    let problem = problem(&body);

    let server = Server::start(&[]);
    // The only change: a last chunk with the usage, which ends the reply.
    body["stream_options"] = json!({"include_usage": true});
    let reply = Reply::of_events(server.client().stream(CHAT, &body));
    let text = &reply.choices[0].text;
    assert!(is_strict(&problem, text), "{text}");
}

#[test]
fn another_decoder_answers_and_the_metrics_tell() {
    let body = body(PLAIN, CHAT, "\"diffusion\"");
    let server = Server::start(&[]);
    let answer = server.client().post(CHAT, &body).json();
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(is_strict(&problem(&body), text), "{text}");
    let line = format!("\n{PLAIN}/metrics\n");
    assert!(documents().contains(&line), "a document asks for metrics");
    let scrape = server.client().metrics();
    let labels = [("finished_reason", "stop")];
    assert_eq!(scrape.sum("asynclane_request_success_total", &labels), 1.0);
}

#[test]
fn the_structured_command_answers_in_the_schema() {
    let server = Server::start(&[]);
    let body = body(PLAIN, CHAT, "response_format");
    let answer = server.client().post(CHAT, &body).json();
    let choice = &answer["choices"][0];
    let text = choice["message"]["content"].as_str().expect("a text");
    assert!(documents().contains(text), "a document shows {text}");
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(value["sum"], 15, "9 + 6");
    assert_eq!(choice["finish_reason"], "stop");
}

#[test]
fn the_infilling_command_completes_a_valid_answer() {
    let body = body(PLAIN, COMPLETIONS, "suffix");
    let server = Server::start(&[]);
    let answer = server.client().post(COMPLETIONS, &body).json();
    let middle = answer["choices"][0]["text"].as_str().expect("a text");
    let prompt = body["prompt"].as_str().expect("a prompt");
    let suffix = body["suffix"].as_str().expect("a suffix");
    let turns = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n";
    let (question, begin) = prompt.split_once(turns).expect("a chat");
    let (_, question) = question.split_once("\n\n").expect("a chat");
    let problem = Problem::from_prompt(question).expect("a problem of the demo model");
    let whole = format!("{begin}{middle}{suffix}");
    assert!(is_strict(&problem, &whole), "{whole}");
}
