//! A client that disconnects in the middle of its stream frees its pages within two steps.

use asynclane_tests::scrape::Scrape;
use asynclane_tests::served::{MODEL, Served};
use serde_json::json;

/// Scrapes until a waiting test fails.
const MOST_SCRAPES: usize = 100_000;
const BUDGET: usize = 512;

fn steps(metrics: &Scrape) -> f64 {
    metrics.sum("asynclane_engine_steps_total", &[])
}

fn cancelled(metrics: &Scrape) -> f64 {
    metrics.sum("asynclane_requests_total", &[("outcome", "cancelled")])
}

fn holds_nothing(metrics: &Scrape) -> bool {
    let gauges = ["asynclane_kv_pages_used", "asynclane_num_requests_running"];
    gauges.iter().all(|gauge| metrics.sum(gauge, &[]) == 0.0)
}

#[test]
fn a_disconnect_frees_everything_within_two_steps() {
    let served = Served::start();
    let client = served.client();
    let scrape_until = |holds: &dyn Fn(&Scrape) -> bool| {
        let mut scrapes = (0..MOST_SCRAPES).map(|_| client.metrics());
        scrapes.find(holds).expect("the awaited state comes")
    };
    // One token per forward and no stop token: as many steps as tokens.
    let body = json!({"model": MODEL, "prompt": "Mia has 12 eggs.", "max_tokens": BUDGET,
        "ignore_eos": true, "stream": true, "diffusion": {"preset": "vanilla"}});
    let mut events = client.stream("/v1/completions", &body);
    let first = events.next().expect("a chunk");
    assert_eq!(first["choices"][0]["finish_reason"], json!(null), "{first}");
    let before = client.metrics();
    assert!(!holds_nothing(&before), "the sequence has pages");
    assert_eq!(cancelled(&before), 0.0);
    drop(events);

    let seen = scrape_until(&|metrics| cancelled(metrics) == 1.0);
    let freed = scrape_until(&|metrics| holds_nothing(metrics));
    let late = steps(&freed) - steps(&seen);
    assert!(late <= 2.0, "freed after {late} steps");
    assert!(steps(&freed) < BUDGET as f64, "the sequence did not finish");
    assert_eq!(freed.sum("asynclane_lanes_active", &[]), 0.0);
    assert_eq!(freed.sum("asynclane_request_success_total", &[]), 0.0);

    // The server still answers.
    let body = json!({"model": MODEL, "prompt": "Hi", "max_tokens": 4, "ignore_eos": true});
    let answer = client.json("/v1/completions", &body);
    assert_eq!(answer["usage"]["completion_tokens"], 4);
    assert!(holds_nothing(&client.metrics()));
}
