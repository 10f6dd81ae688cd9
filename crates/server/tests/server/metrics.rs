//! Metrics: names, labels, constant series, sums that equal the usage of answers.

use std::collections::BTreeSet;

use crate::common::translated::{MESSAGES, RESPONSES, wide_server};
use crate::common::{Gate, MODEL, OpenAtEnd, Options, Server, completion};
use crate::common::{series, server, server_with};
use serde_json::{Value, json};

/// Every series without its value.
fn names(metrics: &str) -> BTreeSet<String> {
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
        .collect()
}

fn native(name: &str) -> String {
    format!("asynclane_{name}{{model_name=\"{MODEL}\"}}")
}

#[tokio::test]
async fn the_format_is_the_text_format() {
    let server = server();
    server.complete(json!({})).await;
    let (_, headers, _) = server.get("/metrics").await;
    assert_eq!(headers["content-type"], "text/plain; version=0.0.4");
    let metrics = server.metrics().await;
    assert!(metrics.ends_with('\n'));
    let mut described = BTreeSet::new();
    for line in metrics.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(
                described.insert(rest.split(' ').next().unwrap().to_owned()),
                "{line}"
            );
        } else if !line.starts_with('#') {
            let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(value.is_finite(), "{line}");
            assert!(line.contains(&format!("model_name=\"{MODEL}\"")), "{line}");
        }
    }
    let helped: BTreeSet<_> = metrics
        .lines()
        .filter_map(|line| {
            line.strip_prefix("# HELP ")?
                .split(' ')
                .next()
                .map(str::to_owned)
        })
        .collect();
    assert_eq!(helped, described);
}

#[tokio::test]
async fn no_series_is_added_by_traffic() {
    let server = server();
    let before = names(&server.metrics().await);
    server.complete(json!({"n": 2, "temperature": 1})).await;
    server.chat(json!({"max_tokens": 3})).await;
    server.post("/v1/completions", &json!({})).await;
    assert_eq!(names(&server.metrics().await), before);
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "the table of metrics")]
async fn every_documented_name_is_there() {
    let metrics = server().metrics().await;
    let families: BTreeSet<_> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect();
    let documented = [
        ("num_requests_running gauge", true),
        ("num_requests_waiting gauge", true),
        ("requests_total counter", false),
        ("request_success_total counter", true),
        ("prompt_tokens_total counter", true),
        ("trace_spans_total counter", false),
        ("generation_tokens_total counter", true),
        ("time_to_first_token_seconds histogram", true),
        ("e2e_request_latency_seconds histogram", true),
        ("request_queue_time_seconds histogram", true),
        ("request_prefill_time_seconds histogram", true),
        ("request_decode_time_seconds histogram", true),
        ("request_time_per_output_token_seconds histogram", true),
        ("inter_chunk_latency_seconds histogram", false),
        ("request_prompt_tokens histogram", true),
        ("request_generation_tokens histogram", true),
        ("request_max_num_generation_tokens histogram", true),
        ("request_forwards histogram", false),
        ("tokens_per_forward histogram", false),
        ("generation_tokens_per_second gauge", false),
        ("committed_tokens_per_second gauge", false),
        ("engine_steps_total counter", false),
        ("forwards_total counter", false),
        ("prefill_chunks_total counter", false),
        ("positions_total counter", false),
        ("committed_tokens_total counter", false),
        ("drafts_total counter", false),
        ("draft_model_tokens_total counter", false),
        ("draft_model_accepted_tokens_total counter", false),
        ("positions_per_forward histogram", false),
        ("batch_size histogram", false),
        ("step_duration_seconds histogram", false),
        ("step_host_share gauge", false),
        ("lanes_active gauge", false),
        ("lanes_started_total counter", false),
        ("lanes_forked_total counter", false),
        ("lanes_finished_total counter", false),
        ("fork_lead_steps histogram", false),
        ("commit_latency_seconds histogram", false),
        ("emit_lag_seconds histogram", false),
        ("prefix_cache_queries_total counter", true),
        ("prefix_cache_hits_total counter", true),
        ("kv_cache_usage_perc gauge", true),
        ("kv_pages_used gauge", false),
        ("kv_pages_total gauge", false),
        ("row_budget gauge", false),
        ("cache_config_info gauge", true),
        ("step_failures_total counter", false),
        ("engine_age_seconds gauge", false),
        ("endpoint_latency_seconds histogram", false),
        ("endpoint_tokens_total counter", false),
        ("connections gauge", false),
        ("connections_evicted_total counter", false),
        ("connections_refused_total counter", false),
        ("accept_errors_total counter", false),
        ("pool_jobs gauge", false),
        ("log_lines_lost_total counter", false),
        ("build_info gauge", false),
    ];
    let mut expected = BTreeSet::new();
    for (name, aliased) in documented {
        expected.insert(format!("asynclane_{name}"));
        if aliased {
            expected.insert(format!("vllm:{name}"));
        }
    }
    expected.extend(
        [
            "vllm:inter_token_latency_seconds histogram",
            "vllm:diffusion_num_denoising_steps_total counter",
            "vllm:diffusion_num_canvas_positions_total counter",
            "vllm:diffusion_num_committed_tokens_total counter",
            "vllm:spec_decode_num_draft_tokens_total counter",
            "vllm:spec_decode_num_accepted_tokens_total counter",
            "process_cpu_seconds_total counter",
            "process_max_fds gauge",
            "process_open_fds gauge",
            "process_resident_memory_bytes gauge",
            "process_start_time_seconds gauge",
            "process_threads gauge",
            "process_virtual_memory_bytes gauge",
        ]
        .map(str::to_owned),
    );
    let found: BTreeSet<_> = families.iter().map(|family| (*family).to_owned()).collect();
    assert_eq!(found, expected);
    let alias = format!("vllm:num_requests_waiting{{model_name=\"{MODEL}\",engine=\"0\"}}");
    assert_eq!(series(&metrics, &alias), 0.0);
}

