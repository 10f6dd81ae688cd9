//! Every schedule with every commit rule and every cache policy that it goes with.

use asynclane_engine::FinishReason;
use asynclane_engine::cache::CACHES;
use asynclane_engine::decoding::{DecodingSpec, Registry};
use decode::{COMMITS, SCHEDULES};
use sim::{SimConfig, SimExecutor};
use step::{Attention, LogitShift};

use crate::common::{Lab, Rng, STOP, alone, drafted, random_wishes, request, sim, stubborn};

const PROMPTS: [&[u32]; 3] = [&[20, 21], &[30, 2, 40, 9], &[55]];

/// A window of one position, for autoregressive weights.
const ONE: &str = ",window=1";

/// A causal context and one open block.
const OPEN_BLOCK: (Attention, LogitShift) = (Attention::OpenBlock(8), LogitShift::None);

/// Every slot that the cache policy `fused` can restore.
const SIGHT: &str = "left_rows=1024,right_rows=20,commit_rows=2,refresh_commits=30";

/// The kinds of weights that settings go with: every attention, and predictions read at the row
/// before.
pub fn kinds(settings: &str) -> Vec<(Attention, LogitShift)> {
    if settings.ends_with(ONE) {
        return vec![(Attention::Causal, LogitShift::One), OPEN_BLOCK];
    }
    if settings.contains("commit=block_check") {
        return vec![OPEN_BLOCK];
    }
    if settings.contains("schedule=speculative") || settings.contains("schedule=prompt_lookup") {
        let shifts = [LogitShift::None, LogitShift::One];
        let mut kinds = shifts.map(|logit_shift| (Attention::Causal, logit_shift)).to_vec();
        if settings.contains("prompt_lookup") {
            kinds.push(OPEN_BLOCK);
        }
        return kinds;
    }
    if settings.contains("schedule=canvas") {
        return vec![(Attention::Canvas(8), LogitShift::None)];
    }
    let exact = settings.contains("cache=exact");
    let blocks = settings.contains("schedule=block_wise");
    if exact && settings.contains("schedule=multi_block") {
        let shifts = [LogitShift::None, LogitShift::One];
        let blocks = [Attention::BlocksAfterPrompt(8), Attention::Blocks(8)];
        let blocks = blocks.map(|block| shifts.map(|logit_shift| (block, logit_shift)));
        return [&[(Attention::Causal, LogitShift::None)], blocks.as_flattened()].concat();
    }
    if settings.contains("commit=self_speculative") {
        return vec![(Attention::Blocks(8), LogitShift::None)];
    }
    let block_causal = ["edit", "draft_verify", "nested_drafts"];
    let is_commit = |commit: &str| settings.contains(&format!("commit={commit}"));
    let attentions: &[Attention] = match (exact, blocks) {
        (false, _) => &[Attention::Full],
        (true, _) if block_causal.iter().any(|commit| is_commit(commit)) => &[Attention::Blocks(8)],
        (true, false) => &[Attention::Causal],
        (true, true) => &[Attention::Causal, Attention::OpenBlock(8), Attention::Blocks(8)],
    };
    let all = attentions.iter().flat_map(|attention| {
        [LogitShift::None, LogitShift::One].map(|logit_shift| (*attention, logit_shift))
    });
    // Weights that are causal predict a mask where it stands, or know no masks; those with an open block
    // predict a mask where it stands.
    let known = |(attention, logit_shift): &(Attention, LogitShift)| {
        let causal = matches!(attention, Attention::Causal | Attention::OpenBlock(_));
        !causal || *logit_shift == LogitShift::None
    };
    all.filter(known).collect()
}

/// All combinations, as settings.
pub fn combinations() -> Vec<String> {
    let mut all = Vec::new();
    let registry = Registry::builtin();
    for schedule in SCHEDULES {
        for commit in COMMITS {
            let caches = registry.caches_of(schedule).into_iter();
            for cache in caches.filter(|cache| registry.goes(schedule, commit, cache)) {
                let settings = format!(
                    "vanilla,schedule={},commit={},cache={}",
                    schedule.name, commit.name, cache.name
                );
                all.push(settings.clone());
                if cache.name == "fused" {
                    all.push(format!("{settings},rows=all"));
                    all.push(format!("{settings},{SIGHT}"));
                }
                if schedule.name == "streaming" && !commit.requires.checks {
                    all.push(format!("{settings}{ONE}"));
                }
            }
        }
    }
    all
}

