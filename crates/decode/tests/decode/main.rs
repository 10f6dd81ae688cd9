//! Tests of the decoding algorithms: properties, edge cases.

#[cfg(test)]
mod boundaries;
#[cfg(test)]
mod commits;
#[cfg(test)]
mod common;
#[cfg(test)]
mod edges;
#[cfg(test)]
mod grammars;
#[cfg(test)]
mod joint;
#[cfg(test)]
mod lanes;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod renoising;
#[cfg(test)]
mod routers;
#[cfg(test)]
mod rules_of_blocks;
#[cfg(test)]
mod schedules;
