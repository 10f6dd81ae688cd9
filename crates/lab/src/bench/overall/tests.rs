//! Hand-worked comparisons.

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

fn row(name: &str, end: f64, strict: f64, ratio: f64) -> Overall {
    let task = TaskReport {
        task: "sums".to_owned(),
        decoders: vec![entry(name, end, strict, ratio)],
    };
    overall(&[task]).remove(0)
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
    let task = |name: &str, decoders| TaskReport {
        task: name.to_owned(),
        decoders,
    };
    let tasks = [
        task(
            "sums",
            vec![entry("a", 90.0, 80.0, 1.0), entry("b", 86.0, 50.0, 2.0)],
        ),
        task(
            "lists",
            vec![entry("a", 80.0, 70.0, 1.0), entry("b", 80.5, 60.0, 32.0)],
        ),
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
    let tasks = [old, entry("a", 90.0, 80.0, 1.0)].map(|entry| TaskReport {
        task: "sums".to_owned(),
        decoders: vec![entry],
    });
    assert_eq!(overall(&tasks)[0].agreement, None);
}

#[test]
fn presets_are_the_fastest_within_their_points_by_the_end_and_strictly() {
    let rows = [
        row("vanilla", 90.0, 80.0, 1.0),
        row("careful", 90.0, 80.0, 4.0), // loses nothing
        row("ends", 90.0, 79.4, 5.0),    // loses 0 and 0.6
        row("middle", 88.5, 81.0, 8.0),  // loses 1.5, and gains
        row("twin", 88.5, 81.0, 8.0),    // no faster: the first stands
        row("texts", 85.0, 75.0, 12.0),  // loses 5 and 5
        row("broken", 90.0, 74.9, 30.0), // ends alone do not qualify
        row("wrong", 60.0, 80.0, 40.0),  // texts alone do not either
    ];
    let derived = derived(&rows);
    let found: Vec<(&str, f64, &str, f64)> = derived
        .iter()
        .map(|one| (&*one.preset, one.within, &*one.decoder, one.ratio))
        .collect();
    let expected = [
        ("quality", 0.0, "careful", 4.0),
        ("balanced", 1.5, "middle", 8.0),
        ("fast", 5.0, "texts", 12.0),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_slower_decoder_never_replaces_the_reference() {
    let rows = [
        row("vanilla", 90.0, 80.0, 1.0),
        row("slow", 95.0, 95.0, 0.9),
    ];
    assert!(derived(&rows).iter().all(|one| one.decoder == "vanilla"));
    assert!(derived(&[]).is_empty());
}

#[test]
fn among_nearly_the_fastest_the_fewest_positions_decide() {
    let with_positions = |name: &str, ratio: f64, positions: f64| Overall {
        positions_per_token: positions,
        ..row(name, 90.0, 80.0, ratio)
    };
    let rows = [
        with_positions("vanilla", 1.0, 200.0),
        with_positions("lucky", 20.0, 8.0),
        with_positions("lean", 18.1, 7.0),
        with_positions("slow", 17.9, 1.0),
    ];
    assert!(derived(&rows).iter().all(|one| one.decoder == "lean"));
}
