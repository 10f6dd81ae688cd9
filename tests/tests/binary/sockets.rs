//! More sockets than files, streams that are closed, signals that reload.

use std::io::Read;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use asynclane_tests::process::{Server, binary, command, run_command};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use crate::folder;

/// Sockets that send nothing, more than the server may have files.
const IDLE: usize = 373;
/// Time for a probe.
const PROBE: Duration = Duration::from_secs(1);
/// Time for a reload.
const SOON: Duration = Duration::from_secs(3);

/// Asks `/health`; the answer must come in time.
fn healthy(server: &Server) {
    let (begun, client) = (Instant::now(), server.client());
    assert_eq!(client.get("/health").status, 200);
    assert!(begun.elapsed() < PROBE, "{:?}", begun.elapsed());
}

fn idle(server: &Server, count: usize) -> Vec<TcpStream> {
    let connect = |_| TcpStream::connect(server.client().address()).unwrap();
    (0..count).map(connect).collect()
}

#[test]
fn idle_sockets_beyond_the_limit_of_files_delay_nobody() {
    let mut shell = Command::new("sh");
    let script = "ulimit -n 256; exec \"$0\" serve --listen 127.0.0.1:0";
    shell.args(["-c", script]).arg(binary());
    let server = Server::spawn(shell);
    let _idle = idle(&server, IDLE);
    healthy(&server);
    let body = json!({"model": "demo", "prompt": "Hi", "max_tokens": 4});
    server.client().json("/v1/completions", &body);
    let metrics = server.client().metrics();
    assert!(metrics.sum("asynclane_connections", &[]) <= 192.0);
    assert!(metrics.sum("asynclane_connections_evicted_total", &[]) > 150.0);
    // A closed connection gives its file back a moment later.
    assert!(metrics.sum("asynclane_accept_errors_total", &[]) < 20.0);
    let log = server.stop();
    assert!(log.contains("server.max_connections is lowered"), "{log}");
}

#[test]
fn failed_accepts_are_told_counted_and_do_not_spin() {
    let server = Server::start(&[]);
    let _idle = idle(&server, 60);
    healthy(&server);
    let pid = server.proc().file_name().unwrap().to_str().unwrap().parse();
    let pid = Pid::from_raw(pid.unwrap());
    let limit = Rlimit { current: Some(40), maximum: Some(40) };
    prlimit(pid, Resource::Nofile, limit).unwrap();
    // Every failed accept closes an idle connection, until there are files again.
    healthy(&server);
    let client = server.client();
    let errors = || client.metrics().sum("asynclane_accept_errors_total", &[]);
    let before = errors();
    assert!(before > 0.0);
    std::thread::sleep(Duration::from_millis(500));
    assert!(errors() - before < 20.0, "{} after {before}", errors());
    let log = server.stop();
    let lines = log.matches("accepting connections failed").count();
    assert!((1..=2).contains(&lines), "{log}");
}

#[test]
fn sighup_reads_keys_again() {
    let file = folder("sighup").join("keys");
    std::fs::write(&file, "alice:one\n").unwrap();
    let path = file.to_str().unwrap();
    let server = Server::start(&["--api-keys-file", path]);
    let status = |key: &str| {
        let key = format!("Bearer {key}");
        let headers = [("authorization", key.as_str())];
        let client = server.client();
        client.ask(("GET", "/v1/models"), &headers, b"").status
    };
    let until = |key: &str, expected: u16| {
        let begun = Instant::now();
        while status(key) != expected {
            assert!(begun.elapsed() < SOON, "{key} is not {expected}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    assert_eq!((status("one"), status("two")), (200, 401));
    std::fs::write(&file, "bob:two\n").unwrap();
    server.signal("HUP");
    until("two", 200);
    assert_eq!(status("one"), 401);
    // Files that cannot be used change nothing.
    for wrong in ["bob\n", "# nobody\n"] {
        std::fs::write(&file, wrong).unwrap();
        server.signal("HUP");
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!((status("one"), status("two")), (401, 200));
    }
    let log = server.stop();
    for line in ["SIGHUP: API keys and log filter read again", "SIGHUP: nothing changed"] {
        assert!(log.contains(line), "{log}");
    }
    assert!(log.contains("SIGHUP: nothing changed"), "{log}");
    assert!(!log.contains("two"), "{log}");
}

#[test]
fn sighup_without_keys_changes_nothing() {
    let server = Server::start(&[]);
    server.signal("HUP");
    healthy(&server);
    server.stop();
}

#[test]
fn a_closed_log_harms_nothing() {
    let (mut server, lines) = Server::spawn_unread(command(&["serve", "--listen", "127.0.0.1:0"]));
    drop(lines);
    let body = json!({"model": "demo", "prompt": "Hi", "max_tokens": 4});
    for _ in 0..3 {
        server.client().json("/v1/completions", &body);
    }
    server.signal("TERM");
    assert_eq!(server.end().code(), Some(0));
}

#[test]
fn closed_streams_panic_nowhere() {
    for closed in ["2>&-", ">&-", ">&- 2>&-"] {
        for arguments in ["inspect", "check-config /dev/null", "completions bash", "nonsense"] {
            let mut shell = Command::new("sh");
            let script = format!("exec \"$0\" {arguments} {closed}");
            shell.args(["-c", &script]).arg(binary());
            let status = run_command(shell).status;
            let expected = if arguments == "nonsense" { 64 } else { 0 };
            assert_eq!(status.code(), Some(expected), "{arguments} {closed}");
        }
    }
    // A reader that goes away at once.
    for arguments in ["inspect", "completions bash"] {
        let words: Vec<&str> = arguments.split(' ').collect();
        let mut command = command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let mut log = String::new();
        let mut stderr = child.stderr.take().unwrap();
        stderr.read_to_string(&mut log).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{log}");
        assert!(!log.contains("panicked"), "{log}");
    }
}
