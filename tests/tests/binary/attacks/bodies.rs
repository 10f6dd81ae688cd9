//! Many bodies that never end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use asynclane_tests::client::Client;
use asynclane_tests::process::Server;

use super::{ask, withstands};

const CONNECTIONS: usize = 200;
/// Bytes that are sent of each body; one more is announced.
const SENT: usize = 15 << 20;
/// Time that the senders stay.
const STAY: Duration = Duration::from_secs(6);

/// Sends a body but for its last byte, as far as the server takes it; a refusal ends it.
fn send(client: Client, until: Instant) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(client.address()).ok()?;
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        client.address(),
        SENT + 1
    );
    stream.set_write_timeout(Some(STAY)).ok()?;
    stream.write_all(head.as_bytes()).ok()?;
    let piece = vec![b' '; 256 << 10];
    for _ in 0..SENT / piece.len() {
        if Instant::now() >= until {
            break;
        }
        stream.write_all(&piece).ok()?;
    }
    Some(stream)
}

/// Sends bodies that are neither refused nor complete at the end.
fn unfinished(client: Client) {
    let until = Instant::now() + STAY;
    std::thread::scope(|scope| {
        let sender = || {
            let mut stream = send(client, until)?;
            let rest = until.saturating_duration_since(Instant::now());
            let rest = rest.max(Duration::from_millis(1));
            stream.set_read_timeout(Some(rest)).ok()?;
            // An answer is a refusal; none is a body that the server still waits for.
            stream.read_exact(&mut [0; 12]).err().map(|_| stream)
        };
        let senders: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(sender)).collect();
        // All streams stay open until the last sender is done.
        let open = senders.into_iter().map(|sender| sender.join());
        drop(open.collect::<Vec<_>>());
    });
}

#[test]
fn unfinished_bodies_take_a_bounded_memory() {
    let server = Server::start(&[]);
    withstands(&server, "unfinished bodies", unfinished);
    ask(server.client());
}
