//! Names that do not exist.

use engine::did_you_mean;

/// The problem of a name that is none of `names`.
pub fn unknown(names: &[&str], found: &str) -> String {
    let hint = did_you_mean(found, names.iter().copied());
    let names = names.join(", ");
    format!("expected one of {names}, found {found:?}{hint}")
}
