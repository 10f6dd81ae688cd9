//! Settings of the HTTP layer.

use std::time::Duration;

use super::keys::ApiKeys;

/// Limits, timeouts and switches of the HTTP layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Limits of connections and requests.
    pub limits: RequestLimits,
    /// Limits of time.
    pub timeouts: Timeouts,
    /// True if browsers of any origin may read answers.
    pub cors: bool,
    /// The API keys accepted at the start; none = no key is required.
    pub keys: ApiKeys,
    /// True if `Host` and `Origin` must be this server: for loopback addresses without API keys.
    pub local_only: bool,
    /// True if the playground is served at `/`.
    pub playground: bool,
    /// True if unknown fields of a request get 400; otherwise the answer's header names them.
    pub reject_unknown_fields: bool,
}

/// Limits of connections and requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Maximum number of open connections; at this number a new one closes the longest idle one.
    pub max_connections: usize,
    /// Maximum number of bytes of a header block; larger ones get 431.
    pub max_header_bytes: usize,
    /// Maximum number of bytes of a request body; larger ones get 413.
    pub max_body_bytes: usize,
    /// Maximum number of bytes of request bodies that are received or decoded at a time, each byte
    /// counted twice. Further bodies wait for 2 seconds and get 429.
    pub max_bytes_in_flight: usize,
    /// Bodies longer than this number of bytes are parsed and encoded off the async threads.
    pub inline_encode_bytes: usize,
    /// Maximum number of sequences of a request, prompts times `n` or `best_of`; more get 400.
    pub max_sequences: u32,
    /// Maximum number of tokens of a request over all its sequences, see [`crate::pipeline`]; more get
    /// 400.
    pub max_request_tokens: u64,
}

/// Limits of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a whole header block to arrive, idle time included; then the connection is closed.
    pub header: Duration,
    /// For a whole request body to arrive; later ones get 408.
    pub body: Duration,
    /// A connection whose peer reads no byte for this long is closed.
    pub write: Duration,
    /// After the shutdown signal, requests are still accepted for this long while `/ready` answers
    /// 503, so that load balancers stop sending requests before they are refused.
    pub drain_delay: Duration,
    /// For accepted requests to finish after new ones are refused.
    pub drain_timeout: Duration,
    /// A step of the engine without progress for longer than this makes `/health`, `/ready` and
    /// `/v1/loads` answer 503; zero = never.
    pub stall_after: Duration,
    /// For the compilation of a grammar; then its request gets 400 and the thread is replaced. Zero = no
    /// limit.
    pub grammar: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: RequestLimits::default(),
            timeouts: Timeouts::default(),
            cors: false,
            keys: ApiKeys::default(),
            local_only: false,
            playground: true,
            reject_unknown_fields: false,
        }
    }
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_header_bytes: 64 << 10,
            max_body_bytes: 16 << 20,
            max_bytes_in_flight: 256 << 20,
            inline_encode_bytes: 2 << 10,
            max_sequences: 1024,
            max_request_tokens: 1 << 21,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(30),
            body: Duration::from_secs(60),
            write: Duration::from_secs(60),
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(50),
            stall_after: Duration::from_secs(60),
            grammar: Duration::from_secs(3),
        }
    }
}
