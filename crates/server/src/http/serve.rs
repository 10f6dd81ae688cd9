//! The accept loop: connections, their limits, graceful shutdown.

use std::io;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::settings::Settings;
use crate::api::router;
use crate::http::client::Connection;
use crate::http::limits::WriteLimit;
use crate::http::shutdown::Phase;
use crate::state::AppState;

/// Time to send the error events of aborted requests and the last bytes.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
        settings: state.settings().clone(),
        connections: JoinSet::new(),
        close: watch::Sender::new(false),
    };
    server.accept_until(shutdown).await;
    let stages = state.shutdown();
    let delay = state.settings().drain_delay;
    if !delay.is_zero() {
        tracing::info!(?delay, "not ready, still accepting requests");
        stages.advance(Phase::Leaving);
        server.accept_until(tokio::time::sleep(delay)).await;
    }
    tracing::info!(in_flight = stages.in_flight(), "draining");
    stages.advance(Phase::Draining);
    let patience = state.settings().drain_timeout;
    server
        .accept_until(at_most(patience, stages.drained()))
        .await;
    stages.advance(Phase::Ending);
    server
        .accept_until(at_most(LAST_WORDS, stages.drained()))
        .await;
    server.close().await;
    Ok(())
}

struct Server {
    listener: TcpListener,
    router: Router,
    settings: Settings,
    connections: JoinSet<()>,
    /// Set to true to close every connection after its current answer.
    close: watch::Sender<bool>,
}

impl Server {
    async fn accept_until(&mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => self.spawn(stream),
                    // Only this connection failed, or resources are short.
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = self.connections.join_next(), if !self.connections.is_empty() => {}
            }
        }
    }

    fn spawn(&mut self, stream: TcpStream) {
        let (router, close) = (self.router.clone(), self.close.subscribe());
        self.connections
            .spawn(connection(stream, router, self.settings.clone(), close));
    }

    async fn close(mut self) {
        self.close.send_replace(true);
        let all = async { while self.connections.join_next().await.is_some() {} };
        at_most(LAST_WORDS, all).await;
        self.connections.shutdown().await;
    }
}

/// Answers the requests of one connection, one after the other.
async fn connection(
    stream: TcpStream,
    router: Router,
    settings: Settings,
    mut close: watch::Receiver<bool>,
) {
    // Send small chunks at once; the option is not essential.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(WriteLimit::new(stream, settings.write_timeout));
    let (router, number) = (TowerToHyperService::new(router), Connection::accepted());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(number);
        router.call(request)
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(settings.header_timeout)
            .max_header_size(settings.max_header_bytes)
            .serve_connection(io, service)
    );
    tokio::select! {
        // An error concerns this connection alone.
        _ = connection.as_mut() => return,
        _ = close.wait_for(|close| *close) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn at_most(limit: Duration, work: impl Future<Output = ()>) {
    // The work may finish or time out.
    let _ = tokio::time::timeout(limit, work).await;
}
