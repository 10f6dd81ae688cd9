//! The request to a draft model, and its answer.

use decode::TokenId;

use crate::request::ClientId;
use crate::sequence::SequenceId;

/// A text that wants drafts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftJob {
    /// The sequence.
    pub sequence: SequenceId,
    /// Its client.
    pub client: ClientId,
    /// Its prompt and all its committed tokens.
    pub text: Vec<TokenId>,
    /// Most drafts that its next step can verify, `>= 1`.
    pub count: u32,
}

/// The drafts of one sequence's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drafts {
    /// The sequence.
    pub sequence: SequenceId,
    /// Possible next tokens; none if the draft model refused the text or failed.
    pub tokens: Vec<TokenId>,
    /// Forward passes of the draft model for them.
    pub forwards: u32,
    /// Rows of those passes.
    pub positions: u64,
}
