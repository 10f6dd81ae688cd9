//! Sequences that are read: one forward, and the distributions over labels at open offsets.

use std::collections::BTreeMap;
use std::sync::Arc;

use asynclane_engine::{
    EngineConfig, FinishReason, Given, Labels, Refusal, Request, SequenceStats,
};
use decode::{Offset, Pin};
use sim::{SimConfig, SimExecutor};
use step::{Attention, LogitShift, TokenId, TopToken};

use crate::common::{End, Lab, Rng, ShowSeed, config, random_request, request, seeds, sim};

/// Every kind of weights that reads, with the logit shifts it has.
const KINDS: [(Attention, LogitShift); 9] = [
    (Attention::Full, LogitShift::None),
    (Attention::Full, LogitShift::One),
    (Attention::Blocks(8), LogitShift::None),
    (Attention::Blocks(8), LogitShift::One),
    (Attention::BlocksAfterPrompt(8), LogitShift::One),
    (Attention::Canvas(64), LogitShift::None),
    (Attention::Causal, LogitShift::None),
    (Attention::Causal, LogitShift::One),
    (Attention::OpenBlock(8), LogitShift::None),
];

/// Weights that read the offset behind the prompt alone.
fn is_causal(attention: Attention) -> bool {
    matches!(attention, Attention::Causal | Attention::OpenBlock(_))
}

const LABELS: [TokenId; 5] = [9, 20, 33, 40, 63];

fn model((attention, logit_shift): (Attention, LogitShift)) -> SimConfig {
    SimConfig { attention, logit_shift, ..sim(4000, 4) }
}

fn lab(kind: (Attention, LogitShift), config: &EngineConfig) -> Lab {
    Lab::new(config, SimExecutor::new(model(kind)).expect("a valid model"))
}

/// A reading of `slots` offsets behind a prompt of 11 + `seed` tokens; pins stand before and between
/// them.
fn reading(lab: &Lab, slots: u32, seed: u64) -> Request {
    let kind = lab.engine.limits().kind();
    let is_causal = is_causal(kind.attention);
    let (count, length) = if is_causal { (1, 1) } else { (slots, 3 * slots) };
    let offsets: Vec<Offset> = match is_causal {
        true => vec![Offset::ZERO],
        false => (0..count).map(|slot| Offset::new(3 * slot + 1)).collect(),
    };
    let open = |offset: &Offset| !offsets.contains(offset);
    let pins = (0..length).map(Offset::new).filter(open);
    let pins = pins.map(|offset| Pin::fixed(offset, 10 + offset.get() % 40)).collect();
    let prompt: Vec<TokenId> = (0..11 + seed as u32).map(|index| 9 + index % 50).collect();
    let mut request = Request::new(prompt, length, kind.reader(length));
    request.sampling.seed = seed;
    request.given = Given { pins, ..Given::default() };
    request.extras.labels = Some(Labels { offsets, tokens: Arc::from(LABELS) });
    request
}

/// The labels and the cost of a reading in an engine of its own.
fn read(kind: (Attention, LogitShift), request: &Request) -> (Vec<TopToken>, SequenceStats) {
    let mut lab = lab(kind, &config());
    let id = lab.submit(request.clone()).expect("there is room");
    lab.finish();
    let Some(End::Finished(finished)) = lab.logs[&id].end else { panic!("{:?}", lab.logs) };
    assert_eq!(finished.reason, FinishReason::Length);
    (lab.logs[&id].labels.clone(), finished.stats)
}

