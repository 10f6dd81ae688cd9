//! The JSON shapes of answers: objects, choices, usage, options.

use crate::common::*;
use sim::ConfidenceLaw;

/// Checks that an object has these members and no others.
#[track_caller]
fn assert_keys(value: &Value, expected: &str) {
    let keys = value.as_object().unwrap().keys();
    let mut keys: Vec<_> = keys.map(|key| &**key).collect();
    keys.sort_unstable();
    assert_eq!(keys.join(" "), expected);
}

#[tokio::test]
async fn a_completion_has_the_documented_shape() {
    let answer = ask!(server(), COMPLETIONS {"max_tokens": 64, "seed": 9});
    let names = "choices created id model object system_fingerprint usage";
    assert_keys(&answer, names);
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-"));
    has!(answer, {"object": "text_completion", "model": MODEL, "system_fingerprint": "0.1.0-sim",
        "choices": [{"index": 0, "logprobs": null, "finish_reason": "stop"}]});
    assert_keys(&answer["choices"][0], "finish_reason index logprobs stop_reason text");
    let usage = &answer["usage"];
    let names = "completion_tokens diffusion prompt_tokens total_tokens";
    assert_keys(usage, names);
    let count = |key: &str| usage[key].as_u64().unwrap();
    let tokens = count("completion_tokens");
    assert!((20..40).contains(&tokens));
    assert_eq!(count("total_tokens"), count("prompt_tokens") + tokens);

    let cost = &usage["diffusion"];
    let names = "committed_tokens decode_forwards decoder drafts edits forks forwards lanes \
        positions prefill_forwards refresh_forwards seed steps tokens_per_forward";
    assert_keys(cost, names);
    let count = |key: &str| cost[key].as_u64().unwrap();
    let kinds = ["prefill_forwards", "decode_forwards", "refresh_forwards"];
    let forwards = count("forwards");
    assert_eq!(forwards, kinds.map(count).iter().sum::<u64>());
    has!(*cost, {"steps": forwards, "decoder": "asynclane+entropy_bound+fused", "seed": 9,
        "tokens_per_forward": tokens as f64 / forwards as f64});
}

#[tokio::test]
async fn a_chat_has_the_documented_shape() {
    let answer = server().chat(json!({})).await;
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(answer["object"], "chat.completion");
    let choice = &answer["choices"][0];
    assert_keys(choice, "finish_reason index logprobs message stop_reason");
    assert_keys(&choice["message"], "content role");
    assert_eq!(choice["message"]["role"], "assistant");
    assert!(!text(&answer).is_empty());
}

