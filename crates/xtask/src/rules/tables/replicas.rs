//! Tables of simulated replicas.

use std::fmt::Write;

use crate::result::{Day, Routing};

/// A row per number of replicas and policy.
pub(super) fn routing(report: &Routing) -> String {
    let mut out = format!(
        "{} users per replica, {} system prompts of {} tokens, {} turns with answers of {} tokens, \
         {} s, {}: `{}`\n\n\
         | replicas | policy | hit rate | tokens/s | of one replica's | positions/token \
         | TTFT s p50 / p95 | busiest of mean |\n|---|---|---|---|---|---|---|---|\n",
        report.users,
        report.systems,
        report.system_tokens,
        report.turns,
        report.answer_tokens,
        report.seconds,
        report.machine,
        report.command,
    );
    for row in &report.routing {
        let _ = writeln!(
            out,
            "| {} | {} | {:.1} % | {:.0} | {:.2}x | {:.1} | {:.2} / {:.2} | {:.2} |",
            row.replicas,
            row.policy,
            100.0 * row.hit_rate,
            row.tokens_per_second,
            row.over_one,
            row.positions_per_token,
            row.ttft[0],
            row.ttft[1],
            row.imbalance,
        );
    }
    out
}

/// A row per setting.
pub(super) fn day(report: &Day) -> String {
    let [fewest, most] = report.bounds;
    let mut out = format!(
        "{} h, {} requests, {} per second at the peak, prompts of {} tokens and answers of {}, \
         {fewest} to {most} replicas that start in {} s, guard at a fill of {}, {}: `{}`\n\n\
         | setting | replica hours | most | added, removed | TTFT s p50 / p95 / p99 \
         | TTFT over {} s | refused |\n|---|---|---|---|---|---|---|\n",
        report.hours,
        report.requests,
        report.peak,
        report.prompt_tokens,
        report.answer_tokens,
        report.start_seconds,
        report.step_fill,
        report.machine,
        report.command,
        report.late_seconds,
    );
    for row in &report.day {
        let [median, high, highest] = row.ttft;
        let _ = writeln!(
            out,
            "| `{}` | {:.1} | {} | {}, {} | {median:.2} / {high:.2} / {highest:.2} | {:.2} % | {:.2} % |",
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
