//! The accept loop: connections, their limits, graceful shutdown.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::api::{is_probe, router};
use crate::error::ApiError;
use crate::http::client;
use crate::http::connections::OpenConnections;
use crate::http::progress::Progress;
use crate::http::shutdown::Phase;
use crate::http::socket::Socket;
use crate::metrics::Connections;
use crate::state::AppState;

/// Time to send the error events of aborted requests and the last bytes.
const ABORT_TIME: Duration = Duration::from_secs(2);
/// Pause after an accept that failed for want of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Minimum time between two log lines about failed accepts.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// Serves `state` on `listener` until `shutdown` completes, then drains: `/ready` answers 503;
/// after the drain delay new requests are refused and accepted ones finish; after the drain
/// timeout the remaining ones end with an error.
///
/// # Errors
/// None: a failing connection ends alone. Reserved for listeners that fail permanently.
pub async fn serve(
    listener: TcpListener,
    state: AppState,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let router = router(state.clone());
    serve_router(listener, state, router, shutdown).await
}

/// As [`serve`], with a `router` of [`crate::router_with`] over the same `state`.
///
/// # Errors
/// As [`serve`].
pub async fn serve_router(
    listener: TcpListener,
    state: AppState,
    router: Router,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let mut server = Server {
        listener,
        router,
        open: OpenConnections::new(state.settings().limits.max_connections),
        state: state.clone(),
        connections: JoinSet::new(),
        close: watch::Sender::new(false),
        failures: Failures::default(),
    };
    server.accept_until(shutdown).await;
    let stages = state.shutdown();
    let delay = state.settings().timeouts.drain_delay;
    if !delay.is_zero() {
        tracing::info!(?delay, "not ready, still accepting requests");
        stages.advance(Phase::Leaving);
        server.accept_until(tokio::time::sleep(delay)).await;
    }
    tracing::info!(in_flight = stages.in_flight(), "draining");
    stages.advance(Phase::Draining);
    let patience = state.settings().timeouts.drain_timeout;
    server.accept_until(at_most(patience, stages.drained())).await;
    stages.advance(Phase::Ending);
    server.accept_until(at_most(ABORT_TIME, stages.drained())).await;
    server.close().await;
    Ok(())
}

/// The smallest buffer that hyper takes.
const MIN_BUFFER_BYTES: usize = 8 << 10;

struct Server {
    listener: TcpListener,
    router: Router,
    state: AppState,
    connections: JoinSet<()>,
    open: OpenConnections,
    /// Set to true to close every connection after its current answer.
    close: watch::Sender<bool>,
    failures: Failures,
}

/// Failed accepts that the log does not tell of yet.
#[derive(Debug, Default)]
struct Failures {
    count: u64,
    logged: Option<Instant>,
}

impl Server {
    async fn accept_until(&mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => self.admit(stream),
                    Err(error) => self.fail(&error).await,
                },
                Some(ended) = self.connections.join_next_with_id(),
                    if !self.connections.is_empty() =>
                {
                    let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                    self.open.remove(id);
                }
            }
            let open = self.open.len();
            self.count(|metrics| metrics.open.set(open as f64));
        }
    }

    fn admit(&mut self, stream: TcpStream) {
        let admission = self.open.admit();
        if admission.evicted {
            self.count(|metrics| metrics.evicted.inc());
        }
        let progress = Progress::new();
        let connection = Connection {
            router: self.router.clone(),
            state: self.state.clone(),
            progress: Arc::clone(&progress),
            number: client::Connection::accepted(),
            reserved: admission.reserved,
        };
        let task = self.connections.spawn(connection.run(stream, self.close.subscribe()));
        self.open.add(task, progress, admission.reserved);
    }

    /// A failed accept. Where resources are short, a connection that can be spared makes room.
    async fn fail(&mut self, error: &io::Error) {
        self.count(|metrics| metrics.accept_errors.inc());
        self.failures.count += 1;
        let is_due = |time: Instant| time.elapsed() >= LOG_PAUSE;
        if self.failures.logged.is_none_or(is_due) {
            let count = std::mem::take(&mut self.failures.count);
            self.failures.logged = Some(Instant::now());
            tracing::warn!(%error, count, open = self.open.len(), "accepting connections failed");
        }
        if concerns_one_connection(error) {
            return;
        }
        if self.open.spare() {
            self.count(|metrics| metrics.evicted.inc());
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    /// Updates metrics, which exist once the model is loaded.
    fn count(&self, update: impl FnOnce(&Connections)) {
        if let Ok(backend) = self.state.backend() {
            update(backend.metrics.connections());
        }
    }

    async fn close(mut self) {
        self.close.send_replace(true);
        let all = async { while self.connections.join_next().await.is_some() {} };
        at_most(ABORT_TIME, all).await;
        self.connections.shutdown().await;
    }
}

/// True if a failed accept used up its connection, so that the next one may follow at once.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
    )
}

/// Answers the requests of one connection, one after the other.
struct Connection {
    router: Router,
    state: AppState,
    progress: Arc<Progress>,
    number: client::Connection,
    reserved: bool,
}

impl Connection {
    async fn run(self, stream: TcpStream, mut close: watch::Receiver<bool>) {
        // Send small chunks at once; the option is not essential.
        let _ = stream.set_nodelay(true);
        let settings = self.state.settings().clone();
        let socket = Socket::new(stream, Arc::clone(&self.progress), settings.timeouts.write);
        let service = service_fn(|request| self.answer(request));
        let mut connection = std::pin::pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(settings.timeouts.header)
                .max_header_size(settings.limits.max_header_bytes)
                // Room for the longest head. More would be held by every unfinished body.
                .max_buf_size(settings.limits.max_header_bytes.max(MIN_BUFFER_BYTES))
                .serve_connection(TokioIo::new(socket), service)
        );
        tokio::select! {
            // An error concerns this connection alone.
            _ = connection.as_mut() => return,
            _ = close.wait_for(|close| *close) => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }

    /// The request counts as received at once, and not when the answer is first polled: the end of
    /// a peer's sending side may come with it.
    fn answer(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response, Infallible>> {
        let version = request.version();
        let mut request = request.map(|body| self.progress.receive(version, body));
        async move {
            let is_refused = self.reserved && !is_probe(request.uri().path());
            request.extensions_mut().insert(self.number);
            let mut response = match is_refused {
                true => self.refuse(),
                false => self.router.clone().oneshot(request).await?,
            };
            if self.reserved {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            Ok(response.map(|body| self.progress.answer(body)))
        }
    }

    fn refuse(&self) -> Response {
        if let Ok(backend) = self.state.backend() {
            backend.metrics.connections().refused.inc();
        }
        let message = "every connection of the server is in use, retry later";
        ApiError::busy(message, 1).into_response()
    }
}

async fn at_most(limit: Duration, work: impl Future<Output = ()>) {
    // The work may finish or time out.
    let _ = tokio::time::timeout(limit, work).await;
}
