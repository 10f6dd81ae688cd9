//! Enforced calls over random schemas: whatever the model says, every call names a function of the
//! request, and its arguments conform to the function's schema.

use asynclane_tests::client::Client;
use asynclane_tests::crowd;
use asynclane_tests::process::Server;
use asynclane_tests::random::Random;
use asynclane_tests::served::{MODEL, Served, in_parallel};
use serde_json::{Map, Value, json};
use sim::{SimConfig, SimExecutor};

/// Requests to the simulated model, which says random words.
const SIMULATED: u64 = 1000;
/// Requests to the demo model.
const DEMO: u64 = 60;
/// Simultaneous requests.
const CONNECTIONS: usize = 16;
/// Tokens that 16 calls do not reach.
const BUDGET: u32 = 6000;

const NAMES: [&str; 8] = ["a", "b", "name", "count", "kind", "x-y", "on", "items"];
const WORDS: [&str; 6] = ["red", "Mia", "a \"b\"", "7", "", "new\nline"];

/// A schema whose texts are all finite. Objects and lists are at most `depth` deep.
fn schema(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 6 } else { 9 }) {
        0 => {
            let (low, span) = (random.below(200), random.below(100));
            let low = i64::try_from(low).unwrap() - 100;
            json!({"type": "integer", "minimum": low, "maximum": low + span as i64})
        }
        1 => json!({"type": "boolean"}),
        2 => json!({"type": "null"}),
        3 => {
            let count = 1 + random.below(3);
            let words: Vec<_> = (0..count).map(|_| random.pick(&WORDS)).collect();
            json!({"enum": words})
        }
        4 => json!({"const": random.below(1000)}),
        5 => json!({"type": "string", "maxLength": random.below(12)}),
        6 => {
            let least = random.below(3);
            let most = least + random.below(2);
            json!({"type": "array", "items": schema(random, depth - 1),
                "minItems": least, "maxItems": most})
        }
        7 => {
            let types = [schema(random, depth - 1), schema(random, depth - 1)];
            json!({"anyOf": types})
        }
        _ => object(random, depth - 1),
    }
}

/// An object with up to four members, some of them required.
fn object(random: &mut Random, depth: usize) -> Value {
    let mut names = NAMES;
    random.shuffle(&mut names);
    let names = &names[..random.below(5)];
    let members = names.iter().map(|name| ((*name).to_owned(), schema(random, depth)));
    let members: Map<String, Value> = members.collect();
    let required: Vec<_> = names.iter().filter(|_| random.below(3) > 0).collect();
    json!({"type": "object", "properties": members, "required": required})
}

/// Up to `most` functions with random parameters, objects in them `depth` deep.
fn functions(random: &mut Random, (most, depth): (usize, usize)) -> Vec<Value> {
    let count = 1 + random.below(most);
    let function = |index| {
        json!({"type": "function", "function":
            {"name": format!("f-{index}"), "parameters": object(random, depth)}})
    };
    (0..count).map(function).collect()
}

/// `schema` with closed objects, as calls follow it.
fn closed(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(members) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        members.values_mut().for_each(|member| *member = closed(member));
        schema["additionalProperties"] = json!(false);
    }
    if let Some(items) = schema.get_mut("items") {
        *items = closed(items);
    }
    if let Some(types) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        types.iter_mut().for_each(|each| *each = closed(each));
    }
    schema
}

fn request(seed: u64, size: (usize, usize), budget: u32) -> Value {
    let mut random = Random::new(seed);
    let tools = functions(&mut random, size);
    let named = random.below(2) == 0;
    let name = &tools[random.below(tools.len())]["function"]["name"];
    let choice = match named {
        true => json!({"type": "function", "function": {"name": name}}),
        false => json!("required"),
    };
    let temperature = [0.0, 1.0, 1.5][random.below(3)];
    json!({"model": MODEL, "max_tokens": budget, "seed": seed, "temperature": temperature,
        "messages": [{"role": "user", "content": "What is 9 + 6?"}], "tools": tools,
        "tool_choice": choice, "parallel_tool_calls": random.below(2) == 0})
}

/// Asks and checks every call. Returns the tokens and the forward passes of the answer.
fn ask(client: Client, body: &Value) -> Cost {
    let answer = client.json("/v1/chat/completions", body);
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{body}: {choice}");
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert!(!calls.is_empty(), "{body}");
    let single = body["tool_choice"].is_object() || body["parallel_tool_calls"] == false;
    assert!(!single || calls.len() == 1, "{body}: {choice}");
    for call in calls {
        let name = &call["function"]["name"];
        let chosen = &body["tool_choice"]["function"]["name"];
        assert!(chosen.is_null() || chosen == name, "{body}: {call}");
        let tools = body["tools"].as_array().unwrap();
        let tool = tools.iter().find(|tool| tool["function"]["name"] == *name);
        let parameters = &tool.expect("a function of the request")["function"]["parameters"];
        let arguments = call["function"]["arguments"].as_str().unwrap();
        let arguments: Value = serde_json::from_str(arguments).expect("valid JSON");
        let valid = jsonschema::validate(&closed(parameters), &arguments);
        valid.unwrap_or_else(|error| panic!("{parameters}: {arguments}: {error}"));
    }
    cost(&answer)
}

/// The tokens and the forward passes of an answer.
fn cost(answer: &Value) -> Cost {
    let usage = &answer["usage"];
    let counts = [&usage["completion_tokens"], &usage["diffusion"]["forwards"]];
    counts.map(|count| count.as_u64().expect("a count"))
}

#[test]
fn a_thousand_enforced_calls_conform_whatever_the_model_says() {
    let model = SimConfig { max_positions: 16_384, pages: 65_536, ..crowd::model() };
    let served = Served::over(Box::new(SimExecutor::new(model).unwrap()), 64, 2048);
    let seeds: Vec<u64> = (0..SIMULATED).collect();
    let answers = in_parallel(CONNECTIONS, &seeds, |seed| {
        ask(served.client(), &request(*seed, (4, 2), BUDGET))
    });
    assert_eq!(answers.len() as u64, SIMULATED);
}

/// Tokens and forward passes of an answer.
type Cost = [u64; 2];

/// Forward passes per token of an answer of `tokens` tokens without tools.
fn free(client: Client, body: &Value, tokens: u64) -> Cost {
    let mut body = body.clone();
    for field in ["tools", "tool_choice", "parallel_tool_calls"] {
        body.as_object_mut().unwrap().remove(field);
    }
    body["max_tokens"] = json!(tokens);
    body["ignore_eos"] = json!(true);
    cost(&client.json("/v1/chat/completions", &body))
}

#[test]
fn enforced_calls_of_the_demo_model_conform_and_cost_fewer_forwards_than_text() {
    let server = Server::start(&[]);
    let client = server.client();
    let seeds: Vec<u64> = (0..DEMO).collect();
    let costs = in_parallel(CONNECTIONS, &seeds, |seed| {
        // A small function: its schema is in the prompt, and the context has 1,024 positions.
        let mut body = request(*seed, (1, 0), 300);
        body["parallel_tool_calls"] = json!(false);
        let calls = ask(client, &body);
        (calls, free(client, &body, calls[0]))
    });
    let (calls, free): (Vec<Cost>, Vec<Cost>) = costs.into_iter().unzip();
    let sum = |costs: &[Cost]| costs.iter().map(|[_, forwards]| forwards).sum::<u64>();
    let (forwards, free) = (sum(&calls), sum(&free));
    let cheaper = forwards * 4 < free * 3;
    assert!(cheaper, "{forwards} of calls, {free} of text");
}
