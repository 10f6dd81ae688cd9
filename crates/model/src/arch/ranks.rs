//! Whether the ranks of a backend can hold a model together.

use crate::LoadError;
use crate::config::Spec;

/// Refuses a model that `ranks` ranks cannot divide among them. One rank holds every model.
pub(super) fn check(spec: &Spec, ranks: usize) -> Result<(), LoadError> {
    if ranks == 1 {
        return Ok(());
    }
    let refuse = |expected: &str, found: &str| {
        Err(LoadError::Setup(format!(
            "{ranks} ranks: expected {expected}, found {found}"
        )))
    };
    let info = &spec.info;
    if info.canvas.is_some() {
        return refuse("a model without canvases of noise", info.family);
    }
    if let Some(experts) = &spec.experts {
        let found = format!("{} with {} experts in a layer", info.family, experts.count);
        return refuse("layers without experts", &found);
    }
    for (what, count) in [
        ("query heads", info.heads),
        ("key/value heads", info.groups),
        ("columns of the model width", info.width),
        ("columns of the MLP width", info.mlp_width),
    ] {
        if !count.is_multiple_of(ranks) {
            let expected = format!("a multiple of {ranks} {what}");
            return refuse(&expected, &count.to_string());
        }
    }
    Ok(())
}