/// The series that vLLM's own Grafana dashboard reads (`prometheus_grafana` of its examples).
const DASHBOARD: [&str; 15] = [
    "e2e_request_latency_seconds_bucket",
    "prompt_tokens_total",
    "generation_tokens_total",
    "inter_token_latency_seconds_bucket",
    "num_requests_running",
    "num_requests_waiting",
    "time_to_first_token_seconds_bucket",
    "kv_cache_usage_perc",
    "request_prompt_tokens_bucket",
    "request_generation_tokens_bucket",
    "request_success_total",
    "request_queue_time_seconds_sum",
    "request_prefill_time_seconds_sum",
    "request_decode_time_seconds_sum",
    "request_max_num_generation_tokens_sum",
];

#[tokio::test]
async fn the_dashboard_of_vllm_finds_its_series() {
    let metrics = server().metrics().await;
    for name in DASHBOARD {
        let series = format!("vllm:{name}{{");
        let mut found = metrics.lines().filter(|line| line.starts_with(&series));
        let line = found.next().unwrap_or_else(|| panic!("no {name}"));
        assert!(line.contains(&format!("model_name=\"{MODEL}\"")), "{line}");
    }
}

#[tokio::test]
async fn consumers_that_match_suffixes_find_one_metric() {
    let metrics = server().metrics().await;
    let names: Vec<_> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    for prefix in ["asynclane_", "vllm:"] {
        let bare: Vec<_> = names
            .iter()
            .filter_map(|name| name.strip_prefix(prefix))
            .collect();
        assert!(!bare.is_empty());
        for name in &bare {
            let ends = bare.iter().filter(|other| other.ends_with(name)).count();
            assert_eq!(ends, 1, "{name}");
        }
    }
}

#[tokio::test]
async fn a_scrape_does_not_wait_for_the_engine() {
    let gate = Gate::default();
    let options = Options {
        gate: Some(gate.clone()),
        ..Options::default()
    };
    let (server, open) = (server_with(options), OpenAtEnd(gate));
    let asked = server.clone();
    let answer = tokio::spawn(async move { asked.complete(json!({"max_tokens": 4})).await });
    server.until(|server| server.counters.steps() == 1).await;
    // The engine thread waits in a forward pass until the gate opens.
    let metrics = server.metrics().await;
    assert_eq!(series(&metrics, &native("engine_steps_total")), 0.0);
    drop(open);
    answer.await.unwrap();
    server.until_idle().await;
    let metrics = server.metrics().await;
    assert!(series(&metrics, &native("engine_steps_total")) > 0.0);
}

async fn sum(server: &Server, answers: &[Value], field: &str) -> (f64, f64) {
    let metrics = server.metrics().await;
    let labelled =
        |kind: &str| format!("asynclane_{field}_total{{kind=\"{kind}\",model_name=\"{MODEL}\"}}");
    let counted = ["prefill", "decode", "refresh"].map(|kind| series(&metrics, &labelled(kind)));
    let reported: f64 = answers
        .iter()
        .map(|answer| answer["usage"]["diffusion"][field].as_f64().unwrap())
        .sum();
    (counted.iter().sum(), reported)
}

