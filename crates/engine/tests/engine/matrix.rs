//! Every schedule with every commit rule and every cache policy that it goes with.

use asynclane_engine::FinishReason;
use asynclane_engine::decoding::{CACHES, COMMITS, DecodingSpec, SCHEDULES};
use sim::SimExecutor;

use crate::common::{Lab, Rng, STOP, alone, config, random_wishes, request, sim, stubborn};

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

/// Random requests of every combination, all in one batch: each has the outcome that it has
/// alone, whatever noise, grammar, penalty or suffix it brings. `Lab::step` checks the lane trees,
/// the pages, the order of events and the accounting after every step.
#[test]
fn every_combination_keeps_its_promises() {
    const EACH: u64 = 56;
    let all = combinations();
    let model = sim(4000, 4);
    let mut cases = 0;
    for (number, settings) in (0..).zip(&all) {
        let mut rng = Rng::new(number);
        let executor = SimExecutor::new(model.clone()).expect("a valid model");
        let mut lab = Lab::new(&config(), executor);
        let mut requests = Vec::new();
        for seed in 0..EACH {
            let request = random_wishes(&mut rng, seed, settings);
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
    println!("{} combinations, {cases} cases", all.len());
    assert!(cases >= 10_000, "{cases}");
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
