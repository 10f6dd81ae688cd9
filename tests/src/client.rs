//! A small blocking HTTP/1.1 client: plain or streamed answers, one connection per request or for
//! several.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Map, Value};

use crate::scrape::Scrape;

/// A client of one server.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    address: SocketAddr,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body without its framing.
    pub body: Vec<u8>,
}

impl Client {
    /// A client of the server at `address`.
    pub fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `GET path`.
    ///
    /// # Errors
    /// No connection, or an incomplete answer.
    pub fn try_get(&self, path: &str) -> io::Result<Answer> {
        self.send("GET", path, b"")?.whole()
    }

    /// `GET path`, which must be answered.
    pub fn get(&self, path: &str) -> Answer {
        self.try_get(path).expect("the server answers")
    }

    /// `POST path` with arbitrary bytes as a body of type JSON.
    pub fn post_bytes(&self, path: &str, body: &[u8]) -> Answer {
        let response = self.send("POST", path, body);
        response.and_then(Response::whole).expect("the server answers")
    }

    /// A request with additional headers, which must be answered.
    pub fn ask(
        &self,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let headers = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let bytes =
            request(self.address, (method, path), (&headers.collect::<String>(), body), false);
        let response = TcpStream::connect(self.address).and_then(|mut stream| {
            stream.write_all(&bytes)?;
            Response::read(BufReader::new(Box::new(stream)))?.whole()
        });
        response.expect("the server answers")
    }

    /// `POST path` with a JSON body.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_bytes(path, body.to_string().as_bytes())
    }

    /// The JSON of the answer to `POST path`, whose status is 200.
    pub fn json(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body);
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        answer.json()
    }

    /// `POST path` with a JSON body, answered with 200 and server-sent events.
    pub fn stream(&self, path: &str, body: &Value) -> Events {
        self.stream_through(path, body, |stream| Box::new(stream))
    }

    /// As [`Client::stream`]; the answer is read through the wrapper that `wrap` returns.
    pub fn stream_through(
        &self,
        path: &str,
        body: &Value,
        wrap: impl FnOnce(TcpStream) -> Box<dyn Source>,
    ) -> Events {
        let stream = self.begin(path, body);
        let response = stream.and_then(|stream| Response::read(BufReader::new(wrap(stream))));
        let response = response.expect("the server answers");
        if response.status != 200 {
            let answer = response.whole().expect("the server answers");
            panic!("{body}: {} {}", answer.status, answer.text());
        }
        assert_eq!(response.headers["content-type"], "text/event-stream");
        assert_eq!(response.headers["cache-control"], "no-cache");
        Events { response, pending: Vec::new(), done: false }
    }

    /// Sends `POST path` with a JSON body and does not read the answer.
    ///
    /// # Errors
    /// No connection.
    pub fn begin(&self, path: &str, body: &Value) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.address)?;
        let body = body.to_string();
        let request = request(self.address, ("POST", path), ("", body.as_bytes()), false);
        stream.write_all(&request)?;
        Ok(stream)
    }

    /// A connection for several requests.
    ///
    /// # Errors
    /// No connection.
    pub fn connect(&self) -> io::Result<Connection> {
        Ok(Connection { address: self.address, stream: TcpStream::connect(self.address)? })
    }

    /// The metrics now.
    pub fn metrics(&self) -> Scrape {
        let answer = self.get("/metrics");
        assert_eq!(answer.status, 200, "{}", answer.text());
        Scrape::parse(&answer.text())
    }

    fn send(&self, method: &str, path: &str, body: &[u8]) -> io::Result<Response> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.write_all(&request(self.address, (method, path), ("", body), false))?;
        Response::read(BufReader::new(Box::new(stream)))
    }
}

