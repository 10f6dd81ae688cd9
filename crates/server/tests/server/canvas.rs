//! `diffusion.canvas` and `diffusion.max_steps`.

use sim::SimConfig;
use step::{Attention, LogitShift};

use crate::common::*;

fn encoded(server: &Server, text: &str) -> Vec<u32> {
    server.tokenizer.encode(text, false).unwrap()
}

fn noise() -> Server {
    wide_server_where(|options| {
        let attention = Attention::Canvas(64);
        options.sim = SimConfig { attention, ..options.sim.clone() };
    })
}

fn canvas(pieces: Value) -> Value {
    json!({"return_token_ids": true, "diffusion": {"canvas": pieces}})
}

/// The ids of a choice.
fn token_ids(answer: &Value) -> Vec<u32> {
    ids(&answer["choices"][0]["token_ids"])
}

#[tokio::test]
async fn an_answer_is_the_whole_canvas_in_order() {
    for server in [wide_server(), noise()] {
        let (first, second) = (encoded(&server, "Tom has"), encoded(&server, " coins."));
        let pieces = json!([{"text": "Tom has"}, {"open": 3}, {"tokens": second}, {"open": 2},
            {"text": " coins."}]);
        for path in [COMPLETIONS, CHAT] {
            let answer = server.ask(path, canvas(pieces.clone())).await;
            let found = token_ids(&answer);
            let (a, b) = (first.len(), second.len());
            assert_eq!(found[..a], first, "{answer}");
            assert_eq!(found[a + 3..a + 3 + b], second, "{answer}");
            assert_eq!(found[found.len() - b..], second, "{answer}");
            assert!(found.len() <= a + 3 + b + 2 + b);
            let text = server.tokenizer.decode(&found, true);
            assert_eq!(common_text(&answer), text);
            // The stream is the same text.
            let stream = server.stream(path, canvas(pieces.clone())).await;
            let streamed: String = events(&stream)
                .iter()
                .map(|event| {
                    let choice = &event["choices"][0];
                    let piece = choice["text"].as_str().or(choice["delta"]["content"].as_str());
                    piece.unwrap_or_default().to_owned()
                })
                .collect();
            assert_eq!(streamed, text);
        }
    }
}

fn common_text(answer: &Value) -> String {
    text(answer).to_owned()
}

/// A suffix is a canvas whose given piece is its last: the same ids before it.
#[tokio::test]
async fn a_suffix_is_a_canvas() {
    let server = wide_server();
    let suffix = " is what Mia has left.";
    for settings in [json!({}), json!({"temperature": 1, "seed": 5}), json!({"stop": "the"})] {
        let plain = merge(
            settings.clone(),
            json!({"max_tokens": 20, "suffix": suffix, "return_token_ids": true}),
        );
        let plain = server.ask(COMPLETIONS, plain).await;
        let written = merge(settings, canvas(json!([{"open": 20}, {"text": suffix}])));
        let written = server.ask(COMPLETIONS, written).await;
        let (short, long) = (token_ids(&plain), token_ids(&written));
        let stopped_early = text(&plain) == text(&written);
        let tail = encoded(&server, suffix);
        assert!(stopped_early || long == [short, tail].concat(), "{plain} {written}");
    }
}

