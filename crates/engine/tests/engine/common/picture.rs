//! x
pub struct Scripted;
