//! The model card quotes the accuracy that was measured, figure by figure.

use serde_json::Value;

const CARD: &str = include_str!("../training/README.md");

/// The cells of the table row that begins with the given label and continues with `measure`.
fn cells(rows: &[Vec<&str>], label: &str, measure: &str) -> Vec<String> {
    let first = rows.iter().position(|row| row[0].starts_with(label)).expect("a row of that label");
    let row = rows[first..].iter().find(|row| row[1] == measure).expect("a row of that measure");
    row[2..].iter().map(|cell| cell.trim_end_matches(" %").to_owned()).collect()
}

#[test]
fn every_accuracy_on_the_card_is_the_measured_one() {
    let rows: Vec<Vec<&str>> = CARD
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'))
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>())
        .filter(|row| row.len() == 6)
        .collect();
    let vanilla = include_str!("../training/accuracy/vanilla.json");
    let threshold = include_str!("../training/accuracy/threshold.json");
    for (label, json, measures) in [
        ("vanilla", vanilla, &["end", "strict"][..]),
        ("threshold 0.9", threshold, &["end", "strict", "tokens per forward"]),
    ] {
        let measured: Value = serde_json::from_str(json).expect("a JSON object");
        assert_eq!(measured["settings"]["seed"], 2);
        assert_eq!(measured["settings"]["budget"], 128);
        for measure in measures {
            let key = measure.replace(' ', "_");
            let expected: Vec<String> = ["sums", "snippets", "lists", "calls"]
                .iter()
                .map(|task| measured["families"][task][&key].to_string())
                .collect();
            assert_eq!(cells(&rows, label, measure), expected, "{label}, {measure}");
            assert!(measured["families"]["sums"]["problems"] == 60);
        }
    }
}