#[tokio::test]
async fn the_rest_of_a_request_works_on_a_canvas() {
    for server in [wide_server(), noise()] {
        let pieces = json!([{"text": "Tom"}, {"open": 6}, {"text": " coins"}, {"open": 1}]);
        let given = encoded(&server, "Tom");
        let several = merge(canvas(pieces.clone()), json!({"n": 3, "temperature": 1, "seed": 4}));
        let answer = server.ask(COMPLETIONS, several.clone()).await;
        let again = server.ask(COMPLETIONS, several).await;
        assert_eq!(answer["choices"], again["choices"]);
        for choice in items(&answer["choices"]) {
            assert_eq!(ids(&choice["token_ids"])[..given.len()], given);
        }
        // A given token is certain.
        let scored = merge(canvas(pieces.clone()), json!({"logprobs": 2}));
        let answer = server.ask(COMPLETIONS, scored).await;
        let logprobs = &answer["choices"][0]["logprobs"]["token_logprobs"];
        let values: Vec<f64> = items(logprobs).iter().map(|x| x.as_f64().unwrap()).collect();
        assert!(values[..given.len()].iter().all(|x| *x == 0.0), "{logprobs}");
        assert!(values[given.len()..given.len() + 6].iter().any(|x| *x < 0.0), "{logprobs}");
        // A grammar goes on behind what is given, and refuses what it cannot hold.
        let grammar = merge(
            canvas(json!([{"text": "Tom"}, {"open": 8}])),
            json!({"regex": "Tom( has)+", "max_tokens": null}),
        );
        let answer = server.ask(COMPLETIONS, grammar).await;
        assert!(text(&answer).starts_with("Tom has"), "{answer}");
        let grammar = merge(canvas(json!([{"text": "Tom"}, {"open": 8}])), json!({"regex": "Ana"}));
        let (status, answer) = server.post(COMPLETIONS, &completion(grammar)).await;
        assert_eq!(
            (status.as_u16(), &answer["error"]["param"]),
            (400, &json!("regex")),
            "{answer}"
        );
        let trace = body(TRACE, canvas(pieces.clone()));
        let reply = server.send("POST", TRACE, &[], trace.to_string()).await;
        assert_eq!(reply.status, 200);
        let events = named_events(&reply.text());
        assert!(events.iter().any(|(name, _)| name == "done"));
        // The first event has the given tokens.
        let (first, data) = &events[0];
        let shown = items(&data["pins"]);
        assert_eq!((&**first, &shown[0][0]), ("open", &json!(0)), "{data}");
        let tokens: Vec<&Value> = shown.iter().map(|pin| &pin[1]).collect();
        assert!(given.iter().zip(&tokens).all(|(given, shown)| json!(given) == **shown), "{data}");
        assert!(shown.iter().all(|pin| pin[2].is_string()), "{data}");
    }
}

#[tokio::test]
async fn the_last_step_fills_the_canvas() {
    for (server, budget) in [(wide_server(), 40), (noise(), 64)] {
        for most in [1, 3] {
            let fields = json!({"max_tokens": budget, "ignore_eos": true, "return_token_ids": true,
                "diffusion": {"max_steps": most}});
            let answer = server.ask(COMPLETIONS, fields).await;
            let forwards = answer["usage"]["diffusion"]["forwards"].as_u64().unwrap();
            assert!(forwards <= most, "{answer}");
            assert_eq!(token_ids(&answer).len(), budget, "{answer}");
        }
    }
}

