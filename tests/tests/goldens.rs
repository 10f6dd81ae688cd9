//! Token-exact outputs: the official Fast-dLLM samplers and a reference AsyncLane on the checkpoint in
//! `goldens/checkpoint`, in f32 on the CPU; some of them also on candle.

use asynclane_tests::golden::{self, Goldens, Row, Run};
use asynclane_tests::run::{self, Outcome};
use decode::{Effect, ForwardKind};
use step::Executor;

/// Decisions closer than this to their threshold may change under another summation order.
const SAFE_MARGIN: f64 = 1e-4;

fn outcomes(
    goldens: &Goldens,
    (name, extra): (&str, &str),
    executor: fn() -> Box<dyn Executor>,
) -> Vec<Outcome> {
    let requests = goldens.rows.iter().map(|row| {
        let settings = golden::settings(name, &row.task).expect("a known run");
        let settings = format!("{settings}{extra}");
        run::request(
            &row.prompt_ids,
            goldens.budget,
            &goldens.stop_ids,
            &settings,
        )
    });
    run::run_in_halves(executor, requests.collect())
}

/// The expected text: up to the first stop token.
fn expected<'a>(goldens: &Goldens, run: &'a Run) -> &'a [u32] {
    let end = run.ids.iter().position(|id| goldens.stop_ids.contains(id));
    &run.ids[..end.unwrap_or(run.ids.len())]
}

/// The differences between an outcome and its golden, as text.
fn differences(goldens: &Goldens, name: &str, run: &Run, outcome: &Outcome) -> Vec<String> {
    let cached = name.starts_with("prefix") || name.starts_with("dual");
    let stats = outcome.finished.expect("every run finishes").stats;
    let mut found = Vec::new();
    let mut check = |what: &str, ours: u64, theirs: u64| {
        if ours != theirs {
            found.push(format!("{what} {ours}, expected {theirs}"));
        }
    };
    // The official cached samplers run one more, empty pass for a block that its first, full forward
    // completes. Without a cache no such pass exists.
    let completed_at_once = outcome.steps.iter().filter(|step| {
        step.kind != ForwardKind::Decode
            && step
                .effects
                .iter()
                .any(|effect| matches!(effect, Effect::Finish { .. } | Effect::Done { .. }))
    });
    let empty_passes = if cached {
        completed_at_once.count() as u32
    } else {
        0
    };
    check(
        "forwards",
        u64::from(stats.forwards() + empty_passes),
        u64::from(run.nfe),
    );
    if let Some(forks) = run.forks {
        check("forks", u64::from(stats.forks), u64::from(forks));
    }
    if let Some(drafts) = run.drafts {
        check("drafts", u64::from(stats.commits.drafts), u64::from(drafts));
    }
    if let Some(refreshes) = run.refreshes {
        check(
            "refreshes",
            u64::from(stats.passes.refresh),
            u64::from(refreshes),
        );
    }
    if let Some(rows) = run.fwd_tokens {
        check("rows", stats.positions, rows);
    }
    if let Some(splits) = &run.splits {
        let effects = outcome.steps.iter().flat_map(|step| &step.effects);
        let ours: Vec<u32> = effects
            .filter_map(|effect| match effect {
                Effect::Fork { split, .. } => Some(*split),
                _ => None,
            })
            .collect();
        if ours != *splits {
            found.push(format!("splits {ours:?}, expected {splits:?}"));
        }
    }
    let tokens = expected(goldens, run);
    if outcome.tokens != tokens {
        let at = outcome.tokens.iter().zip(tokens).position(|(a, b)| a != b);
        found.push(format!("tokens differ from offset {at:?}"));
    }
    found
}

/// One problem in this many.
fn one_in(count: usize) -> Goldens {
    let mut goldens = golden::load();
    goldens.rows = goldens.rows.into_iter().step_by(count).collect();
    goldens
}

/// Compares all problems of one run on the kernels of the CPU.
fn compare(name: &str, extra: &str) -> usize {
    compare_on(|| run::single(2048), name, extra, golden::load())
}

/// Compares some problems of one run on candle, which is slow.
fn compare_on_candle(name: &str, extra: &str) -> usize {
    compare_on(|| run::candle(2048), name, extra, one_in(8))
}

/// Compares the problems of one run; those with a tiny margin may differ and are listed.
fn compare_on(
    executor: fn() -> Box<dyn Executor>,
    name: &str,
    extra: &str,
    goldens: Goldens,
) -> usize {
    let outcomes = outcomes(&goldens, (name, extra), executor);
    let mut identical = 0;
    let mut wrong = Vec::new();
    for (row, outcome) in goldens.rows.iter().zip(&outcomes) {
        let run = run_of(row, name);
        let found = differences(&goldens, name, run, outcome);
        if found.is_empty() {
            identical += 1;
        } else if run.margin < SAFE_MARGIN {
            println!(
                "{name} {}: margin {:.1e}: {}",
                row.id,
                run.margin,
                found.join("; ")
            );
        } else {
            wrong.push(format!("{} ({}): {}", row.id, row.task, found.join("; ")));
        }
    }
    println!("{name}: {identical} of {} identical", goldens.rows.len());
    assert!(
        wrong.is_empty(),
        "{name}: {} rows differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    identical
}

fn run_of<'a>(row: &'a Row, name: &str) -> &'a Run {
    row.runs.get(name).expect("every problem has every run")
}

/// The published samplers fill the whole canvas.
const PUBLISHED: &str = ",early_stop=false";

#[test]
fn vanilla() {
    // Two tokens per forward pass over the whole canvas: all problems take as long as all other runs.
    let identical = compare_on(
        || run::single(2048),
        "vanilla_steps64",
        PUBLISHED,
        one_in(4),
    );
    assert!(identical >= 11);
}

#[test]
fn threshold() {
    // Every forward pass computes the whole canvas here, too.
    compare_on(|| run::single(2048), "threshold0.9", PUBLISHED, one_in(2));
}

#[test]
fn prefix() {
    compare("prefix0.9", PUBLISHED);
}

#[test]
fn dual() {
    compare("dual0.9", PUBLISHED);
}

#[test]
fn snapshot() {
    compare("asynclane_snapshot", "");
}

#[test]
fn snapshot_strict() {
    compare("asynclane_snapshot_strict", "");
}

#[test]
fn snapshot_every_12() {
    compare("asynclane_snapshot_every12", "");
}

#[test]
fn fresh() {
    compare("asynclane_fresh", "");
}

#[test]
fn fresh_without_forks() {
    compare("asynclane_fresh_nofork", "");
}

#[test]
fn fresh_coupled() {
    compare("asynclane_fresh_coupled", "");
}

#[test]
fn fused() {
    compare("asynclane_fused", "");
}

#[test]
fn fused_open() {
    compare("asynclane_fused_open", "");
}

#[test]
fn threshold_on_candle() {
    assert!(compare_on_candle("threshold0.9", PUBLISHED) >= 5);
}

#[test]
fn dual_on_candle() {
    assert!(compare_on_candle("dual0.9", PUBLISHED) >= 5);
}

#[test]
fn snapshot_on_candle() {
    assert!(compare_on_candle("asynclane_snapshot", "") >= 5);
}
