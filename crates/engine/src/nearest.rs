//! Suggestions for names that do not exist.

/// Most characters of a name that is compared.
const MAX_CHARS: usize = 64;

/// ` (did you mean "NAME"?)` with the nearest of the `known` names, for the end of a message about the
/// name `found`. Empty if at most two thirds of the characters agree with any of them.
pub fn did_you_mean<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(found, known).map_or_else(String::new, |name| format!(" (did you mean \"{name}\"?)"))
}

/// The nearest of the `known` names, the first of several; upper case and hyphens do not count.
fn nearest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if found.chars().nth(MAX_CHARS).is_some() {
        return None;
    }
    let plain = |name: &str| name.to_ascii_lowercase().replace('-', "_");
    let found = plain(found);
    let near = known.into_iter().filter_map(|name| {
        let distance = strsim::osa_distance(&found, &plain(name));
        let longer = found.chars().count().max(name.chars().count());
        (distance * 3 <= longer).then_some((distance, name))
    });
    let nearest = near.min_by_key(|(distance, _)| *distance);
    nearest.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let known = ["threshold", "top_k", "n", "max_tokens", "fast_dllm", "f32"];
        for (found, expected) in [
            ("treshold", Some("threshold")),
            ("thershold", Some("threshold")),
            ("topk", Some("top_k")),
            ("Fast-dLLM", Some("fast_dllm")),
            ("max_new_tokens", Some("max_tokens")),
            ("f16", None),
            ("x", None),
            ("", None),
            ("foo", None),
        ] {
            assert_eq!(nearest(found, known), expected, "{found}");
        }
        assert_eq!(nearest(&"n".repeat(65), ["n"]), None);
        assert_eq!(did_you_mean("topk", known), " (did you mean \"top_k\"?)");
        assert_eq!(did_you_mean("foo", known), "");
    }
}
