//! What all handlers share: settings, the served model once it is loaded, metrics, shutdown.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::Handle;
use engine::decoding::DecodingSpec;
use step::TokenId;
use text::Tokenizer;
use tokio::sync::Semaphore;

use crate::error::ApiError;
use crate::http::keys::ApiKeys;
use crate::http::shutdown::Shutdown;
use crate::metrics::Metrics;
use crate::pipeline::grammar::GrammarCache;
use crate::pipeline::ids::Ids;
use crate::pipeline::waiting::WaitingTokens;

/// Limits, times and switches of the HTTP layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most bytes of a request body; more is answered with 413.
    pub max_body_bytes: usize,
    /// Time for a whole request body to arrive; later is answered with 408.
    pub body_timeout: Duration,
    /// Time for a whole header block to arrive, idle time included; later closes the connection.
    pub header_timeout: Duration,
    /// Most bytes of a header block; more is answered with 431.
    pub max_header_bytes: usize,
    /// A connection whose peer takes no byte for so long is cut.
    pub write_timeout: Duration,
    /// Time after the shutdown signal in which requests are still taken while `/ready` says 503,
    /// so that what watches it sends no more before they are refused.
    pub drain_delay: Duration,
    /// Time that accepted requests have to finish once new ones are refused.
    pub drain_timeout: Duration,
    /// Whether browsers of any origin may read answers.
    pub cors: bool,
    /// Bodies longer than this many bytes are parsed and encoded off the async threads.
    pub inline_encode_bytes: usize,
    /// The keys that are accepted; none = everybody may use the server.
    pub keys: ApiKeys,
    /// Whether requests that a page from elsewhere may have sent are refused: right where no key
    /// is asked for and the address is loopback.
    pub local_only: bool,
    /// Whether the playground is served at `/`.
    pub playground: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_body_bytes: 16 << 20,
            body_timeout: Duration::from_secs(60),
            header_timeout: Duration::from_secs(30),
            max_header_bytes: 64 << 10,
            write_timeout: Duration::from_secs(60),
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(50),
            cors: false,
            inline_encode_bytes: 2 << 10,
            keys: ApiKeys::default(),
            local_only: false,
            playground: true,
        }
    }
}

/// Sampling of a request that says nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingDefaults {
    /// 0 = greedy, the default of masked diffusion models.
    pub temperature: f64,
    /// Nucleus mass.
    pub top_p: f64,
    /// Share of the best token's probability.
    pub min_p: f64,
    /// 0 = off.
    pub top_k: u32,
}

impl Default for SamplingDefaults {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            min_p: 0.0,
            top_k: 0,
        }
    }
}

/// The model as clients see it.
#[derive(Clone, Debug)]
pub struct ServedModel {
    /// The name requests must give; may hold `/`.
    pub id: String,
    /// Unix time in seconds.
    pub created: u64,
    /// `owned_by` of the models list.
    pub owner: String,
    /// Whether it is the embedded demo model.
    pub is_demo: bool,
    /// `system_fingerprint`: version, device, number format.
    pub fingerprint: String,
    /// Every id that ends a generation.
    pub stop_tokens: Vec<TokenId>,
    /// Sampling of a request that says nothing.
    pub defaults: SamplingDefaults,
    /// Decoder of a request that names no preset.
    pub decoding: DecodingSpec,
}

/// A loaded model, ready to serve.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The engine.
    pub engine: Handle,
    /// The tokenizer, with its mask token and chat template.
    pub tokenizer: Arc<Tokenizer>,
    /// The model as clients see it.
    pub model: Arc<ServedModel>,
    /// The metrics whose observer the engine feeds.
    pub metrics: Metrics,
}

/// Shared by all handlers; cheap to clone.
#[derive(Clone, Debug)]
pub struct AppState {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    backend: OnceLock<Backend>,
    shutdown: Shutdown,
    ids: Ids,
    grammars: GrammarCache,
    encoders: Semaphore,
    waiting_tokens: WaitingTokens,
}

impl AppState {
    /// A server that is still loading: probes answer, generation is refused with `loading`.
    pub fn new(settings: Settings) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let inner = Inner {
            settings,
            backend: OnceLock::new(),
            shutdown: Shutdown::new(),
            ids: Ids::new(),
            grammars: GrammarCache::default(),
            encoders: Semaphore::new(cores),
            waiting_tokens: WaitingTokens::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Starts serving `backend`. A second call changes nothing and returns its argument.
    ///
    /// # Errors
    /// A backend is installed already.
    pub fn install(&self, backend: Backend) -> Result<(), Box<Backend>> {
        self.inner.backend.set(backend).map_err(Box::new)
    }

    /// Limits, times and switches.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The loaded model.
    ///
    /// # Errors
    /// `loading`.
    pub fn backend(&self) -> Result<&Backend, ApiError> {
        self.inner.backend.get().ok_or_else(ApiError::loading)
    }

    /// Draining and requests in flight.
    pub fn shutdown(&self) -> &Shutdown {
        &self.inner.shutdown
    }

    /// Permits to parse and encode long bodies, one per core.
    pub(crate) fn encoders(&self) -> &Semaphore {
        &self.inner.encoders
    }

    /// Prompt tokens of sequences without a place in the batch.
    pub(crate) fn waiting_tokens(&self) -> &WaitingTokens {
        &self.inner.waiting_tokens
    }

    /// The grammars of the loaded model's tokens.
    pub(crate) fn grammars(&self) -> &GrammarCache {
        &self.inner.grammars
    }

    pub(crate) fn ids(&self) -> &Ids {
        &self.inner.ids
    }

    /// Whether the process is healthy: loading, or the engine thread lives.
    pub fn is_healthy(&self) -> bool {
        self.inner
            .backend
            .get()
            .is_none_or(|backend| backend.engine.is_alive())
    }
}
