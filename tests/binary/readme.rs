//! The first request that the README offers does what the README says.

use std::path::Path;

use asynclane_tests::process::Server;
use asynclane_tests::reply::Reply;
use demo::grade::grade;
use demo::problems::Problem;
use serde_json::{Value, json};

/// How the command begins.
const COMMAND: &str = "curl -N http://127.0.0.1:8000";
/// What it asks.
const PATH: &str = "/v1/chat/completions";

/// The JSON body of the README's command: what stands in single quotes after `-d`.
fn body() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(&path).expect("the README is there");
    let begin = format!("\n{COMMAND}{PATH}");
    let (_, command) = readme
        .split_once(&begin)
        .expect("the README has the command");
    let (command, _) = command.split_once("\n```").expect("it is fenced");
    let (_, body) = command.split_once("-d '").expect("it has a body");
    let (body, _) = body.split_once('\'').expect("the body is quoted");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error} in {body}"))
}

#[test]
fn the_first_command_streams_a_correct_answer() {
    let mut body = body();
    assert_eq!(body["stream"], true, "curl -N is for streams");
    let prompt = body["messages"][0]["content"].as_str().expect("a prompt");
    let problem = Problem::from_prompt(prompt).expect("a problem of the demo model");

    let server = Server::start(&[]);
    // The only change: a last chunk with the usage, which ends the reply.
    body["stream_options"] = json!({"include_usage": true});
    let reply = Reply::of_events(server.client().stream(PATH, &body));
    let text = &reply.choices[0].text;
    assert!(grade(&problem, text).strict, "{text}");
}
