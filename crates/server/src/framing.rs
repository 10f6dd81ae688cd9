//! Requests that state their length twice: `content-length` beside `transfer-encoding`.
//!
//! Where two servers on a path believe different ones, a body can hold a request that only one
//! of them sees. hyper believes the second and drops the first before anybody can look, so the
//! bytes are followed here on their way in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::{ApiError, ErrorCode};

/// Bytes kept of a line: enough for the names and values that matter here.
const KEPT: usize = 64;
/// Requests are counted from one.
const NONE: u64 = 0;

/// The first request of a connection that is at fault, counted from one.
#[derive(Clone, Debug, Default)]
pub struct Ambiguous(Arc<AtomicU64>);

impl Ambiguous {
    /// Whether the request `number` of the connection is at fault.
    pub fn is(&self, number: u64) -> bool {
        number == self.0.load(Ordering::Relaxed)
    }
}

/// Marks a request that states its length twice.
#[derive(Clone, Copy, Debug)]
pub struct TwoLengths;

/// Refuses marked requests and closes their connection.
pub async fn refuse(request: Request, next: Next) -> Response {
    if request.extensions().get::<TwoLengths>().is_none() {
        return next.run(request).await;
    }
    let message = "a request must not have both content-length and transfer-encoding";
    let mut response = ApiError::new(ErrorCode::InvalidValue, message).into_response();
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Follows the framing of the requests on one connection.
#[derive(Debug)]
pub struct Framing {
    found: Ambiguous,
    /// The head that is read, or was read last, counted from one.
    request: u64,
    part: Part,
    /// The beginning of the current line.
    line: Vec<u8>,
    head: Head,
}

/// Where in a request the next byte lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    RequestLine,
    Headers,
    /// So many bytes of a body.
    Body(u64),
    ChunkSize,
    /// So many bytes of a chunk, its line end included.
    Chunk(u64),
    Trailers,
    /// What is no HTTP is hyper's affair: it closes the connection.
    Lost,
}

/// What the headers say of the body.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    length: Option<u64>,
    chunked: bool,
}

impl Framing {
    /// At the start of a connection; faults show in `found`.
    pub fn new(found: Ambiguous) -> Self {
        Self {
            found,
            request: NONE,
            part: Part::RequestLine,
            line: Vec::new(),
            head: Head::default(),
        }
    }

    /// Follows the next `bytes` of the connection.
    pub fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let used = match self.part {
                Part::Lost => return,
                Part::Body(left) => {
                    let used = skip(bytes, left);
                    self.part = Self::after(left - used as u64, Part::Body, Part::RequestLine);
                    used
                }
                Part::Chunk(left) => {
                    let used = skip(bytes, left);
                    self.part = Self::after(left - used as u64, Part::Chunk, Part::ChunkSize);
                    used
                }
                Part::RequestLine | Part::Headers | Part::ChunkSize | Part::Trailers => {
                    self.line(bytes)
                }
            };
            bytes = &bytes[used..];
        }
    }

    fn after(left: u64, same: fn(u64) -> Part, next: Part) -> Part {
        if left > 0 { same(left) } else { next }
    }

    /// Reads on in the current line; the number of bytes that belong to it.
    fn line(&mut self, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (part, used) = match end {
            Some(end) => (&bytes[..end], end + 1),
            None => (bytes, bytes.len()),
        };
        let room = KEPT.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
        if end.is_some() {
            let line = std::mem::take(&mut self.line);
            self.part = self.ended(line.strip_suffix(b"\r").unwrap_or(&line));
        }
        used
    }

    /// What comes behind `line`.
    fn ended(&mut self, line: &[u8]) -> Part {
        match (self.part, line) {
            // Empty lines between requests are skipped.
            (Part::RequestLine, b"") => Part::RequestLine,
            (Part::RequestLine, _) => {
                self.request += 1;
                self.head = Head::default();
                Part::Headers
            }
            (Part::Headers, b"") => self.body(),
            (Part::Headers, _) => self.header(line),
            (Part::ChunkSize, _) => match chunk_size(line) {
                None => Part::Lost,
                Some(0) => Part::Trailers,
                Some(size) => Part::Chunk(size.saturating_add(2)),
            },
            (Part::Trailers, b"") => Part::RequestLine,
            (part, _) => part,
        }
    }

    fn header(&mut self, line: &[u8]) -> Part {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return Part::Headers;
        };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.head.chunked = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value).ok();
            let length = length.and_then(|value| value.trim().parse().ok());
            // A length that cannot be read is one still, to whoever reads it otherwise.
            self.head.length = Some(length.unwrap_or(u64::MAX));
        }
        Part::Headers
    }

    fn body(&mut self) -> Part {
        match self.head {
            Head {
                length: Some(_),
                chunked: true,
            } => {
                self.found.0.store(self.request, Ordering::Relaxed);
                Part::Lost
            }
            Head { chunked: true, .. } => Part::ChunkSize,
            Head { length, .. } => Self::after(length.unwrap_or(0), Part::Body, Part::RequestLine),
        }
    }
}

/// How many of `bytes` belong to a part with `left` bytes.
fn skip(bytes: &[u8], left: u64) -> usize {
    usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()))
}

/// The hexadecimal size in front of a chunk's extensions.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let digits = std::str::from_utf8(&line[..digits.count()]).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the request at fault in `text`, which arrives in pieces of `size` bytes.
    fn found(text: &str, size: usize) -> u64 {
        let found = Ambiguous::default();
        let mut framing = Framing::new(found.clone());
        for piece in text.as_bytes().chunks(size) {
            framing.follow(piece);
        }
        found.0.load(Ordering::Relaxed)
    }

    #[test]
    fn two_lengths_are_found_however_the_bytes_arrive() {
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let sized = "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nA: b\r\n\r\nx";
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
                       A;x=y\r\n0123456789\r\n1\r\n\n\r\n0\r\nContent-Length: 3\r\n\r\n";
        let ambiguous = [
            "POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\nTRANSFER-ENCODING:chunked\nContent-length:5\n\n",
            "POST / HTTP/1.1\r\nContent-Length: x\r\nA: b\r\nTransfer-Encoding: gzip\r\n\r\n",
        ];
        for end in ambiguous {
            for size in [1, 2, 3, 7, 1000] {
                let text = format!("{get}{sized}\r\n{chunked}{end}");
                assert_eq!(found(&text, size), 4, "{text}");
            }
        }
    }

    #[test]
    fn one_length_is_none_too_many() {
        let long = format!("X: {}content-length: 5\r\n", "x".repeat(KEPT));
        for text in [
            "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\ntransfer-encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\ncontent-length: 1\r\n\r\n",
            &format!("POST / HTTP/1.1\r\n{long}transfer-encoding: chunked\r\n\r\n"),
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        ] {
            assert_eq!(found(text, 5), NONE, "{text}");
        }
    }
}
