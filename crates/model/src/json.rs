//! JSON as Python writes it.

use std::borrow::Cow;

/// Words that Python writes for numbers that are not finite, longest first.
const WORDS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];

/// `text` with `null` in place of the words `NaN`, `Infinity` and `-Infinity` outside of strings, which Python
/// writes and reads, and JSON does not have. Valid JSON stays as it is.
pub fn strict_json(text: &[u8]) -> Cow<'_, [u8]> {
    let mut strict = Vec::new();
    let (mut copied, mut index) = (0, 0);
    let mut in_string = false;
    while let Some(byte) = text.get(index) {
        let rest = &text[index..];
        let word = WORDS.iter().find(|word| !in_string && rest.starts_with(word));
        let step = match (byte, word) {
            (_, Some(word)) => {
                strict.extend_from_slice(&text[copied..index]);
                strict.extend_from_slice(b"null");
                copied = index + word.len();
                word.len()
            }
            (b'\\', None) if in_string => 2,
            (b'"', None) => {
                in_string = !in_string;
                1
            }
            _ => 1,
        };
        index += step;
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => {
            strict.extend_from_slice(&text[copied..]);
            Cow::Owned(strict)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_numbers_become_null_outside_of_strings() {
        for (text, expected) in [
            (r#"{"a": NaN, "b": [-Infinity,Infinity]}"#, r#"{"a": null, "b": [null,null]}"#),
            (r#"{"NaN": "a \" NaN \\", "b": NaN}"#, r#"{"NaN": "a \" NaN \\", "b": null}"#),
            ("Infinity", "null"),
        ] {
            assert_eq!(strict_json(text.as_bytes()), expected.as_bytes());
        }
        for same in [r#"{"a": "Infinity", "b": -1}"#, r#"{"a": "\"#, "", "\""] {
            assert!(matches!(strict_json(same.as_bytes()), Cow::Borrowed(_)), "{same}");
        }
    }
}
