//! Hand-worked comparisons.

use super::super::paired::Paired;
use super::*;

fn entry(name: &str, end: f64, strict: f64, ratio: f64) -> Entry {
    Entry {
        name: name.to_owned(),
        label: "schedule+commit+cache".to_owned(),
        end,
        strict,
        agreement: Some(strict),
        nfe_per_token: 0.5,
        positions_per_token: 10.0,
        tokens: 100,
        tps: 10.0 * ratio,
        ratio,
        ..Entry::default()
    }
}

#[test]
fn a_geometric_mean_is_the_root_of_the_product() {
    // 2 · 4 · 8 = 64, and 4³ = 64.
    assert!((geometric_mean(&[2.0, 4.0, 8.0]) - 4.0).abs() < 1e-12);
    // Twice as fast here and half as fast there is no gain.
    assert!((geometric_mean(&[2.0, 0.5]) - 1.0).abs() < 1e-12);
    assert_eq!(geometric_mean(&[]), 0.0);
    assert_eq!(geometric_mean(&[0.0, 4.0]), 0.0);
}

#[test]
fn the_front_is_what_nothing_beats_in_accuracy_and_speed() {
    let points = [
        (88.0, 1.0),  // the most accurate
        (88.0, 2.0),  // as accurate and faster: beats the first
        (70.0, 9.0),  // on the front
        (70.0, 9.0),  // its equal
        (69.0, 9.0),  // beaten by a more accurate one of the same speed
        (50.0, 20.0), // the fastest
        (60.0, 5.0),  // beaten in both
    ];
    let front = [false, true, true, true, false, true, false];
    assert_eq!(pareto(&points), front);
    assert!(pareto(&[]).is_empty());
}

#[test]
fn over_all_tasks_accuracies_are_means_and_ratios_geometric_means() {
    let task = |name: &str, decoders| TaskReport { task: name.to_owned(), decoders };
    let tasks = [
        task("sums", vec![entry("a", 90.0, 80.0, 1.0), entry("b", 86.0, 50.0, 2.0)]),
        task("lists", vec![entry("a", 80.0, 70.0, 1.0), entry("b", 80.5, 60.0, 32.0)]),
    ];
    let rows = overall(&tasks);
    let figures = |row: &Overall| (row.end, row.strict, row.agreement, row.ratio, row.pareto);
    // (90 + 80) / 2, (80 + 70) / 2.
    assert_eq!(figures(&rows[0]), (85.0, 75.0, Some(75.0), 1.0, true));
    // 83.25 rounds to 83.3; √(2 · 32) = 8.
    assert_eq!(figures(&rows[1]), (83.3, 55.0, Some(55.0), 8.0, true));
}

#[test]
fn agreement_is_missing_over_all_where_one_task_lacks_it() {
    let mut old = entry("a", 90.0, 80.0, 1.0);
    old.agreement = None;
    let tasks = [old, entry("a", 90.0, 80.0, 1.0)]
        .map(|entry| TaskReport { task: "sums".to_owned(), decoders: vec![entry] });
    assert_eq!(overall(&tasks)[0].agreement, None);
}

/// Two sets of 1,000 problems of a decoder: losses in points, forward passes and positions per token.
fn sets(name: &str, lost: [u64; 2], (forwards, positions): (f64, f64)) -> [Entry; 2] {
    lost.map(|lost| Entry {
        paired: Paired::new(0, lost, 1000),
        nfe_per_token: forwards,
        positions_per_token: positions,
        ..entry(name, 90.0, 80.0 - lost as f64 / 10.0, 1.0)
    })
}

fn tasks(rows: &[[Entry; 2]]) -> Vec<TaskReport> {
    let task = |index: usize, name: &str| TaskReport {
        task: name.to_owned(),
        decoders: rows.iter().map(|row| row[index].clone()).collect(),
    };
    vec![task(0, "sums"), task(1, "lists")]
}

fn found(rows: &[[Entry; 2]]) -> Vec<String> {
    let derived = derived(&tasks(rows)).into_iter();
    derived.map(|one| one.decoder).collect()
}

/// The score interval of 10 lost of 1,000 ends at -1.8 points, of 25 at -3.7, of 40 at -5.4 and of
/// 61 at -7.8.
#[test]
fn presets_are_the_cheapest_within_their_points_on_every_set() {
    let rows = [
        sets("vanilla", [0, 0], (1.0, 200.0)),
        sets("careful", [10, 10], (0.4, 40.0)),
        sets("unsure", [25, 0], (0.3, 30.0)), // 2.5 points on one set
        sets("wide", [10, 10], (0.2, 60.0)),
        sets("loses", [0, 61], (0.1, 1.0)), // its mean loss is 3 points
        sets("quick", [40, 40], (0.1, 2.0)),
    ];
    assert_eq!(found(&rows), ["careful", "quick", "wide"]);
    let derived = derived(&tasks(&rows));
    let (quick, alone) = (&derived[1], &derived[2]);
    assert_eq!((&*quick.preset, quick.within), ("fast", 6.0));
    // 2 / 11 of 200 / 11 readings, and 2 / 4 of 200 / 4.
    assert!((quick.cost - 2.0 / 200.0).abs() < 1e-4);
    // 60 / 184 of 200 / 184 readings.
    assert!((alone.cost - 60.0 / 200.0).abs() < 1e-4);
}

#[test]
fn the_reference_stands_where_nothing_is_cheaper_or_good_enough() {
    let slow = sets("slow", [0, 0], (2.0, 400.0));
    let bad = sets("bad", [200, 0], (0.1, 1.0));
    let rows = [sets("vanilla", [0, 0], (1.0, 200.0)), slow, bad];
    assert_eq!(found(&rows), ["vanilla"; 3]);
    assert!(derived(&[]).is_empty());
}

/// Rows and readings decide: few forward passes with many rows are cheap alone, and dear in a crowd.
#[test]
fn the_cost_counts_the_requests_in_flight() {
    let rows = [
        sets("vanilla", [0, 0], (1.0, 200.0)),
        sets("wide", [0, 0], (0.1, 18.4)),
        sets("narrow", [0, 0], (0.2, 2.2)),
    ];
    // 0.1 * 18.4 / 11 against 0.2 * 0.2.
    assert_eq!(found(&rows), ["narrow", "narrow", "wide"]);
}

#[test]
fn of_nearly_equal_costs_the_worst_set_decides() {
    let rows = [
        sets("vanilla", [0, 0], (1.0, 200.0)),
        sets("cheapest", [0, 12], (0.1, 2.0)),
        sets("even", [5, 5], (0.104, 2.08)),
        sets("dear", [0, 0], (0.11, 2.2)),
    ];
    assert_eq!(found(&rows), ["even", "cheapest", "even"]);
}

#[test]
fn nothing_is_derived_without_intervals() {
    let task =
        TaskReport { task: "sums".to_owned(), decoders: vec![entry("vanilla", 90.0, 80.0, 1.0)] };
    assert!(derived(&[task]).is_empty());
}
