//! Shared parts of the tests: a tiny vocabulary, models, recorded walks.

mod bench;
mod coordinates;
mod effects;
mod grammar;
mod model;
mod oracle;
mod setup;
mod vocabulary;
mod walk;

pub use bench::{Bench, asynclane, block_wise, blocks, commit, schedule, with_schedule};
pub use coordinates::{at, span};
pub use effects::{
    advance, committed, done, draft, edited, finish, fork, generate, masked, place, placed_draft,
    refine, resize, revoke, shorten, wake,
};
pub use grammar::{Slots, Toy};
pub use model::{branches, candidate, mix, wanted};
pub use oracle::is_valid_delimiter;
pub use setup::{
    Setup, asynclane_setup, block_wise_setup, cases, edit_setup, filter, guarded_setup, is_joint,
    setup,
};
pub use vocabulary::*;
pub use walk::{Record, Walk};
