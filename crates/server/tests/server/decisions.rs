//! `/v1/decisions` and `/v1/systemone`.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use sim::SimConfig;
use step::{Attention, LogitShift};

use crate::common::*;

pub const DECISIONS: &str = "/v1/decisions";
pub const SYSTEM_ONE: &str = "/v1/systemone";

/// Every kind of weights.
const KINDS: [(Attention, LogitShift); 8] = [
    (Attention::Full, LogitShift::None),
    (Attention::Full, LogitShift::One),
    (Attention::Blocks(32), LogitShift::None),
    (Attention::Blocks(32), LogitShift::One),
    (Attention::BlocksAfterPrompt(32), LogitShift::One),
    (Attention::Canvas(256), LogitShift::None),
    (Attention::Causal, LogitShift::None),
    (Attention::Causal, LogitShift::One),
];

fn server_of((attention, logit_shift): (Attention, LogitShift)) -> Server {
    wide_server_where(|options| {
        options.sim = SimConfig { attention, logit_shift, ..options.sim.clone() };
    })
}

fn predicate(text: &str) -> Value {
    json!({"type": "predicate", "instructions": text})
}

/// One question of each type.
fn questions() -> Value {
    json!([
        {"type": "predicate", "instructions": "The customer asks for money.", "name": "refund"},
        {"type": "choice", "instructions": [{"type": "input_text", "text": "Which team?"}],
         "choices": [{"value": "billing", "description": "Money."}, {"value": "true"},
                     {"value": true}]},
        {"type": "score", "instructions": "How urgent is it?",
         "levels": [{"label": "low"}, {"label": "middle"}, {"label": "high", "description": "Now."}]},
    ])
}

fn decision(questions: Value, extra: Value) -> Value {
    merge(json!({"model": MODEL, "input": "I was charged twice.", "questions": questions}), extra)
}

async fn decide(server: &Server, body: &Value) -> Value {
    let (status, answer) = server.post(DECISIONS, body).await;
    assert_eq!(status, StatusCode::OK, "{body}: {answer}");
    answer
}

/// Checks an answer to [`questions`].
fn check(answer: &Value) {
    has!(*answer, {"model": MODEL, "answers": [
        {"type": "predicate", "name": "refund"},
        {"type": "choice", "name": null, "probabilities": [
            {"value": "billing"}, {"value": "true"}, {"value": true}]},
        {"type": "score", "name": null, "probabilities": [
            {"value": 0, "label": "low"}, {"value": 1, "label": "middle"},
            {"value": 2, "label": "high"}]},
    ]});
    let [predicate, choice, score] = items(&answer["answers"]) else { panic!("{answer}") };
    let probability = |value: &Value| value["probability"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&probability(predicate)));
    let all = |of_question: &Value| -> Vec<f64> {
        items(&of_question["probabilities"]).iter().map(probability).collect()
    };
    for question in [choice, score] {
        let probabilities = all(question);
        assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{question}");
        let most = probabilities.iter().copied().fold(0.0, f64::max);
        let confidence = (most - 1.0 / 3.0) / (2.0 / 3.0);
        assert!((question["confidence"].as_f64().unwrap() - confidence).abs() < 1e-12);
    }
    let first =
        all(choice).iter().position(|p| *p == all(choice).iter().copied().fold(0.0, f64::max));
    assert_eq!(choice["choice"], choice["probabilities"][first.unwrap()]["value"]);
    let expected = all(score)[1] + 2.0 * all(score)[2];
    assert!((score["score"].as_f64().unwrap() - expected).abs() < 1e-12);
    let usage = &answer["usage"];
    has!(*usage, {"output_tokens": 0, "output_tokens_details": {"reasoning_tokens": 0},
        "input_tokens_details": {"cache_write_tokens": 0}});
    assert_eq!(usage["total_tokens"], usage["input_tokens"]);
    for mass in items(&usage["diffusion"]["option_mass"]) {
        assert!(mass.as_f64().is_some_and(|mass| mass > 0.0 && mass <= 1.0), "{usage}");
    }
}

