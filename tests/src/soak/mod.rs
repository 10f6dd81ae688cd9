//! The soak: random requests of every kind from several connections, and what they must add up to.

pub mod ask;
pub mod tally;
pub mod visit;

/// The names and keys of the clients that the server knows.
pub const KEYS: [(&str, &str); 4] =
    [("north", "key-north"), ("south", "key-south"), ("east", "key-east"), ("west", "key-west")];
