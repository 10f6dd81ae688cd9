//! Names that do not exist.

use engine::did_you_mean;

/// The problem of a name that is none of `names`.
pub fn unknown(names: &[&str], found: &str) -> String {
    let hint = did_you_mean(found, names.iter().copied());
    let names = names.join(", ");
    format!("expected one of {names}, found {found:?}{hint}")
}

/// `text`, of a file or an answer, on one line of a terminal: control characters are escaped, and the
/// line ends after 200 characters.
pub fn shown(text: &str) -> String {
    let cut: String = text.chars().take(200).collect();
    escaped(&cut, "")
}

/// `text` without effect on a terminal: control characters are escaped, but for those in `kept`.
pub fn escaped(text: &str, kept: &str) -> String {
    let escape = |c: char| match c.is_control() && !kept.contains(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}

/// The address `url` without the name and password before its host.
pub fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rsplit('@').next().unwrap_or_default();
    let lead = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{lead}{host}{}", &rest[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (url, expected) in [
            ("https://huggingface.co", "https://huggingface.co"),
            ("https://me:se@cret@mirror:8443/hub", "https://mirror:8443/hub"),
            ("http://token@host/a@b?c=@", "http://host/a@b?c=@"),
            ("me:secret@host:1", "host:1"),
            ("", ""),
        ] {
            assert_eq!(without_password(url), expected, "{url}");
        }
    }

    #[test]
    fn a_name_moves_no_cursor() {
        assert_eq!(shown("a\u{1b}[2J\nb\u{9b}é"), "a\\u{1b}[2J\\nb\\u{9b}é");
        assert_eq!(shown(&"x".repeat(300)).len(), 200);
    }
}
