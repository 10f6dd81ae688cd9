//! A new result of `asynclane-lab bench` against a kept one.

use serde_json::Value;

/// Title and field of a figure, and the limit of a new value: factor and offset of the kept one. A factor
/// over 1 marks a cost. Outputs are deterministic: counts and accuracies differ by the rounding of another
/// processor's sums only, ratios by the load of the machine.
const FIGURES: [(&str, &str, f64, f64); 5] = [
    ("NFE/token", "nfe_per_token", 1.02, 0.0),
    ("positions/token", "positions_per_token", 1.02, 0.0),
    ("end %", "end", 1.0, -3.0),
    ("strict %", "strict", 1.0, -3.0),
    ("ratio", "ratio", 0.9, 0.0),
];

/// One line per figure of `new` that is worse than in `kept` by more than its limit, and one per row that
/// `new` lacks. Rows of `new` alone are ignored. Without `speed`, the ratio to the first row is ignored.
pub fn compare(kept: &Value, new: &Value, speed: bool) -> Vec<String> {
    let mut worse = Vec::new();
    for task in tasks(kept) {
        let title = task["task"].as_str().unwrap_or_default();
        let rows = rows(task);
        let same = tasks(new)
            .iter()
            .find(|other| other["task"] == task["task"]);
        for row in rows {
            let title = format!("{title}: {}", row["name"].as_str().unwrap_or_default());
            let mut others = same.map(self::rows).unwrap_or_default().iter();
            match others.find(|other| other["name"] == row["name"]) {
                Some(other) => worse.extend(figures(row, other, speed, &title)),
                None => worse.push(format!("{title}: missing")),
            }
        }
    }
    if tasks(kept).iter().all(|task| rows(task).is_empty()) {
        worse.push("no comparison of decoders".to_owned());
    }
    worse
}

/// The problem sets of a result: several, or the result itself is one.
fn tasks(report: &Value) -> &[Value] {
    let several = report["tasks"].as_array();
    several.map_or(std::slice::from_ref(report), Vec::as_slice)
}

fn rows(task: &Value) -> &[Value] {
    task["decoders"].as_array().map_or(&[], Vec::as_slice)
}

fn figures(kept: &Value, new: &Value, speed: bool, title: &str) -> Vec<String> {
    let mut worse = Vec::new();
    for (name, field, factor, offset) in FIGURES {
        if field == "ratio" && !speed {
            continue;
        }
        let (Some(before), Some(found)) = (kept[field].as_f64(), new[field].as_f64()) else {
            worse.push(format!("{title}: {name}: missing"));
            continue;
        };
        let limit = before * factor + offset;
        let (sign, bound) = if factor > 1.0 {
            (1.0, "most")
        } else {
            (-1.0, "least")
        };
        if sign * (found - limit) > 1e-9 {
            let limits = format!("expected at {bound} {limit:.3} ({before} before)");
            worse.push(format!("{title}: {name}: {limits}, found {found}"));
        }
    }
    worse
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(name: &str, strict: f64, positions: f64, ratio: f64) -> Value {
        json!({"task": "sums", "decoders": [{"name": name, "end": 90.0, "strict": strict,
            "nfe_per_token": 0.5, "positions_per_token": positions, "ratio": ratio}]})
    }

    #[test]
    fn figures_that_are_worse_are_named() {
        let kept = report("fast", 50.0, 10.0, 20.0);
        let worse = |new: &Value, speed: bool| compare(&kept, new, speed);
        for (strict, positions, ratio) in
            [(50.0, 10.0, 20.0), (47.0, 10.2, 18.0), (80.0, 5.0, 40.0)]
        {
            assert_eq!(
                worse(&report("fast", strict, positions, ratio), true),
                [""; 0]
            );
        }
        let found = worse(&report("fast", 46.0, 10.3, 17.0), true);
        let expected = [
            "sums: fast: positions/token: expected at most 10.200 (10 before), found 10.3",
            "sums: fast: strict %: expected at least 47.000 (50 before), found 46",
            "sums: fast: ratio: expected at least 18.000 (20 before), found 17",
        ];
        assert_eq!(found, expected);
        assert_eq!(worse(&report("fast", 50.0, 10.0, 0.1), false), [""; 0]);
        assert_eq!(worse(&report("fast", 50.0, 11.0, 0.1), false).len(), 1);
    }

    #[test]
    fn results_without_the_rows_fail() {
        let kept = report("fast", 50.0, 10.0, 20.0);
        let several = json!({"tasks": [kept]});
        assert_eq!(compare(&several, &several, true), [""; 0]);
        let other = report("other", 50.0, 10.0, 20.0);
        assert_eq!(compare(&several, &other, true), ["sums: fast: missing"]);
        assert_eq!(
            compare(&json!({}), &kept, true),
            ["no comparison of decoders"]
        );
        let bare = json!({"task": "sums", "decoders": [{"name": "fast"}]});
        assert_eq!(compare(&kept, &bare, false).len(), 4);
    }
}