#[tokio::test]
async fn metrics_add_up_with_usage() {
    let server = server();
    let mut answers = vec![
        server.complete(json!({"max_tokens": 64})).await,
        server
            .complete(json!({"max_tokens": 9, "n": 3, "temperature": 1, "seed": 2}))
            .await,
        server.complete(json!({"max_tokens": 0})).await,
        server.chat(json!({"max_tokens": 50})).await,
    ];
    let streamed = completion(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let chunks = crate::common::events(&server.stream("/v1/completions", &streamed).await);
    answers.push(chunks.last().unwrap().clone());
    // The last step is reported after its events.
    server.until_idle().await;
    let metrics = server.metrics().await;
    let total = |key: &str| {
        answers
            .iter()
            .map(|answer| answer["usage"][key].as_f64().unwrap())
            .sum::<f64>()
    };
    let count = answers.len() as f64;
    for (name, expected) in [
        ("prompt_tokens_total", total("prompt_tokens")),
        ("generation_tokens_total", total("completion_tokens")),
        ("request_prompt_tokens_sum", total("prompt_tokens")),
        ("request_generation_tokens_sum", total("completion_tokens")),
        ("time_to_first_token_seconds_count", count),
        ("e2e_request_latency_seconds_count", count),
        ("request_queue_time_seconds_count", count),
        ("request_prefill_time_seconds_count", count),
        ("request_decode_time_seconds_count", count),
        ("request_time_per_output_token_seconds_count", count),
        ("request_forwards_count", count),
        ("tokens_per_forward_count", count),
        ("kv_pages_used", 0.0),
        ("step_failures_total", 0.0),
    ] {
        assert_eq!(series(&metrics, &native(name)), expected, "{name}");
    }
    let success = ["stop", "length"].map(|reason| {
        let labels = format!("finished_reason=\"{reason}\",model_name=\"{MODEL}\"");
        series(
            &metrics,
            &format!("asynclane_request_success_total{{{labels}}}"),
        )
    });
    assert_eq!(success.iter().sum::<f64>(), count);
    for field in ["forwards", "positions"] {
        let (counted, reported) = sum(&server, &answers, field).await;
        assert_eq!(counted, reported, "{field}");
    }
}

#[tokio::test]
async fn the_time_to_the_first_token_is_queue_and_prefill() {
    let gate = Gate::default();
    let options = Options {
        gate: Some(gate.clone()),
        ..Options::default()
    };
    let (server, open) = (server_with(options), OpenAtEnd(gate));
    let asked = server.clone();
    let answer = tokio::spawn(async move { asked.complete(json!({"max_tokens": 4})).await });
    server.until(|server| server.counters.steps() == 1).await;
    // The request runs and has no token: this time is its prefill.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    drop(open);
    answer.await.unwrap();
    let metrics = server.metrics().await;
    let sum = |name: &str| series(&metrics, &native(&format!("{name}_seconds_sum")));
    let parts = sum("request_queue_time") + sum("request_prefill_time");
    assert!((sum("time_to_first_token") - parts).abs() < 1e-9);
    assert!(sum("request_prefill_time") >= 0.04);
    assert!(sum("request_queue_time") < sum("request_prefill_time"));
}

#[tokio::test]
async fn the_longest_choice_is_one_that_was_delivered() {
    let server = server();
    let asked = [
        json!({"max_tokens": 9}),
        json!({"max_tokens": 64, "n": 3, "temperature": 1, "seed": 2}),
        json!({"max_tokens": 64, "n": 2, "best_of": 5, "temperature": 1.5, "seed": 3}),
    ];
    let mut longest = 0;
    for mut fields in asked {
        fields["return_token_ids"] = json!(true);
        let answer = server.complete(fields).await;
        let choices = answer["choices"].as_array().unwrap().iter();
        let lengths = choices.map(|choice| choice["token_ids"].as_array().unwrap().len());
        longest += lengths.max().unwrap();
    }
    let metrics = server.metrics().await;
    let name = native("request_max_num_generation_tokens_sum");
    assert_eq!(series(&metrics, &name), longest as f64);
}

#[tokio::test]
async fn the_process_is_measured() {
    let server = server();
    let value = |metrics: &str, name: &str| {
        series(
            metrics,
            &format!("process_{name}{{model_name=\"{MODEL}\"}}"),
        )
    };
    let before = server.metrics().await;
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let age = since.as_secs_f64() - value(&before, "start_time_seconds");
    assert!((-1.0..3600.0).contains(&age), "{age}");
    assert!(value(&before, "resident_memory_bytes") > 1e6);
    assert!(value(&before, "resident_memory_bytes") < value(&before, "virtual_memory_bytes"));
    assert!(value(&before, "threads") >= 2.0);
    assert!(value(&before, "open_fds") >= 3.0);
    assert!(value(&before, "open_fds") < value(&before, "max_fds"));
    let files: Vec<_> = (0..20)
        .map(|_| std::fs::File::open("/proc/self/stat").unwrap())
        .collect();
    let started = std::time::Instant::now();
    while started.elapsed().as_millis() < 50 {
        std::hint::spin_loop();
    }
    let after = server.metrics().await;
    assert!(value(&after, "cpu_seconds_total") > value(&before, "cpu_seconds_total"));
    assert!(value(&after, "open_fds") > value(&before, "open_fds"));
    drop(files);
}

#[tokio::test]
async fn forwards_behind_a_stop_string_are_counted_but_not_charged() {
    let server = server();
    let answers = [server
        .chat(json!({"max_tokens": 50, "stop": ["a", "e"]}))
        .await];
    server.until_idle().await;
    for field in ["forwards", "positions"] {
        let (counted, reported) = sum(&server, &answers, field).await;
        assert!(counted >= reported && reported > 0.0, "{field}");
    }
}

#[tokio::test]
async fn outcomes_are_counted_once() {
    let server = server();
    server.complete(json!({})).await;
    server.post("/v1/completions", &json!({})).await;
    server
        .post("/v1/completions", &completion(json!({"model": "x"})))
        .await;
    let metrics = server.metrics().await;
    let outcome = |endpoint: &str, outcome: &str| {
        let labels =
            format!("endpoint=\"{endpoint}\",model_name=\"{MODEL}\",outcome=\"{outcome}\"");
        series(&metrics, &format!("asynclane_requests_total{{{labels}}}"))
    };
    assert_eq!(outcome("/v1/completions", "ok"), 1.0);
    assert_eq!(outcome("/v1/completions", "invalid"), 2.0);
    for name in ["rejected", "cancelled", "failed"] {
        assert_eq!(outcome("/v1/completions", name), 0.0, "{name}");
    }
    assert_eq!(outcome("/v1/chat/completions", "ok"), 0.0);
}

/// Requests, latencies and tokens by endpoint, each under its own label.
#[tokio::test]
async fn every_endpoint_has_its_own_figures() {
    let server = wide_server();
    let completion = server.complete(json!({"max_tokens": 5})).await;
    let chat = server.chat(json!({"max_tokens": 6})).await;
    let response = RESPONSES
        .ask(&server, json!({"max_output_tokens": 7}))
        .await;
    let message = MESSAGES.ask(&server, json!({"max_tokens": 8})).await;
    let count = "/v1/messages/count_tokens";
    let (status, counted) = server.post(count, &MESSAGES.body(&json!({}))).await;
    assert_eq!(status, 200, "{counted}");
    // One invalid request to each, and a stream.
    let paths = [
        "/v1/completions",
        "/v1/chat/completions",
        RESPONSES.path,
        MESSAGES.path,
        count,
    ];
    for path in paths {
        server.post(path, &json!({"model": MODEL})).await;
    }
    let streamed = server
        .stream(RESPONSES.path, &RESPONSES.body(&json!({"stream": true})))
        .await;
    let streamed = crate::common::named_events(&streamed).pop().unwrap().1["response"].clone();
    server.until_idle().await;
    let metrics = server.metrics().await;
    let number = |answers: &[&Value], field: &str| {
        let of = |answer: &&Value| answer["usage"][field].as_f64().unwrap();
        answers.iter().map(of).sum::<f64>()
    };
    let openai = ["prompt_tokens", "completion_tokens"];
    let other = ["input_tokens", "output_tokens"];
    let rows: [(&str, &[&Value], [&str; 2]); 5] = [
        (paths[0], &[&completion], openai),
        (paths[1], &[&chat], openai),
        (paths[2], &[&response, &streamed], other),
        (paths[3], &[&message], other),
        (paths[4], &[], other),
    ];
    for (path, answers, fields) in rows {
        let of = |name: &str, labels: &str| {
            let mut labels: Vec<&str> = labels.split(',').filter(|one| !one.is_empty()).collect();
            let (endpoint, model) = (
                format!("endpoint=\"{path}\""),
                format!("model_name=\"{MODEL}\""),
            );
            labels.extend([endpoint.as_str(), &model]);
            labels.sort_unstable();
            series(
                &metrics,
                &format!("asynclane_{name}{{{}}}", labels.join(",")),
            )
        };
        let ok = answers.len().max(1) as f64;
        assert_eq!(of("requests_total", "outcome=\"ok\""), ok, "{path}");
        assert_eq!(of("requests_total", "outcome=\"invalid\""), 1.0, "{path}");
        assert_eq!(of("endpoint_latency_seconds_count", ""), ok, "{path}");
        assert!(of("endpoint_latency_seconds_sum", "") > 0.0, "{path}");
        for (kind, field) in ["kind=\"prompt\"", "kind=\"generation\""]
            .iter()
            .zip(fields)
        {
            let expected = number(answers, field);
            assert_eq!(of("endpoint_tokens_total", kind), expected, "{path} {kind}");
        }
    }
}
