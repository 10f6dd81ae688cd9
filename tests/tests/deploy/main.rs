//! The files in `deploy/` agree with the running server and with each other.

mod compose;
mod files;
mod kubernetes;
mod metrics;
mod queries;

use asynclane_tests::crowd::model;
use asynclane_tests::served::Served;
use sim::SimExecutor;

/// Sequences in the batch, the default of `asynclane serve`.
const MAX_RUNNING: u32 = 64;
/// Rows of a step.
const ROW_BUDGET: u32 = 2048;

/// A server over the simulated model.
fn served() -> Served {
    let executor = SimExecutor::new(model()).expect("the model is possible");
    Served::over(Box::new(executor), MAX_RUNNING, ROW_BUDGET)
}
