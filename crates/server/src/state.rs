//! State that all handlers share: settings, the loaded model, shutdown, counters.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use engine::{PoolLoad, Pulse};

use crate::backend::Backend;
use crate::error::ApiError;
use crate::http::bytes::BytesInFlight;
use crate::http::keys::KeyRing;
use crate::http::settings::Settings;
use crate::http::shutdown::Shutdown;
use crate::pipeline::decide::Labels;
use crate::pipeline::grammar::GrammarCache;
use crate::pipeline::ids::Ids;
use crate::pipeline::pools::Pools;
use crate::pipeline::waiting::WaitingTokens;

/// Shared by all handlers; cheap to clone.
#[derive(Clone, Debug)]
pub struct AppState {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    keys: KeyRing,
    backend: OnceLock<Backend>,
    shutdown: Shutdown,
    ids: Ids,
    grammars: GrammarCache,
    labels: OnceLock<Labels>,
    pools: Pools,
    bytes: BytesInFlight,
    waiting_tokens: WaitingTokens,
    /// The paths whose requests are counted.
    paths: Mutex<BTreeSet<&'static str>>,
}

impl AppState {
    /// A server without a model: probes answer, generation fails with `loading`.
    pub fn new(settings: Settings) -> Self {
        let inner = Inner {
            bytes: BytesInFlight::new(&settings),
            keys: KeyRing::new(settings.keys.clone()),
            pools: Pools::new(&settings),
            settings,
            backend: OnceLock::new(),
            shutdown: Shutdown::new(),
            ids: Ids::new(),
            grammars: GrammarCache::default(),
            labels: OnceLock::new(),
            waiting_tokens: WaitingTokens::default(),
            paths: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Starts serving `backend`. A second call changes nothing and returns its argument.
    ///
    /// # Errors
    /// A backend is installed already.
    pub fn install(&self, backend: Backend) -> Result<(), Box<Backend>> {
        self.inner.backend.set(backend).map_err(Box::new)?;
        self.count_requests_to([]);
        Ok(())
    }

    /// Counts the requests to `paths`; creates their series now, or when the model is installed.
    pub(crate) fn count_requests_to(&self, paths: impl IntoIterator<Item = &'static str>) {
        let mut all = self.paths();
        all.extend(paths);
        if let Some(backend) = self.inner.backend.get() {
            all.iter().for_each(|path| backend.metrics.requests().add_path(path));
        }
    }

    /// The counted path that equals `path`.
    pub(crate) fn counted_path(&self, path: &str) -> Option<&'static str> {
        self.paths().get(path).copied()
    }

    fn paths(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        let paths = self.inner.paths.lock();
        paths.unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings of the HTTP layer.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The API keys in effect.
    pub fn keys(&self) -> &KeyRing {
        &self.inner.keys
    }

    /// The loaded model.
    ///
    /// # Errors
    /// `loading`.
    pub fn backend(&self) -> Result<&Backend, ApiError> {
        self.inner.backend.get().ok_or_else(ApiError::loading)
    }

    /// The shutdown phase and the requests in flight.
    pub fn shutdown(&self) -> &Shutdown {
        &self.inner.shutdown
    }

    /// Threads for blocking work on requests.
    pub(crate) fn pools(&self) -> &Pools {
        &self.inner.pools
    }

    /// The budget of bytes in flight.
    pub(crate) fn bytes(&self) -> &BytesInFlight {
        &self.inner.bytes
    }

    /// Prompt tokens of waiting sequences.
    pub(crate) fn waiting_tokens(&self) -> &WaitingTokens {
        &self.inner.waiting_tokens
    }

    /// The grammars of the loaded model's tokens.
    pub(crate) fn grammars(&self) -> &GrammarCache {
        &self.inner.grammars
    }

    /// The labels of options; the first call makes them, which takes up to a second.
    ///
    /// # Errors
    /// `loading`, or a tokenizer that cannot encode them.
    pub(crate) fn labels(&self) -> Result<&Labels, ApiError> {
        if let Some(labels) = self.inner.labels.get() {
            return Ok(labels);
        }
        let labels = Labels::new(&self.backend()?.tokenizer);
        let labels = labels.map_err(|error| ApiError::from_text(error, "questions"))?;
        Ok(self.inner.labels.get_or_init(|| labels))
    }

    pub(crate) fn ids(&self) -> &Ids {
        &self.inner.ids
    }

    /// The pools of threads by name, with what they do now.
    pub(crate) fn pool_loads(&self) -> Vec<(&'static str, PoolLoad)> {
        let own = self.pools().all().map(|pool| (pool.name(), pool.load()));
        let engine = self.inner.backend.get();
        let engine = engine.map(|backend| ("grammar", backend.engine.grammar_threads()));
        own.into_iter().chain(engine).collect()
    }

    /// Time since the engine's step began or last made progress; 0 while it waits.
    ///
    /// # Errors
    /// `loading`; the engine thread has ended, or its step makes no progress for longer than `stall_after`.
    pub fn engine_age(&self) -> Result<Duration, ApiError> {
        let Pulse { alive, age } = self.backend()?.engine.pulse();
        let limit = self.settings().timeouts.stall_after;
        match alive {
            false => Err(ApiError::engine_stopped()),
            true if !limit.is_zero() && age > limit => Err(ApiError::engine_stalled(age)),
            true => Ok(age),
        }
    }
}
