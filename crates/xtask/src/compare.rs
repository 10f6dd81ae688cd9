//! Whether a new result of `asynclane-lab bench` is worse than a kept one.

use crate::result::{Entry, Report};

/// How much worse a row may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Forward passes and positions per token, in percent.
    pub counts: f64,
    /// Accuracies, in points.
    pub accuracy: f64,
    /// The ratio to the first row, in percent. `None` leaves ratios out, for machines with other
    /// load.
    pub ratio: Option<f64>,
}

impl Default for Tolerance {
    /// Outputs are deterministic: counts and accuracies differ only by the rounding of another
    /// processor's sums. Ratios differ by the machine's noise.
    fn default() -> Self {
        Self {
            counts: 2.0,
            accuracy: 3.0,
            ratio: Some(10.0),
        }
    }
}

/// One line per value of `new` that is worse than `base` by more than `tolerance`, and one per row
/// that `new` lacks. Rows that only `new` has are ignored.
pub fn compare(base: &Report, new: &Report, tolerance: Tolerance) -> Vec<String> {
    let mut worse = Vec::new();
    for task in base.tasks() {
        let found = new.tasks().iter().find(|other| other.task == task.task);
        let Some(other) = found else {
            worse.push(format!("{}: missing", task.task));
            continue;
        };
        for entry in &task.decoders {
            let name = format!("{}: {}", task.task, entry.name);
            match other.decoders.iter().find(|row| row.name == entry.name) {
                Some(row) => worse.extend(row_against(entry, row, tolerance, &name)),
                None => worse.push(format!("{name}: missing")),
            }
        }
    }
    if base.tasks().is_empty() {
        worse.push("no comparison of decoders".to_owned());
    }
    worse
}

fn row_against(base: &Entry, new: &Entry, tolerance: Tolerance, name: &str) -> Vec<String> {
    let more = 1.0 + tolerance.counts / 100.0;
    let less = tolerance.ratio.map(|percent| 1.0 - percent / 100.0);
    let (fewer, points) = (base.ratio * less.unwrap_or(0.0), tolerance.accuracy);
    // The limit of a value, then the kept and the new value.
    let figures = [
        (
            "NFE/token",
            base.nfe_per_token,
            new.nfe_per_token,
            more * base.nfe_per_token,
            1.0,
        ),
        (
            "positions/token",
            base.positions_per_token,
            new.positions_per_token,
            more * base.positions_per_token,
            1.0,
        ),
        ("end %", base.end, new.end, base.end - points, -1.0),
        (
            "strict %",
            base.strict,
            new.strict,
            base.strict - points,
            -1.0,
        ),
        ("ratio", base.ratio, new.ratio, fewer, -1.0),
    ];
    figures
        .into_iter()
        .filter(|(_, _, is, limit, sign)| sign * (is - limit) > 1e-9)
        .map(|(what, was, is, limit, sign)| {
            let bound = if sign > 0.0 { "most" } else { "least" };
            format!("{name}: {what}: expected at {bound} {limit:.3} ({was} before), found {is}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, strict: f64, positions: f64, ratio: f64) -> Report {
        let text = format!(
            r#"{{"command": "c", "machine": "m", "problems": 2, "max_tokens": [8, 16],
            "concurrency": 1, "task": "sums", "decoders": [{{"name": "{name}", "end": 90.0,
            "strict": {strict}, "nfe_per_token": 0.5, "positions_per_token": {positions},
            "tps": 4.0, "ratio": {ratio}}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn worse(new: &Report) -> Vec<String> {
        compare(&report("fast", 50.0, 10.0, 20.0), new, Tolerance::default())
    }

    #[test]
    fn what_is_no_worse_than_noise_passes() {
        assert!(worse(&report("fast", 50.0, 10.0, 20.0)).is_empty());
        assert!(worse(&report("fast", 47.0, 10.2, 18.0)).is_empty());
        assert!(worse(&report("fast", 80.0, 5.0, 40.0)).is_empty());
    }

    #[test]
    fn every_figure_that_is_worse_is_named() {
        let found = worse(&report("fast", 46.0, 10.3, 17.0));
        assert_eq!(found.len(), 3, "{found:?}");
        let expected =
            "sums: fast: positions/token: expected at most 10.200 (10 before), found 10.3";
        assert_eq!(found[0], expected);
        assert!(
            found[1].contains("strict %: expected at least 47.000"),
            "{found:?}"
        );
        assert!(
            found[2].contains("ratio: expected at least 18.000"),
            "{found:?}"
        );
    }

    #[test]
    fn a_noisy_machine_is_asked_for_counts_alone() {
        let quiet = Tolerance {
            ratio: None,
            ..Tolerance::default()
        };
        let base = report("fast", 50.0, 10.0, 20.0);
        assert!(compare(&base, &report("fast", 50.0, 10.0, 0.1), quiet).is_empty());
        assert_eq!(
            compare(&base, &report("fast", 50.0, 11.0, 0.1), quiet).len(),
            1
        );
    }

    #[test]
    fn a_row_that_is_gone_is_worse() {
        assert_eq!(
            worse(&report("other", 50.0, 10.0, 20.0)),
            ["sums: fast: missing"]
        );
    }
}
