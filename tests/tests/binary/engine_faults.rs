//! An engine that hangs or dies: the process ends, or ends in time when it is told to.
//!
//! The faulty server is this test program, started once more: it runs `asynclane serve` over an
//! executor with a fault.

use std::process::Command;
use std::time::{Duration, Instant};

use asynclane_tests::process::Server;
use cli::args::ServeArgs;
use cli::{load, serve};
use serde_json::json;
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

/// Names the fault of the server to be started.
const FAULT: &str = "FAULTY_SERVER";
/// Every server here has ended within this time.
const BOUND: Duration = Duration::from_secs(60);
/// Exit status of a process whose engine has died or hangs.
const ENGINE: i32 = 70;

/// Steps that never end, or end the engine thread.
struct Faulty {
    model: Box<dyn Executor>,
    dies: bool,
}

/// A panic payload that panics once more when the engine drops it, outside of its guarded code.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("told to end the engine thread");
    }
}

impl Executor for Faulty {
    fn spec(&self) -> ExecutorSpec {
        self.model.spec()
    }

    fn execute(&mut self, _: &Batch, _: &mut BatchOutput) -> Result<(), ExecuteError> {
        if self.dies {
            std::panic::panic_any(Bomb);
        }
        loop {
            std::thread::park();
        }
    }
}

/// The server of the other tests; nothing without a fault in the environment.
#[test]
fn faulty_server() {
    let Ok(fault) = std::env::var(FAULT) else {
        return;
    };
    let (kind, timeout) = fault.split_once(' ').unwrap();
    let mut args = ServeArgs::default();
    args.address.listen = Some("127.0.0.1:0".to_owned());
    args.limits.stall_after = Some(1);
    args.limits.step_timeout = timeout.parse().ok();
    args.limits.drain_timeout = Some(if timeout == "0" { 0 } else { 50 });
    let served = serve::run_with(&args, |config| {
        let mut loaded = load::load(config)?;
        loaded.executor = Box::new(Faulty { model: loaded.executor, dies: kind == "dies" });
        Ok(loaded)
    });
    served.unwrap();
    std::process::exit(0);
}

fn start(fault: &str) -> Server {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "engine_faults::faulty_server", "--nocapture"]).env(FAULT, fault);
    Server::spawn(command)
}

/// Sends a request that the engine never finishes.
fn begin(server: &Server) -> std::net::TcpStream {
    let body = json!({"model": "demo", "prompt": "Hi", "max_tokens": 4});
    server.client().begin("/v1/completions", &body).unwrap()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < BOUND, "{what} never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn until_a_step(server: &Server) {
    let age = || server.client().metrics().sum("asynclane_engine_age_seconds", &[]);
    until("a step", || age() > 0.0);
}

/// The log of a server that ends in time with the exit status `code`.
fn ended(server: Server, code: i32, bound: Duration) -> String {
    let begun = Instant::now();
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(code), "{log}");
    assert!(begun.elapsed() < bound, "{:?}", begun.elapsed());
    log
}

/// A paused container is not a stuck engine.
#[cfg(unix)]
#[test]
fn time_in_which_the_process_is_stopped_does_not_count() {
    const LIMIT: Duration = Duration::from_secs(4);
    let server = start("hangs 4");
    let begun = Instant::now();
    let _request = begin(&server);
    server.signal("STOP");
    let before = begun.elapsed();
    std::thread::sleep(LIMIT + Duration::from_secs(1));
    let continued = Instant::now();
    server.signal("CONT");
    ended(server, ENGINE, BOUND);
    // A pause is known to one look of the watchdog.
    let step = before + continued.elapsed() + Duration::from_secs(1);
    assert!(step > LIMIT, "{step:?}");
}

#[test]
fn a_step_beyond_the_limit_ends_the_process() {
    let server = start("hangs 3");
    let client = server.client();
    assert_eq!(client.get("/ready").status, 200);
    let _request = begin(&server);
    until("a stall", || client.get("/ready").status == 503);
    for path in ["/health", "/v1/loads"] {
        let error = client.get(path).error();
        assert_eq!(error["code"], "engine_stalled", "{path}");
    }
    assert!(client.metrics().sum("asynclane_engine_age_seconds", &[]) > 1.0);
    let log = ended(server, ENGINE, BOUND);
    let line = "longer than engine.step_timeout (3 s); the process ends";
    assert_eq!(log.matches(line).count(), 1, "{log}");
}

#[test]
fn a_dead_engine_ends_the_process() {
    let server = start("dies 300");
    let _request = begin(&server);
    let log = ended(server, ENGINE, BOUND);
    let line = "asynclane: the engine thread has ended; the process ends";
    assert_eq!(log.matches(line).count(), 1, "{log}");
}

#[test]
fn a_hanging_engine_does_not_hold_up_the_exit() {
    let server = start("hangs 0");
    let _request = begin(&server);
    until_a_step(&server);
    server.signal("TERM");
    let log = ended(server, 0, BOUND);
    assert!(log.contains("the engine is still in a step"), "{log}");
}

#[test]
fn the_second_signal_ends_a_process_whose_engine_hangs() {
    let server = start("hangs 300");
    let _request = begin(&server);
    until_a_step(&server);
    server.signal("TERM");
    let client = server.client();
    until("the drain", || {
        // Ready until the process has seen the signal.
        client.get("/ready").json()["error"]["code"] == "shutting_down"
    });
    server.signal("TERM");
    ended(server, 130, Duration::from_secs(5));
}
