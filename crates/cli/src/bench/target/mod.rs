//! What a comparison asks: an engine in this process, or a server.

pub mod engine;
pub mod executor;
pub mod http;
pub mod idle;
pub mod server;
pub mod sse;

use anyhow::Result;

use super::arm::Decoder;
use super::arrivals::Arrivals;
use super::tally::Tally;

/// One question.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// A user's message.
    pub text: &'a str,
    /// What answers.
    pub decoder: &'a Decoder,
    /// Generation budget in tokens.
    pub max_tokens: u32,
}

/// What can be asked.
pub trait Target {
    /// Whether it takes this question.
    ///
    /// # Errors
    /// Why not.
    fn admits(&self, ask: &Ask<'_>) -> Result<()>;

    /// Asks everything as it arrives: the cost without grades, and every answer in tokens, in the
    /// order of `asks`.
    ///
    /// # Errors
    /// A question that is refused, a failed step, a server that does not answer.
    fn answer(&mut self, asks: &[Ask<'_>], arrivals: Arrivals) -> Result<(Tally, Vec<Vec<u32>>)>;
}
