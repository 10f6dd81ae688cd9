//! The device's kernels, run by the emulation, against this crate's kernels for the CPU: random
//! ragged batches, odd sizes, outputs poisoned before.

#[cfg(test)]
mod attention;
#[cfg(test)]
mod common;
mod graphs;
#[cfg(test)]
mod products;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod score;
