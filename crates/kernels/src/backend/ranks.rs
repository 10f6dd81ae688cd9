//! Several devices for one model: tensor parallelism that changes no bit.
//!
//! A *rank* is a backend of its own, on a device of its own. Matrices are divided by their outputs and
//! never by their inputs: a rank computes some columns of every product, each summed over the whole
//! inner dimension in the order of a single device. Before a product that needs whole rows, the ranks
//! gather the columns of all ranks in rank order. Nothing is summed across ranks, so results do not
//! depend on their number. One exception: a GPU sums a matrix of 8,192 rows or more in one segment
//! ([`segment`](crate::device::segment)); if a rank has fewer rows of it, the last bits of a sum differ
//! from those of one device.
//!
//! Of attention, a rank has its share of the query heads and of the key/value heads with their keys and
//! values. Every rank holds the whole residual stream. What is not divided lies on the first rank: the
//! LM head, whose logits it scores.
//!
//! **Exchange.** A layer gathers four arrays: the result of attention `h c` and the gated activation
//! `m`, in the number format of products' inputs, and the residual stream `d` after the out and the
//! down projection, in f32. With `R` ranks and `b` bytes of an input, a rank receives for each row of a
//! layer `(b (h c + m) + 8 d) (R - 1) / R` bytes. Matrices divided by their inputs would need two sums
//! of partial results over all ranks instead: `8 d (R - 1)` bytes if each rank reads those of all
//! others, or `16 d (R - 1) / R` bytes in a ring. The embedding gathers `d` numbers once per row.
//!
//! Ranks run one after another on the calling thread; [`Rank::gather`] is the place for copies between
//! devices.

mod array;
mod operations;
mod rank;
mod shares;
mod storage;
#[cfg(test)]
mod tests;

pub use array::RankArray;
pub use rank::{Exchanged, Rank};
pub use storage::RankMatrix;

use candle_core::{Result, bail};
use rank::Exchange;

/// Why experts are refused.
const EXPERTS: &str = "ranks divide no mixtures of experts";

/// Backends that hold one model together.
pub struct Ranks<B> {
    /// At least one.
    all: Vec<B>,
    exchange: Exchange,
}

impl<B> Ranks<B> {
    /// A backend over these ranks.
    ///
    /// # Errors
    /// If there are none.
    pub fn new(ranks: Vec<B>) -> Result<Self> {
        if ranks.is_empty() {
            bail!("expected at least one rank, found none");
        }
        Ok(Self {
            all: ranks,
            exchange: Exchange::default(),
        })
    }

    /// The ranks, in their order.
    #[must_use]
    pub fn each(&self) -> &[B] {
        &self.all
    }

    /// What each rank has received from the others so far.
    #[must_use]
    pub fn exchanged(&self) -> Exchanged {
        self.exchange.sum()
    }
}
