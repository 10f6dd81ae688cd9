//! Simultaneous streams have the same content as alone, and the metrics agree with their usage.

use std::sync::Barrier;

use asynclane_tests::client::Client;
use asynclane_tests::crowd::Request;
use asynclane_tests::reply::{Reply, with};
use asynclane_tests::scrape::Scrape;
use asynclane_tests::served::{MODEL, Served, in_parallel};
use problems::{Problem, Split, Task, generate};
use serde_json::{Value, json};

const STREAMS: usize = 32;
const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const BUDGETS: [usize; 8] = [8, 200, 17, 64, 33, 128, 48, 100];

/// Presets, and every schedule, commit rule and cache policy with other settings.
fn decoders() -> Vec<Value> {
    let presets = "fast quality asynclane_paper vanilla fast_dllm fast_dllm_prefix fast_dllm_dual \
                   fast_dllm_dual_published";
    let presets = presets.split(' ').map(|preset| json!({ "preset": preset }));
    let others = [
        json!({"schedule": "asynclane", "cache": "fresh", "refresh": 8, "coupled": true}),
        json!({"schedule": "asynclane", "cache": "snapshot", "fork": "off", "lookahead": 0}),
        json!({"schedule": "asynclane", "cache": "fused", "rows": "all", "refresh": "lane"}),
        json!({"schedule": "asynclane", "cache": "fused", "rows": "open", "refresh": "never",
               "commit": "top_k", "tokens_per_step": 2}),
        json!({"schedule": "block_wise", "commit": "top_k", "cache": "dual",
               "tokens_per_step": 3, "block_length": 16}),
        json!({"schedule": "block_wise", "commit": "threshold", "cache": "prefix",
               "threshold": 0.7, "block_length": 8}),
        json!({"schedule": "asynclane", "cache": "fused", "max_forwards": 6}),
    ];
    std::iter::once(json!({})).chain(presets).chain(others).collect()
}

/// Request `index`: decoder, endpoint, problem, budget and sampling depend on it. None has a stop
fn request(index: usize, decoder: Value, problem: &Problem) -> Request {
    let body = json!({"model": MODEL, "max_tokens": BUDGETS[(index + index / 16) % BUDGETS.len()],
        "seed": index, "return_token_ids": true, "diffusion": decoder});
    let sampling = match index % 5 {
        0 => json!({"temperature": 0.8, "top_p": 0.9}),
        1 => json!({"temperature": 0.8, "top_k": 20, "n": 2}),
        2 => json!({"temperature": 0.8, "min_p": 0.05, "ignore_eos": true}),
        3 => json!({"temperature": 0, "ignore_eos": true}),
        _ => json!({"temperature": 0}),
    };
    let mut body = with(body, &sampling);
    let path = if (index + index / 16).is_multiple_of(2) {
        body["messages"] = json!([{"role": "user", "content": problem.prompt}]);
        CHAT
    } else {
        body["prompt"] = match index % 3 {
            0 => json!([problem.prompt, "Reverse the list books, pens, eggs."]),
            _ => json!(problem.prompt),
        };
        COMPLETIONS
    };
    Request { path, body }
}

fn requests() -> Vec<Request> {
    let decoders = decoders();
    let problems = Task::ALL.map(|task| generate(task, Split::Eval, 7, STREAMS));
    let request = |index: usize| {
        let problem = &problems[index % problems.len()][index];
        request(index, decoders[index % decoders.len()].clone(), problem)
    };
    (0..STREAMS).map(request).collect()
}

fn plain(client: Client, request: &Request) -> Reply {
    Reply::of_answer(&client.json(request.path, &request.body))
}

fn streamed(client: Client, request: &Request) -> Reply {
    let mut body = request.body.clone();
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    Reply::of_events(client.stream(request.path, &body))
}

#[test]
fn together_as_alone_and_the_metrics_add_up() {
    let served = Served::start();
    let client = served.client();
    let requests = requests();
    let alone: Vec<Reply> = requests.iter().map(|each| plain(client, each)).collect();
    let steps_alone = client.metrics().sum("asynclane_engine_steps_total", &[]);

    let start = Barrier::new(STREAMS);
    let together = in_parallel(STREAMS, &requests, |request| {
        start.wait();
        streamed(client, request)
    });
    let metrics = client.metrics();

    for ((request, alone), together) in requests.iter().zip(&alone).zip(&together) {
        assert_eq!(alone, together, "{} {}", request.path, request.body);
    }
    let forwards: u64 = together.iter().map(|reply| reply.count("forwards")).sum();
    let steps = metrics.sum("asynclane_engine_steps_total", &[]) - steps_alone;
    let few = steps <= forwards as f64 / 2.0;
    assert!(few, "{STREAMS} streams: {forwards} forwards in {steps} steps");

    let replies: Vec<&Reply> = alone.iter().chain(&together).collect();
    covers_all(&replies);
    requests_add_up(&metrics, &requests, &replies);
    costs_add_up(&metrics, &replies);
    lanes_add_up(&metrics, &replies);
    histograms_add_up(&metrics, &replies);
    assert!(metrics.busy().is_empty(), "{:?}", metrics.busy());
    let rate = |name: &str| metrics.sum(name, &[]);
    assert!(rate("asynclane_generation_tokens_per_second") > 0.0);
    assert!(rate("asynclane_committed_tokens_per_second") > 0.0);
}

fn total(replies: &[&Reply], field: &str) -> f64 {
    replies.iter().map(|reply| reply.count(field)).sum::<u64>() as f64
}