#[test]
fn twenty_offsets_are_read_in_one_forward() {
    for kind in KINDS {
        let request = reading(&lab(kind, &config()), 20, 3);
        let slots = if is_causal(kind.0) { 1 } else { 20 };
        let (labels, stats) = read(kind, &request);
        assert_eq!((stats.forwards(), stats.emitted_tokens), (1, 0), "{kind:?}");
        assert_eq!(labels.len(), slots * LABELS.len(), "{kind:?}");
        for offset in labels.chunks(LABELS.len()) {
            let mut tokens: Vec<TokenId> = offset.iter().map(|top| top.token).collect();
            tokens.sort_unstable();
            assert_eq!(tokens, LABELS, "{kind:?}");
            assert!(offset.is_sorted_by(|a, b| a.logprob >= b.logprob), "{offset:?}");
            let mass: f64 = offset.iter().map(|top| f64::from(top.logprob).exp()).sum();
            assert!(mass > 0.0 && mass < 1.0, "{kind:?}: {mass}");
        }
        // No row but those of the text, the canvas up to the end of its last block, and the row before.
        let (prompt, canvas) = (request.prompt.len() as u64, u64::from(request.max_tokens));
        let most = match kind.0 {
            Attention::Canvas(length) => prompt + u64::from(length),
            Attention::Blocks(length) | Attention::BlocksAfterPrompt(length) => {
                prompt + canvas + 2 * u64::from(length)
            }
            _ => prompt + canvas,
        };
        assert!(stats.positions <= most, "{kind:?}: {} of {most}", stats.positions);
    }
}

/// The pins change what is read: they are seen from both sides where the attention allows.
#[test]
fn pins_are_read() {
    for kind in KINDS.into_iter().filter(|(attention, _)| !is_causal(*attention)) {
        let plain = reading(&lab(kind, &config()), 4, 5);
        let mut other = plain.clone();
        other.given.pins[0].token += 1;
        assert_ne!(read(kind, &plain).0, read(kind, &other).0, "{kind:?}");
        let mut last = plain.clone();
        last.given.pins.last_mut().expect("pins").token += 1;
        let sees_right = matches!(kind.0, Attention::Full | Attention::Canvas(_));
        if sees_right {
            assert_ne!(read(kind, &plain).0[..5], read(kind, &last).0[..5], "{kind:?}");
        }
    }
}

/// 32 readings among sequences of every decoder: bits and costs are those of each alone.
#[test]
fn neighbours_do_not_matter() {
    for seed in seeds(4) {
        let _show = ShowSeed(seed);
        let mut rng = Rng::new(seed);
        for kind in KINDS {
            for (row_budget, long_quantum) in [(100_000, 100_000), (60, 20)] {
                let config = EngineConfig {
                    row_budget,
                    long_quantum,
                    prefix_cache: false,
                    max_waiting: 128,
                    ..config()
                };
                let mut lab = lab(kind, &config);
                let mut readings = BTreeMap::new();
                for number in 0..32 {
                    let request = reading(&lab, 1 + rng.range(0, 12), 100 + number);
                    readings.insert(lab.submit(request.clone()).expect("room"), request);
                    let neighbour = match kind.0 {
                        Attention::Full => {
                            let mut other = random_request(&mut rng, 1000 + number);
                            other.prompt.push(20);
                            other
                        }
                        _ => {
                            let preset = lab.engine.limits().kind().default_preset();
                            let mut other = request_of(&mut rng, preset, &lab);
                            other.sampling.seed = 1000 + number;
                            other
                        }
                    };
                    lab.submit(neighbour).expect("room");
                    if rng.chance(30) {
                        lab.step();
                    }
                }
                lab.finish();
                for (id, request) in readings {
                    let Some(End::Finished(found)) = &lab.logs[&id].end else { panic!("{kind:?}") };
                    let (labels, stats) = read(kind, &request);
                    assert_eq!(lab.logs[&id].labels, labels, "{kind:?}");
                    assert_eq!(found.stats, stats, "{kind:?}");
                }
            }
        }
    }
}

fn request_of(rng: &mut Rng, preset: &str, lab: &Lab) -> Request {
    use asynclane_engine::decoding::DecodingSpec;
    let spec = DecodingSpec::parse(preset).expect("a preset");
    let suited = spec.suited_to(lab.engine.limits().kind());
    let prompt = (0..rng.range(1, 20)).map(|_| rng.range(6, 60)).collect();
    Request {
        decoding: suited.resolve().expect("a decoder"),
        ..request_with(prompt, rng.range(1, 40))
    }
}

