//! Shared parts of the tests: requests, an engine with checks, batches as text.

mod grammar;
mod lab;
mod picture;
mod requests;
mod rig;
mod rng;

pub use grammar::Automaton;
pub use lab::{End, Lab, Outcome, alone};
pub use picture::{Scripted, candidate};
pub use requests::{
    LANE_DECODERS, STOP, config, decoding, drafted, random_request, random_wishes, reading_masks,
    request, sim, stubborn,
};
pub use rig::{Rig, read, request_of, text_of};
pub use rng::{Rng, ShowSeed, seeds};
