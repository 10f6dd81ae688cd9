//! Exact batches of the policies fresh and fused (AsyncLane §4).
//!
//! A prompt of three tokens, lanes of four offsets with a lookahead of two, a fork in the first
//! step: offset 1 is a full stop (token 2), offset 3 and the draft at offset 5 are committed too.

use crate::common::{STOP, Scripted, request};

const LANES: &str = "asynclane,commit=threshold,threshold=0.9,block_length=4,lookahead=2,\
                     fork=sentence,min_fill=0,min_clock=0";

fn scripted(cache: &str) -> Scripted {
    Scripted::new(request(&[10, 11, 12], 16, &format!("{LANES},{cache}")))
}

/// The first forward of every policy: [0, P+B+w), lane and lookahead scored.
const FIRST: &str = "pages 0 1 2: 0..9 = 10 11 12 ? ? ? ? ? ? see 9";

/// Forks into a refine lane [0, 2) and a generate lane [2, 6) with the lookahead [6, 8).
const FORK: &[(u32, u32, f64)] = &[(1, 2, 0.95), (3, 30, 0.95), (5, 40, 0.95)];

#[test]
fn a_fresh_lane_sees_everything_left_of_its_end() {
    let mut scripted = scripted("cache=fresh,rows=all,refresh=never");
    assert_eq!(scripted.step(FORK), [FIRST]);
    assert_eq!(
        scripted.step(&[(2, 31, 0.95), (0, 20, 0.5)]),
        ["pages 0 1 2: 3..5 = ?- 2 see 5; 5..11 = ? 30 ? 40 ? ? see 11"]
    );
    // The refine lane has finished; its rows are read from the cache.
    assert_eq!(scripted.step(&[]), ["pages 0 1 2: 5..11 = 31 30 ? 40 ? ? see 11"]);
}

#[test]
fn a_fused_lane_sees_what_lies_right_of_it_too() {
    let mut scripted = scripted("cache=fused,rows=all,refresh=never");
    assert_eq!(scripted.step(FORK), [FIRST]);
    assert_eq!(
        scripted.step(&[(2, 31, 0.95), (0, 20, 0.5)]),
        ["pages 0 1 2: 3..11 = ?- 2 ? 30 ? 40 ? ? see 11"]
    );
    assert_eq!(scripted.step(&[]), ["pages 0 1 2: 5..11 = 31 30 ? 40 ? ? see 11"]);
}

/// Every committed token is forwarded once, in the step after its commit.
#[test]
fn open_rows_are_masks_and_fresh_commits() {
    let mut scripted = scripted("cache=fused,rows=open,refresh=never");
    assert_eq!(scripted.step(FORK), [FIRST]);
    assert_eq!(
        scripted.step(&[(2, 31, 0.95), (0, 20, 0.5)]),
        ["pages 0 1 2: 3..11 = ?- 2 ? 30 ? 40 ? ? see 11"]
    );
    assert_eq!(
        scripted.step(&[(6, 41, 0.95), (4, 32, 0.6)]),
        ["pages 0 1 2: 3..4 = 20 see 11; 5..6 = 31 see 11; 7..8 = ? see 11; 9..11 = ? ? see 11"]
    );
    // Lane [2, 6) is full: its successor is [6, 10), and offsets 4 and 6 settle.
    assert_eq!(
        scripted.step(&[]),
        ["pages 0 1 2 3: 7..8 = 32 see 15; 9..15 = 41 ? ? ? ? ? see 15"]
    );
}

/// The third forward of [`open_rows_are_masks_and_fresh_commits`] with more rows.
fn third(settings: &str) -> Vec<String> {
    let settings = format!("cache=fused,rows=open,refresh=never,{settings}");
    let mut scripted = scripted(&settings);
    scripted.step(FORK);
    scripted.step(&[(2, 31, 0.95), (0, 20, 0.5)]);
    scripted.step(&[])
}

/// Offsets 3 and 5 stand directly left of masks; far enough left lies the prompt.
#[test]
fn left_rows_renew_what_stands_left_of_a_mask() {
    assert_eq!(
        third("left_rows=1"),
        ["pages 0 1 2: 3..4 = 20 see 11; 5..11 = 31 30 ? 40 ? ? see 11"]
    );
    assert_eq!(
        third("left_rows=1024"),
        ["pages 0 1 2: 0..11 = 10 11 12 20 2 31 30 ? 40 ? ? see 11"]
    );
}

/// The first forward has read those after the first lane already.
#[test]
fn right_rows_are_masks_that_nobody_scores() {
    assert_eq!(
        third("right_rows=2"),
        [
            "pages 0 1 2 3: 3..4 = 20 see 13; 5..6 = 31 see 13; 7..8 = ? see 13; 9..13 = ? ? _ _ see 13"
        ]
    );
    let mut scripted = scripted("cache=fused,refresh=never,right_rows=2");
    assert_eq!(scripted.step(&[]), ["pages 0 1 2: 0..11 = 10 11 12 ? ? ? ? ? ? _ _ see 11"]);
}

