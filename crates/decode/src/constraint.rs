//! A grammar over the emitted tokens, as the decoder sees it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::TokenId;

/// Which token may follow those accepted so far. Deterministic: the same accepted tokens give
/// the same answers.
pub trait Constraint: core::fmt::Debug + Send {
    /// Replaces `set` by the tokens that may come next: token t is bit `t % 32` of word
    /// `t / 32`. Stop tokens that only end the text are not in it, see [`Self::may_end`].
    ///
    /// # Errors
    /// The grammar cannot be followed any further.
    fn allowed(&mut self, set: &mut Vec<u32>) -> Result<(), ConstraintError>;

    /// Takes `token` as the next one if it may come next; `false` changes nothing.
    ///
    /// # Errors
    /// The grammar cannot be followed any further.
    fn accept(&mut self, token: TokenId) -> Result<bool, ConstraintError>;

    /// Replaces `tokens` by those that must come next whatever the model says; often none. They
    /// are not accepted yet.
    fn forced(&mut self, tokens: &mut Vec<TokenId>);

    /// Whether the text so far is complete.
    fn may_end(&mut self) -> bool;

    /// Whether nothing may follow: complete, and no token can extend it.
    fn is_over(&mut self) -> bool;

    /// An independent copy in the same state.
    fn boxed_clone(&self) -> Box<dyn Constraint>;
}

impl Clone for Box<dyn Constraint> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}

/// A grammar that cannot be followed any further, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstraintError(pub String);

impl core::fmt::Display for ConstraintError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ConstraintError {}
