//! The first request that the README offers does what the README says.

use std::path::Path;

use asynclane_tests::process::Server;
use asynclane_tests::reply::Reply;
use demo::grade::grade;
use demo::problems::Problem;
use serde_json::{Value, json};

/// How a command that streams begins, and one that does not.
const STREAM: &str = "curl -N http://127.0.0.1:8000";
const PLAIN: &str = "curl http://127.0.0.1:8000";
const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn readme() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    std::fs::read_to_string(&file).expect("the README is there")
}

/// The JSON body of the one command of the README that begins so and holds `field`: what stands in
/// single quotes after `-d`.
fn body(command: &str, path: &str, field: &str) -> Value {
    let readme = readme();
    let begin = format!("\n{command}{path} ");
    let mut commands = readme.split(&begin).skip(1);
    let command = commands
        .find(|rest| {
            rest.split("\n```")
                .next()
                .is_some_and(|it| it.contains(field))
        })
        .expect("the README has the command");
    let (command, _) = command.split_once("\n```").expect("it is fenced");
    let (_, body) = command.split_once("-d '").expect("it has a body");
    let (body, _) = body.split_once('\'').expect("the body is quoted");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error} in {body}"))
}

#[test]
fn the_first_command_streams_a_correct_answer() {
    let mut body = body(STREAM, CHAT, "stream");
    assert_eq!(body["stream"], true, "curl -N is for streams");
    let prompt = body["messages"][0]["content"].as_str().expect("a prompt");
    let problem = Problem::from_prompt(prompt).expect("a problem of the demo model");

    let server = Server::start(&[]);
    // The only change: a last chunk with the usage, which ends the reply.
    body["stream_options"] = json!({"include_usage": true});
    let reply = Reply::of_events(server.client().stream(CHAT, &body));
    let text = &reply.choices[0].text;
    assert!(grade(&problem, text).strict, "{text}");
}

#[test]
fn another_decoder_answers_and_the_metrics_tell() {
    let body = body(PLAIN, CHAT, "\"diffusion\"");
    let server = Server::start(&[]);
    let answer = server.client().post(CHAT, &body).json();
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    let prompt = body["messages"][0]["content"].as_str().expect("a prompt");
    let problem = Problem::from_prompt(prompt).expect("a problem of the demo model");
    assert!(grade(&problem, text).strict, "{text}");
    let line = format!("\n{PLAIN}/metrics\n");
    assert!(readme().contains(&line), "the README asks for metrics");
    let scrape = server.client().metrics();
    let labels = [("finished_reason", "stop")];
    assert_eq!(scrape.sum("asynclane_request_success_total", &labels), 1.0);
}

#[test]
fn the_structured_command_answers_in_the_schema() {
    let server = Server::start(&[]);
    let answer = server
        .client()
        .post(CHAT, &body(PLAIN, CHAT, "response_format"))
        .json();
    let choice = &answer["choices"][0];
    let text = choice["message"]["content"].as_str().expect("a text");
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(value.as_object().map(serde_json::Map::len), Some(2));
    assert!(["Tom", "Ana"].contains(&value["name"].as_str().expect("a name")));
    assert!(value["coins"].as_u64().is_some_and(|coins| coins <= 99));
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
    let (question, begin) = prompt
        .split_once("<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n")
        .expect("a chat");
    let (_, question) = question.split_once("\n\n").expect("a chat");
    let problem = Problem::from_prompt(question).expect("a problem of the demo model");
    let whole = format!("{begin}{middle}{suffix}");
    assert!(grade(&problem, &whole).strict, "{whole}");
}
