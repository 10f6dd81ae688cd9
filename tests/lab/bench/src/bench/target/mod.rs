//! Targets of a comparison: an engine in this process, or a server.

pub mod engine;
pub mod executor;
pub mod http;
pub mod server;
pub mod sse;

use anyhow::Result;

use super::arrivals::Arrivals;
use super::row::Decoder;
use super::tally::Tally;

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// A user's message.
    pub text: &'a str,
    /// The decoder.
    pub decoder: &'a Decoder,
    /// Generation budget in tokens.
    pub max_tokens: u32,
}

/// Answers requests.
pub trait Target {
    /// Checks that the target accepts a request.
    ///
    /// # Errors
    /// The reason for a refusal.
    fn admits(&self, ask: &Ask<'_>) -> Result<()>;

    /// Sends every request at its arrival; returns the counts without grades, and the tokens of every
    /// answer in the order of `asks`.
    ///
    /// # Errors
    /// A refused request, a failed step, a server that does not answer.
    fn answer(&mut self, asks: &[Ask<'_>], arrivals: Arrivals) -> Result<(Tally, Vec<Vec<u32>>)>;
}
