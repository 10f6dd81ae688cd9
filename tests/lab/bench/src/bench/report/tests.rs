//! Sums over rounds, and files that are written and read back.

use std::sync::Arc;
use std::time::Duration;

use engine::decoding::DecodingSpec;

use super::super::arrivals::LoadPattern;
use super::super::overall;
use super::super::row::Decoder;
use super::*;
use crate::args::BenchTarget;

fn tally(tokens: u64, seconds: u64, right: u64) -> Tally {
    Tally {
        problems: 4,
        end: right,
        strict: right / 2,
        won: 1,
        lost: right / 4,
        agreed: 1,
        tokens,
        forwards: tokens / 2,
        positions: 10 * tokens,
        wall: Duration::from_secs(seconds),
        execute: Some(Duration::from_secs(seconds) * 3 / 4),
        begin: Duration::from_secs(seconds) / 8,
        times: vec![Times {
            first: Duration::from_millis(10),
            end: Duration::from_millis(10 * tokens),
            tokens,
        }],
        resident: 3 << 20,
        ..Tally::default()
    }
}

fn row(name: &str) -> BenchRow {
    let spec = DecodingSpec::parse(name).unwrap();
    let decoding = spec.resolve().unwrap();
    BenchRow {
        name: name.to_owned(),
        decoder: Arc::new(Decoder { model: None, name: name.to_owned(), spec, decoding }),
        load: LoadPattern::Closed(1),
        max_tokens: 256,
        target: BenchTarget::Engine,
        dtype: "f32".to_owned(),
        kv_dtype: "auto".to_owned(),
    }
}

fn report(tasks: &[&str]) -> Report {
    let rounds = [tally(100, 1, 4), tally(200, 4, 2), tally(300, 1, 4)];
    let slow = [tally(100, 2, 4), tally(200, 2, 4), tally(300, 3, 4)];
    let decoders = vec![
        Entry::new(&row("vanilla"), &slow, &slow),
        Entry::new(&row("balanced"), &rounds, &slow),
    ];
    Report {
        setup: Setup {
            command: "asynclane-lab bench".to_owned(),
            machine: "m".to_owned(),
            problems: 12,
            max_tokens: OneOrMore::One(256),
            concurrency: Some(OneOrMore::new(&[1, 4])),
            rate: None,
            ungraded: false,
        },
        tasks: tasks
            .iter()
            .map(|task| TaskReport { task: (*task).to_owned(), decoders: decoders.clone() })
            .collect(),
    }
}

/// A path of this process in the system's folder for temporary files.
fn scratch(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("asynclane-bench-{}-{name}", std::process::id()))
}

#[test]
fn accuracies_are_sums_over_rounds_and_speeds_medians() {
    let report = report(&["sums"]);
    let entry = &report.tasks[0].decoders[1];
    // 10, 5 and 3 of 12 problems.
    assert_eq!((entry.end, entry.strict, entry.agreement), (83.3, 41.7, Some(25.0)));
    // 300 forwards and 6,000 rows for 600 tokens.
    assert_eq!((entry.nfe_per_token, entry.positions_per_token), (0.5, 10.0));
    // 100, 50 and 300 TPS against 50, 100 and 100: ratios 2, 0.5 and 3.
    assert_eq!((entry.tps, entry.ratio), (100.0, 2.0));
    assert_eq!((entry.tokens, entry.overhead), (600, Some(25.0)));
    assert_eq!(entry.launching, Some(12.5));
    // 6,000 rows in a quarter of 6 seconds.
    assert_eq!(entry.scheduled_rows_per_second, Some(4000.0));
    let latency = entry.latency.as_ref().unwrap();
    assert_eq!(latency.ttft_ms, [10.0; 3]);
    assert_eq!(latency.e2e_ms, [2000.0, 3000.0, 3000.0]);
    assert_eq!(entry.resident_mib, [3.0; 3]);
}

#[test]
fn what_is_saved_is_read_back() {
    for (name, tasks) in [("one", &["sums"][..]), ("three", &["sums", "snippets", "lists"])] {
        let path = scratch(name);
        let report = report(tasks);
        report.save(&path).unwrap();
        let read = Report::load(&path);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap(), report);
        assert_eq!(text.contains("\"derived\""), tasks.len() > 1);
        assert_eq!(text.contains("\"tasks\""), tasks.len() > 1);
    }
}

/// The presets follow the measured comparison, set by set, and nothing else.
#[test]
fn tuned_presets_are_what_the_comparison_derives() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records/epyc-2-threads/presets.json");
    let report = Report::load(&path).unwrap();
    let derived = overall::derived(&report.tasks);
    let decoding = |name: &str| DecodingSpec::parse(name).unwrap().resolve().unwrap();
    let presets: Vec<&str> = derived.iter().map(|one| &*one.preset).collect();
    assert_eq!(presets, ["balanced", "fast", "low_latency"]);
    for one in &derived {
        assert_eq!(decoding(&one.preset), decoding(&one.decoder), "{}", one.preset);
    }
}

#[test]
fn what_is_no_comparison_is_refused() {
    let path = scratch("foreign");
    for text in ["", "{}", r#"{"command": "c", "infill": []}"#] {
        std::fs::write(&path, text).unwrap();
        assert!(Report::load(&path).is_err(), "{text}");
    }
    let mut odd = report(&["sums", "lists"]);
    odd.tasks[1].decoders.pop();
    odd.save(&path).unwrap();
    let message = Report::load(&path).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(message.contains("others in lists"), "{message}");
    assert!(Report::load(&path).is_err());
}
