//! Settings of the HTTP layer.

use std::time::Duration;

use super::keys::ApiKeys;

/// Limits, timeouts and switches of the HTTP layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most open connections; at this number the longest idle one is closed for a new one.
    pub max_connections: usize,
    /// Most bytes of a request body; larger ones get 413.
    pub max_body_bytes: usize,
    /// Bytes of request bodies that may be in flight together: received or being decoded, each
    /// byte counted twice. Further bodies wait for 2 seconds and get 429.
    pub max_bytes_in_flight: usize,
    /// Most sequences of a request, prompts times `n` or `best_of`; more get 400.
    pub max_sequences: u32,
    /// Most tokens of a request over all its sequences, see [`crate::pipeline`]; more get 400.
    pub max_request_tokens: u64,
    /// Time for a whole request body to arrive; later ones get 408.
    pub body_timeout: Duration,
    /// Time for a whole header block to arrive, idle time included; then the connection is closed.
    pub header_timeout: Duration,
    /// Most bytes of a header block; larger ones get 431.
    pub max_header_bytes: usize,
    /// A connection whose peer reads no byte for this long is closed.
    pub write_timeout: Duration,
    /// Time after the shutdown signal in which requests are still accepted while `/ready` answers
    /// 503, so that load balancers stop sending requests before they are refused.
    pub drain_delay: Duration,
    /// Time for accepted requests to finish after new ones are refused.
    pub drain_timeout: Duration,
    /// A step of the engine longer than this makes `/health`, `/ready` and `/v1/loads` answer 503;
    /// zero = never.
    pub stall_after: Duration,
    /// Longest time for the compilation of a grammar; then its request gets 400 and the thread is
    /// replaced. Zero = no limit.
    pub grammar_timeout: Duration,
    /// Whether browsers of any origin may read answers.
    pub cors: bool,
    /// Bodies longer than this many bytes are parsed and encoded off the async threads.
    pub inline_encode_bytes: usize,
    /// The API keys accepted at the start; none = no key is required.
    pub keys: ApiKeys,
    /// Whether `Host` and `Origin` must be this server: for loopback addresses without API keys.
    pub local_only: bool,
    /// Whether the playground is served at `/`.
    pub playground: bool,
    /// Whether unknown fields of a request get 400; otherwise the answer's header names them.
    pub reject_unknown_fields: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_body_bytes: 16 << 20,
            max_bytes_in_flight: 256 << 20,
            max_sequences: 1024,
            max_request_tokens: 1 << 21,
            body_timeout: Duration::from_secs(60),
            header_timeout: Duration::from_secs(30),
            max_header_bytes: 64 << 10,
            write_timeout: Duration::from_secs(60),
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(50),
            stall_after: Duration::from_secs(60),
            grammar_timeout: Duration::from_secs(3),
            cors: false,
            inline_encode_bytes: 2 << 10,
            keys: ApiKeys::default(),
            local_only: false,
            playground: true,
            reject_unknown_fields: false,
        }
    }
}
