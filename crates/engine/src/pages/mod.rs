//! KV pages: the pool, the page tables of sequences, and the prefix cache.

mod pool;
mod prefix;
mod tables;

pub(crate) use pool::{OutOfPages, PagePool};
pub(crate) use prefix::{Grid, Node};
pub(crate) use tables::Tables;
