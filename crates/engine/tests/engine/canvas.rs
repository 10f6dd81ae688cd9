//! A canvas that a client writes on: given tokens never change, whatever decodes the rest.

use asynclane_engine::{Given, Refusal, Request};
use decode::{Offset, Pin};
use sim::{SimConfig, SimExecutor};
use step::{Attention, LogitShift, TokenId};

use crate::common::{
    Automaton, End, Lab, Rng, STOP, ShowSeed, alone, config, drafted, random_wishes, request, sim,
};
use crate::matrix::{combinations, kinds};

/// Random pieces: given tokens and masks by turns.
fn layout(rng: &mut Rng, budget: u32) -> Vec<Pin> {
    let mut pins = Vec::new();
    let mut start = rng.range(0, 4);
    while start < budget {
        let end = (start + rng.range(1, 9)).min(budget);
        pins.extend((start..end).map(|offset| Pin::fixed(Offset::new(offset), rng.range(6, 60))));
        start = end + rng.range(1, 30);
    }
    pins
}

/// 1,000 random layouts under every decoder of full attention and of canvases of noise, all of a kind
/// in one batch: each keeps its pins, and has the outcome that it has alone.
#[test]
fn given_tokens_stay_where_they_are() {
    let all = combinations();
    let suits = |settings: &&String| {
        kinds(settings)
            .iter()
            .any(|(attention, _)| matches!(attention, Attention::Full | Attention::Canvas(_)))
    };
    let suited: Vec<&String> = all.iter().filter(suits).collect();
    let each = 1000_usize.div_ceil(suited.len());
    let mut layouts = 0;
    for (number, settings) in (0..).zip(suited) {
        let _show = ShowSeed(number);
        let mut rng = Rng::new(number ^ 0xCA57);
        let kinds = kinds(settings);
        let (attention, logit_shift) = kinds[rng.range(0, kinds.len() as u32) as usize];
        let model = SimConfig { attention, logit_shift, ..sim(4000, 4) };
        let executor = SimExecutor::new(model.clone()).expect("a valid model");
        let mut lab = Lab::new(&drafted(), executor);
        let mut requests = Vec::new();
        for seed in 0..each as u64 {
            let mut request = random_wishes(&mut rng, seed, settings);
            request.constraint = None;
            request.prompt.push(20);
            request.max_tokens = request.max_tokens.max(1);
            request.given.pins = layout(&mut rng, request.max_tokens);
            let stops = request.stop_tokens.clone();
            request.given.pins.retain(|pin| !stops.contains(&pin.token));
            if request.given.pins.len() == request.max_tokens as usize {
                request.given.pins.pop();
            }
            if attention != Attention::Full {
                request.given.suffix.clear();
            }
            requests.push((lab.submit(request.clone()).expect("there is room"), request));
        }
        lab.finish();
        for (id, request) in requests {
            let outcome = lab.outcome(id).unwrap_or_else(|| panic!("{:?}", lab.logs[&id].end));
            for pin in &request.given.pins {
                let token = outcome.tokens.get(pin.offset.index());
                let is_cut = token.is_none()
                    && outcome.stats.forwards() > 0
                    && request.decoding.max_forwards.is_some();
                assert!(is_cut || token == Some(&pin.token), "{settings}: {pin:?} {outcome:?}");
            }
            assert_eq!(outcome, alone(&request, &model), "{settings}: {request:?}");
            layouts += 1;
        }
    }
    assert!(layouts >= 1000, "{layouts}");
}

#[test]
fn the_last_step_fills_every_mask() {
    for (attention, settings) in [
        (Attention::Full, "vanilla,max_steps=3,cache=none"),
        (Attention::Canvas(8), "canvas,block_length=8,max_steps=3"),
    ] {
        let model = SimConfig { attention, ..sim(100, 4) };
        let mut lab = Lab::new(&config(), SimExecutor::new(model).expect("a valid model"));
        let mut asked = request(&[20, 21], 8, settings);
        asked.stop_tokens.clear();
        let id = lab.submit(asked).expect("there is room");
        lab.finish();
        let outcome = lab.outcome(id).expect("it finishes");
        assert_eq!(outcome.tokens.len(), 8, "{settings}");
        assert!(outcome.stats.forwards() <= 3, "{settings}: {outcome:?}");
    }
}

