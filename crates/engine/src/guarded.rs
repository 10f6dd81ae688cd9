//! Panics of a model.

use std::panic::{AssertUnwindSafe, catch_unwind};

use step::ExecuteError;

/// Turns a panic of the model into a failure of the step.
pub(crate) fn guarded(run: impl FnOnce() -> Result<(), ExecuteError>) -> Result<(), ExecuteError> {
    let done = catch_unwind(AssertUnwindSafe(run));
    done.unwrap_or_else(|_| Err(ExecuteError("the model panicked".to_owned())))
}
