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
    let key = format!("authorization: Bearer {}\r\n", ask.key);
    let mut bytes = request(address, ask.target, (&key, &ask.body), false);
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
            let mut part = Vec::new();
            stream.take(bytes as u64).read_to_end(&mut part)?;
            Ok(End::Left)
        }
        Manner::Stays => {
            let response = Response::read(BufReader::new(Box::new(stream)))?;
            response.whole().map(|answer| end(&answer))
        }
    }
}

/// The content of an answer.
fn end(answer: &Answer) -> End {
    let media = answer.headers.get("content-type").map_or("", String::as_str);
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
    let code = error["code"].as_str().unwrap_or_default();
    End::Refused(answer.status, code.to_owned())
}

fn usage(body: &Value) -> Option<(u64, u64)> {
    let usage = &body["usage"];
    Some((usage["prompt_tokens"].as_u64()?, usage["completion_tokens"].as_u64()?))
}

fn of_stream(text: &str) -> End {
    let mut last = None;
    for payload in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        if payload == "[DONE]" {
            continue;
        }
        let event = serde_json::from_str(payload);
        let event: Value = event.unwrap_or_else(|error| panic!("{error}: {payload}"));
        if let Some(error) = event["error"].as_object() {
            let kind = error["type"].as_str().unwrap_or_default();
            assert_eq!(kind, "invalid_request_error", "{event}");
            return End::Refused(200, error["code"].as_str().unwrap_or_default().to_owned());
        }
        last = usage(&event).or(last);
    }
    End::Answered(last)
}
