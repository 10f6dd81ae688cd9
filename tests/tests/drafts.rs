//! Draft and verify across models (DiffuSpec, arXiv 2510.02358) on the demo pair: the verifier's own
//! texts in fewer of its forward passes.

use cli::config::Config;
use engine::decoding::DecodingSpec;
use engine::{DraftStats, Request};
use lab::bench::{Runner, closed};
use lab::problems::{Split, Task, generate};

const VERIFIER: &str = "demo-wedlm";

/// The verifier beside a draft model.
fn runner(draft_model: &str, draft_decoder: &str) -> Runner {
    let mut config = Config::default();
    VERIFIER.clone_into(&mut config.model.path);
    draft_model.clone_into(&mut config.model.draft_model);
    draft_decoder.clone_into(&mut config.model.draft_decoder);
    let loaded = cli::load::load(&config).expect("the pair is embedded");
    Runner::new(loaded, &config).expect("a decoder")
}

/// What answers cost: forward passes of the verifier, and the draft model's part.
type Cost = (u64, DraftStats);

/// The answers to `each` problems of every family, and their cost.
fn answers(
    runner: &mut Runner,
    settings: &str,
    (each, concurrency): (usize, usize),
) -> (Vec<Vec<u32>>, Cost) {
    let spec = DecodingSpec::parse(settings).and_then(|spec| spec.resolve());
    let decoding = spec.expect("the settings are valid");
    let problems = Task::ALL
        .into_iter()
        .flat_map(|task| generate(task, Split::Eval, 5, each));
    let ask = |prompt: String| runner.ask(&prompt, 48, &decoding).expect("it encodes");
    let requests: Vec<Request> = problems.map(|problem| ask(problem.prompt)).collect();
    let arrivals = closed(requests.len(), concurrency);
    let (tally, answers) = runner.run(requests, arrivals).expect("every step runs");
    (answers, (tally.forwards, tally.draft_model))
}

/// Alone and beside others, whatever the number of drafts.
#[test]
fn the_texts_are_the_verifiers_in_fewer_of_its_passes() {
    let mut pair = runner("demo", "auto");
    let (own, (passes, none)) = answers(&mut pair, "autoregressive", (4, 1));
    assert_eq!(none, DraftStats::default());
    assert!(own.iter().any(|answer| !answer.is_empty()));
    let mut alone = None;
    for (settings, concurrency) in [
        ("speculative", 1),
        ("speculative", 5),
        ("speculative,draft_length=3", 5),
    ] {
        let (drafted, (fewer, draft)) = answers(&mut pair, settings, (4, concurrency));
        assert_eq!(drafted, own, "{settings}, {concurrency} in flight");
        assert!(fewer < passes, "{settings}: {fewer} passes of {passes}");
        assert!(draft.verified > 0 && draft.verified < draft.drafted);
        assert_eq!(draft.positions > 0, draft.forwards > 0);
        // Neighbours change no sequence's cost.
        if settings == "speculative" {
            assert_eq!(*alone.get_or_insert((fewer, draft)), (fewer, draft));
        }
    }
}

/// Drafts that are more often right, drafts that are mostly wrong, and a verifier that drafts for itself.
#[test]
fn other_drafts_change_the_cost_alone() {
    let (own, _) = answers(&mut runner("demo", "auto"), "autoregressive", (2, 3));
    for (draft_model, draft_decoder) in [
        ("demo", "vanilla"),
        ("demo", "fast_dllm_prefix,threshold=0.2"),
        (VERIFIER, "auto"),
        (VERIFIER, "autoregressive"),
    ] {
        let mut pair = runner(draft_model, draft_decoder);
        let (drafted, (_, draft)) = answers(&mut pair, "speculative", (2, 3));
        assert_eq!(drafted, own, "{draft_model} {draft_decoder}");
        assert!(draft.drafted > 0);
        if (draft_model, draft_decoder) == (VERIFIER, "autoregressive") {
            // It drafts what it then confirms, up to the end of the text.
            assert!(draft.verified * 10 > draft.drafted * 6, "{draft:?}");
        }
    }
}
