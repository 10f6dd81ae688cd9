//! The framing of HTTP: of any bytes, the server takes the requests that hyper alone takes, or fewer,
//! and never other ones; its answers are as many.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use server::{AppState, Settings};
use sim::SimExecutor;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use super::{Outcome, Target};
use crate::{crowd, served};

/// The target.
pub const TARGET: Target = Target {
    name: "framing",
    run,
    words: "\r\n¦\r\n\r\n¦\n¦ ¦\t¦\r¦:¦,¦;¦0\r\n\r\n¦content-length: ¦Content-Length:5\r\n¦\
            transfer-encoding: chunked\r\n¦chunked¦identity¦gzip¦+¦HTTP/1.0¦HTTP/1.1¦\
            GET /version HTTP/1.1\r\nhost: a\r\n\r\n¦HEAD¦OPTIONS¦connection: close\r\n¦\
            connection: keep-alive\r\n¦expect: 100-continue\r\n¦upgrade: h2c\r\n¦trailer: x\r\n¦a;b=c¦\
            ffffffffffffffff¦-1¦\0¦\u{b}¦PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n¦CONNECT a:1¦x: y\r\n z\r\n",
    memory: 300,
    accepted: 300,
};

/// A connection that stays open longer hangs.
const LONG: Duration = Duration::from_secs(30);

/// A request as a handler sees it: method, target, and the body if it was read to its end.
type Seen = (String, String, Option<Vec<u8>>);

/// The requests that handlers have seen on the present connection.
type Notes = Arc<Mutex<Vec<Seen>>>;

/// A server and its notes.
struct Noted {
    address: SocketAddr,
    seen: Notes,
}

/// The three servers that get the same bytes.
struct Servers {
    /// The project's server with its own routes.
    whole: Noted,
    /// The project's connections with a handler that reads every body.
    reading: Noted,
    /// hyper's connections with the same handler.
    hyper: Noted,
    _runtime: Runtime,
}

static SERVERS: LazyLock<Servers> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build();
    let runtime = runtime.expect("the system gives threads");
    let executor = SimExecutor::new(crowd::model()).expect("the sizes are valid");
    let state = served::state_over(Box::new(executor), Settings::default());
    let (whole, reading) = runtime.block_on(async {
        let seen = Notes::default();
        let notes = Arc::clone(&seen);
        let note = move |request: Request, next: Next| {
            let (method, target) = (request.method().to_string(), request.uri().to_string());
            let head = (method, target, None);
            notes.lock().expect("no handler panics").push(head);
            next.run(request)
        };
        let router = server::router(state.clone()).layer(from_fn(note));
        let whole = serve(state.clone(), router, seen).await;
        let seen = Notes::default();
        let notes = Arc::clone(&seen);
        let read = move |request: Request| {
            let notes = Arc::clone(&notes);
            async move {
                noted(&notes, request).await;
                Response::new(Body::empty())
            }
        };
        let reading = Router::new().fallback(read);
        (whole, serve(state, reading, seen).await)
    });
    let hyper = runtime.block_on(serve_hyper());
    Servers { whole, reading, hyper, _runtime: runtime }
});

/// Reads a request to its end and notes it.
async fn noted<B: hyper::body::Body<Data = Bytes>>(seen: &Notes, request: hyper::Request<B>) {
    let (head, body) = request.into_parts();
    let number = {
        let mut seen = seen.lock().expect("no handler panics");
        seen.push((head.method.to_string(), head.uri.to_string(), None));
        seen.len() - 1
    };
    let body = body.collect().await.ok();
    let body = body.map(|body| body.to_bytes().to_vec());
    seen.lock().expect("no handler panics")[number].2 = body;
}

/// A listener on a free port, and its address.
async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port is free");
    let address = listener.local_addr().expect("the listener is bound");
    (listener, address)
}

/// The project's server on a free port.
async fn serve(state: AppState, router: Router, seen: Notes) -> Noted {
    let (listener, address) = listen().await;
    let shutdown = std::future::pending();
    tokio::spawn(server::serve_router(listener, state, router, shutdown));
    Noted { address, seen }
}

