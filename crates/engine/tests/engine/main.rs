//! The engine from outside: simulations, exact batches, the engine thread, decoder settings.

#[cfg(test)]
mod accounting;
#[cfg(test)]
mod admission;
#[cfg(test)]
mod canvas;
#[cfg(test)]
mod checks;
#[cfg(test)]
mod chunks;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod common;
#[cfg(test)]
mod expected;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod infill;
#[cfg(test)]
mod invariance;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod plans_block;
#[cfg(test)]
mod plans_branches;
#[cfg(test)]
mod plans_exact;
#[cfg(test)]
mod plans_lanes;
#[cfg(test)]
mod plans_near;
#[cfg(test)]
mod plans_snapshot;
#[cfg(test)]
mod prefixes;
#[cfg(test)]
mod progress;
#[cfg(test)]
mod prompt_lookup;
#[cfg(test)]
mod readings;
#[cfg(test)]
mod scoring;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod spec;
#[cfg(test)]
mod spec_faults;
#[cfg(test)]
mod speculative;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod threads;
#[cfg(test)]
mod turns;
