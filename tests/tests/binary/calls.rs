//! Free calls of the embedded models: `tool_choice` `auto`, problems of the laboratory.

use asynclane_tests::process::Server;
use asynclane_tests::served::in_parallel;
use problems::{Problem, Split, Task, generate, grade};
use serde_json::{Value, json};

/// Problems that want a call, of each model.
const PROBLEMS: usize = 100;
/// Simultaneous requests.
const CONNECTIONS: usize = 16;
/// The least number of right calls among ten.
const RIGHT: usize = 8;

fn problems() -> Vec<Problem> {
    let drawn = generate(Task::Calls, Split::Eval, 11, 3 * PROBLEMS);
    let is_call = |problem: &Problem| problem.answer.starts_with("<tool_call>");
    drawn.into_iter().filter(is_call).take(PROBLEMS).collect()
}

/// The answer as the model wrote it.
///
/// # Panics
/// On a call of no function of the request, on arguments that do not conform, and on marks of a call
/// in the text.
fn written(body: &Value, message: &Value) -> String {
    let text = message["content"].as_str().unwrap_or_default();
    assert!(!text.contains("tool_call"), "{body}: {message}");
    let calls = message["tool_calls"].as_array();
    let calls = calls.map(Vec::as_slice).unwrap_or_default();
    let calls = calls.iter().map(|call| {
        let (name, arguments) = (&call["function"]["name"], &call["function"]["arguments"]);
        let tools = body["tools"].as_array().unwrap();
        let tool = tools.iter().find(|tool| tool["function"]["name"] == *name);
        let parameters = &tool.expect("a function of the request")["function"]["parameters"];
        let arguments = arguments.as_str().unwrap();
        let value: Value = serde_json::from_str(arguments).expect("valid JSON");
        let valid = jsonschema::validate(parameters, &value);
        valid.unwrap_or_else(|error| panic!("{parameters}: {arguments}: {error}"));
        format!("<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>")
    });
    let calls: Vec<String> = calls.collect();
    format!("{text}{}", calls.join("\n"))
}

fn right_calls(model: &str) {
    let server = Server::start(&["--model", model]);
    let problems = problems();
    let graded = in_parallel(CONNECTIONS, &problems, |problem| {
        let mut body: Value = serde_json::from_str(&problem.prompt).unwrap();
        body["model"] = json!(model);
        body["max_tokens"] = json!(100);
        let answer = server.client().json("/v1/chat/completions", &body);
        let choice = &answer["choices"][0];
        assert_ne!(choice["finish_reason"], "length", "{body}: {choice}");
        let output = written(&body, &choice["message"]);
        let right = grade(problem, &output).expect("no code runs").end;
        if !right {
            println!("{}\n  {output:?}\n  {:?}", problem.prompt, problem.answer);
        }
        right
    });
    let right = graded.iter().filter(|right| **right).count();
    assert!(10 * right >= RIGHT * problems.len(), "{right} calls");
}

#[test]
fn the_demo_model_calls_the_right_function() {
    right_calls("demo");
}

#[test]
fn the_causal_demo_model_calls_the_right_function() {
    right_calls("demo-wedlm");
}