/// Checks that the requests are varied enough for the sums.
fn covers_all(replies: &[&Reply]) {
    for field in ["forks", "drafts", "refresh_forwards", "decode_forwards"] {
        assert!(total(replies, field) > 0.0, "no {field}");
    }
    for reason in ["stop", "length"] {
        let mut choices = replies.iter().flat_map(|reply| &reply.choices);
        assert!(choices.any(|choice| choice.finish_reason == reason));
    }
    for reply in replies {
        let tokens: usize = reply.choices.iter().map(|c| c.token_ids.len()).sum();
        assert_eq!(reply.count("completion_tokens"), tokens as u64);
    }
}

fn requests_add_up(metrics: &Scrape, requests: &[Request], replies: &[&Reply]) {
    for path in [COMPLETIONS, CHAT] {
        let sent = 2 * requests.iter().filter(|each| each.path == path).count();
        let labels = |outcome| [("endpoint", path), ("outcome", outcome)];
        let count = |outcome| metrics.sum("asynclane_requests_total", &labels(outcome));
        assert_eq!(count("ok"), sent as f64, "{path}");
        for outcome in ["invalid", "rejected", "cancelled", "failed"] {
            assert_eq!(count(outcome), 0.0, "{path} {outcome}");
        }
    }
    let is_cut = |reply: &&&Reply| reply.choices.iter().any(|c| c.finish_reason == "length");
    let cut = replies.iter().filter(is_cut).count();
    let counts = [("length", cut), ("stop", replies.len() - cut)];
    for (reason, count) in counts {
        let labels = [("finished_reason", reason)];
        let found = metrics.sum("asynclane_request_success_total", &labels);
        assert_eq!(found, count as f64, "{reason}");
    }
}

/// A counter, the value of its label `kind` if only that one counts, and the field of the usage.
const COSTS: &str = "
asynclane_prompt_tokens_total prompt_tokens
vllm:prompt_tokens_total prompt_tokens
asynclane_generation_tokens_total completion_tokens
vllm:generation_tokens_total completion_tokens
asynclane_forwards_total prefill prefill_forwards
asynclane_forwards_total decode decode_forwards
asynclane_forwards_total refresh refresh_forwards
vllm:diffusion_num_denoising_steps_total forwards
asynclane_positions_total positions
vllm:diffusion_num_canvas_positions_total positions
asynclane_committed_tokens_total committed_tokens
asynclane_committed_tokens_total draft drafts
asynclane_committed_tokens_total edit edits
vllm:diffusion_num_committed_tokens_total committed_tokens
asynclane_drafts_total drafts
";

fn costs_add_up(metrics: &Scrape, replies: &[&Reply]) {
    for line in COSTS.lines().skip(1) {
        let words: Vec<&str> = line.split(' ').collect();
        let (name, kinds, field) = (words[0], &words[1..words.len() - 1], words[words.len() - 1]);
        let labels: Vec<_> = kinds.iter().map(|kind| ("kind", *kind)).collect();
        let found = metrics.sum(name, &labels);
        assert_eq!(found, total(replies, field), "{line}");
    }
    let steps = metrics.sum("asynclane_engine_steps_total", &[]);
    assert!(steps <= total(replies, "forwards"));
    assert_eq!(metrics.sum("asynclane_step_failures_total", &[]), 0.0);
}

fn lanes_add_up(metrics: &Scrape, replies: &[&Reply]) {
    let (lanes, forks) = (total(replies, "lanes"), total(replies, "forks"));
    let count = |what: &str, labels: &[(&str, &str)]| {
        metrics.sum(&format!("asynclane_lanes_{what}_total"), labels)
    };
    assert_eq!(count("started", &[]), lanes);
    assert_eq!(count("forked", &[]), forks);
    // A lane ends in one of two ways, and every fork has one refine child, which never forks.
    assert_eq!(count("finished", &[]), lanes - forks);
    assert_eq!(count("started", &[("role", "refine")]), forks);
    assert_eq!(count("finished", &[("role", "refine")]), forks);
}

fn histograms_add_up(metrics: &Scrape, replies: &[&Reply]) {
    for (name, field) in [
        ("asynclane_request_prompt_tokens", "prompt_tokens"),
        ("asynclane_request_generation_tokens", "completion_tokens"),
        ("asynclane_request_forwards", "forwards"),
    ] {
        let sum = |suffix: &str| metrics.sum(&format!("{name}_{suffix}"), &[]);
        assert_eq!(sum("sum"), total(replies, field));
        assert_eq!(sum("count"), replies.len() as f64);
    }
    let per_forward = "asynclane_tokens_per_forward";
    let expected: f64 = replies.iter().map(|reply| tokens_per_forward(reply)).sum();
    let found = metrics.sum(&format!("{per_forward}_sum"), &[]);
    let near = (found - expected).abs() < 1e-9 * expected;
    assert!(near, "{found}, expected {expected}");
    let count = metrics.sum(&format!("{per_forward}_count"), &[]);
    assert_eq!(count, replies.len() as f64);
    let steps = metrics.sum("asynclane_engine_steps_total", &[]);
    let batch = |suffix: &str| metrics.sum(&format!("asynclane_batch_size_{suffix}"), &[]);
    assert_eq!(batch("count"), steps);
    assert_eq!(batch("sum"), total(replies, "forwards"));
    let rows = metrics.sum("asynclane_positions_per_forward_sum", &[]);
    assert_eq!(rows, total(replies, "positions"));
}

/// Checks the usage against the reply's own counts.
fn tokens_per_forward(reply: &Reply) -> f64 {
    let said = reply.usage["diffusion"]["tokens_per_forward"].as_f64();
    let said = said.expect("every final usage has it");
    let counted = reply.count("completion_tokens") as f64 / reply.count("forwards") as f64;
    assert!((said - counted).abs() < 1e-12, "{said}, counted {counted}");
    said
}