/// A token that a rule may rewrite stands first, and the model's own replaces it.
#[test]
fn editable_tokens_are_rewritten_and_fixed_ones_are_not() {
    let model = sim(200, 4);
    let settings = "schedule=block_wise,commit=edit,cache=none,block_length=8,prune=false";
    let mut lab = Lab::new(&config(), SimExecutor::new(model).expect("a valid model"));
    let text = lab.executor.hidden_text(&[20, 21], 8);
    let wrong = |index: usize| -> TokenId { if text[index] == 33 { 34 } else { 33 } };
    let mut asked = request(&[20, 21], 8, settings);
    asked.given.pins = [(1, true), (3, false)]
        .map(|(index, editable)| Pin {
            editable,
            ..Pin::fixed(Offset::new(index as u32), wrong(index))
        })
        .to_vec();
    let id = lab.submit(asked.clone()).expect("there is room");
    lab.finish();
    let outcome = lab.outcome(id).expect("it finishes");
    assert_eq!(outcome.tokens[3], wrong(3));
    assert_ne!(outcome.tokens[1], wrong(1), "{outcome:?}");
    // No other rule rewrites.
    let vanilla = Request { decoding: request(&[20], 8, "vanilla").decoding, ..asked };
    let refused = lab.engine.submit(vanilla).expect_err("no edits");
    assert!(matches!(refused, Refusal::Field { field: "canvas", .. }), "{refused:?}");
}

/// On a canvas of noise an editable token stands in the first step.
#[test]
fn seeds_stand_in_the_first_step_of_noise() {
    let model = SimConfig { attention: Attention::Canvas(8), ..sim(100, 4) };
    let mut lab = Lab::new(&config(), SimExecutor::new(model).expect("a valid model"));
    let mut asked = request(&[20, 21], 8, "canvas,block_length=8");
    asked.given.pins = vec![
        Pin { editable: true, ..Pin::fixed(Offset::new(0), 33) },
        Pin::fixed(Offset::new(5), 44),
    ];
    let id = lab.submit(asked).expect("there is room");
    let rows: Vec<TokenId> = lab.plan().rows.iter().skip(2).map(|row| row.token).collect();
    assert_eq!((rows[0], rows[5]), (33, 44));
    lab.finish_planned();
    assert_eq!(lab.outcome(id).expect("it finishes").tokens[5], 44);
}

/// The grammar accepts given tokens as it accepts its own, or the sequence is refused.
#[test]
fn a_grammar_goes_on_behind_given_tokens() {
    let (mut finished, mut refused) = (0, 0);
    for seed in 0..200 {
        let mut lab = Lab::new(&config(), SimExecutor::new(sim(200, 4)).expect("a valid model"));
        let mut rng = Rng::new(seed);
        let mut asked = request(&[20, 21], 20, "balanced");
        asked.constraint = Some(Box::new(Automaton::new(seed)));
        asked.given.pins = vec![Pin::fixed(Offset::new(rng.range(0, 6)), rng.range(6, 60))];
        let pin = asked.given.pins[0];
        let id = lab.submit(asked).expect("there is room");
        lab.finish();
        match &lab.logs[&id].end {
            Some(End::Finished(_)) => {
                assert_eq!(lab.logs[&id].tokens.get(pin.offset.index()), Some(&pin.token));
                finished += 1;
            }
            Some(End::Refused(message)) => {
                assert!(
                    message.contains("does not continue") || message.contains("no token"),
                    "{message}"
                );
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(finished > 10 && refused > 10, "{finished} {refused}");
}

#[test]
fn impossible_canvases_are_refused() {
    let refused = |attention, settings: &str, pins: Vec<Pin>| {
        let model = SimConfig { attention, logit_shift: LogitShift::None, ..sim(100, 4) };
        let mut lab = Lab::new(&config(), SimExecutor::new(model).expect("a valid model"));
        let mut asked = request(&[20, 21], 8, settings);
        asked.given = Given { pins, ..Given::default() };
        lab.engine.submit(asked).expect_err("impossible").to_string()
    };
    let pin = |offset: u32, token| Pin::fixed(Offset::new(offset), token);
    for (attention, settings) in
        [(Attention::Causal, "wedlm"), (Attention::Blocks(8), "block_causal,block_length=8")]
    {
        let message = refused(attention, settings, vec![pin(0, 20)]);
        assert!(message.starts_with("canvas: needs"), "{message}");
    }
    let full = |pins| refused(Attention::Full, "vanilla", pins);
    assert!(full(vec![pin(8, 20)]).starts_with("canvas: must have ascending offsets"));
    assert!(full(vec![pin(2, 20), pin(2, 21)]).starts_with("canvas: must have ascending offsets"));
    assert!(full(vec![pin(2, 64)]).starts_with("token id 64"));
    assert!(
        full((0..8).map(|offset| pin(offset, 20)).collect())
            .starts_with("canvas: must have an open")
    );
    assert!(full(vec![pin(0, STOP)]).starts_with("canvas: must not have a token that ends"));
}
