//! Metrics: names, labels, constant series, sums that equal the usage of answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use asynclane_server::{DeviceBytes, Metrics};
use engine::{Load, Pulse};

use crate::common::*;

/// Every series without its value.
fn names(metrics: &str) -> BTreeSet<&str> {
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap().0).collect()
}

#[tokio::test]
async fn the_format_is_the_text_format() {
    let server = server();
    server.complete(json!({})).await;
    let reply = server.get("/metrics").await;
    assert_eq!(reply.headers["content-type"], "text/plain; version=0.0.4");
    let metrics = reply.text();
    assert!(metrics.ends_with('\n'));
    let model = format!("model_name=\"{MODEL}\"");
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(value.is_finite() && line.contains(&model), "{line}");
    }
    let described = |mark: &str| {
        let lines = metrics.lines().filter_map(|line| line.strip_prefix(mark));
        let names = lines.filter_map(|line| line.split(' ').next());
        names.collect::<Vec<_>>()
    };
    let types = described("# TYPE ");
    assert_eq!(types, described("# HELP "));
    let distinct: BTreeSet<_> = types.iter().collect();
    assert_eq!(types.len(), distinct.len(), "a metric is described twice");
    // Some consumers match suffixes: no name ends with another one.
    for prefix in ["asynclane_", "vllm:"] {
        let bare = types.iter().filter_map(|name| name.strip_prefix(prefix));
        let bare: Vec<_> = bare.collect();
        assert!(!bare.is_empty());
        for name in &bare {
            let ends = bare.iter().filter(|other| other.ends_with(name)).count();
            assert_eq!(ends, 1, "{name}");
        }
    }
}

#[tokio::test]
async fn no_series_is_added_by_traffic() {
    let server = server();
    let before = server.metrics().await;
    server.complete(json!({"n": 2, "temperature": 1})).await;
    server.chat(json!({"max_tokens": 3})).await;
    server.post(COMPLETIONS, &json!({})).await;
    assert_eq!(names(&server.metrics().await), names(&before));
}

/// Metrics by prefix and type. Those with the prefix `both` have vLLM's name too.
const DOCUMENTED: &[(&str, &str, &str)] = &rows! {
    "both", "counter",
        "request_success_total prompt_tokens_total generation_tokens_total \
         prefix_cache_queries_total prefix_cache_hits_total";
    "both", "gauge",
        "num_requests_running num_requests_waiting kv_cache_usage_perc cache_config_info";
    "both", "histogram",
        "time_to_first_token_seconds e2e_request_latency_seconds request_queue_time_seconds \
         request_prefill_time_seconds request_decode_time_seconds \
         request_time_per_output_token_seconds request_prompt_tokens request_generation_tokens \
         request_max_num_generation_tokens";
    "asynclane_", "counter",
        "requests_total trace_spans_total engine_steps_total forwards_total prefill_chunks_total \
         positions_total committed_tokens_total drafts_total draft_model_tokens_total \
         draft_model_accepted_tokens_total lanes_started_total lanes_forked_total \
         lanes_finished_total step_failures_total endpoint_tokens_total connections_evicted_total \
         connections_refused_total accept_errors_total log_lines_lost_total";
    "asynclane_", "gauge",
        "generation_tokens_per_second committed_tokens_per_second step_host_share lanes_active \
         kv_pages_used kv_pages_total row_budget engine_age_seconds connections pool_jobs \
         build_info device_memory_bytes";
    "asynclane_", "histogram",
        "inter_chunk_latency_seconds request_forwards tokens_per_forward positions_per_forward \
         batch_size step_duration_seconds fork_lead_steps commit_latency_seconds \
         emit_lag_seconds endpoint_latency_seconds";
    "vllm:", "counter",
        "diffusion_num_denoising_steps_total diffusion_num_canvas_positions_total \
         diffusion_num_committed_tokens_total spec_decode_num_draft_tokens_total \
         spec_decode_num_accepted_tokens_total";
    "vllm:", "histogram", "inter_token_latency_seconds";
    "process_", "counter", "cpu_seconds_total";
    "process_", "gauge",
        "max_fds open_fds resident_memory_bytes start_time_seconds threads virtual_memory_bytes";
};

/// The bytes of graphs are those of the scrape, all others those of the start.
#[test]
fn the_memory_of_a_device_is_told_by_use() {
    let graphs = Arc::new(AtomicU64::new(0));
    let memory = DeviceBytes { weights: 30, step: 20, kv: 10, graphs: Arc::clone(&graphs) };
    let metrics = Metrics::new(&metrics_config(memory));
    let load = Load { running: 0, waiting: 0, pages_used: 0 };
    let pulse = Pulse { alive: true, age: Duration::ZERO };
    let told = |kind: &str| {
        let labels = format!("{{kind=\"{kind}\",model_name=\"{MODEL}\"}}");
        let text = metrics.render(load, pulse, &[]);
        series(&text, &format!("asynclane_device_memory_bytes{labels}"))
    };
    assert_eq!(["weights", "step", "kv", "graphs"].map(told), [30.0, 20.0, 10.0, 0.0]);
    graphs.store(7, Ordering::Relaxed);
    assert_eq!(told("graphs"), 7.0);
}

