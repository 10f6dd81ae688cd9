//! `asynclane models` and `asynclane pull`.

mod list;
mod pull;
pub mod room;

pub use list::run;
pub use pull::run as pull;
