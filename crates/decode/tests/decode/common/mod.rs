//! What every test here is made of: a tiny vocabulary, models, recorded walks.

mod bench;
mod model;
mod oracle;
mod setup;
mod vocabulary;
mod walk;

pub use bench::{Bench, asynclane, block_wise, with_schedule};
pub use model::{candidate, wanted};
pub use oracle::is_valid_delimiter;
pub use setup::{Setup, asynclane_setup, block_wise_setup, cases, setup};
pub use vocabulary::*;
pub use walk::{Record, Walk};
