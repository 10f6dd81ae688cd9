//! A stalled and a dead engine, as probes, routers and metrics see them.

use std::time::Duration;

use crate::common::{Gate, OpenAtEnd, Options, Server, completion, series, server_with};
use axum::http::StatusCode;
use serde_json::{Value, json};

const PROBES: [&str; 4] = ["/health", "/ping", "/ready", "/v1/loads"];
const AGE: &str = "asynclane_engine_age_seconds{model_name=\"org/demo\"}";

/// A server whose first pass hangs until the gate is opened.
fn hanging(stall_after: Duration) -> (Server, OpenAtEnd) {
    let gate = Gate::default();
    let mut options = Options {
        gate: Some(gate.clone()),
        ..Options::default()
    };
    options.settings.timeouts.stall_after = stall_after;
    (server_with(options), OpenAtEnd(gate))
}

async fn probe(server: &Server, path: &str) -> (StatusCode, Value) {
    let (status, _, body) = server.get(path).await;
    (status, serde_json::from_slice(&body).unwrap())
}

fn ask(server: &Server) -> tokio::task::JoinHandle<(StatusCode, Value)> {
    let server = server.clone();
    let body = completion(json!({"max_tokens": 3}));
    tokio::spawn(async move { server.post("/v1/completions", &body).await })
}

#[tokio::test]
async fn a_hanging_step_makes_every_probe_fail_until_it_ends() {
    let limit = Duration::from_millis(30);
    let (server, gate) = hanging(limit);
    for path in PROBES {
        assert_eq!(probe(&server, path).await.0, StatusCode::OK, "{path}");
    }
    let answer = ask(&server);
    server
        .until(|server| server.engine.pulse().age > limit)
        .await;
    for path in PROBES {
        let (status, body) = probe(&server, path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {body}");
        assert_eq!(body["error"]["type"], "server_error", "{path}");
        assert_eq!(body["error"]["code"], "engine_stalled", "{path}");
    }
    assert!(series(&server.metrics().await, AGE) > 0.03);

    gate.0.open();
    assert_eq!(answer.await.unwrap().0, StatusCode::OK);
    server
        .until(|server| server.engine.pulse().age.is_zero())
        .await;
    for path in PROBES {
        assert_eq!(probe(&server, path).await.0, StatusCode::OK, "{path}");
    }
    assert_eq!(series(&server.metrics().await, AGE), 0.0);
}

#[tokio::test]
async fn the_age_of_a_step_is_told_and_0_never_stalls() {
    let (server, gate) = hanging(Duration::ZERO);
    let answer = ask(&server);
    let second = Duration::from_millis(20);
    server
        .until(|server| server.engine.pulse().age > second)
        .await;
    for path in ["/health", "/ready"] {
        let (status, body) = probe(&server, path).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        assert!(
            body["engine_age_seconds"].as_f64().unwrap() > 0.02,
            "{path}: {body}"
        );
    }
    let (_, body) = probe(&server, "/v1/loads").await;
    assert!(
        body["loads"][0]["engine_age_seconds"].as_f64().unwrap() > 0.02,
        "{body}"
    );
    gate.0.open();
    assert_eq!(answer.await.unwrap().0, StatusCode::OK);
}

#[tokio::test]
async fn a_dead_engine_takes_the_replica_from_its_routers() {
    let server = server_with(Options {
        engine_dies: true,
        ..Options::default()
    });
    let monitor = server.engine.monitor();
    assert!(monitor.pulse().alive);
    assert_eq!(
        ask(&server).await.unwrap().0,
        StatusCode::INTERNAL_SERVER_ERROR
    );
    server.until(|_| !monitor.pulse().alive).await;
    for path in PROBES {
        let (status, body) = probe(&server, path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {body}");
        assert_eq!(body["error"]["message"], "the engine has stopped", "{path}");
    }
}

#[tokio::test]
async fn the_pools_of_threads_are_seen() {
    let server = server_with(Options::default());
    let (status, body) = probe(&server, "/health").await;
    assert_eq!((status, &body["status"]), (StatusCode::OK, &json!("ok")));
    let idle = json!({"running": 0, "waiting": 0, "stuck": 0});
    let pools = ["encode", "encode_long", "compile", "grammar"];
    let expected = pools.map(|pool| (pool.to_owned(), idle.clone()));
    assert_eq!(body["pools"], Value::Object(expected.into_iter().collect()));
    let metrics = server.metrics().await;
    for pool in pools {
        let stuck = format!(
            "asynclane_pool_jobs{{model_name=\"org/demo\",pool=\"{pool}\",state=\"stuck\"}}"
        );
        assert_eq!(series(&metrics, &stuck), 0.0);
    }
}
