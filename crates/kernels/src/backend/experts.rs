//! Experts as backends hold them.

use super::Storage;

/// The experts of a layer and their router.
pub enum Experts<S: Storage + ?Sized> {
    /// The router's product is read on the host, and experts run one by one.
    Each {
        /// The router `[experts, d]`.
        gate: S::Matrix,
        /// Gate and up, and down, of each expert.
        experts: Vec<[S::Matrix; 2]>,
    },
    /// The backend chooses, and runs all experts at once.
    Grouped(S::Grouped),
}
