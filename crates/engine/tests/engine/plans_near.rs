//! Exact batches of the cache `fused` with rows near the last commits: which masks have a row.
//!
//! A prompt of three tokens and one lane of 16 offsets, which starts with the first eight masks.

use crate::common::{Scripted, request};

fn scripted(settings: &str) -> Scripted {
    let settings = format!(
        "asynclane,commit=threshold,threshold=0.9,block_length=16,lookahead=2,fork=off,\
         cache=fused,rows=near,row_ahead=8,row_reach=3,{settings}"
    );
    Scripted::new(request(&[10, 11, 12], 32, &settings))
}

const FIRST: &str = "pages 0 1 2: 0..11 = 10 11 12 ? ? ? ? ? ? ? ? see 11";

/// A commit at offset 1 wakes offsets 0 to 4 and gives offset 8 and 9 their first row; offsets 5 to 7
/// were scored without a commit near them.
#[test]
fn masks_far_from_every_commit_have_no_row() {
    let mut scripted = scripted("refresh=never");
    assert_eq!(scripted.step(&[(1, 20, 0.95)]), [FIRST]);
    assert_eq!(
        scripted.step(&[(2, 21, 0.95)]),
        ["pages 0 1 2 3: 3..8 = ? 20 ? ? ? see 13; 11..13 = ? ? see 13"]
    );
    assert_eq!(
        scripted.step(&[(0, 22, 0.95)]),
        ["pages 0 1 2 3: 3..4 = ? see 14; 5..9 = 21 ? ? ? see 14; 13..14 = ? see back"]
    );
    assert_eq!(scripted.step(&[]), ["pages 0 1 2 3: 3..4 = 22 see 14; 6..10 = ? ? ? ? see 14"]);
}

/// A refresh reaches as far as masks had rows.
#[test]
fn a_refresh_leaves_out_what_the_text_has_not_reached() {
    let mut scripted = scripted("refresh=1");
    assert_eq!(scripted.step(&[(1, 20, 0.95)]), [FIRST]);
    scripted.step(&[(0, 21, 0.95)]);
    assert_eq!(
        scripted.step(&[]),
        ["pages 0 1 2 3: 0..13 = 10 11 12 21 20 ? ? ? ? ? ? ? ? see 13"]
    );
}
