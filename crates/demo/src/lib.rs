//! The demo model: its checkpoint, its problems and how an output is graded.
//!
//! The checkpoint is a small masked diffusion language model that knows three families of
//! problems (word sums, Python snippets, lists) in a fixed set of wordings. The generator in
//! [`problems`] is the one source of those wordings, for training and for evaluation alike, and
//! [`grade`] judges an output against the problem it answers. How the checkpoint was trained is
//! told in `training/README.md` beside this crate's sources.

pub mod checkpoint;
pub mod grade;
pub mod problems;
pub mod python;
mod rng;
