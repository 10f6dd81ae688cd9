//! A server of the configured model in this process.

use std::net::Ipv4Addr;

use anyhow::Result;
use server::{ApiKeys, AppState};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::config::Config;
use crate::load;
use crate::serve;

/// The server; dropping it ends it.
pub struct LocalServer {
    /// Its address, `http://127.0.0.1:PORT`.
    pub address: String,
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
}

impl LocalServer {
    /// Loads the model and serves it on a free port of 127.0.0.1, without keys.
    ///
    /// # Errors
    /// As `asynclane serve`.
    pub fn start(config: &Config) -> Result<Self> {
        let loaded = load::load(config)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let state = AppState::new(serve::settings(config, ApiKeys::default(), address));
        serve::install(&state, loaded, config)?;
        let (stop, stopped) = oneshot::channel();
        runtime.spawn(server::serve(listener, state, async {
            // Dropping the sender ends it too.
            let _ = stopped.await;
        }));
        Ok(Self { address: format!("http://{address}"), runtime: Some(runtime), stop: Some(stop) })
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(runtime) = self.runtime.take() {
            // Nobody waits for an answer any more.
            runtime.shutdown_background();
        }
    }
}
