//! The text of a choice does not depend on how its tokens arrive.

use asynclane_text::{Piece, StreamOptions, TextStream, Tokenizer};
use proptest::prelude::*;

use crate::fixtures::{BYTE_LEVEL, DEMO_PAIR, LLAMA, METASPACE, Pair, config, cut, ids};
use crate::stop::first_match;

/// The concatenated text and the last piece.
fn run(tokenizer: &Tokenizer, options: &StreamOptions, pieces: &[&[u32]]) -> (String, Piece) {
    let mut stream = TextStream::new(tokenizer, options);
    let mut text: String = pieces.iter().map(|piece| stream.push(piece).text).collect();
    let last = stream.finish();
    text.push_str(&last.text);
    (text, last)
}

fn stops() -> impl Strategy<Value = Vec<String>> {
    let stop = prop_oneof!["[a-z .,]{1,3}", Just("\n\n".to_owned()), Just("\u{fffd}".to_owned())];
    prop::collection::vec(stop, 0..4)
}

fn check(
    pair: &Pair,
    ids: &[u32],
    sizes: &[usize],
    options: &StreamOptions,
) -> Result<(), TestCaseError> {
    let tokenizer = &pair.ours;
    let whole = run(tokenizer, options, &[ids]);
    let cut = run(tokenizer, options, &cut(ids, sizes));
    prop_assert_eq!(&whole.0, &cut.0);
    prop_assert_eq!(whole.1.tokens_used, cut.1.tokens_used);
    prop_assert_eq!(whole.1.stop, cut.1.stop);
    let mask = tokenizer.mask_id();
    let shown: Vec<u32> = ids.iter().copied().filter(|id| Some(*id) != mask).collect();
    let skip = options.skip_special_tokens;
    let text = pair.theirs.decode(&shown, skip).unwrap();
    if options.min_tokens == 0 {
        let hit = first_match(&text, &options.stop);
        let end = hit.map_or(text.len(), |(start, _)| start);
        prop_assert_eq!(&whole.0, &text[..end]);
        prop_assert_eq!(whole.1.stopped(), hit.is_some());
    } else {
        prop_assert!(text.starts_with(&whole.0));
        prop_assert!(!whole.1.stopped() || whole.1.tokens_used >= options.min_tokens);
    }
    if !whole.1.stopped() {
        prop_assert_eq!(whole.1.tokens_used, ids.len());
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn text_and_usage_do_not_depend_on_arrival(
        ids in (ids(&DEMO_PAIR), ids(&BYTE_LEVEL), ids(&METASPACE[LLAMA])),
        sizes in prop::collection::vec(0_usize..5, 0..20),
        stop in stops(),
        skip_special_tokens in any::<bool>(),
        min_tokens in prop_oneof![Just(0), 0_usize..12],
    ) {
        let options = StreamOptions { skip_special_tokens, stop, min_tokens, ..Default::default() };
        check(&DEMO_PAIR, &ids.0, &sizes, &options)?;
        check(&BYTE_LEVEL, &ids.1, &sizes, &options)?;
        for pair in METASPACE.iter() {
            check(pair, &ids.2, &sizes, &options)?;
        }
    }
}

#[test]
fn usage_counts_the_token_that_completes_a_stop_string() {
    let tokenizer = &DEMO_PAIR.ours;
    let ids = tokenizer.encode("one\n\ntwo three", false).unwrap();
    let newline = tokenizer.token_to_id("Ċ").unwrap();
    let second = ids.iter().rposition(|id| *id == newline).unwrap() + 1;
    let mut options = StreamOptions { stop: vec!["\n\n".to_owned()], ..Default::default() };
    let (text, last) = run(tokenizer, &options, &[&ids]);
    let found = (text.as_str(), last.tokens_used, last.stopped());
    assert_eq!(found, ("one", second, true));
    options.include_stop_str_in_output = true;
    assert_eq!(run(tokenizer, &options, &[&ids]).0, "one\n\n");
    options.min_tokens = second + 1;
    let (text, last) = run(tokenizer, &options, &[&ids]);
    assert_eq!(text, "one\n\ntwo three");
    assert_eq!(last.tokens_used, ids.len());
}

#[test]
fn usage_ends_inside_a_run_of_fallback_bytes() {
    let tokenizer = &METASPACE[LLAMA].ours;
    let id = |token: &str| tokenizer.token_to_id(token).unwrap();
    let ids = ["a", "<0x62>", "<0xC3>", "<0xA9>", "<0x63>", "a", "a"].map(id);
    let options = StreamOptions { stop: vec!["é".to_owned()], ..Default::default() };
    let piece = |text: &str, tokens_used: usize, stop: Option<usize>| Piece {
        text: text.into(),
        tokens_used,
        stop,
    };
    let mut stream = TextStream::new(tokenizer, &options);
    assert_eq!(stream.push(&ids[..5]), piece("a", 5, None));
    assert_eq!(stream.push(&ids[5..]), piece("b", 4, Some(0)));
    // A stop string may complete in text that was held back until the end.
    let mut stream = TextStream::new(tokenizer, &options);
    stream.push(&ids[..4]);
    assert_eq!(stream.finish(), piece("b", 4, Some(0)));
}