#[tokio::test]
async fn every_documented_name_is_there() {
    let metrics = server().metrics().await;
    let mut expected = BTreeSet::new();
    for (prefix, kind, names) in DOCUMENTED {
        let prefixes = if *prefix == "both" { vec!["asynclane_", "vllm:"] } else { vec![*prefix] };
        for prefix in prefixes {
            let names = names.split_ascii_whitespace();
            expected.extend(names.map(|name| format!("{prefix}{name} {kind}")));
        }
    }
    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    assert_eq!(types.map(str::to_owned).collect::<BTreeSet<_>>(), expected);
    let alias = format!("vllm:num_requests_waiting{{model_name=\"{MODEL}\",engine=\"0\"}}");
    assert_eq!(series(&metrics, &alias), 0.0);
}

#[tokio::test]
async fn a_scrape_does_not_wait_for_the_engine_and_prefill_ends_with_the_first_token() {
    let (server, gate) = gated(|_| ());
    let asked = server.clone();
    let answer = tokio::spawn(async move { asked.complete(json!({"max_tokens": 4})).await });
    server.until_steps(1).await;
    // The engine thread waits in a forward pass until the gate opens.
    let steps = metric(&server.metrics().await, "engine_steps_total");
    assert_eq!(steps, 0.0);
    // The request runs and has no token: this time is its prefill.
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(gate);
    answer.await.unwrap();
    server.until_idle().await;
    let metrics = server.metrics().await;
    assert!(metric(&metrics, "engine_steps_total") > 0.0);
    let sum = |name: &str| metric(&metrics, &format!("{name}_seconds_sum"));
    let (queue, prefill) = (sum("request_queue_time"), sum("request_prefill_time"));
    assert!((sum("time_to_first_token") - queue - prefill).abs() < 1e-9);
    assert!(prefill >= 0.04 && queue < prefill, "{queue} {prefill}");
}

fn total(answers: &[Value], pointer: &str) -> f64 {
    let values = answers.iter().map(|answer| answer.pointer(pointer));
    values.map(|value| value.unwrap().as_f64().unwrap()).sum()
}

/// A cost over all kinds of forward passes: as it is counted, and as answers report it.
async fn cost(server: &Server, answers: &[Value], field: &str) -> (f64, f64) {
    let metrics = server.metrics().await;
    let counted = ["prefill", "decode", "refresh"].map(|kind| {
        let labels = format!("kind=\"{kind}\",model_name=\"{MODEL}\"");
        series(&metrics, &format!("asynclane_{field}_total{{{labels}}}"))
    });
    let reported = total(answers, &format!("/usage/diffusion/{field}"));
    (counted.iter().sum(), reported)
}

#[tokio::test]
async fn metrics_add_up_with_usage() {
    let server = server();
    let mut answers = Vec::new();
    for fields in [
        json!({"max_tokens": 64}),
        json!({"max_tokens": 9, "n": 3, "temperature": 1, "seed": 2}),
        json!({"max_tokens": 64, "n": 2, "best_of": 5, "temperature": 1.5, "seed": 3}),
        json!({"max_tokens": 0}),
    ] {
        let fields = merge(fields, json!({"return_token_ids": true}));
        answers.push(server.complete(fields).await);
    }
    let lengths = answers.iter().map(|answer| {
        let choices = items(&answer["choices"]).iter();
        choices.map(|choice| ids(&choice["token_ids"]).len()).max()
    });
    // The longest choice of each answer, as it was delivered.
    let longest: usize = lengths.map(Option::unwrap).sum();
    answers.push(server.chat(json!({"max_tokens": 50})).await);
    let usage = json!({"stream_options": {"include_usage": true}});
    let chunks = events(&server.stream(COMPLETIONS, usage).await);
    answers.push(chunks.last().unwrap().clone());
    // The last step is reported after its events.
    server.until_idle().await;
    let metrics = server.metrics().await;
    let count = answers.len() as f64;
    let prompt = total(&answers, "/usage/prompt_tokens");
    let generated = total(&answers, "/usage/completion_tokens");
    let longest = longest as f64 + total(&answers[4..], "/usage/completion_tokens");
    for (name, expected) in rows! {
        "prompt_tokens_total", prompt; "generation_tokens_total", generated;
        "request_prompt_tokens_sum", prompt; "request_generation_tokens_sum", generated;
        "time_to_first_token_seconds_count", count; "e2e_request_latency_seconds_count", count;
        "request_queue_time_seconds_count", count; "request_prefill_time_seconds_count", count;
        "request_decode_time_seconds_count", count;
        "request_time_per_output_token_seconds_count", count; "request_forwards_count", count;
        "tokens_per_forward_count", count; "kv_pages_used", 0.0; "step_failures_total", 0.0;
        "request_max_num_generation_tokens_sum", longest;
    } {
        assert_eq!(metric(&metrics, name), expected, "{name}");
    }
    let success = ["stop", "length"].map(|reason| {
        let labels = format!("finished_reason=\"{reason}\",model_name=\"{MODEL}\"");
        let name = format!("asynclane_request_success_total{{{labels}}}");
        series(&metrics, &name)
    });
    assert_eq!(success.iter().sum::<f64>(), count);
    for field in ["forwards", "positions"] {
        let (counted, reported) = cost(&server, &answers, field).await;
        assert_eq!(counted, reported, "{field}");
    }
}