#[tokio::test]
async fn chats_accept_parts_roles_and_null_content() {
    let server = server();
    let plain = ask!(server, CHAT {"messages": [{"role": "system", "content": "a\nb"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "Hi", "name": "ignored"}]});
    let parts = ask!(server, CHAT {"messages": [
        {"role": "developer", "content": [{"type": "text", "text": "a"},
            {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": null}, {"role": "user", "content": "Hi"}]});
    assert_eq!(plain["choices"], parts["choices"]);
    let prompt = &plain["usage"]["prompt_tokens"];
    assert_eq!(parts["usage"]["prompt_tokens"], *prompt);
    // A refusal is what the assistant said.
    let prompt = async |said: Value| {
        let said = merge(json!({"role": "assistant"}), said);
        let answer = ask!(server, CHAT {"messages": [{"role": "user", "content": "Hi"}, said],
            "max_tokens": 1, "return_token_ids": true});
        server.prompt(&answer)
    };
    let expected = prompt(json!({"content": "No\nway.", "refusal": null})).await;
    for said in [
        json!({"content": [{"type": "refusal", "refusal": "No\nway."}]}),
        json!({"content": [{"type": "text", "text": "No"}, {"type": "refusal", "refusal": "way."}]}),
        json!({"content": null, "refusal": "No\nway."}),
    ] {
        assert_eq!(prompt(said.clone()).await, expected, "{said}");
    }
}

#[tokio::test]
async fn all_four_prompt_forms_agree() {
    let server = server();
    let texts = ["Mia has 12 eggs.", "Ben has 3 boxes."];
    let ids = texts.map(|text| server.tokenizer.encode(text, true).unwrap());
    let answers = async |prompt: Value| {
        let answer = ask!(server, COMPLETIONS {"prompt": prompt, "max_tokens": 64});
        let texts = items(&answer["choices"]).iter();
        let texts: Vec<_> = texts.map(|choice| choice["text"].clone()).collect();
        (texts, answer["usage"]["prompt_tokens"].as_u64().unwrap())
    };
    let one = answers(json!(texts[0])).await;
    assert_eq!(one, answers(json!(ids[0])).await);
    let (second, _) = answers(json!(texts[1])).await;
    let both = answers(json!(texts)).await;
    assert_eq!(both, answers(json!(ids)).await);
    assert_eq!(both.0, [one.0, second].concat());
    assert_ne!(both.0[0], both.0[1]);
    assert_eq!(both.1, (ids[0].len() + ids[1].len()) as u64);
}

#[tokio::test]
async fn choices_differ_by_seed_and_come_in_order() {
    // A model without confidence, so that sampling matters.
    let server = server_where(|options| {
        options.sim.law =
            ConfidenceLaw { base: 0.2, left: 0.5, right: 0.5, ..ConfidenceLaw::default() };
    });
    let sampled = json!({"temperature": 1.5, "seed": 3, "max_tokens": 24});
    let many = json!({"n": 3, "prompt": ["Mia has 12 eggs.", "Ben has 3 boxes."]});
    let fields = merge(sampled.clone(), many);
    let answer = server.complete(fields.clone()).await;
    let choices = items(&answer["choices"]);
    let indices = choices.iter().map(|choice| choice["index"].as_u64());
    assert!(indices.eq((0..6).map(Some)));
    assert_ne!(choices[0]["text"], choices[1]["text"]);
    assert_ne!(choices[1]["text"], choices[2]["text"]);
    let again = server.complete(fields).await;
    assert_eq!(again["choices"], answer["choices"]);
    assert_eq!(again["usage"], answer["usage"]);
    assert_eq!(text(&server.complete(sampled).await), text(&answer));
}

#[tokio::test]
async fn a_budget_is_exact() {
    let server = server();
    for budget in [0, 1, 7, 33, 200] {
        let answer = ask!(server, COMPLETIONS {"max_tokens": budget, "ignore_eos": true,
            "return_token_ids": true});
        has!(answer, {"usage": {"completion_tokens": budget},
            "choices": [{"finish_reason": "length"}]});
        assert_eq!(ids(&answer["choices"][0]["token_ids"]).len(), budget);
    }
    let nothing = ask!(server, COMPLETIONS {"max_tokens": 0});
    has!(nothing, {"choices": [{"text": ""}], "usage": {"diffusion": {"forwards": 0}}});
    // Without a limit a chat takes the rest.
    let chat = ask!(server, CHAT {"ignore_eos": true});
    assert_eq!(chat["usage"]["total_tokens"], CONTEXT);
    let limited = ask!(server, CHAT {"max_tokens": 9, "max_completion_tokens": 5,
        "ignore_eos": true});
    assert_eq!(limited["usage"]["completion_tokens"], 5);
}

#[tokio::test]
async fn ids_and_echo_come_when_asked_for() {
    let server = server();
    let plain = ask!(server, COMPLETIONS {"max_tokens": 12});
    let answer = ask!(server, COMPLETIONS {"max_tokens": 12, "echo": true,
        "return_token_ids": true});
    let choice = &answer["choices"][0];
    assert_eq!(text(&answer), format!("Mia has 12 eggs.{}", text(&plain)));
    let prompt = server.tokenizer.encode("Mia has 12 eggs.", true).unwrap();
    assert_eq!(ids(&choice["prompt_token_ids"]), prompt);
    let said = server.tokenizer.decode(&ids(&choice["token_ids"]), true);
    assert_eq!(said, text(&plain));
    let tokens = &plain["usage"]["completion_tokens"];
    assert_eq!(answer["usage"]["completion_tokens"], *tokens);
}

#[tokio::test]
async fn stop_strings_and_ids_end_an_answer() {
    let server = server();
    let whole = ask!(server, COMPLETIONS {"max_tokens": 64, "return_token_ids": true});
    let said = text(&whole);
    let stop: String = said.chars().skip(10).take(4).collect();
    let start = said.find(&stop).unwrap();
    has!(whole, {"choices": [{"finish_reason": "stop", "stop_reason": null}]});
    let cut = ask!(server, COMPLETIONS {"max_tokens": 64, "stop": ["never", stop]});
    has!(cut, {"choices": [{"text": &said[..start], "finish_reason": "stop", "stop_reason": stop}]});
    let kept = ask!(server, COMPLETIONS {"max_tokens": 64, "stop": stop,
        "include_stop_str_in_output": true});
    assert_eq!(text(&kept), &said[..start + stop.len()]);
    let ids = ids(&whole["choices"][0]["token_ids"]);
    let first = ids.iter().position(|id| *id == ids[5]).unwrap();
    let by_id = ask!(server, COMPLETIONS {"max_tokens": 64, "stop_token_ids": [ids[5]]});
    has!(by_id, {"usage": {"completion_tokens": first},
        "choices": [{"finish_reason": "stop", "stop_reason": ids[5]}]});
    let short = ask!(server, COMPLETIONS {"max_tokens": 2, "stop": stop});
    has!(short, {"choices": [{"finish_reason": "length", "stop_reason": null}]});
}

#[tokio::test]
async fn nothing_stops_before_min_tokens() {
    let server = server();
    let answered = async |extra: Value| {
        let fields = merge(extra, json!({"max_tokens": 60, "return_token_ids": true}));
        ids(&server.complete(fields).await["choices"][0]["token_ids"])
    };
    let whole = answered(json!({})).await;
    let length = whole.len();
    assert!(length < 60, "it ends by itself");
    let stops = json!({"stop_token_ids": [whole[2]]});
    assert!(answered(stops.clone()).await.len() <= 2);
    for least in [5, length, length + 3, 60] {
        let least_tokens = json!({"min_tokens": least});
        let stopped = merge(stops.clone(), least_tokens.clone());
        assert!(answered(stopped).await.len() >= least, "{least}");
        assert!(answered(least_tokens).await.len() >= least, "{least}");
    }
}

#[tokio::test]
async fn special_tokens_show_when_asked_for() {
    let server = server();
    // A special token that is no stop token.
    let special = server.tokenizer.decode(&[2], false).repeat(6);
    for (skip, text) in [(json!(null), ""), (json!(true), ""), (json!(false), &*special)] {
        let answer = ask!(server, COMPLETIONS {"max_tokens": 6, "logit_bias": {"2": 100},
            "return_token_ids": true, "skip_special_tokens": skip});
        has!(answer, {"choices": [{"token_ids": [2, 2, 2, 2, 2, 2], "text": text}]});
    }
}

#[tokio::test]
async fn neutral_values_pass_and_change_nothing() {
    let server = server();
    let plain = server.complete(json!({})).await;
    for fields in [
        json!({"logprobs": null, "logit_bias": {}, "frequency_penalty": 0, "presence_penalty": 0.0,
            "repetition_penalty": 1.0, "best_of": 1, "priority": 0, "truncate_prompt_tokens": null,
            "response_format": {"type": "text"}, "tools": [], "tool_choice": "auto", "suffix": null,
            "stop": null, "user": "u", "metadata": {"a": [1]}, "store": false, "stream": false,
            "top_k": -1, "top_p": 1, "min_p": 0, "diffusion": {}}),
        json!({"response_format": null, "regex": null, "grammar": null, "structured_outputs": null,
            "suffix": ""}),
    ] {
        let answer = server.complete(fields).await;
        assert_eq!(answer["choices"], plain["choices"]);
        let prompt = &plain["usage"]["prompt_tokens"];
        assert_eq!(answer["usage"]["prompt_tokens"], *prompt);
    }
}

#[tokio::test]
async fn models_are_listed_and_found() {
    let server = server();
    let list = server.get("/v1/models").await;
    assert_eq!(list.status, 200);
    let list = list.json();
    has!(list, {"object": "list", "first_id": MODEL, "last_id": MODEL, "has_more": false, "data": [{"id": MODEL, "object": "model",
        "created": 1_760_000_000, "owned_by": "asynclane", "max_model_len": CONTEXT,
        "type": "model", "display_name": MODEL, "created_at": "1970-01-01T00:00:00Z",
        "demo": true, "diffusion": {"presets": {"balanced": {"schedule": "asynclane"}}}}]});
    let model = &list["data"][0];
    let find = |registry: &str, name: &str| {
        let mut members = items(&model["diffusion"][registry]).iter();
        members.find(|member| member["name"] == name).unwrap().clone()
    };
    assert_eq!(find("schedules", "window")["caches"][0], "dual");
    assert_eq!(find("caches", "elastic")["settings"][1], "drift_threshold");
    has!(find("commits", "threshold"),
        {"settings": ["threshold", "min_tokens_per_step"], "unavailable": null});
    let edit = find("commits", "edit");
    has!(edit, {"schedules": ["block_wise"]});
    let why = edit["unavailable"].as_str().unwrap();
    assert!(why.starts_with("needs weights that were trained"), "{why}");
    for path in ["/v1/models/org/demo", "/v1/models/org%2Fdemo"] {
        let one = server.get(path).await;
        assert_eq!(one.status, 200, "{path}");
        assert_eq!(one.json(), *model);
    }
}

#[tokio::test]
async fn the_version_and_the_load_are_told() {
    let server = server();
    let version = server.get("/version").await;
    assert_eq!(version.json(), json!({"version": "0.1.0"}));
    let load = server.get("/load").await;
    assert_eq!(load.json(), json!({"server_load": 0}));
}
