//! Metrics that vLLM has too, repeated under its names.

use prometheus::proto::{LabelPair, MetricFamily};

use super::register::PREFIX;

/// Native names without the prefix; vLLM's name where it differs.
const ALIASES: &[(&str, Option<&str>)] = &[
    ("num_requests_running", None),
    ("num_requests_waiting", None),
    ("request_success_total", None),
    ("prompt_tokens_total", None),
    ("generation_tokens_total", None),
    ("time_to_first_token_seconds", None),
    ("e2e_request_latency_seconds", None),
    ("request_queue_time_seconds", None),
    ("request_prefill_time_seconds", None),
    ("request_decode_time_seconds", None),
    ("request_time_per_output_token_seconds", None),
    ("inter_chunk_latency_seconds", Some("inter_token_latency_seconds")),
    ("request_prompt_tokens", None),
    ("request_generation_tokens", None),
    ("request_max_num_generation_tokens", None),
    ("forwards_total", Some("diffusion_num_denoising_steps_total")),
    ("positions_total", Some("diffusion_num_canvas_positions_total")),
    ("committed_tokens_total", Some("diffusion_num_committed_tokens_total")),
    ("draft_model_tokens_total", Some("spec_decode_num_draft_tokens_total")),
    ("draft_model_accepted_tokens_total", Some("spec_decode_num_accepted_tokens_total")),
    ("prefix_cache_queries_total", None),
    ("prefix_cache_hits_total", None),
    ("kv_cache_usage_perc", None),
    ("cache_config_info", None),
];

/// Appends every alias, with the label `engine="0"` that vLLM's dashboards select by.
pub fn append(families: &mut Vec<MetricFamily>) {
    for (name, alias) in ALIASES {
        let native = format!("{PREFIX}_{name}");
        let Some(family) = families.iter().find(|family| family.name() == native) else {
            debug_assert!(false, "no metric is called {native}");
            continue;
        };
        let mut copy = family.clone();
        copy.set_name(format!("vllm:{}", alias.unwrap_or(name)));
        for metric in copy.mut_metric() {
            let mut labels = metric.take_label();
            let mut engine = LabelPair::default();
            engine.set_name("engine".to_owned());
            engine.set_value("0".to_owned());
            labels.push(engine);
            metric.set_label(labels);
        }
        families.push(copy);
    }
}
