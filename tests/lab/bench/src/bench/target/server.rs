//! A server of this process on a free port of the loopback interface.

use std::net::SocketAddr;
use std::thread::JoinHandle;

use anyhow::Result;
use server::{ApiKeys, AppState};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use cli::config::Config;
use cli::load::LoadedModel;
use cli::serve;

/// A running server; it ends when this is dropped.
pub struct Local {
    /// Its address.
    pub address: SocketAddr,
    /// The model name in requests.
    pub model: String,
    stop: Option<oneshot::Sender<()>>,
    engine: Option<JoinHandle<()>>,
    serving: Option<tokio::task::JoinHandle<std::io::Result<()>>>,
}

impl Local {
    /// Serves `loaded` on `runtime`, as `asynclane serve` would.
    ///
    /// # Errors
    /// No free port, or no thread.
    pub fn start(runtime: &Runtime, loaded: LoadedModel, config: &Config) -> Result<Self> {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let state = AppState::new(serve::settings(config, ApiKeys::default(), address));
        let model = loaded.name.clone();
        let engine = serve::install(&state, loaded, config)?;
        let (stop, stopped) = oneshot::channel();
        let signal = async move {
            let _ = stopped.await;
        };
        let serving = runtime.spawn(server::serve(listener, state, signal));
        Ok(Self { address, model, stop: Some(stop), engine: Some(engine), serving: Some(serving) })
    }

    /// Stops the server and waits for its engine.
    pub fn stop(mut self, runtime: &Runtime) {
        drop(self.stop.take());
        if let Some(serving) = self.serving.take() {
            let _ = runtime.block_on(serving);
        }
        if let Some(engine) = self.engine.take() {
            let _ = engine.join();
        }
    }
}