#[tokio::test]
async fn faulty_canvases_name_the_piece() {
    let server = server();
    let mask = server.tokenizer.mask_token().unwrap().to_owned();
    let canvas = |pieces: Value| json!({"diffusion": {"canvas": pieces}});
    let open = json!({"open": 4});
    for (pieces, code, param) in [
        (json!([]), "invalid_value", "diffusion.canvas"),
        (json!({}), "invalid_type", "diffusion.canvas"),
        (json!([{"text": "a"}]), "invalid_value", "diffusion.canvas"),
        (json!([open, {}]), "invalid_value", "diffusion.canvas[1]"),
        (json!([open, {"text": "a", "open": 1}]), "invalid_value", "diffusion.canvas[1]"),
        (json!([{"open": 0}]), "invalid_value", "diffusion.canvas[0].open"),
        (json!([open, {"txt": "a"}]), "unknown_parameter", "diffusion.canvas[1].txt"),
        (json!([{"edit": "a"}, {"edit": "b"}]), "invalid_value", "diffusion.canvas[1].edit"),
        (json!([open, {"edit": "a"}]), "invalid_value", "diffusion.canvas[1].edit"),
        (json!([open, {"tokens": [900]}]), "invalid_value", "diffusion.canvas[1].tokens[0]"),
        (json!([{"text": "a"}, {"text": mask}, open]), "invalid_value", "diffusion.canvas[1].text"),
        (json!([{"tokens": [MASK]}, open]), "invalid_value", "diffusion.canvas[0].tokens"),
        (
            json!([{"text": "a"}, {"open": 600}]),
            "context_length_exceeded",
            "diffusion.canvas[1].open",
        ),
        (json!([{"open": 510}]), "context_length_exceeded", "diffusion.canvas"),
        (json!([{"tokens": [STOP]}, open]), "invalid_value", "diffusion.canvas"),
    ] {
        server.refused(COMPLETIONS, &canvas(pieces), code, param).await;
    }
    let body = |more: Value| merge(canvas(json!([open])), more);
    server
        .refused(COMPLETIONS, &body(json!({"max_tokens": 4})), "invalid_value", "max_tokens")
        .await;
    server.refused(COMPLETIONS, &body(json!({"suffix": "a"})), "invalid_value", "suffix").await;
    server
        .refused(RESPONSES, &canvas(json!([open])), "unsupported_parameter", "diffusion.canvas")
        .await;
    for (attention, logit_shift) in [
        (Attention::Causal, LogitShift::None),
        (Attention::Causal, LogitShift::One),
        (Attention::Blocks(32), LogitShift::None),
    ] {
        let server = wide_server_where(|options| {
            options.sim = SimConfig { attention, logit_shift, ..options.sim.clone() };
        });
        server
            .refused(
                COMPLETIONS,
                &canvas(json!([open])),
                "unsupported_parameter",
                "diffusion.canvas",
            )
            .await;
        let steps = json!({"diffusion": {"max_steps": 3}});
        server.refused(COMPLETIONS, &steps, "invalid_value", "diffusion.max_steps").await;
    }
}

/// vLLM's fields: the seed stands in the first step, what is pinned in all steps, and a read ends with the
/// first canvas.
#[tokio::test]
async fn the_fields_of_vllm_seed_and_pin_a_canvas() {
    let server = noise();
    let mut seed: Vec<u32> = (0..64).map(|index| 100 + index).collect();
    // A pinned token that would end a text is one of the template.
    seed[3] = STOP;
    let pinned: Vec<usize> = (0..64).filter(|index| index % 7 != 0).collect();
    let xargs = |more: Value| {
        merge(
            json!({"diffusion_seed_canvas": seed,
        "diffusion_pinned": pinned}),
            more,
        )
    };
    for steps in [1, 4] {
        let read = xargs(json!({"diffusion_max_steps": steps, "diffusion_read_only": true}));
        let fields = json!({"vllm_xargs": read, "max_tokens": 20, "logprobs": true,
            "top_logprobs": 5, "return_token_ids": true, "seed": 7});
        let answer = server.ask(CHAT, fields.clone()).await;
        let found = token_ids(&answer);
        assert_eq!(found.len(), 64, "{answer}");
        assert!(pinned.iter().all(|index| found[*index] == seed[*index]), "{found:?}");
        assert_eq!(answer["usage"]["diffusion"]["forwards"], steps);
        let logprobs = items(&answer["choices"][0]["logprobs"]["content"]);
        assert_eq!(logprobs.len(), 64);
        assert!(logprobs[0]["logprob"].as_f64().unwrap() < 0.0);
        assert_eq!(items(&logprobs[0]["top_logprobs"]).len(), 5);
        assert_eq!(server.ask(CHAT, fields).await["choices"], answer["choices"]);
    }
    for (fields, code, param) in [
        (json!({"diffusion_seed_canvas": [1, 2]}), "invalid_value", "diffusion_seed_canvas"),
        (
            json!({"diffusion_seed_canvas": vec![900; 64]}),
            "invalid_value",
            "diffusion_seed_canvas[0]",
        ),
        (json!({"diffusion_pinned": [1]}), "invalid_value", "diffusion_pinned"),
        (xargs(json!({"diffusion_pinned": [64]})), "invalid_value", "diffusion_pinned[0]"),
        (json!({"diffusion_max_steps": 0}), "invalid_value", "diffusion_max_steps"),
        (json!({"diffusion_constrained": true}), "invalid_value", "diffusion_constrained"),
        (json!({"diffusion_canvas_length": 65}), "invalid_value", "diffusion_canvas_length"),
        (
            json!({"diffusion_canvas_length": 8, "diffusion_seed_canvas": [1, 2]}),
            "invalid_value",
            "diffusion_seed_canvas",
        ),
        (json!({"other": 1}), "unknown_parameter", "other"),
    ] {
        let fields = json!({"vllm_xargs": fields});
        server.refused(CHAT, &fields, code, &format!("vllm_xargs.{param}")).await;
    }
    let steps = json!({"vllm_xargs": {"diffusion_max_steps": 2}});
    self::server().refused(CHAT, &steps, "unsupported_parameter", "vllm_xargs").await;
    self::server().ask(CHAT, json!({"vllm_xargs": {}})).await;
}