#[tokio::test]
async fn every_kind_of_weights_decides() {
    for kind in KINDS {
        let server = server_of(kind);
        let answer = decide(&server, &decision(questions(), json!({}))).await;
        check(&answer);
        let is_causal = kind.0 == Attention::Causal;
        let (read, forwards) = match kind.0 {
            Attention::Causal => ("apart", 3),
            Attention::Canvas(_) => ("joint", 4),
            _ => ("joint", 1),
        };
        has!(answer["usage"]["diffusion"], {"read": read, "forwards": forwards, "orders": 1});
        if is_causal {
            let body = decision(questions(), json!({"diffusion": {"read": "joint"}}));
            let message = server.refused(DECISIONS, &body, "invalid_value", "diffusion.read").await;
            assert!(message.contains("use apart"), "{message}");
        }
        // Apart, every question has canvases of its own.
        let apart = decision(questions(), json!({"diffusion": {"read": "apart", "draws": 2}}));
        let apart = decide(&server, &apart).await;
        check(&apart);
        let draws = if matches!(kind.0, Attention::Canvas(_)) { 2 } else { 1 };
        has!(apart["usage"]["diffusion"], {"read": "apart", "forwards": 3 * draws});
    }
}

#[tokio::test]
async fn twenty_questions_cost_one_forward_and_two_orders_two() {
    let server = server_of(KINDS[0]);
    let many: Vec<Value> = (0..20).map(|i| predicate(&format!("It is {i}."))).collect();
    for orders in [1, 2, 4] {
        let before = server.counters.steps();
        let body = decision(json!(many), json!({"diffusion": {"orders": orders}}));
        let answer = decide(&server, &body).await;
        assert_eq!(items(&answer["answers"]).len(), 20);
        has!(answer["usage"]["diffusion"], {"forwards": orders, "orders": orders});
        // Sequences of one request run in one batch.
        assert!(server.counters.steps() - before <= orders, "{orders}");
    }
}

/// A server whose text consists of the labels A, B and C.
fn server_of_labels() -> Server {
    wide_server_where(|options| {
        options.sim.words = vec![38, 39, 40];
        (options.sim.law.base, options.sim.law.left) = (0.5, 0.0);
    })
}

/// The average over both orders of two options is the same for an option and its opposite place.
#[tokio::test]
async fn orders_rotate_the_options() {
    let server = server_of_labels();
    let question = |values: [&str; 2]| {
        let choices = values.map(|value| json!({"value": value}));
        json!([{"type": "choice", "instructions": "Which?", "choices": choices}])
    };
    let probabilities_of = async |values, orders: u32| {
        let body = decision(question(values), json!({"diffusion": {"orders": orders}}));
        let answer = decide(&server, &body).await["answers"][0].clone();
        let probabilities = items(&answer["probabilities"]).iter();
        let by_value = probabilities
            .map(|pair| (pair["value"].clone(), pair["probability"].as_f64().unwrap()));
        by_value.collect::<Vec<_>>()
    };
    let forward = probabilities_of(["red", "blue"], 2).await;
    let back = probabilities_of(["blue", "red"], 2).await;
    assert_eq!(forward[0], back[1]);
    assert_eq!(forward[1], back[0]);
    let single = probabilities_of(["red", "blue"], 1).await;
    let other = probabilities_of(["blue", "red"], 1).await;
    assert!((forward[0].1 - (single[0].1 + other[1].1) / 2.0).abs() < 1e-15);
    assert_ne!(single[0].1, other[1].1);
}

#[tokio::test]
async fn temperature_flattens_and_the_seed_of_noise_repeats() {
    let server = server_of_labels();
    let confidence = async |temperature: f64| {
        let extra = json!({"diffusion": {"temperature": temperature}});
        let answer = decide(&server, &decision(questions(), extra)).await;
        answer["answers"][1]["confidence"].as_f64().unwrap()
    };
    let (cold, plain, hot) =
        (confidence(0.5).await, confidence(1.0).await, confidence(100.0).await);
    assert!(cold > plain && plain > hot && hot < 0.2, "{cold} {plain} {hot}");
    let server = server_of((Attention::Canvas(256), LogitShift::None));
    let seeded = async |seed: i64| {
        let extra = json!({"diffusion": {"seed": seed, "draws": 3}});
        decide(&server, &decision(questions(), extra)).await["answers"].clone()
    };
    assert_eq!(seeded(7).await, seeded(7).await);
}

