//! The interface of a grammar over the generated tokens.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::TokenId;

/// Says which tokens may follow the accepted ones. Deterministic: the same accepted tokens give the
/// same answers.
pub trait Constraint: core::fmt::Debug + Send {
    /// Replaces `set` by the tokens that may come next: token t is bit `t % 32` of word
    /// `t / 32`. Stop tokens that only end the text are not in the set, see [`Self::may_end`].
    ///
    /// # Errors
    /// If no text can continue the grammar, or it is too complex.
    fn allowed(&mut self, set: &mut Vec<u32>) -> Result<(), ConstraintError>;

    /// Accepts `token` as the next token if it may come next; returns `false` and changes nothing
    /// otherwise.
    ///
    /// # Errors
    /// If no text can continue the grammar, or it is too complex.
    fn accept(&mut self, token: TokenId) -> Result<bool, ConstraintError>;

    /// Replaces `tokens` by the tokens that must come next, often none. They are not accepted yet.
    fn forced(&mut self, tokens: &mut Vec<TokenId>);

    /// Returns true if the accepted text is complete.
    fn may_end(&mut self) -> bool;

    /// Returns true if nothing may follow: complete, and no token can extend it.
    fn is_over(&mut self) -> bool;

    /// An independent copy in the same state.
    fn boxed_clone(&self) -> Box<dyn Constraint>;
}

impl Clone for Box<dyn Constraint> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}

/// The reason for which a sequence cannot go on under its grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The grammar cannot go on. The fault is the grammar's.
    Grammar(ConstraintError),
    /// The candidate of the frontier is none of the allowed tokens. The fault is the model's.
    Candidate,
}

impl From<ConstraintError> for Failure {
    fn from(error: ConstraintError) -> Self {
        Self::Grammar(error)
    }
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Grammar(error) => error.fmt(f),
            Self::Candidate => {
                f.write_str("the model proposed a token that the grammar does not allow")
            }
        }
    }
}

impl core::error::Error for Failure {}

/// The reason for which a grammar cannot go on: no text continues it, or it is too complex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstraintError(pub String);

impl core::fmt::Display for ConstraintError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ConstraintError {}
