//! Exact batches of the policy snapshot: cloned page tables, copies on write (AsyncLane §4).
//!
//! The same fork as in `plans_lanes`, over pages of four slots: the prompt ends inside page 0,
//! the refine lane inside page 1.

use asynclane_engine::{Event, StepTrace};
use decode::{ForwardKind, LaneId, Offset, Position};

use crate::common::{Scripted, request};

fn scripted(refresh: &str) -> Scripted {
    let settings = format!(
        "asynclane,commit=threshold,threshold=0.9,block_length=4,lookahead=2,\
         fork=sentence,min_fill=0,min_clock=0,cache=snapshot,rows=all,refresh={refresh}"
    );
    let mut request = request(&[10, 11, 12], 16, &settings);
    request.extras.trace = true;
    Scripted::new(request)
}

const FIRST: &str = "pages 0 1 2: 0..9 = 10 11 12 ? ? ? ? ? ? see 9";
const FORK: &[(u32, u32, f64)] = &[(1, 2, 0.95), (3, 30, 0.95), (5, 40, 0.95)];

/// Both lanes share the root's pages until they write. The refine lane comes first and copies pages
/// 0 and 1. Page 1 is shared no more then, so the generate lane keeps it.
#[test]
fn a_fork_copies_the_pages_that_its_lanes_write() {
    let mut scripted = scripted("never");
    assert_eq!(scripted.step(FORK), [FIRST]);
    assert_eq!(scripted.report().gauges.pages_used, 3);
    let expected = [
        "copy 0 -> 3",
        "copy 1 -> 4",
        "pages 3 4: 3..5 = ?- 2 see 5",
        "pages 0 1 2: 5..11 = ? 30 ? 40 ? ? see 11",
    ];
    assert_eq!(scripted.step(&[(2, 31, 0.95), (0, 20, 0.5)]), expected);
    // The refine lane has finished: its two pages are free again, nothing is copied back.
    assert_eq!(scripted.report().gauges.pages_used, 3);
    assert_eq!(scripted.step(&[]), ["pages 0 1 2: 5..11 = 31 30 ? 40 ? ? see 11"]);
}

#[test]
fn refine_lanes_pile_up_each_with_its_own_pages() {
    let mut scripted = scripted("never");
    // A second mask in the refine lane keeps it busy for two steps.
    assert_eq!(scripted.step(&[(2, 2, 0.95), (3, 30, 0.95)]), [FIRST]);
    // Refine [0, 3) and generate [3, 7): offset 4 is a full stop, so that lane forks as well.
    let expected = [
        "copy 0 -> 3",
        "copy 1 -> 4",
        "pages 3 4: 3..6 = ?- ?- 2 see 6",
        "pages 0 1 2: 6..12 = 30 ? ? ? ? ? see 12",
    ];
    assert_eq!(scripted.step(&[(0, 20, 0.5), (5, 2, 0.95)]), expected);
    // Refine [0, 3), refine [3, 6), generate [6, 10) and its lookahead up to 12.
    let expected = [
        "copy 1 -> 5",
        "copy 2 -> 6",
        "pages 3 4: 3..6 = 20 ?- 2 see 6",
        "pages 0 5 6: 6..9 = 30 ?- 2 see 9",
        "pages 0 1 2 7: 9..15 = ? ? ? ? ? ? see 15",
    ];
    assert_eq!(scripted.step(&[(1, 21, 0.5), (4, 32, 0.5)]), expected);
    assert_eq!(scripted.report().gauges.pages_used, 4, "both refine lanes have finished");
}

/// A refresh rewrites all slots in use under one table. The lanes share it, then diverge again.
#[test]
fn a_refresh_makes_one_of_all_versions() {
    let mut scripted = scripted("lane");
    assert_eq!(scripted.step(&[(2, 2, 0.95), (3, 30, 0.95)]), [FIRST]);
    // Leff is 4, the first mask of the generate lane [3, 7): rows up to P + 4 + 6.
    assert_eq!(
        scripted.step(&[(0, 20, 0.5)]),
        ["pages 0 1 2 3: 0..13 = 10 11 12 ?- ?- 2 30 ? ? ? ? ? _ see 13"]
    );
    let expected = [
        "copy 0 -> 4",
        "copy 1 -> 5",
        "pages 4 5: 3..6 = 20 ?- 2 see 6",
        "pages 0 1 2 3: 6..12 = 30 63 ? ? ? ? see 12",
    ];
    assert_eq!(scripted.step(&[(5, 2, 0.95)]), expected);
    // Another fork, another refresh: the refine lane's two pages go back first.
    let refresh = "pages 0 1 2 3: 0..15 = 10 11 12 20 63 2 30 63 2 ? ? ? ? ? ? see 15";
    assert_eq!(scripted.step(&[]), [refresh]);
    assert_eq!(scripted.report().gauges.pages_used, 4);
}

fn positions(numbers: std::ops::Range<u32>) -> Vec<Position> {
    numbers.map(Position::new).collect()
}

#[test]
fn a_trace_tells_the_rows_of_every_lane() {
    let mut scripted = scripted("never");
    scripted.step(FORK);
    scripted.step(&[(2, 31, 0.95), (0, 20, 0.5)]);
    let traces: Vec<&StepTrace> = scripted
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Step(trace) => Some(&**trace),
            _ => None,
        })
        .collect();
    let [first, second] = traces[..] else { panic!("one trace a step: {traces:?}") };
    let expected = StepTrace {
        step: 1,
        kind: ForwardKind::Prefill,
        lanes: vec![LaneId(0)],
        rows: vec![positions(0..9)],
        effects: first.effects.clone(),
        draws: Vec::new(),
        frontier: Offset::new(0),
        canvas: 16,
    };
    assert_eq!(*first, expected);
    assert_eq!(first.effects.len(), 6, "three commits, a fork, two births");
    let expected = StepTrace {
        step: 2,
        kind: ForwardKind::Decode,
        lanes: vec![LaneId(1), LaneId(2)],
        rows: vec![positions(3..5), positions(5..11)],
        effects: second.effects.clone(),
        draws: Vec::new(),
        frontier: Offset::new(4),
        canvas: 16,
    };
    assert_eq!(*second, expected);
}
