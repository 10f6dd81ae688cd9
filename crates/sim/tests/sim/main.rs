//! The simulated executor, from outside.

#[cfg(test)]
mod candidates;
#[cfg(test)]
mod common;
#[cfg(test)]
mod config;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod sets;
#[cfg(test)]
mod text;
#[cfg(test)]
mod visible;