/// A model whose text is always the likeliest is read alike by all of them: they differ in cost
/// alone. `Lab::step` checks every step on the way.
#[test]
fn every_combination_writes_the_text_of_the_model() {
    let all = combinations();
    assert!(all.len() > 100);
    let mut costs = std::collections::BTreeSet::new();
    for settings in &all {
        let models = kinds(settings).into_iter().flat_map(|(attention, logit_shift)| {
            [sim(2000, 4), stubborn(2000, 4)].map(|model| SimConfig {
                attention,
                logit_shift,
                ..model
            })
        });
        for model in models {
            let executor = SimExecutor::new(model).expect("a valid model");
            let mut lab = Lab::new(&drafted(), executor);
            let ids: Vec<_> = (0..)
                .zip(PROMPTS)
                .map(|(seed, prompt)| {
                    let mut request = request(prompt, 60, settings);
                    request.sampling.seed = seed;
                    lab.submit(request).expect("there is room")
                })
                .collect();
            lab.finish();
            for (id, prompt) in ids.into_iter().zip(PROMPTS) {
                let outcome = lab.outcome(id).expect("it finishes");
                let mut text = lab.executor.hidden_text(prompt, 60);
                let stops = text.last() == Some(&STOP);
                text.retain(|token| *token != STOP);
                assert_eq!(outcome.tokens, text, "{settings}: {outcome:?}");
                assert_eq!(outcome.reason == FinishReason::Stop, stops, "{settings}");
                costs.insert((outcome.stats.forwards(), outcome.stats.positions));
            }
        }
    }
    assert!(costs.len() > 100, "they do differ: {}", costs.len());
}

/// Random requests of every combination, all in one batch: each has the outcome that it has
/// alone, whatever noise, grammar, penalty or suffix it brings. `Lab::step` checks the lane trees,
/// the pages, the order of events and the accounting after every step.
#[test]
fn every_combination_keeps_its_promises() {
    const EACH: u64 = 30;
    let all = combinations();
    let mut cases = 0;
    let runs = all.iter().flat_map(|settings| {
        let kinds = kinds(settings).into_iter();
        kinds.map(move |kind| (settings, kind))
    });
    for (number, (settings, (attention, logit_shift))) in (0..).zip(runs) {
        let mut rng = Rng::new(number);
        let model = SimConfig { attention, logit_shift, ..sim(4000, 4) };
        let executor = SimExecutor::new(model.clone()).expect("a valid model");
        let mut lab = Lab::new(&drafted(), executor);
        let mut requests = Vec::new();
        for seed in 0..EACH {
            let mut request = random_wishes(&mut rng, seed, settings);
            if attention != Attention::Full {
                request.given.suffix.clear();
            }
            let reads_before = logit_shift == LogitShift::One || attention == OPEN_BLOCK.0;
            if reads_before && request.prompt.is_empty() {
                request.prompt.push(20);
            }
            let id = lab.submit(request.clone()).expect("there is room");
            requests.push((id, request));
            if rng.chance(30) {
                lab.step();
            }
        }
        lab.finish();
        for (id, request) in &requests {
            let outcome = lab.outcome(*id);
            let outcome = outcome
                .unwrap_or_else(|| panic!("{settings}: {:?}: {request:?}", lab.logs[id].end));
            assert_eq!(outcome, alone(request, &model), "{settings}: {request:?}");
            cases += 1;
        }
    }
    assert!(cases >= 10_000, "{cases}");
    // CI prints it.
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("combinations.txt");
    let found = format!("{} combinations, {cases} cases\n", all.len());
    std::fs::write(file, found).expect("cargo makes the folder");
}

#[test]
fn every_other_combination_is_refused() {
    let mut refused = 0;
    for schedule in SCHEDULES {
        for (commit, cache) in
            COMMITS.iter().flat_map(|commit| CACHES.iter().map(move |cache| (commit, cache)))
        {
            let settings = format!(
                "vanilla,schedule={},commit={},cache={}",
                schedule.name, commit.name, cache.name
            );
            let resolved = DecodingSpec::parse(&settings).and_then(|spec| spec.resolve());
            let goes = Registry::builtin().goes(schedule, commit, cache);
            assert_eq!(resolved.is_ok(), goes, "{settings}");
            refused += usize::from(resolved.is_err());
        }
    }
    assert!(refused >= SCHEDULES.len());
}
