//! Published policies that no preset uses. They are reached by their names in requests alone.

pub(super) mod elastic;
pub(super) mod fresh;
