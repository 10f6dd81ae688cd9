//! Tables of the studies for the terminal.

use std::fmt::Write;

use super::day::Day;
use super::routing::Routing;

/// A row per number of replicas and policy.
pub fn routing(result: &Routing) -> String {
    let mut out = format!(
        "{:>8} {:<13} {:>9} {:>9} {:>7} {:>11} {:>16} {:>9}\n",
        "replicas",
        "policy",
        "hit rate",
        "tokens/s",
        "x",
        "rows/token",
        "TTFT s p50/p95",
        "most/mean"
    );
    for row in &result.routing {
        let [median, most, _] = row.ttft.0;
        let waits = format!("{median:.2}/{most:.2}");
        let _ = writeln!(
            out,
            "{:>8} {:<13} {:>9.3} {:>9.0} {:>7.2} {:>11.1} {waits:>16} {:>9.2}",
            row.replicas,
            row.policy,
            row.hit_rate,
            row.tokens_per_second,
            row.over_one,
            row.positions_per_token,
            row.imbalance,
        );
    }
    out
}

/// A row per setting.
pub fn day(result: &Day) -> String {
    let mut out = format!(
        "{:<12} {:>13} {:>5} {:>7} {:>8} {:>20} {:>7} {:>9}\n",
        "setting",
        "replica hours",
        "most",
        "added",
        "removed",
        "TTFT s p50/p95/p99",
        "late %",
        "refused %"
    );
    for row in &result.day {
        let waits = row.ttft.0.map(|of| format!("{of:.2}")).join("/");
        let _ = writeln!(
            out,
            "{:<12} {:>13.1} {:>5} {:>7} {:>8} {waits:>20} {:>7.2} {:>9.2}",
            row.setting,
            row.replica_hours,
            row.most,
            row.changes[0],
            row.changes[1],
            row.late,
            row.refused,
        );
    }
    out
}