#[tokio::test]
async fn forwards_behind_a_stop_string_are_counted_but_not_charged() {
    let server = server();
    let answers = [ask!(server, CHAT {"max_tokens": 50, "stop": ["a", "e"]})];
    server.until_idle().await;
    for field in ["forwards", "positions"] {
        let (counted, reported) = cost(&server, &answers, field).await;
        assert!(counted >= reported && reported > 0.0, "{field}");
    }
}

#[tokio::test]
async fn the_process_is_measured() {
    let server = server();
    let value = |metrics: &str, name: &str| {
        let name = format!("process_{name}{{model_name=\"{MODEL}\"}}");
        series(metrics, &name)
    };
    let metrics = server.metrics().await;
    let before = |name: &str| value(&metrics, name);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let age = now.as_secs_f64() - before("start_time_seconds");
    assert!((-1.0..3600.0).contains(&age), "{age}");
    let resident = before("resident_memory_bytes");
    assert!(resident > 1e6 && resident < before("virtual_memory_bytes"));
    assert!(before("threads") >= 2.0);
    assert!((3.0..before("max_fds")).contains(&before("open_fds")));
    let files = [0; 20].map(|_| std::fs::File::open("/proc/self/stat").unwrap());
    let started = Instant::now();
    while started.elapsed().as_millis() < 50 {
        std::hint::spin_loop();
    }
    let after = server.metrics().await;
    for name in ["cpu_seconds_total", "open_fds"] {
        assert!(value(&after, name) > before(name), "{name}");
    }
    drop(files);
}

/// Requests, latencies and tokens by endpoint, each under its own label.
#[tokio::test]
async fn every_endpoint_has_its_own_figures() {
    let server = wide_server();
    let completion = server.complete(json!({"max_tokens": 5})).await;
    let chat = server.chat(json!({"max_tokens": 6})).await;
    let response = ask!(server, RESPONSES {"max_output_tokens": 7});
    let message = ask!(server, MESSAGES {"max_tokens": 8});
    server.ask(COUNT, json!({})).await;
    // Two invalid requests to each, and a stream.
    for path in [COMPLETIONS, CHAT, RESPONSES, MESSAGES, COUNT] {
        for body in [json!({"model": MODEL}), body(path, json!({"model": "x"}))] {
            server.post(path, &body).await;
        }
    }
    let streamed = named_events(&server.stream(RESPONSES, json!({})).await).pop();
    let streamed = streamed.unwrap().1["response"].clone();
    server.until_idle().await;
    let metrics = server.metrics().await;
    let openai = ["/usage/prompt_tokens", "/usage/completion_tokens"];
    let other = ["/usage/input_tokens", "/usage/output_tokens"];
    for (path, answers, fields) in rows! {
        COMPLETIONS, vec![completion], openai; CHAT, vec![chat], openai;
        RESPONSES, vec![response, streamed], other; MESSAGES, vec![message], other;
        COUNT, vec![], other;
    } {
        let labels = format!("endpoint=\"{path}\"");
        let model = format!("model_name=\"{MODEL}\"");
        let ok = answers.len().max(1) as f64;
        assert_eq!(outcomes(&metrics, path, "ok"), ok, "{path}");
        assert_eq!(outcomes(&metrics, path, "invalid"), 2.0, "{path}");
        for name in ["rejected", "cancelled", "failed"] {
            assert_eq!(outcomes(&metrics, path, name), 0.0, "{path}");
        }
        let latency = |part: &str| {
            let name = format!("asynclane_endpoint_latency_seconds_{part}");
            series(&metrics, &format!("{name}{{{labels},{model}}}"))
        };
        assert_eq!(latency("count"), ok, "{path}");
        assert!(latency("sum") > 0.0, "{path}");
        for (kind, field) in ["prompt", "generation"].iter().zip(fields) {
            let name =
                format!("asynclane_endpoint_tokens_total{{{labels},kind=\"{kind}\",{model}}}");
            let expected = total(&answers, field);
            assert_eq!(series(&metrics, &name), expected, "{path} {kind}");
        }
    }
}
