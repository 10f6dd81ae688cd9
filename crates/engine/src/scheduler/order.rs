//! The order in which waiting sequences start: a policy that an application can replace.

use std::fmt::Debug;

use crate::request::Request;

/// Steps after which a waiting sequence starts before every sequence that was submitted later.
const AGING_STEPS: u64 = 1000;

/// Where a sequence stands among those that wait. The lowest rank starts first; sequences of equal
/// rank start in order of submission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub i64);

/// Decides the order in which waiting sequences start.
///
/// An implementation needs no state and no lock: the engine asks for a rank once per sequence, in
/// [`Engine::submit`](crate::Engine::submit). It cannot starve a sequence, because the scheduler
/// applies [`Self::aging_steps`] whatever the ranks are.
///
/// ```
/// use asynclane_engine::{Rank, Request, WaitOrder};
///
/// /// The sequence with the fewest prompt tokens starts first.
/// #[derive(Debug)]
/// struct ShortestPromptFirst;
///
/// impl WaitOrder for ShortestPromptFirst {
///     fn rank(&self, request: &Request) -> Rank {
///         Rank(request.prompt.len() as i64)
///     }
/// }
/// ```
pub trait WaitOrder: Debug + Send + Sync {
    /// The rank of a request that is being submitted.
    fn rank(&self, request: &Request) -> Rank;

    /// Steps after which a waiting sequence starts before every sequence that was submitted later,
    /// whatever their ranks. 0 = order of submission.
    fn aging_steps(&self) -> u64 {
        AGING_STEPS
    }
}

/// Lower values of [`Request::priority`] start first, equal ones in order of submission.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByPriority;

impl WaitOrder for ByPriority {
    fn rank(&self, request: &Request) -> Rank {
        Rank(i64::from(request.sender.priority))
    }
}
