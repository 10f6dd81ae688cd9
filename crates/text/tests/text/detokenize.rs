//! The concatenated pieces equal the text that an independent decoder makes of all tokens.

use asynclane_text::SpecialTokens;
use proptest::prelude::*;

use crate::fixtures::{BYTE_LEVEL, DEMO_PAIR, LLAMA, METASPACE, Pair, alone, config, cut, ids};
use crate::fixtures::{byte_alphabet, metaspace_json, texts};

/// Compares the pieces of `ids`, split by `sizes`, with the independent decoder's text.
fn check(pair: &Pair, ids: &[u32], sizes: &[usize]) -> Result<(), TestCaseError> {
    for (skip, specials) in [(false, SpecialTokens::Keep), (true, SpecialTokens::Skip)] {
        let mut detokenizer = pair.ours.detokenizer(specials);
        let pieces = cut(ids, sizes);
        let mut text: String = pieces.iter().map(|piece| detokenizer.push(piece)).collect();
        text.push_str(&detokenizer.finish());
        prop_assert_eq!(&text, &pair.theirs.decode(ids, skip).unwrap());
        prop_assert_eq!(&text, &pair.ours.decode(ids, skip));
    }
    Ok(())
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0_usize..4, 0..30)
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn byte_level_pieces_join(
        ids in (ids(&DEMO_PAIR), ids(&BYTE_LEVEL)),
        sizes in (sizes(), sizes()),
    ) {
        check(&DEMO_PAIR, &ids.0, &sizes.0)?;
        check(&BYTE_LEVEL, &ids.1, &sizes.1)?;
    }

    #[test]
    fn metaspace_pieces_join(ids in ids(&METASPACE[LLAMA]), sizes in sizes()) {
        for pair in METASPACE.iter() {
            check(pair, &ids, &sizes)?;
        }
    }

    /// No character is split: token by token, U+FFFD appears only where the text contains it.
    #[test]
    fn characters_stay_whole(text in texts()) {
        for pair in [&*DEMO_PAIR, &*BYTE_LEVEL, &METASPACE[LLAMA]] {
            let ids = pair.ours.encode(&text, false).unwrap();
            let whole = pair.theirs.decode(&ids, false).unwrap();
            prop_assert_eq!(whole.matches('\u{fffd}').count(), text.matches('\u{fffd}').count());
            let mut detokenizer = pair.ours.detokenizer(SpecialTokens::Keep);
            let mut shown = String::new();
            for id in ids {
                shown.push_str(&detokenizer.push(&[id]));
                prop_assert!(whole.starts_with(&shown), "{whole:?} {shown:?}");
            }
            shown.push_str(&detokenizer.finish());
            prop_assert_eq!(&shown, &whole);
        }
    }
}

/// The token of one byte in a byte-level vocabulary.
fn byte(pair: &Pair, byte: u8) -> u32 {
    let character = byte_alphabet()[usize::from(byte)];
    pair.ours.token_to_id(&character.to_string()).unwrap()
}

#[test]
fn an_emoji_leaves_with_its_last_byte() {
    for pair in [&*DEMO_PAIR, &*BYTE_LEVEL] {
        let mut detokenizer = pair.ours.detokenizer(SpecialTokens::Skip);
        let pieces = "😀".bytes().map(|b| detokenizer.push(&[byte(pair, b)]));
        assert_eq!(pieces.collect::<Vec<_>>(), ["", "", "", "😀"]);
        assert_eq!(detokenizer.finish(), "");
    }
}

#[test]
fn ill_formed_bytes_never_stall_the_text() {
    let pair = &*BYTE_LEVEL;
    let mut detokenizer = pair.ours.detokenizer(SpecialTokens::Skip);
    assert_eq!(detokenizer.push(&[byte(pair, 0xff)]), "\u{fffd}");
    assert_eq!(detokenizer.push(&[byte(pair, 0xf0)]), "");
    assert_eq!(detokenizer.push(&[byte(pair, b'a')]), "\u{fffd}a");
    // A replacement character in the input is ordinary text.
    let ids = pair.ours.encode("\u{fffd}", false).unwrap();
    assert_eq!(detokenizer.push(&ids), "\u{fffd}");
    assert_eq!(detokenizer.push(&[byte(pair, 0xe2), byte(pair, 0x82)]), "");
    assert_eq!(detokenizer.finish(), "\u{fffd}");
}

#[test]
fn a_run_of_fallback_bytes_is_decoded_as_one_item() {
    let tokenizer = &METASPACE[LLAMA].ours;
    let id = |token: &str| tokenizer.token_to_id(token).unwrap();
    let (c3, a9, a) = (id("<0xC3>"), id("<0xA9>"), id("a"));
    assert_eq!(tokenizer.decode(&[c3, a9, a], false), "éa");
    let cut = tokenizer.decode(&[c3, a9, c3, a], false);
    assert_eq!(cut, "\u{fffd}\u{fffd}\u{fffd}a");
    let mut detokenizer = tokenizer.detokenizer(SpecialTokens::Skip);
    assert_eq!(detokenizer.push(&[c3, a9]), "");
    assert_eq!(detokenizer.push(&[a]), "éa");
}

#[test]
fn only_the_first_blank_is_stripped() {
    let tokenizer = &METASPACE[LLAMA].ours;
    let the = tokenizer.token_to_id("▁the").unwrap();
    let mut detokenizer = tokenizer.detokenizer(SpecialTokens::Skip);
    assert_eq!(detokenizer.push(&[tokenizer.bos_id().unwrap()]), "");
    assert_eq!(detokenizer.push(&[the]), "the");
    assert_eq!(detokenizer.push(&[the]), " the");
    assert_eq!(tokenizer.token_text(the), " the");
    let bytes = tokenizer.token_bytes(the).unwrap();
    assert_eq!(bytes, " the".as_bytes());
}

#[test]
fn the_mask_token_is_shown_only_if_all_special_tokens_are_kept() {
    let tokenizer = &DEMO_PAIR.ours;
    let (mask, end) = (tokenizer.mask_id().unwrap(), tokenizer.eos_id().unwrap());
    let ids = [mask, byte(&DEMO_PAIR, b'a'), end];
    let show = |specials| tokenizer.detokenizer(specials).push(&ids);
    assert_eq!(show(SpecialTokens::Keep), "<|mdm_mask|>a<|endoftext|>");
    assert_eq!(show(SpecialTokens::KeepButMask), "a<|endoftext|>");
    assert_eq!(show(SpecialTokens::Skip), "a");
}

#[test]
fn blanks_stripped_at_the_end_wait_for_what_follows() {
    let decoder = serde_json::json!({"type": "Sequence",
        "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 2}]});
    let tokenizer = alone(&metaspace_json(&decoder)).unwrap();
    let id = |token: &str| tokenizer.token_to_id(token).unwrap();
    let (blank, two, a) = (id("▁"), id("▁▁"), id("a"));
    let text = tokenizer.decode(&[two, a, blank, a, two, blank], false);
    assert_eq!(text, " a a ");
    assert_eq!(tokenizer.decode(&[two], false), "");
    let mut detokenizer = tokenizer.detokenizer(SpecialTokens::Keep);
    assert_eq!(detokenizer.push(&[a, two]), "a");
    assert_eq!(detokenizer.push(&[a]), "  a");
    assert_eq!(detokenizer.push(&[two, blank]), " ");
    assert_eq!(detokenizer.finish(), "");
}
