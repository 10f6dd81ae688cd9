//! A sequence's tokens and cost are a function of its request alone.

use asynclane_engine::{EngineConfig, Request, SequenceId};
use sim::{SimConfig, SimExecutor};

use crate::common::{Lab, Outcome, Rng, ShowSeed, alone, config, random_request, seeds, sim};

/// AsyncLane §6.10: a sequence has the same tokens and cost alone and among neighbours, in any order
/// of arrival, under any row budget, with pages of any size and at any temperature: noise is keyed
/// by the sequence's own seed.
#[test]
fn neighbours_and_arrival_do_not_matter() {
    for seed in seeds(25) {
        let _show = ShowSeed(seed);
        let mut rng = Rng::new(seed ^ 0xBA7C);
        let model = sim(4000, 4);
        let requests: Vec<Request> =
            (0..12).map(|number| random_request(&mut rng, number)).collect();
        let expected: Vec<Outcome> =
            requests.iter().map(|request| alone(request, &model)).collect();
        for (row_budget, long_quantum, page_size) in
            [(100_000, 100_000, 4), (100_000, 7, 4), (50, 20, 1), (1, 1, 16)]
        {
            let config = EngineConfig { row_budget, long_quantum, prefix_cache: true, ..config() };
            let model = SimConfig { page_size, ..model.clone() };
            let order = shuffled(&mut rng, requests.len());
            let found = crowd(&config, model, &requests, &order);
            assert_eq!(
                found, expected,
                "row budget {row_budget}, {long_quantum} long rows, pages of {page_size}"
            );
        }
    }
}

/// The outcomes of all requests, submitted in `order` with a step after every third one.
fn crowd(
    config: &EngineConfig,
    model: SimConfig,
    requests: &[Request],
    order: &[usize],
) -> Vec<Outcome> {
    let mut lab = Lab::new(config, SimExecutor::new(model).expect("a valid model"));
    let mut ids: Vec<Option<SequenceId>> = vec![None; requests.len()];
    for (turn, index) in order.iter().enumerate() {
        ids[*index] = Some(lab.submit(requests[*index].clone()).expect("there is room"));
        if turn % 3 == 2 {
            lab.step();
        }
    }
    lab.finish();
    let outcome = |id: Option<SequenceId>| lab.outcome(id.expect("submitted"));
    ids.into_iter().map(|id| outcome(id).expect("nothing fails here")).collect()
}

fn shuffled(rng: &mut Rng, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, rng.range(0, last as u32 + 1) as usize);
    }
    order
}