fn request_with(prompt: Vec<TokenId>, max_tokens: u32) -> Request {
    request(&prompt, max_tokens, "balanced")
}

/// The second question about one input forwards its own end alone.
#[test]
fn readings_share_the_pages_of_their_prompt() {
    for kind in KINDS {
        let mut lab = lab(kind, &config());
        let reuses = !matches!(kind.0, Attention::Full | Attention::BlocksAfterPrompt(_));
        let mut cached = Vec::new();
        for seed in [1, 2] {
            let mut request = reading(&lab, 2, seed);
            request.prompt = (0..40)
                .map(|index| if index < 30 { index + 9 } else { index + seed as u32 })
                .collect();
            let id = lab.submit(request).expect("room");
            lab.finish();
            let Some(End::Finished(finished)) = lab.logs[&id].end else { panic!() };
            cached.push(finished.stats.cached_tokens);
        }
        let shared = if reuses { 24 } else { 0 };
        assert_eq!(cached[0], 0, "{kind:?}");
        assert!(cached[1] >= shared && cached[1] <= 30, "{kind:?}: {cached:?}");
        assert_eq!(cached[1] > 0, reuses, "{kind:?}");
    }
}

/// A prompt that comes in chunks gives the bits of a whole one.
#[test]
fn a_chunked_prompt_is_read_alike() {
    for kind in KINDS {
        let mut request = reading(&lab(kind, &config()), 3, 7);
        request.prompt = (0..90).map(|index| 9 + index % 50).collect();
        let whole = read(kind, &request);
        let mut lab = lab(kind, &EngineConfig { prefill_chunk: 16, ..config() });
        let id = lab.submit(request).expect("room");
        lab.finish();
        assert_eq!(lab.logs[&id].labels, whole.0, "{kind:?}");
    }
}

#[test]
fn impossible_readings_are_refused() {
    let field = |lab: &mut Lab, request: Request| match lab.engine.submit(request) {
        Err(Refusal::Field { field, message }) => format!("{field} {message}"),
        other => panic!("{other:?}"),
    };
    let mut full = lab(KINDS[0], &config());
    let plain = reading(&full, 3, 1);
    let with = |change: fn(&mut Labels)| {
        let mut request = plain.clone();
        change(request.extras.labels.as_mut().expect("labels"));
        request
    };
    for change in [
        (|labels| labels.offsets.clear()) as fn(&mut Labels),
        |labels| labels.offsets.swap(0, 1),
        |labels| labels.offsets[0] = Offset::new(0),
        |labels| labels.offsets[2] = Offset::new(9),
    ] {
        let message = field(&mut full, with(change));
        assert_eq!(message, "labels must be at ascending, open offsets within the budget");
    }
    for change in [
        (|labels| labels.tokens = Arc::from([])) as fn(&mut Labels),
        |labels| labels.tokens = Arc::from([64]),
        |labels| labels.tokens = (0..256).map(|index| index % 60).collect(),
    ] {
        let message = field(&mut full, with(change));
        assert_eq!(message, "labels must be 1 to 255 tokens of the vocabulary");
    }
    let mut twice = plain.clone();
    twice.given.pins[1].offset = Offset::ZERO;
    assert_eq!(field(&mut full, twice), "canvas must have ascending offsets within the budget");
    let mut causal = lab(KINDS[6], &config());
    let pinned = Request { decoding: causal.engine.limits().kind().reader(9), ..plain };
    assert_eq!(
        field(&mut causal, pinned),
        "canvas needs weights that see both sides, this model's are causal"
    );
    let mut noise = lab(KINDS[5], &config());
    let long = reading(&noise, 22, 1);
    assert_eq!(field(&mut noise, long), "labels can be read at 64 offsets, got 66");
}