/// Offsets 0 and 2 were committed last.
#[test]
fn commit_rows_renew_what_stands_beside_a_commit() {
    assert_eq!(
        third("commit_rows=1"),
        ["pages 0 1 2: 3..8 = 20 2 31 30 ? see 11; 9..11 = ? ? see 11"]
    );
}

/// Three tokens of the first step and two of the second: Leff is 4, the margin 6.
#[test]
fn refresh_commits_counts_the_tokens_since_the_last_refresh() {
    assert_eq!(
        third("refresh_commits=5"),
        ["pages 0 1 2 3: 0..13 = 10 11 12 20 2 31 30 ? 40 ? ? _ _ see 13"]
    );
    assert_eq!(
        third("refresh_commits=6"),
        ["pages 0 1 2: 3..4 = 20 see 11; 5..6 = 31 see 11; 7..8 = ? see 11; 9..11 = ? ? see 11"]
    );
}

/// Leff of both lanes is 2, the margin 6: [0, P + 8), and its logits serve the step.
#[test]
fn a_refresh_at_lane_start_rewrites_everything_in_use() {
    for cache in ["cache=fresh", "cache=fused"] {
        let mut scripted = scripted(&format!("{cache},rows=all,refresh=lane"));
        assert_eq!(scripted.step(FORK), [FIRST]);
        let refresh = ["pages 0 1 2: 0..11 = 10 11 12 ?- 2 ? 30 ? 40 ? ? see 11"];
        assert_eq!(scripted.step(&[(2, 31, 0.95)]), refresh);
        assert_eq!(scripted.report().work.forwards.refresh, 1);
        scripted.step(&[]);
        assert_eq!(scripted.report().work.forwards.decode, 1, "no lane started since");
    }
}

#[test]
fn a_larger_margin_renews_more() {
    let mut scripted = scripted("cache=fused,rows=all,refresh=lane,refresh_margin=9");
    assert_eq!(scripted.step(FORK), ["pages 0 1 2: 0..12 = 10 11 12 ? ? ? ? ? ? _ _ _ see 12"]);
    assert_eq!(
        scripted.step(&[]),
        ["pages 0 1 2 3: 0..14 = 10 11 12 ?- 2 ? 30 ? 40 ? ? _ _ _ see 14"]
    );
}

/// `refresh=2`: two forwards lie between two refreshes.
#[test]
fn a_refresh_every_few_forwards() {
    let mut scripted = scripted("cache=fused,rows=open,refresh=2");
    let mut kinds = String::new();
    for said in [FORK, &[], &[], &[], &[], &[], &[]] {
        scripted.step(said);
        kinds.push(if scripted.report().work.forwards.decode == 1 { 'd' } else { 'r' });
    }
    assert_eq!(kinds, "rddrddr");
}

/// Rows after a cut are neither computed nor seen, even if K/V were written there.
#[test]
fn a_stop_token_cuts_lookahead_and_view() {
    let mut scripted = scripted("cache=fused,rows=all,refresh=never");
    assert_eq!(scripted.step(&[(1, 20, 0.95), (2, STOP, 0.95), (5, 40, 0.95)]), [FIRST]);
    assert_eq!(scripted.step(&[(0, 21, 0.95)]), ["pages 0 1 2: 3..6 = ? 20 1 see 6"]);
}

/// Coupled: the waiting continuation has no rows until its refine lane has finished. The refine lane
/// sees what was written right of it.
#[test]
fn a_waiting_lane_has_no_rows() {
    let mut scripted = scripted("cache=fused,rows=all,refresh=never,coupled=true");
    let fork: &[(u32, u32, f64)] = &[(2, 2, 0.95), (3, 30, 0.95), (5, 40, 0.95)];
    assert_eq!(scripted.step(fork), [FIRST]);
    assert_eq!(scripted.step(&[(0, 20, 0.5)]), ["pages 0 1 2: 3..6 = ?- ?- 2 see 9"]);
    assert_eq!(scripted.step(&[(1, 21, 0.5)]), ["pages 0 1 2: 3..6 = 20 ?- 2 see 9"]);
    assert_eq!(scripted.step(&[]), ["pages 0 1 2: 6..12 = 30 ? 40 ? ? ? see 12"]);
}

#[test]
fn min_tokens_bans_stop_tokens_below_it() {
    let mut request = request(&[10, 11, 12], 16, &format!("{LANES},cache=fresh"));
    request.min_tokens = 3;
    let mut scripted = Scripted::new(request);
    assert_eq!(scripted.step(&[]), ["pages 0 1 2: 0..9 = 10 11 12 ?- ?- ?- ? ? ? see 9"]);
}
