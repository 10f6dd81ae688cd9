//! A client of the soak: sends one request and reads its answer, or leaves.

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::ask::{Ask, Manner};
use crate::client::{Answer, Response, request};

/// An answer that takes longer hangs.
const LONG: Duration = Duration::from_secs(120);

/// The end of a request for its client.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// It left.
    Left,
    /// A whole answer with 200; its usage if it states one.
    Answered(Option<(u64, u64)>),
    /// An error: its status and code. A stream that ends with one has the status 200.
    Refused(u16, String),
}

/// Sends `ask` and reads the answer.
///
/// # Errors
/// A connection that fails, an answer that is not whole.
pub fn visit(address: SocketAddr, ask: &Ask) -> io::Result<End> {
    let plain = request(address, ask.to, &ask.body, false);
    let line = plain.iter().position(|byte| *byte == b'\n').unwrap_or(0) + 1;
    let mut bytes = plain[..line].to_vec();
    bytes.extend_from_slice(format!("authorization: Bearer {}\r\n", ask.key).as_bytes());
    bytes.extend_from_slice(&plain[line..]);
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LONG))?;
    if let Manner::Stops(sent) = ask.manner {
        bytes.truncate(bytes.len() - ask.body.len() + sent);
    }
    stream.write_all(&bytes)?;
    match ask.manner {
        Manner::Stops(_) => Ok(End::Left),
        Manner::Leaves(after) => {
            std::thread::sleep(after);
            Ok(End::Left)
        }
        Manner::Reads(bytes) => {
            let mut part = vec![0; bytes];
            let mut read = 0;
            while read < bytes {
                match stream.read(&mut part[read..])? {
                    0 => break,
                    more => read += more,
                }
            }
            Ok(End::Left)
        }
        Manner::Stays => Response::read(BufReader::new(Box::new(stream)))?
            .whole()
            .map(|answer| end(&answer)),
    }
}

/// The content of an answer.
fn end(answer: &Answer) -> End {
    let media = answer
        .headers
        .get("content-type")
        .map_or("", String::as_str);
    if answer.status == 204 {
        return End::Answered(None);
    }
    if media == "text/event-stream" {
        return of_stream(&answer.text());
    }
    if answer.status == 200 {
        let body = match media {
            "application/json" => answer.json(),
            _ => Value::Null,
        };
        return End::Answered(usage(&body));
    }
    let error = answer.error();
    End::Refused(
        answer.status,
        error["code"].as_str().unwrap_or_default().to_owned(),
    )
}

fn usage(body: &Value) -> Option<(u64, u64)> {
    let usage = &body["usage"];
    Some((
        usage["prompt_tokens"].as_u64()?,
        usage["completion_tokens"].as_u64()?,
    ))
}

fn of_stream(text: &str) -> End {
    let mut last = None;
    for payload in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        if payload == "[DONE]" {
            continue;
        }
        let event: Value =
            serde_json::from_str(payload).unwrap_or_else(|error| panic!("{error}: {payload}"));
        if let Some(error) = event["error"].as_object() {
            let kind = error["type"].as_str().unwrap_or_default();
            assert_eq!(kind, "invalid_request_error", "{event}");
            return End::Refused(200, error["code"].as_str().unwrap_or_default().to_owned());
        }
        last = usage(&event).or(last);
    }
    End::Answered(last)
}
