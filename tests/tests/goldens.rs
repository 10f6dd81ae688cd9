//! Token-exact outputs: the official Fast-dLLM samplers and a reference AsyncLane on the checkpoint in
//! `goldens/checkpoint`, in f32 on the CPU; some of them also on candle.

use asynclane_tests::golden::{self, Goldens, Run};
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
        let settings = golden::settings(name, &row.task).expect("a known run") + extra;
        run::request(&row.prompt_ids, goldens.budget, &goldens.stop_ids, &settings)
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
    let stats = outcome.finished.expect("every run finishes").stats;
    let effects = || outcome.steps.iter().flat_map(|step| &step.effects);
    // The official cached samplers run one more, empty pass for a block that its first, full forward
    // completes. Without a cache no such pass exists.
    let cached = name.starts_with("prefix") || name.starts_with("dual");
    let is_end = |effect: &Effect| matches!(effect, Effect::Finish { .. } | Effect::Done { .. });
    let completed_at_once = outcome.steps.iter().filter(|step| {
        cached && step.kind != ForwardKind::Decode && step.effects.iter().any(is_end)
    });
    let forwards = stats.forwards() + completed_at_once.count() as u32;
    let counts = [
        ("forwards", forwards, Some(run.nfe)),
        ("forks", stats.forks, run.forks),
        ("drafts", stats.commits.drafts, run.drafts),
        ("refreshes", stats.passes.refresh, run.refreshes),
    ];
    let counts = counts.map(|(name, ours, theirs)| (name, ours.into(), theirs.map(u64::from)));
    let rows = ("rows", stats.positions, run.fwd_tokens);
    let differ = counts.into_iter().chain([rows]).filter_map(|(name, ours, theirs)| {
        let theirs = theirs.filter(|theirs| *theirs != ours)?;
        Some(format!("{name} {ours}, expected {theirs}"))
    });
    let mut found: Vec<String> = differ.collect();
    let splits = effects().filter_map(|effect| match effect {
        Effect::Fork { split, .. } => Some(*split),
        _ => None,
    });
    let splits: Vec<u32> = splits.collect();
    if run.splits.as_ref().is_some_and(|theirs| *theirs != splits) {
        found.push(format!("splits {splits:?}, expected {:?}", run.splits));
    }
    let tokens = expected(goldens, run);
    if outcome.tokens != tokens {
        let first = outcome.tokens.iter().zip(tokens).position(|(a, b)| a != b);
        found.push(format!("tokens differ from offset {first:?}"));
    }
    found
}

/// Compares one problem in `step` of one run; those with a tiny margin may differ and are listed.
fn compare(
    executor: fn() -> Box<dyn Executor>,
    (name, extra): (&str, &str),
    step: usize,
    least: usize,
) {
    let mut goldens = golden::load();
    goldens.rows = goldens.rows.into_iter().step_by(step).collect();
    let outcomes = outcomes(&goldens, (name, extra), executor);
    let (mut identical, mut wrong) = (0, Vec::new());
    for (row, outcome) in goldens.rows.iter().zip(&outcomes) {
        let run = row.runs.get(name).expect("every problem has every run");
        let found = differences(&goldens, name, run, outcome).join("; ");
        let found = format!("{name} {} ({}): {found}", row.id, row.task);
        if found.ends_with(": ") {
            identical += 1;
        } else if run.margin < SAFE_MARGIN {
            println!("{found}; margin {:.1e}", run.margin);
        } else {
            wrong.push(found);
        }
    }
    println!("{name}: {identical} of {} identical", goldens.rows.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(identical >= least, "{identical} are identical");
}

/// The published samplers fill the whole canvas.
const PUBLISHED: &str = ",early_stop=false";

/// A test for each run: one problem in this number is compared, and this number of answers at least is
/// identical. The passes of the first two runs compute the whole canvas and take as long as all others.
macro_rules! runs {
    ($($test:ident: $run:literal + $extra:expr, one in $step:literal on $executor:ident, $least:literal;)*) => {
        $(
            #[test]
            fn $test() {
                compare(|| run::$executor(2048), ($run, $extra), $step, $least);
            }
        )*
    };
}

runs! {
    vanilla: "vanilla_steps64" + PUBLISHED, one in 4 on single, 11;
    threshold: "threshold0.9" + PUBLISHED, one in 2 on single, 0;
    prefix: "prefix0.9" + PUBLISHED, one in 1 on single, 0;
    dual: "dual0.9" + PUBLISHED, one in 1 on single, 0;
    snapshot: "asynclane_snapshot" + "", one in 1 on single, 0;
    snapshot_strict: "asynclane_snapshot_strict" + "", one in 1 on single, 0;
    snapshot_every_12: "asynclane_snapshot_every12" + "", one in 1 on single, 0;
    fresh: "asynclane_fresh" + "", one in 1 on single, 0;
    fresh_without_forks: "asynclane_fresh_nofork" + "", one in 1 on single, 0;
    fresh_coupled: "asynclane_fresh_coupled" + "", one in 1 on single, 0;
    fused: "asynclane_fused" + "", one in 1 on single, 0;
    fused_open: "asynclane_fused_open" + "", one in 1 on single, 0;
    threshold_on_candle: "threshold0.9" + PUBLISHED, one in 8 on candle, 5;
    dual_on_candle: "dual0.9" + PUBLISHED, one in 8 on candle, 5;
    snapshot_on_candle: "asynclane_snapshot" + "", one in 8 on candle, 5;
}
