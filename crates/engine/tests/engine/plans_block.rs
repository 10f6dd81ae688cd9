//! Exact batches of the block-wise cache policies: none, prefix, dual (Fast-dLLM §3.2).
//!
//! A prompt of three tokens and eight masks in blocks of four, over pages of four slots.

use crate::common::{STOP, Scripted, request};

fn scripted(cache: &str) -> Scripted {
    let settings =
        format!("schedule=block_wise,commit=threshold,threshold=0.9,block_length=4,cache={cache}");
    Scripted::new(request(&[10, 11, 12], 8, &settings))
}

/// The first forward, equal for all policies: every row, the block scored.
const FIRST: &str = "pages 0 1 2: 0..11 = 10 11 12 ? ? ? ? _ _ _ _ see 11";

/// Commits two tokens, then the rest of the block, then one of the next.
const SAID: [&[(u32, u32, f64)]; 4] = [
    &[(0, 20, 0.95), (2, 22, 0.95)],
    &[(1, 21, 0.95), (3, 23, 0.95)],
    &[(4, 24, 0.95)],
    &[(5, 25, 0.95)],
];

#[test]
fn none_computes_the_whole_canvas_in_every_forward() {
    let mut scripted = scripted("none");
    let batches = SAID.map(|said| scripted.step(said));
    let expected = [
        [FIRST],
        ["pages 0 1 2: 0..11 = 10 11 12 20 ? 22 ? _ _ _ _ see 11"],
        ["pages 0 1 2: 0..11 = 10 11 12 20 21 22 23 ? ? ? ? see 11"],
        ["pages 0 1 2: 0..11 = 10 11 12 20 21 22 23 24 ? ? ? see 11"],
    ];
    assert_eq!(batches, expected);
}

#[test]
fn prefix_computes_the_block_and_everything_behind_it() {
    let mut scripted = scripted("prefix");
    let batches = SAID.map(|said| scripted.step(said));
    let expected = [
        [FIRST],
        ["pages 0 1 2: 3..11 = 20 ? 22 ? _ _ _ _ see 11"],
        ["pages 0 1 2: 0..11 = 10 11 12 20 21 22 23 ? ? ? ? see 11"],
        ["pages 0 1 2: 7..11 = 24 ? ? ? see 11"],
    ];
    assert_eq!(batches, expected);
}

#[test]
fn dual_computes_the_block_alone() {
    let mut scripted = scripted("dual");
    let batches = SAID.map(|said| scripted.step(said));
    let expected = [
        [FIRST],
        ["pages 0 1 2: 3..7 = 20 ? 22 ? see 11"],
        ["pages 0 1 2: 0..11 = 10 11 12 20 21 22 23 ? ? ? ? see 11"],
        ["pages 0 1 2: 7..11 = 24 ? ? ? see 11"],
    ];
    assert_eq!(batches, expected);
}

/// Rows after a committed stop token are neither computed nor seen.
#[test]
fn a_stop_token_ends_what_is_computed_and_seen() {
    let said: [&[(u32, u32, f64)]; 2] = [&[(2, STOP, 0.95)], &[(0, 20, 0.95)]];
    let expected = [
        ("none", "pages 0 1 2: 0..6 = 10 11 12 ? ? 1 see 6"),
        ("prefix", "pages 0 1 2: 3..6 = ? ? 1 see 6"),
        ("dual", "pages 0 1 2: 3..6 = ? ? 1 see 6"),
    ];
    for (cache, second) in expected {
        let mut scripted = scripted(cache);
        assert_eq!(said.map(|said| scripted.step(said)), [[FIRST], [second]], "{cache}");
    }
}

#[test]
fn forwards_are_counted_by_kind() {
    for (cache, kinds) in [("none", "pddd"), ("prefix", "pdrd"), ("dual", "pdrd")] {
        let mut scripted = scripted(cache);
        let found: String = SAID
            .iter()
            .map(|said| {
                scripted.step(said);
                let by = scripted.report().work.forwards;
                match (by.prefill, by.decode, by.refresh) {
                    (1, 0, 0) => 'p',
                    (0, 1, 0) => 'd',
                    (0, 0, 1) => 'r',
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        assert_eq!(found, kinds, "{cache}");
    }
}
