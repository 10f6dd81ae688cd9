//! Stop strings, compared with a naive implementation of the definition.

use asynclane_text::{StopMatch, StopMatcher};
use proptest::prelude::*;

use crate::fixtures::{config, cut};

/// The first match in `text`: its start, and the longest stop string that ends first.
pub fn first_match(text: &str, stops: &[String]) -> Option<(usize, StopMatch)> {
    (1..=text.len()).find_map(|end| {
        let ended = &text.as_bytes()[..end];
        let ends = |stop: &&String| !stop.is_empty() && ended.ends_with(stop.as_bytes());
        let longest = stops.iter().filter(ends).map(String::len).max()?;
        let mut all = stops.iter();
        let stop = all.position(|stop| ends(&stop) && stop.len() == longest)?;
        Some((end - longest, StopMatch { stop, end }))
    })
}

/// Length of the longest suffix of `text` that may start a match.
fn open(text: &str, stops: &[String]) -> usize {
    let begins = |len: &usize| {
        let end = &text.as_bytes()[text.len() - len..];
        let mut stops = stops.iter();
        stops.any(|stop| stop.len() > *len && stop.as_bytes().starts_with(end))
    };
    (0..=text.len()).rev().find(begins).unwrap_or(0)
}

fn short_text(max: usize) -> impl Strategy<Value = String> {
    let character = prop::sample::select(vec!['a', 'b', 'é', 'è', '😀']);
    prop::collection::vec(character, 0..max).prop_map(String::from_iter)
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn the_first_match_wins_however_the_text_is_cut(
        text in short_text(24),
        stops in prop::collection::vec(short_text(5), 0..5),
        sizes in prop::collection::vec(0_usize..4, 0..20),
        include in any::<bool>(),
    ) {
        let mut matcher = StopMatcher::new(&stops, include);
        let characters: Vec<char> = text.chars().collect();
        let (mut shown, mut taken, mut matched) = (String::new(), String::new(), None);
        for piece in cut(&characters, &sizes) {
            let piece = String::from_iter(piece);
            taken.push_str(&piece);
            let released = matcher.push(&piece);
            shown.push_str(&released.text);
            matched = matched.or(released.matched);
            if matched.is_none() {
                prop_assert_eq!(&shown, &taken[..taken.len() - open(&taken, &stops)]);
            }
        }
        shown.push_str(&matcher.finish());
        let expected = first_match(&text, &stops);
        prop_assert_eq!(matched, expected.map(|(_, hit)| hit));
        prop_assert_eq!(matcher.is_done(), expected.is_some());
        let end = expected.map_or(text.len(), |(start, hit)| if include { hit.end } else { start });
        prop_assert_eq!(&shown, &text[..end]);
    }
}

#[test]
fn a_match_while_disarmed_is_text_and_may_begin_another() {
    let mut matcher = StopMatcher::new(&["aa"], true);
    matcher.arm(false);
    assert_eq!(matcher.push("aa").text, "a");
    matcher.arm(true);
    let released = matcher.push("ab");
    assert_eq!(released.text, "aa");
    assert_eq!(released.matched, Some(StopMatch { stop: 0, end: 3 }));
}
