//! Settings of the HTTP layer.

use std::time::Duration;

use super::keys::ApiKeys;

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
