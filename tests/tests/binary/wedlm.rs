//! `asynclane serve --model demo-wedlm`: causal weights, exact K/V that requests share.

use asynclane_tests::process::Server;
use asynclane_tests::reply::Reply;
use serde_json::{Value, json};

use crate::sum;

const CHAT: &str = "/v1/chat/completions";

fn ask(system: &str, prompt: &str, diffusion: &Value) -> Value {
    json!({"model": "demo-wedlm", "messages": [{"role": "system", "content": system},
        {"role": "user", "content": prompt}], "max_tokens": 24, "temperature": 0, "seed": 7,
        "diffusion": diffusion})
}

/// The second request has less than half of the rows of the first, the same answer as without the
/// cache, and the counters agree.
#[test]
fn a_system_prompt_is_forwarded_once() {
    let system = "Sort, reverse or copy what you are given. ".repeat(12);
    let [server, without] =
        [&["--model", "demo-wedlm"][..], &["--model", "demo-wedlm", "--no-prefix-cache"]]
            .map(Server::start);
    let asked = |server: &Server, prompt: &str| {
        let body = ask(&system, prompt, &json!({}));
        let answer = server.client().json(CHAT, &body);
        Reply::of_answer(&answer)
    };
    let (first, second) = (sum().prompt, "Reverse the list 4, 7, 1.");
    let whole = asked(&server, &first).usage;
    let reply = asked(&server, second);
    let positions = |usage: &Value| usage["diffusion"]["positions"].as_u64().unwrap();
    let cached = &reply.usage["prompt_tokens_details"]["cached_tokens"];
    let cached = cached.as_u64().unwrap();
    assert!(whole["prompt_tokens_details"].is_null(), "{whole}");
    let (ours, all) = (positions(&reply.usage), positions(&whole));
    assert!(2 * ours < all, "{ours} rows after {all}");
    let alone = asked(&without, second);
    assert_eq!(reply.choices, alone.choices);
    assert_eq!(positions(&reply.usage) + cached, positions(&alone.usage));

    let scrape = server.client().metrics();
    let tokens = |usage: &Value| usage["prompt_tokens"].as_u64().unwrap() as f64;
    let queries = scrape.sum("asynclane_prefix_cache_queries_total", &[]);
    // The server runs a request of its own before it is ready.
    assert!(queries >= tokens(&whole) + tokens(&reply.usage));
    let hits = scrape.sum("asynclane_prefix_cache_hits_total", &[]);
    assert_eq!(hits, cached as f64);
    assert_eq!(scrape.sum("asynclane_kv_pages_used", &[]), 0.0);
    let loads = server.client().get("/v1/loads").json();
    assert!(loads["loads"][0]["cache_hit_rate"].as_f64().unwrap() > 0.0);
}

/// A long prompt in chunks has the answer and the cost of a whole one. Usage and metrics count the
/// chunks apart from the forward passes.
#[test]
fn a_long_prompt_comes_in_chunks() {
    const ROWS: u64 = 32;
    let system = "Sort, reverse or copy what you are given. ".repeat(12);
    let rows = ROWS.to_string();
    let [split, whole] = [&*rows, "0"]
        .map(|rows| Server::start(&["--model", "demo-wedlm", "--prefill-chunk", rows]));
    let asked = |server: &Server| {
        let wedlm = json!({"preset": "wedlm"});
        let body = ask(&system, "Reverse the list 4, 7, 1.", &wedlm);
        Reply::of_answer(&server.client().post(CHAT, &body).json())
    };
    let (ours, theirs) = (asked(&split), asked(&whole));
    assert_eq!(ours.choices, theirs.choices);
    let prompt = ours.usage["prompt_tokens"].as_u64().unwrap();
    let chunks = ours.usage["diffusion"]["prefill_chunks"].as_u64().unwrap();
    let least = (prompt - 1) / ROWS;
    let fits = (least..=least + 1).contains(&chunks);
    assert!(fits, "{chunks} of {prompt} tokens");
    let mut cost = ours.usage["diffusion"].clone();
    cost.as_object_mut().unwrap().remove("prefill_chunks");
    assert_eq!(cost, theirs.usage["diffusion"]);
    let counted = |server: &Server| {
        let scrape = server.client().metrics();
        scrape.sum("asynclane_prefill_chunks_total", &[]) as u64
    };
    // The server runs a short request of its own before it is ready.
    assert_eq!((counted(&split), counted(&whole)), (chunks, 0));
}

#[test]
fn features_that_causal_weights_do_not_support_are_refused_by_name() {
    let server = Server::start(&["--model", "demo-wedlm"]);
    let body = ask("Sort.", "Sort 3, 1.", &json!({"preset": "balanced"}));
    let error = server.client().post(CHAT, &body).error();
    let expected = "diffusion.cache fused does not go with this model's causal attention: use preset \
                    wedlm_next";
    assert_eq!((&error["param"], &error["message"]), (&json!("diffusion.cache"), &json!(expected)));
    let infill = json!({"model": "demo-wedlm", "prompt": "Tom has", "suffix": " coins."});
    let error = server.client().post("/v1/completions", &infill).error();
    assert_eq!(error["param"], "suffix");
    let models = server.client().get("/v1/models").json();
    let presets = models["data"][0]["diffusion"]["presets"].as_object().unwrap();
    let mut names: Vec<&str> = presets.keys().map(String::as_str).collect();
    names.sort_unstable();
    let expected =
        "autoregressive block_causal d2f introspective prompt_lookup wedlm wedlm_exact wedlm_next";
    assert_eq!(names.join(" "), expected);
}
