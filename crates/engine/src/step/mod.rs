//! What a step is made of: sequences packed into the batch.

mod pack;

pub(crate) use pack::{Packer, Wanted};
