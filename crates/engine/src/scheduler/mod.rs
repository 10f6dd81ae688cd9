//! Who runs: the share that prefills and refreshes have of a step.

mod deficit;

pub(crate) use deficit::Deficit;