/// 32 requests at once, with chats among them: every answer is the one that it is alone.
#[tokio::test]
async fn probabilities_do_not_depend_on_the_load() {
    for kind in KINDS {
        let body = move |number: usize| {
            let count = 1 + number % 7;
            let many: Vec<Value> =
                (0..count).map(|i| predicate(&format!("It is {number} or {i}."))).collect();
            let read = if number.is_multiple_of(3) { "apart" } else { "joint" };
            let is_causal = kind.0 == Attention::Causal;
            let diffusion = match is_causal {
                true => json!({"orders": 1 + number % 2}),
                false => json!({"read": read, "orders": 1 + number % 2, "draws": 2}),
            };
            decision(json!(many), json!({"diffusion": diffusion}))
        };
        let server = server_of(kind);
        let mut alone = Vec::new();
        for number in 0..32 {
            alone.push(decide(&server_of(kind), &body(number)).await["answers"].clone());
        }
        let mut tasks = Vec::new();
        for number in 0..32 {
            let (one, other) = (server.clone(), server.clone());
            tasks.push(tokio::spawn(async move { decide(&one, &body(number)).await }));
            tokio::spawn(async move {
                other
                    .chat(json!({"max_tokens": 20 + number, "temperature": 1, "seed": number}))
                    .await
            });
        }
        for (number, (task, alone)) in tasks.into_iter().zip(alone).enumerate() {
            assert_eq!(task.await.unwrap()["answers"], alone, "{kind:?} {number}");
        }
    }
}

#[tokio::test]
async fn apart_shares_the_prefix() {
    for kind in KINDS {
        let server = server_of(kind);
        let many: Vec<Value> = (0..6).map(|i| predicate(&format!("It is {i}."))).collect();
        let long = "There are many words in this long input. ".repeat(20);
        let extra = json!({"input": long, "diffusion": {"read": "apart", "draws": 1}});
        let usage = decide(&server, &decision(json!(many), extra)).await["usage"].clone();
        let cached = usage["input_tokens_details"]["cached_tokens"].as_u64().unwrap();
        let input = usage["input_tokens"].as_u64().unwrap();
        match kind.0 {
            Attention::Full | Attention::BlocksAfterPrompt(_) => assert_eq!(cached, 0),
            // Five of six sequences read the input from the cache.
            _ => assert!(cached * 10 > input * 6 && cached < input, "{kind:?}: {usage}"),
        }
    }
}

