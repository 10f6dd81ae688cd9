//! Notifications of `asynclane serve` to a service manager.

use std::os::unix::net::UnixDatagram;

use asynclane_tests::process::Server;

use crate::folder;

/// The next message, as lines.
fn message(socket: &UnixDatagram) -> Vec<String> {
    let mut bytes = [0; 4096];
    let length = socket.recv(&mut bytes).unwrap();
    let text = String::from_utf8(bytes[..length].to_vec()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_watchdog_is_told_that_the_engine_lives() {
    let path = folder("watchdog").join("n");
    let socket = UnixDatagram::bind(&path).unwrap();
    let server = Server::start_with(&[], |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "60000000");
    });
    assert_eq!(message(&socket)[0], "READY=1");
    for _ in 0..3 {
        assert_eq!(message(&socket), ["WATCHDOG=1"]);
    }
    server.stop();
}

#[test]
fn ready_comes_with_the_model_and_stopping_with_the_drain() {
    // The path of a socket has at most 108 bytes.
    let path = folder("notify").join("n");
    let socket = UnixDatagram::bind(&path).unwrap();
    let server = Server::start_with(&[], |command| {
        command.env("NOTIFY_SOCKET", &path);
    });
    let address = server.client().address();
    let serving = format!("STATUS=serving on http://{address}");
    assert_eq!(message(&socket), ["READY=1", &serving]);
    assert_eq!(server.client().get("/ready").status, 200);
    server.signal("TERM");
    assert_eq!(message(&socket), ["STOPPING=1", "STATUS=draining"]);
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.contains("was not told"), "{log}");
}