/// A read of listed tokens names each of them at every position, by its id; a constrained one writes them
/// alone, and their probabilities sum to one.
#[tokio::test]
async fn a_read_lists_tokens_and_may_write_them_alone() {
    let server = noise();
    let listed = [700, 31, 205, 31];
    for constrained in [false, true] {
        let fields = json!({"logprob_token_ids": listed, "return_tokens_as_token_ids": true,
            "return_token_ids": true, "seed": 3, "vllm_xargs": {
            "diffusion_seed_canvas": [9, 10, 11, 12, 13, 14, 15, 16], "diffusion_canvas_length": 8,
            "diffusion_pinned": [0, 5], "diffusion_max_steps": 2, "diffusion_read_only": true,
            "diffusion_constrained": constrained}});
        let chat = merge(fields.clone(), json!({"logprobs": true, "top_logprobs": 1}));
        let answer = server.ask(CHAT, chat).await;
        let found = token_ids(&answer);
        assert_eq!((found.len(), found[0], found[5]), (8, 9, 14), "{answer}");
        for (offset, entry) in
            items(&answer["choices"][0]["logprobs"]["content"]).iter().enumerate()
        {
            assert_eq!(entry["token"], format!("token_id:{}", found[offset]));
            let top = items(&entry["top_logprobs"]);
            if [0, 5].contains(&offset) {
                assert_eq!((top.len(), &entry["logprob"]), (1, &json!(0.0)));
                continue;
            }
            let mut names: Vec<&str> =
                top.iter().map(|one| one["token"].as_str().unwrap()).collect();
            names.sort_unstable();
            assert_eq!(names, ["token_id:205", "token_id:31", "token_id:700"]);
            let sum: f64 = top.iter().map(|one| one["logprob"].as_f64().unwrap().exp()).sum();
            assert_eq!((sum - 1.0).abs() < 1e-5, constrained, "{sum}");
            assert!(!constrained || listed.contains(&found[offset]), "{found:?}");
        }
        let answer = server.ask(COMPLETIONS, merge(fields, json!({"logprobs": 0}))).await;
        let lists = &answer["choices"][0]["logprobs"];
        assert_eq!(lists["tokens"][0], "token_id:9");
        // The chosen token too, if it is no listed one.
        let table = lists["top_logprobs"][1].as_object().unwrap();
        assert!(
            ["31", "205", "700"].iter().all(|id| table.contains_key(&format!("token_id:{id}")))
        );
    }
    let refused = async |fields: Value, param: &str| {
        server.refused(CHAT, &fields, "invalid_value", param).await;
    };
    refused(json!({"logprob_token_ids": [1]}), "logprob_token_ids").await;
    let listed = |ids: Vec<u32>| json!({"logprobs": true, "logprob_token_ids": ids});
    refused(listed(vec![]), "logprob_token_ids").await;
    refused(listed((0..129).collect()), "logprob_token_ids").await;
    refused(listed(vec![1, 900_000]), "logprob_token_ids[1]").await;
    let grammar = json!({"response_format": {"type": "json_object"}});
    refused(merge(listed(vec![1]), grammar), "logprob_token_ids").await;
}