#[tokio::test]
async fn an_input_is_a_chat_with_calls() {
    let server = wide_server();
    let input = json!([
        {"role": "developer", "content": "Be fair."},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "Look it up."},
            {"type": "input_json", "data": {"order": 7, "items": [1, 2]}}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"id\": 7}"},
        {"type": "function_call_output", "call_id": "c1", "output": "It was paid."},
        {"type": "custom_tool_call", "call_id": "c2", "name": "note", "input": "paid"},
        {"type": "custom_tool_call_output", "call_id": "c2",
         "output": [{"type": "input_text", "text": "ok"}]},
        {"role": "assistant", "phase": "final_answer", "content": [
            {"type": "output_text", "text": "It was paid."}, {"type": "refusal", "refusal": "No."}]},
    ]);
    let body = decision(
        questions(),
        json!({"input": input, "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "implicit"}, "safety_identifier": "s"}),
    );
    check(&decide(&server, &body).await);
}

#[tokio::test]
async fn many_options_have_labels_and_too_many_are_refused() {
    let server = wide_server();
    let choice = |count: usize| {
        let choices: Vec<Value> = (0..count).map(|i| json!({"value": format!("v{i}")})).collect();
        json!([predicate("a"), {"type": "choice", "instructions": "Which?", "choices": choices}])
    };
    let answer = decide(&server, &decision(choice(255), json!({}))).await;
    assert_eq!(items(&answer["answers"][1]["probabilities"]).len(), 255);
    let server = wide_server_where(|options| options.has_no_merges = true);
    let answer = decide(&server, &decision(choice(62), json!({}))).await;
    assert_eq!(items(&answer["answers"][1]["probabilities"]).len(), 62);
    let body = decision(choice(63), json!({}));
    let message =
        server.refused(DECISIONS, &body, "unsupported_value", "questions[1].choices").await;
    assert!(message.contains("has 63 options, and this model's tokenizer has 62 "), "{message}");
}

#[tokio::test]
async fn faulty_requests_name_their_fault() {
    let server = server();
    let choice =
        |choices: Value| json!([{"type": "choice", "instructions": "a", "choices": choices}]);
    let image = json!([{"type": "input_image", "image_url": "data:"}]);
    let many: Vec<Value> = (0..401).map(|_| predicate("a")).collect();
    let cases: Vec<(Value, &str, &str)> = refusals! {
        {"questions": []} => invalid_value "questions";
        {"questions": many} => invalid_value "questions";
        {"questions": null} => missing_required_parameter "questions";
        {"questions": {}} => invalid_type "questions";
        {"questions": [{"type": "predicate"}]} => missing_required_parameter
            "questions[0].instructions";
        {"questions": [{"type": "box", "instructions": "a"}]} => invalid_value "questions[0].type";
        {"questions": [{"instructions": "a"}]} => missing_required_parameter "questions[0].type";
        {"questions": [{"type": "predicate", "instructions": image}]} => invalid_value
            "questions[0].instructions[0]";
        {"questions": [{"type": "predicate", "instructions": []}]} => invalid_value
            "questions[0].instructions";
        {"questions": [{"type": "predicate", "instructions": "a", "choices": []}]} => invalid_value
            "questions[0].choices";
        {"questions": [{"type": "choice", "instructions": "a"}]} => missing_required_parameter
            "questions[0].choices";
        {"questions": choice(json!([{"value": "a"}]))} => invalid_value "questions[0].choices";
        {"questions": choice(json!([{"value": "a"}, {"value": "b"}, {"value": "a"}]))}
            => invalid_value "questions[0].choices[2].value";
        {"questions": choice(json!([{"value": true}, {"value": true}]))} => invalid_value
            "questions[0].choices[1].value";
        {"questions": choice(json!([{"value": 1}, {"value": "a"}]))} => invalid_type
            "questions[0].choices[0].value";
        {"questions": [{"type": "score", "instructions": "a", "levels": [{"label": "a"}]}]}
            => invalid_value "questions[0].levels";
        {"input": []} => invalid_value "input";
        {"input": 5} => invalid_type "input";
        {"input": [{"role": "user", "content": image}]} => invalid_value "input[0].content[0]";
        {"input": [{"role": "user", "content": [{"type": "input_json", "data": 1}]}]}
            => invalid_value "input[0].content[0]";
        {"input": [{"type": "function_call_output", "call_id": "x", "output": "a"}]}
            => invalid_value "input[0].call_id";
        {"input": [{"role": "bard", "content": "a"}]} => invalid_value "input[0].role";
        {"diffusion": {"read": "both"}} => invalid_value "diffusion.read";
        {"diffusion": {"orders": 9}} => invalid_value "diffusion.orders";
        {"diffusion": {"temperature": 0}} => invalid_value "diffusion.temperature";
        {"diffusion": {"preset": "fast"}} => unknown_parameter "diffusion.preset";
        {"stream": true} => invalid_value "stream";
    };
    for (fields, code, param) in cases.into_iter().filter(|(_, _, param)| *param != "stream") {
        let body = decision(questions(), fields);
        server.refused(DECISIONS, &body, code, param).await;
    }
    // Numbers that exceed the context: of the input, and of one question.
    let long = "word ".repeat(600);
    let body = decision(questions(), json!({"input": long}));
    server.refused(DECISIONS, &body, "context_length_exceeded", "input").await;
    let body = decision(
        json!([predicate("a"), predicate(&"word ".repeat(400))]),
        json!({"diffusion": {"read": "apart"}}),
    );
    server.refused(DECISIONS, &body, "context_length_exceeded", "questions[1]").await;
    check(&decide(&server, &decision(questions(), json!({"model": null}))).await);
    let (status, answer) =
        server.post(DECISIONS, &decision(questions(), json!({"model": "other"}))).await;
    assert_eq!((status.as_u16(), &answer["error"]["code"]), (404, &json!("model_not_found")));
}

#[tokio::test]
async fn sequences_of_a_request_are_bounded() {
    let server = wide_server_where(|options| {
        options.settings.limits.max_sequences = 8;
        options.max_running = 2;
        options.max_waiting = 2;
    });
    let many = |count: usize| -> Value { (0..count).map(|_| predicate("a")).collect() };
    // More sequences than the queue holds run one after the other.
    let body = decision(many(8), json!({"diffusion": {"read": "apart"}}));
    has!(decide(&server, &body).await["usage"]["diffusion"], {"forwards": 8});
    let apart =
        |orders: u32| decision(many(9), json!({"diffusion": {"read": "apart", "orders": orders}}));
    // Eight sequences at once are four questions of two orders each.
    for (body, question) in [
        (apart(1), "questions[8]"),
        (apart(2), "questions[4]"),
        (decision(many(2), json!({"diffusion": {"read": "joint", "orders": 8}})), ""),
    ] {
        if question.is_empty() {
            decide(&server, &body).await;
            continue;
        }
        let message = server.refused(DECISIONS, &body, "invalid_value", question).await;
        assert!(message.contains("server.max_sequences"), "{message}");
    }
    let server = wide_server_where(|options| options.settings.limits.max_request_tokens = 500);
    let one = decision(many(1), json!({"diffusion": {"read": "apart"}}));
    let each = decide(&server, &one).await["usage"]["input_tokens"].as_u64().unwrap();
    let (status, answer) = server.post(DECISIONS, &apart(1)).await;
    let (message, param) = (&answer["error"]["message"], answer["error"]["param"].as_str());
    assert_eq!(status, 400, "{answer}");
    assert!(message.as_str().unwrap().contains("server.max_request_tokens"), "{message}");
    // A question has its answer beside its tokens.
    let first = 500 / (each + 1);
    assert!((1..9).contains(&first), "{each} tokens of a question");
    assert_eq!(param, Some(&*format!("questions[{first}]")), "{each} tokens of a question");
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_sequences() {
    let (server, gate) = gated(|options| options.sim.max_positions = 8192);
    let many: Vec<Value> = (0..30).map(|_| predicate("a")).collect();
    let body = decision(json!(many), json!({"diffusion": {"read": "apart"}}));
    let asked = server.clone();
    let task = tokio::spawn(async move { asked.post(DECISIONS, &body).await });
    server.until_steps(1).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    drop(gate);
    server.until_idle().await;
    assert!(server.counters.steps() <= 2, "{}", server.counters.steps());
    let metrics = server.metrics().await;
    assert_eq!(outcomes(&metrics, DECISIONS, "cancelled"), 1.0);
}

#[tokio::test]
async fn decisions_have_metrics() {
    let server = wide_server();
    decide(&server, &decision(questions(), json!({}))).await;
    server.refused(DECISIONS, &decision(json!([]), json!({})), "invalid_value", "questions").await;
    let metrics = server.metrics().await;
    assert_eq!(outcomes(&metrics, DECISIONS, "ok"), 1.0);
    assert_eq!(outcomes(&metrics, DECISIONS, "invalid"), 1.0);
    assert_eq!(outcomes(&metrics, SYSTEM_ONE, "ok"), 0.0);
}

#[tokio::test]
async fn system_one_is_a_translation() {
    let server = wide_server();
    let body = json!({
        "model": MODEL,
        "state": {"message": "I was charged twice.", "subject": "Money"},
        "questions": {
            "refund": {"type": "noul", "instructions": "Is it about money?",
                       "criteria": {"true": "Money.", "false": null}},
            "tone": {"type": "choice", "criteria": {"calm": null, "angry": {"signs": ["!"]}}},
            "urgency": {"type": "score", "instructions": ["How", "urgent"],
                        "criteria": ["low", {"level": "high"}]},
        },
    });
    let (status, answer) = server.post(SYSTEM_ONE, &body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    has!(answer, {"model": MODEL, "answers": {
        "refund": {"type": "noul"},
        "tone": {"type": "choice"},
        "urgency": {"type": "score", "legend": {"0": "low", "1": {"level": "high"}}},
    }, "usage": {"output_tokens": 0, "diffusion": {"read": "joint", "forwards": 1}}});
    let noul = answer["answers"]["refund"]["noul"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&noul));
    let (_, unnamed) = server.post(SYSTEM_ONE, &merge(body.clone(), json!({"model": null}))).await;
    assert_eq!(unnamed, answer);
    let names: Vec<&String> = answer["answers"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["refund", "tone", "urgency"]);
    let total =
        |value: &Value| value.as_object().unwrap().values().filter_map(Value::as_f64).sum::<f64>();
    for name in ["tone", "urgency"] {
        let sum = total(&answer["answers"][name]["probabilities"]);
        assert!((sum - 1.0).abs() < 1e-12, "{answer}");
    }
    let one = |question: Value| json!({"questions": {"q": question}});
    for (fields, code, param) in [
        (json!({"questions": {}}), "invalid_value", "questions"),
        (json!({"state": 5}), "invalid_value", "state"),
        (json!({"assets": {"a": {}}}), "unsupported_parameter", "assets"),
        (one(json!({"type": "box"})), "invalid_value", "questions.q.type"),
        (one(json!({"type": "noul"})), "missing_required_parameter", "questions.q.instructions"),
        (
            one(json!({"type": "noul", "criteria": {"maybe": "a"}})),
            "invalid_value",
            "questions.q.criteria.maybe",
        ),
        (
            one(json!({"type": "choice", "criteria": {"a": null}})),
            "invalid_value",
            "questions.q.criteria",
        ),
        (one(json!({"type": "choice"})), "missing_required_parameter", "questions.q.criteria"),
        (
            one(json!({"type": "score", "criteria": ["a", 5]})),
            "invalid_type",
            "questions.q.criteria[1]",
        ),
        (
            one(json!({"type": "score", "criteria": {"a": "b"}})),
            "invalid_type",
            "questions.q.criteria",
        ),
    ] {
        server.refused(SYSTEM_ONE, &merge(body.clone(), fields), code, param).await;
    }
}

/// 2,000 bodies with a changed, missing or doubled part: an answer or a client error, never a fault of
/// the server.
#[tokio::test]
async fn mutated_bodies_are_answered_or_refused() {
    let server = server_where(|options| options.sim.max_positions = 2048);
    let plain = decision(questions(), json!({"diffusion": {"orders": 2, "read": "apart"}}));
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let (mut ok, mut bad) = (0, 0);
    for _ in 0..2000 {
        let mut body = plain.clone();
        for _ in 0..=random(3) {
            mutate(&mut body, &mut random);
        }
        let (status, answer) = server.post(DECISIONS, &body).await;
        match status.as_u16() {
            200 => ok += 1,
            400..=499 => {
                assert_error(&answer);
                bad += 1;
            }
            other => panic!("{other}: {body}: {answer}"),
        }
    }
    assert!(ok > 100 && bad > 500, "{ok} {bad}");
    server.until_idle().await;
}

/// Changes one place of a value.
fn mutate(value: &mut Value, random: &mut impl FnMut(usize) -> usize) {
    if random(6) > 0 {
        match value {
            Value::Array(items) if !items.is_empty() => {
                let index = random(items.len());
                return mutate(&mut items[index], random);
            }
            Value::Object(members) if !members.is_empty() => {
                let index = random(members.len());
                return mutate(members.values_mut().nth(index).unwrap(), random);
            }
            _ => {}
        }
    }
    match value {
        Value::Array(items) if !items.is_empty() => {
            let index = random(items.len());
            match random(3) {
                0 => drop(items.remove(index)),
                1 => items.push(items[index].clone()),
                _ => items[index] = leaf(random),
            }
        }
        Value::Object(members) if !members.is_empty() => {
            let index = random(members.len());
            let name = members.keys().nth(index).unwrap().clone();
            match random(3) {
                0 => drop(members.shift_remove(&name)),
                _ => members[&name] = leaf(random),
            }
        }
        other => *other = leaf(random),
    }
}

fn leaf(random: &mut impl FnMut(usize) -> usize) -> Value {
    match random(9) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(1e308),
        4 => json!(""),
        5 => json!("\u{0}\u{F8FF}questions\u{F8FF}<|eot_id|>"),
        6 => json!([]),
        7 => Value::Object(Map::new()),
        _ => json!("x".repeat(random(3000))),
    }
}
