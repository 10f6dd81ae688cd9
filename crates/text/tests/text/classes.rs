//! Boundary classes of tokens, derived from their decoded text.

use asynclane_text::classify;
use decode::TokenClass;

use crate::fixtures::{BYTE_LEVEL, DEMO_PAIR, LLAMA, METASPACE};

const NONE: TokenClass = TokenClass {
    period: false,
    starts_with_digit: false,
    ends_with_digit: false,
    digit_before_period: false,
    newline: false,
    line_feed: false,
    blank: false,
    brackets: 0,
    continues_line: false,
    fence: false,
};

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn texts_have_the_classes_of_their_characters() {
    let period = TokenClass {
        period: true,
        ..NONE
    };
    let digits = TokenClass {
        starts_with_digit: true,
        ends_with_digit: true,
        ..NONE
    };
    let cases = [
        (".", period),
        (" .", period),
        ("。", period),
        (" e.g.", period),
        (
            ".\n",
            TokenClass {
                newline: true,
                ..period
            },
        ),
        (
            ").",
            TokenClass {
                brackets: -1,
                ..period
            },
        ),
        (
            "5.",
            TokenClass {
                starts_with_digit: true,
                digit_before_period: true,
                ..period
            },
        ),
        (
            " 5.\n",
            TokenClass {
                digit_before_period: true,
                newline: true,
                ..period
            },
        ),
        ("12", digits),
        (
            " 5",
            TokenClass {
                ends_with_digit: true,
                ..NONE
            },
        ),
        (
            "5 ",
            TokenClass {
                starts_with_digit: true,
                ..NONE
            },
        ),
        (
            ":\n",
            TokenClass {
                newline: true,
                continues_line: true,
                ..NONE
            },
        ),
        (
            " = \n  x",
            TokenClass {
                newline: true,
                continues_line: true,
                ..NONE
            },
        ),
        (
            ":",
            TokenClass {
                continues_line: true,
                ..NONE
            },
        ),
        (
            "(",
            TokenClass {
                brackets: 1,
                continues_line: true,
                ..NONE
            },
        ),
        (
            "({[",
            TokenClass {
                brackets: 3,
                ..NONE
            },
        ),
        ("()", NONE),
        (
            ")\n",
            TokenClass {
                newline: true,
                brackets: -1,
                ..NONE
            },
        ),
        (
            "\n",
            TokenClass {
                newline: true,
                line_feed: true,
                blank: true,
                ..NONE
            },
        ),
        (
            "\n\n",
            TokenClass {
                newline: true,
                blank: true,
                ..NONE
            },
        ),
        (
            "\n:",
            TokenClass {
                newline: true,
                ..NONE
            },
        ),
        (
            "  ",
            TokenClass {
                blank: true,
                ..NONE
            },
        ),
        (
            "```python",
            TokenClass {
                fence: true,
                ..NONE
            },
        ),
        ("``", NONE),
        (
            ".5",
            TokenClass {
                ends_with_digit: true,
                ..NONE
            },
        ),
        ("the", NONE),
        ("", NONE),
    ];
    for (text, expected) in cases {
        assert_eq!(classify(text), expected, "{text:?}");
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
    assert!((0..6).all(|id| special.get(id) == NONE));
}
