//! A stalled and a dead engine, as probes, routers and metrics see them.

use std::time::Duration;

use crate::common::*;
use tokio::task::JoinHandle;

const PROBES: [&str; 4] = ["/health", "/ping", "/ready", "/v1/loads"];

/// A server whose first pass hangs until the gate is opened.
fn hanging(stall_after: Duration) -> (Server, OpenAtEnd) {
    gated(|options| options.settings.timeouts.stall_after = stall_after)
}

fn ask(server: &Server) -> JoinHandle<Reply> {
    let server = server.clone();
    let body = completion(json!({"max_tokens": 3})).to_string();
    tokio::spawn(async move { server.send("POST", COMPLETIONS, &[], body).await })
}

async fn assert_healthy(server: &Server) {
    for path in PROBES {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_hanging_step_makes_every_probe_fail_until_it_ends() {
    let limit = Duration::from_millis(30);
    let (server, gate) = hanging(limit);
    assert_healthy(&server).await;
    let answer = ask(&server);
    server.until(|_| server.engine.pulse().age > limit).await;
    for path in PROBES {
        let reply = server.get(path).await;
        assert_eq!(reply.fault(503), "engine_stalled", "{path}");
        assert_eq!(reply.json()["error"]["type"], "server_error", "{path}");
    }
    assert!(metric(&server.metrics().await, "engine_age_seconds") > 0.03);

    gate.0.open();
    assert_eq!(answer.await.unwrap().status, 200);
    server.until(|_| server.engine.pulse().age.is_zero()).await;
    assert_healthy(&server).await;
    assert_eq!(metric(&server.metrics().await, "engine_age_seconds"), 0.0);
}

#[tokio::test]
async fn the_age_of_a_step_is_told_and_0_never_stalls() {
    let (server, gate) = hanging(Duration::ZERO);
    let answer = ask(&server);
    let age = Duration::from_millis(20);
    server.until(|_| server.engine.pulse().age > age).await;
    for (path, place) in [
        ("/health", "/engine_age_seconds"),
        ("/ready", "/engine_age_seconds"),
        ("/v1/loads", "/loads/0/engine_age_seconds"),
    ] {
        let reply = server.get(path).await;
        assert_eq!(reply.status, 200, "{path}");
        let age = reply.json().pointer(place).and_then(Value::as_f64);
        assert!(age.unwrap() > 0.02, "{path}: {age:?}");
    }
    gate.0.open();
    assert_eq!(answer.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_dead_engine_fails_probes_and_requests() {
    let server = server_where(|options| options.engine_dies = true);
    let monitor = server.engine.monitor();
    assert!(monitor.pulse().alive);
    assert_healthy(&server).await;
    // The request that kills the engine gets no more events; a later one finds no engine.
    assert_eq!(ask(&server).await.unwrap().fault(500), "internal_error");
    server.until(|_| !monitor.pulse().alive).await;
    server.until(|_| !server.engine.is_alive()).await;
    let reply = ask(&server).await.unwrap();
    reply.fault(500);
    assert_eq!(reply.json()["error"]["type"], "server_error");
    for path in PROBES {
        let reply = server.get(path).await;
        reply.fault(503);
        let error = &reply.json()["error"];
        assert_eq!(error["type"], "server_error", "{path}");
        assert_eq!(error["message"], "the engine has stopped", "{path}");
    }
    for path in ["/version", "/metrics", "/load", "/v1/models"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn the_pools_of_threads_are_seen() {
    let server = server();
    let health = server.get("/health").await.json();
    assert_eq!(health["status"], "ok");
    let idle = json!({"running": 0, "waiting": 0, "stuck": 0});
    let pools = ["encode", "encode_long", "compile", "grammar"];
    let expected = pools.map(|pool| (pool.to_owned(), idle.clone()));
    let expected = Value::Object(expected.into_iter().collect());
    assert_eq!(health["pools"], expected);
    let metrics = server.metrics().await;
    for pool in pools {
        let labels = format!("model_name=\"{MODEL}\",pool=\"{pool}\",state=\"stuck\"");
        let stuck = format!("asynclane_pool_jobs{{{labels}}}");
        assert_eq!(series(&metrics, &stuck), 0.0);
    }
}
