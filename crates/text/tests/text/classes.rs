//! Boundary classes of tokens, derived from their decoded text.

use asynclane_text::classify;
use decode::TokenClass;

use crate::fixtures::{BYTE_LEVEL, DEMO_PAIR, LLAMA, METASPACE};

/// A text in JSON, and the members of its class that are not false or 0.
const CLASSES: &str = r#"
"." period
" ." period
"。" period
" e.g." period
".\n" period newline
")." period brackets=-1
"5." period starts_with_digit digit_before_period
" 5.\n" period digit_before_period newline
"12" starts_with_digit ends_with_digit
" 5" ends_with_digit
"5 " starts_with_digit
":\n" newline continues_line
" = \n  x" newline continues_line
":" continues_line
"(" brackets=1 continues_line
"({[" brackets=3
"()"
")\n" newline brackets=-1
"\n" newline line_feed blank
"\n\n" newline blank
"\n:" newline
"  " blank
"```python" fence
"``"
".5" ends_with_digit
"the"
""
"#;

fn class(members: &str) -> TokenClass {
    let has = |name: &str| members.split(' ').any(|member| member == name);
    let brackets = members.split(' ').find_map(|member| member.strip_prefix("brackets="));
    TokenClass {
        period: has("period"),
        starts_with_digit: has("starts_with_digit"),
        ends_with_digit: has("ends_with_digit"),
        digit_before_period: has("digit_before_period"),
        newline: has("newline"),
        line_feed: has("line_feed"),
        blank: has("blank"),
        brackets: brackets.map_or(0, |number| number.parse().unwrap()),
        continues_line: has("continues_line"),
        fence: has("fence"),
    }
}

#[test]
fn texts_have_the_classes_of_their_characters() {
    for case in CLASSES.lines().skip(1) {
        let (text, members) = case.rsplit_once('"').unwrap();
        let text: String = serde_json::from_str(&format!("{text}\"")).unwrap();
        assert_eq!(classify(&text), class(members), "{text:?}");
    }
}

#[test]
fn classes_are_of_the_decoded_text_in_every_vocabulary() {
    let cases = [
        (&*DEMO_PAIR, "Ġ5", " 5"),
        (&*DEMO_PAIR, "12", "12"),
        (&*DEMO_PAIR, "Ċ", "\n"),
        (&*DEMO_PAIR, "Ġ[", " ["),
        (&*BYTE_LEVEL, "Ġ.", " ."),
        (&*BYTE_LEVEL, ".Ċ", ".\n"),
        (&*BYTE_LEVEL, ").", ")."),
        (&*BYTE_LEVEL, ":Ċ", ":\n"),
        (&METASPACE[LLAMA], "▁.", " ."),
        (&METASPACE[LLAMA], "。", "。"),
        (&METASPACE[LLAMA], "<0x0A>", "\n"),
        (&METASPACE[LLAMA], "<0x28>", "("),
    ];
    for (pair, token, text) in cases {
        let id = pair.ours.token_to_id(token).unwrap();
        assert_eq!(pair.ours.classes().get(id), classify(text), "{token}");
        assert_eq!(pair.ours.token_text(id), text);
    }
    let special = DEMO_PAIR.ours.classes();
    assert!((0..6).all(|id| special.get(id) == TokenClass::default()));
}