/// The bytes of one request with these lines among its headers; `kept` keeps the connection open.
pub(crate) fn request(
    address: SocketAddr,
    (method, path): (&str, &str),
    (headers, body): (&str, &[u8]),
    kept: bool,
) -> Vec<u8> {
    let length = body.len();
    let after = if kept { "keep-alive" } else { "close" };
    let head = format!(
        "{method} {path} HTTP/1.1\r\n{headers}host: {address}\r\nconnection: {after}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// A connection for several requests.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    stream: TcpStream,
}

impl Connection {
    /// `POST path` with arbitrary bytes as a body of type JSON.
    ///
    /// # Errors
    /// An incomplete answer, or one after which the server closes the connection.
    pub fn post_bytes(&mut self, path: &str, body: &[u8]) -> io::Result<Answer> {
        let request = request(self.address, ("POST", path), ("", body), true);
        self.stream.write_all(&request)?;
        // The buffer is empty: the next answer has not been requested.
        let answer = Response::read(BufReader::new(Box::new(self.stream.try_clone()?)))?;
        let answer = answer.whole()?;
        match answer.headers.get("connection") {
            Some(found) => Err(broken(&format!("connection: {found}"))),
            None => Ok(answer),
        }
    }
}

/// A source of an answer's bytes.
pub trait Source: Read + Send + fmt::Debug {}

impl<T: Read + Send + fmt::Debug> Source for T {}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("every body here is UTF-8")
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        let value = serde_json::from_slice(&self.body);
        value.unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    /// The error object, which must have its four keys.
    pub fn error(&self) -> Map<String, Value> {
        let body = self.json();
        let error = body["error"].as_object();
        let error = error.unwrap_or_else(|| panic!("no error in {body}"));
        let mut keys: Vec<_> = error.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["code", "message", "param", "type"], "{body}");
        error.clone()
    }
}

/// A streamed answer: the events before the end mark. Panics if the framing is wrong.
#[derive(Debug)]
pub struct Events {
    response: Response,
    /// Payloads of the last chunk that are not taken yet, in reverse order.
    pending: Vec<String>,
    done: bool,
}

impl Iterator for Events {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        if self.done {
            return None;
        }
        if self.pending.is_empty() {
            let chunk = self.response.chunk().expect("the stream goes on");
            let chunk = chunk.expect("the end mark comes before the end of the body");
            self.pending = payloads(&chunk);
        }
        let payload = self.pending.pop().expect("a chunk holds an event");
        if payload != "[DONE]" {
            let event = serde_json::from_str(&payload);
            return Some(event.unwrap_or_else(|error| panic!("{error} in {payload}")));
        }
        self.done = true;
        let rest = self.response.chunk().expect("the body ends");
        let is_last = self.pending.is_empty() && rest.is_none();
        assert!(is_last, "the end mark comes last");
        None
    }
}

/// The payloads of a chunk of whole events, in reverse order.
fn payloads(chunk: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(chunk).expect("events are UTF-8");
    let events = text.strip_suffix("\n\n").expect("a write ends an event");
    let payload = |event: &str| {
        let payload = event.strip_prefix("data: ").expect("only data lines");
        assert!(!payload.contains(['\n', '\r']), "{payload:?}");
        payload.to_owned()
    };
    events.rsplit("\n\n").map(payload).collect()
}

/// An answer whose body has not been read yet.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: BTreeMap<String, String>,
    reader: BufReader<Box<dyn Source>>,
}

impl Response {
    pub(crate) fn read(mut reader: BufReader<Box<dyn Source>>) -> io::Result<Self> {
        let first = line(&mut reader)?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| broken(&first))?;
        let mut headers = BTreeMap::new();
        loop {
            let header = line(&mut reader)?;
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(':').ok_or_else(|| broken(&header))?;
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        Ok(Self { status, headers, reader })
    }

    pub(crate) fn whole(mut self) -> io::Result<Answer> {
        let mut body = Vec::new();
        if let Some(length) = self.headers.get("content-length") {
            let length = length.parse().map_err(|_| broken(length))?;
            body.resize(length, 0);
            self.reader.read_exact(&mut body)?;
        } else {
            while let Some(chunk) = self.chunk()? {
                body.extend_from_slice(&chunk);
            }
        }
        Ok(Answer { status: self.status, headers: self.headers, body })
    }

    /// The next chunk of a chunked body.
    fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let size = line(&mut self.reader)?;
        let size = usize::from_str_radix(&size, 16).map_err(|_| broken(&size))?;
        let mut chunk = vec![0; size];
        self.reader.read_exact(&mut chunk)?;
        let end = line(&mut self.reader)?;
        if end.is_empty() { Ok((size > 0).then_some(chunk)) } else { Err(broken(&end)) }
    }
}

/// The next line without its end.
fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => Err(broken(&line)),
    }
}

fn broken(found: &str) -> io::Error {
    let found = format!("broken HTTP: {found:?}");
    io::Error::new(io::ErrorKind::InvalidData, found)
}