/// hyper's own server with the settings that the project's server gives it.
async fn serve_hyper() -> Noted {
    let (listener, address) = listen().await;
    let seen = Notes::default();
    let notes = Arc::clone(&seen);
    tokio::spawn(async move {
        let settings = Settings::default();
        while let Ok((stream, _)) = listener.accept().await {
            let notes = Arc::clone(&notes);
            let service = service_fn(move |request| {
                let notes = Arc::clone(&notes);
                async move {
                    noted(&notes, request).await;
                    Ok::<_, Infallible>(hyper::Response::new(Empty::<Bytes>::new()))
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(settings.timeouts.header)
                .max_header_size(settings.limits.max_header_bytes)
                .half_close(true)
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    Noted { address, seen }
}

impl Noted {
    /// Sends `data` on a connection of its own; returns what was seen and what came back.
    fn take(&self, data: &[u8]) -> (Vec<Seen>, Vec<u8>) {
        self.seen.lock().expect("no handler panics").clear();
        let mut stream = TcpStream::connect(self.address).expect("the server accepts");
        let timeout = stream.set_read_timeout(Some(LONG));
        timeout.expect("the time is not zero");
        // A server that refuses the start closes before it has read the rest.
        let _ = stream.write_all(data);
        let _ = stream.shutdown(Shutdown::Write);
        let mut back = Vec::new();
        if let Err(error) = stream.read_to_end(&mut back) {
            use std::io::ErrorKind::{TimedOut, WouldBlock};
            let hangs = matches!(error.kind(), WouldBlock | TimedOut);
            assert!(!hangs, "the connection is still open after {LONG:?}");
        }
        let seen = std::mem::take(&mut *self.seen.lock().expect("no handler panics"));
        (seen, back)
    }
}

/// `data` is everything that a client sends on one connection.
pub fn run(data: &[u8]) -> Outcome {
    let (expected, _) = SERVERS.hyper.take(data);
    let (read, back) = SERVERS.reading.take(data);
    let all = shown(&expected);
    assert_eq!(shown(&read), all, "requests and bodies");
    check_answers(&read, &back);
    let (whole, back) = SERVERS.whole.take(data);
    let fewer = whole.len() <= expected.len();
    assert!(fewer, "{:?} of {all:?}", shown(&whole));
    for (found, expected) in whole.iter().zip(&expected) {
        assert_eq!((&found.0, &found.1), (&expected.0, &expected.1));
    }
    check_answers(&whole, &back);
    match expected.is_empty() {
        true => Outcome::Refused,
        false => Outcome::Accepted,
    }
}

/// Requests in a form that a failure can print.
fn shown(seen: &[Seen]) -> Vec<String> {
    let body = |body: &Option<Vec<u8>>| body.as_ref().map(|body| body.escape_ascii().to_string());
    let seen = seen.iter();
    seen.map(|(method, target, body_bytes)| format!("{method} {target} {:?}", body(body_bytes)))
        .collect()
}

/// There is at most one final answer per request, and one more for bytes that are no request; none is
/// a failure of the server.
fn check_answers(seen: &[Seen], back: &[u8]) {
    let (mut rest, mut found) = (back, 0);
    while let Some((status, behind)) = answer(rest, seen.get(found).map(|seen| seen.0.as_str())) {
        assert!(status < 500, "{}", back.escape_ascii());
        rest = behind;
        found += usize::from(status >= 200);
    }
    let few = found <= seen.len() + 1;
    assert!(few, "{found} answers to {:?}", shown(seen));
}

/// The status of the next answer and the bytes behind it, `None` if it is not whole: a connection with
/// unread bytes is reset. `method` is the request's.
fn answer<'a>(bytes: &'a [u8], method: Option<&str>) -> Option<(u16, &'a [u8])> {
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).expect("heads are text");
    let head = head.to_ascii_lowercase();
    let status = head.strip_prefix("http/1.");
    let status = status.and_then(|rest| rest.get(2..5)?.parse().ok());
    let status: u16 = status.unwrap_or_else(|| panic!("no status: {head}"));
    let rest = &bytes[end..];
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    if status < 200 || matches!(status, 204 | 304) || method == Some("HEAD") {
        return Some((status, rest));
    }
    if let Some(length) = length {
        let length: usize = length.parse().expect("lengths are numbers");
        return Some((status, rest.get(length..)?));
    }
    if !head.contains("transfer-encoding: chunked") {
        // The end of the connection ends it.
        return Some((status, &[]));
    }
    chunked(rest).map(|rest| (status, rest))
}

/// The bytes behind a chunked body.
fn chunked(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let line = rest.windows(2).position(|part| part == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..line]).expect("sizes are text");
        let size = usize::from_str_radix(size, 16).expect("sizes are numbers");
        rest = rest.get(line + 2 + size + 2..)?;
        if size == 0 {
            return Some(rest);
        }
    }
}
