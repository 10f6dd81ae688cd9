//! Every schedule with every commit rule and every cache policy that it goes with.

use asynclane_engine::FinishReason;
use asynclane_engine::decoding::{CACHES, COMMITS, DecodingSpec, SCHEDULES};
use sim::SimExecutor;

use crate::common::{Lab, STOP, config, request, sim, stubborn};

const PROMPTS: [&[u32]; 3] = [&[20, 21], &[30, 2, 40, 9], &[55]];

/// All combinations, as settings.
fn combinations() -> Vec<String> {
    let mut all = Vec::new();
    for schedule in SCHEDULES {
        for commit in COMMITS {
            let allowed = schedule.caches.iter().filter(|cache| {
                commit.schedules.contains(&schedule.name) && commit.caches.contains(cache)
            });
            for cache in allowed {
                let settings = format!(
                    "vanilla,schedule={},commit={},cache={cache}",
                    schedule.name, commit.name
                );
                all.push(settings.clone());
                if *cache == "fused" {
                    all.push(format!("{settings},rows=all"));
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
    println!("{} combinations", all.len());
    assert!(all.len() > 100);
    let mut costs = std::collections::BTreeSet::new();
    for settings in &all {
        for model in [sim(2000, 4), stubborn(2000, 4)] {
            let executor = SimExecutor::new(model).expect("a valid model");
            let mut lab = Lab::new(&config(), executor);
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

#[test]
fn every_other_combination_is_refused() {
    let mut refused = 0;
    for schedule in SCHEDULES {
        for (commit, cache) in COMMITS
            .iter()
            .flat_map(|commit| CACHES.iter().map(move |cache| (commit, cache)))
        {
            let settings = format!(
                "vanilla,schedule={},commit={},cache={}",
                schedule.name, commit.name, cache.name
            );
            let resolved = DecodingSpec::parse(&settings).and_then(|spec| spec.resolve());
            let goes = schedule.caches.contains(&cache.name)
                && commit.schedules.contains(&schedule.name)
                && commit.caches.contains(&cache.name);
            assert_eq!(resolved.is_ok(), goes, "{settings}");
            refused += usize::from(resolved.is_err());
        }
    }
    assert!(refused >= SCHEDULES.len());
}
