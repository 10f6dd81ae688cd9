//! Guesses that a forward checks: exact batches, and the same text as without guesses.

use asynclane_engine::decoding::DecodingSpec;
use asynclane_engine::{Capabilities, Engine, EngineConfig, Refusal};
use sim::{SimConfig, SimExecutor};
use step::{Attention, Executor, LogitShift};

use crate::common::{
    Lab, Outcome, Rng, Scripted, ShowSeed, config, decoding, random_wishes, reading_masks, request,
    seeds, sim,
};

const CAUSAL: (Attention, LogitShift) = (Attention::Causal, LogitShift::None);

/// Two guesses lie in their own slots; the rows that check them see what is before their place and
/// themselves. The masks behind see the text and the guesses, and not the rows that check.
#[test]
fn guesses_lie_in_their_slots_and_their_checks_behind() {
    let settings = "wedlm_exact,window=4,entropy_threshold=2";
    let mut scripted = Scripted::of(request(&[10, 11, 12], 8, settings), CAUSAL);
    assert_eq!(
        scripted.step(&[(0, 20, 0.5), (1, 21, 0.5), (2, 22, 0.5)]),
        ["pages 0 1: 0..7 = 10 11 12 ? ? ? ? see back"]
    );
    // The first mask is committed; the next two are guessed, the last one is left open.
    assert_eq!(
        scripted.step(&[(1, 21, 0.5), (2, 40, 0.5), (3, 23, 0.5)]),
        ["pages 0 1 2: 3..6 = 20 21 22 see back; \
             4..5 at 6 = ? see 4 and 6; 5..6 at 7 = ? see 5 and 7; \
             6..7 at 8 = ? see 6 and 8; 7..8 at 9 = ? see 6 and 8 9"]
    );
    // The first guess was right: its row is not repeated. The second one is corrected.
    assert_eq!(
        scripted.step(&[]),
        ["pages 0 1 2: 5..7 = 40 23 see back; 6..7 at 7 = ? see 6 and 7; \
             7..8 at 8 = ? see 7 and 8; 8..9 at 9 = ? see 7 and 8 9; \
             9..10 at 10 = ? see 7 and 8 9 10"]
    );
}

/// The row of the token before checks: a guess costs no row beside its own. The first mask behind the
/// guesses is there for the masks behind it.
#[test]
fn the_row_before_checks_at_no_extra_row() {
    let settings = "wedlm_exact,window=4,entropy_threshold=2,check=next";
    let mut scripted = Scripted::of(request(&[10, 11, 12], 8, settings), CAUSAL);
    assert_eq!(scripted.said(&[20, 21, 22, 23]), ["pages 0 1: 0..7 = 10 11 12! _ ? ? ? see back"]);
    // Offsets 1 and 2 are guessed. The first guess is right, the second one is not.
    assert_eq!(scripted.said(&[21, 40, 23, 24]), ["pages 0 1: 3..8 = 20! 21! 22! _ ? see back"]);
    // The row of the right guess is not repeated.
    assert_eq!(scripted.said(&[23, 24, 25, 26]), ["pages 0 1 2: 5..10 = 40! 23! _ ? ? see back"]);
}

/// I-DLM: a row predicts the next position. The last token's row checks the first guess, each guess's row
/// the next one; the masks behind guess, and none has a row that predicts nothing of the window.
#[test]
fn rows_that_predict_the_next_position_check_and_guess() {
    let next = (Attention::Causal, LogitShift::One);
    let settings = "introspective,window=5";
    let mut scripted = Scripted::with(&reading_masks(), request(&[10, 11, 12], 9, settings), next);
    let said = scripted.said(&[20, 21, 22, 23, 24]);
    assert_eq!(said, ["pages 0 1: 0..7 = 10 11 12! ? ? ? ? see back"]);
    // Offsets 1 to 3 are guessed. The first guess is right, the second one is not.
    let said = scripted.said(&[21, 40, 23, 24, 25]);
    assert_eq!(said, ["pages 0 1: 3..8 = 20! 21! 22! 23! ? see back"]);
    // The row of the right guess is not repeated. What was guessed behind the wrong one is dropped.
    let said = scripted.said(&[23, 24, 25, 26, 27]);
    assert_eq!(said, ["pages 0 1 2: 5..10 = 40! ? ? ? ? see back"]);
}

/// S2D2: a forward of the block guesses, the next one checks, and commits up to the first wrong guess. The
/// last guess of a run has no row: nothing sees it. The block's own forward follows.
#[test]
fn a_block_checks_its_first_run_of_masks() {
    let blocks = (Attention::Blocks(4), LogitShift::None);
    let prompt = [10, 11, 12, 13, 14];
    let mut scripted = Scripted::of(request(&prompt, 7, "s2d2,block_length=4"), blocks);
    assert_eq!(
        scripted.step(&[(0, 20, 0.9), (1, 21, 0.9), (2, 22, 0.9)]),
        ["pages 0 1: 0..4 = 10 11 12 13 see 4; 4..8 = 14 ? ? ? see 8"]
    );
    assert_eq!(
        scripted.step(&[(0, 20, 0.5), (1, 40, 0.5), (2, 22, 0.5)]),
        ["pages 0 1 2: 4..7 = 14 20 21 see back; 5..6 at 7 = ? see 5 and 7; \
             6..7 at 8 = ? see 6 and 8; 7..8 at 9 = ? see 7 and 9"]
    );
    assert_eq!(scripted.step(&[(2, 23, 0.9)]), ["pages 0 1 2: 4..8 = 14 20 40 ? see 8"]);
    assert_eq!(
        scripted.step(&[(2, 24, 0.9)]),
        ["pages 0 1 2: 4..7 = 14 20 40 see back; 7..8 = ? see 7 and 7"]
    );
    assert_eq!(
        scripted.step(&[]),
        ["pages 0 1 2: 4..8 = 14 20 40 24 see 8; 8..12 = ? ? ? ? see 12"]
    );
}

/// Who cannot run it is told why.
#[test]
fn checks_are_refused_where_they_cannot_run() {
    let refused = |settings: &str, (attention, logit_shift): (Attention, LogitShift)| {
        let model = SimConfig { attention, logit_shift, ..sim(64, 4) };
        let executor = SimExecutor::new(model).expect("a valid model");
        match Lab::new(&config(), executor).submit(request(&[10], 8, settings)) {
            Err(Refusal::Rule { field, message }) => format!("{field} {message}"),
            other => panic!("{settings}: {other:?}"),
        }
    };
    let shifted = (Attention::Blocks(8), LogitShift::One);
    assert_eq!(
        refused("s2d2", shifted),
        "commit self_speculative needs weights that predict a mask at its own row, and this model's \
         predict it at the row before"
    );
    assert_eq!(
        refused("wedlm_exact,window=65", CAUSAL),
        "window must be at most 64 for causal_check, got 65"
    );
    let plain = (Attention::Blocks(8), LogitShift::None);
    assert_eq!(
        refused("s2d2,router=hysteresis,score_on=1,score_off=1", plain),
        "score_off must be below score_on, 1, for router hysteresis, got 1"
    );
}

fn causal(seed: u64) -> SimConfig {
    let (attention, logit_shift) = CAUSAL;
    SimConfig { attention, logit_shift, seed, ..sim(4000, 4) }
}

/// The outcomes of requests in one batch, with `settings` in the place of their own.
fn outcomes(seed: u64, settings: &str, temperature: Option<f32>) -> Vec<Outcome> {
    outcomes_of(causal(seed), seed, settings, temperature)
}

fn outcomes_of(
    model: SimConfig,
    seed: u64,
    settings: &str,
    temperature: Option<f32>,
) -> Vec<Outcome> {
    let (mut rng, logit_shift) = (Rng::new(seed), model.logit_shift);
    let executor = SimExecutor::new(model).expect("a valid model");
    let mut lab = Lab::new(&reading_masks(), executor);
    let ids: Vec<_> = (0..8)
        .map(|number| {
            let mut request = random_wishes(&mut rng, number, "wedlm_exact");
            request.decoding = decoding(settings);
            request.given.suffix.clear();
            if request.prompt.is_empty() && logit_shift == LogitShift::One {
                request.prompt.push(7);
            }
            request.sampling.temperature = temperature.unwrap_or(request.sampling.temperature);
            lab.submit(request).expect("there is room")
        })
        .collect();
    lab.finish();
    let outcome = |id| {
        let end = || format!("{settings}: {:?}", lab.logs[&id].end);
        lab.outcome(id).unwrap_or_else(|| panic!("{}", end()))
    };
    ids.into_iter().map(outcome).collect()
}

fn texts(outcomes: &[Outcome]) -> Vec<&[u32]> {
    outcomes.iter().map(|one| &one.tokens[..]).collect()
}

fn forwards(outcomes: &[Outcome]) -> u32 {
    outcomes.iter().map(|one| one.stats.forwards()).sum()
}

/// Lossless: whatever is guessed, the text is that of a window of one position, and the noise of a
/// position decides about it alone.
#[test]
fn checked_guesses_change_no_text() {
    let (mut all, mut fewer) = (0, 0);
    for seed in seeds(40) {
        let _show = ShowSeed(seed);
        let alone = outcomes(seed, "wedlm_exact,window=1", None);
        for settings in [
            "wedlm_exact",
            "wedlm_exact,window=5,entropy_threshold=9",
            "wedlm_exact,window=64,entropy_threshold=1,position_penalty=0.1",
        ] {
            let found = outcomes(seed, settings, None);
            assert_eq!(texts(&found), texts(&alone), "{settings}");
            all += forwards(&alone);
            fewer += forwards(&found);
        }
    }
    println!("{fewer} of {all} forwards");
    assert!(fewer * 2 < all, "{fewer} of {all} forwards");
}

/// The same where the row of the token before checks; the text is another one.
#[test]
fn guesses_checked_at_the_row_before_change_no_text() {
    let (mut all, mut fewer) = (0, 0);
    for seed in seeds(30) {
        let _show = ShowSeed(seed);
        for temperature in [Some(0.0), None] {
            let alone = outcomes(seed, "wedlm_exact,check=next,window=1", temperature);
            for settings in ["", ",window=5,entropy_threshold=9", ",window=40"] {
                let settings = format!("wedlm_exact,check=next{settings}");
                let found = outcomes(seed, &settings, temperature);
                assert_eq!(texts(&found), texts(&alone), "{settings}");
                all += forwards(&alone);
                fewer += forwards(&found);
            }
        }
    }
    println!("{fewer} of {all} forwards");
    assert!(fewer < all, "{fewer} of {all} forwards");
}

/// The same for weights whose rows predict the next position; at temperature 0 the text is that of
/// `autoregressive`.
#[test]
fn guesses_at_masks_of_next_token_weights_change_no_text() {
    let (mut all, mut fewer) = (0, 0);
    for seed in seeds(30) {
        let _show = ShowSeed(seed);
        for temperature in [Some(0.0), None] {
            let run = |settings: &str| {
                let model = SimConfig { logit_shift: LogitShift::One, ..causal(seed) };
                outcomes_of(model, seed, settings, temperature)
            };
            let alone = run("introspective,window=1");
            if temperature == Some(0.0) {
                assert_eq!(texts(&run("autoregressive")), texts(&alone));
            }
            for settings in
                ["", ",window=5,entropy_threshold=9", ",window=40,check=mask,guesses=30,stale=keep"]
            {
                let settings = format!("introspective{settings}");
                let found = run(&settings);
                assert_eq!(texts(&found), texts(&alone), "{settings}");
                all += forwards(&alone);
                fewer += forwards(&found);
            }
        }
    }
    println!("{fewer} of {all} forwards");
    assert!(fewer < all, "{fewer} of {all} forwards");
}

/// At temperature 0 the text is that of the preset `autoregressive`.
#[test]
fn checked_guesses_are_autoregressive_at_temperature_0() {
    for seed in seeds(20) {
        let _show = ShowSeed(seed);
        let expected = outcomes(seed, "autoregressive", Some(0.0));
        let found = outcomes(seed, "wedlm_exact", Some(0.0));
        assert_eq!(texts(&found), texts(&expected));
    }
}

/// The last token of the prompt begins the answer. Then a block of masks behind the last token drafts,
/// and the drafts are checked from left to right, each at the row before it; the K/V of right ones are
/// final.
#[test]
fn an_open_block_drafts_and_causal_rows_check() {
    let open = (Attention::OpenBlock(4), LogitShift::None);
    let settings = "self_speculation,window=4";
    let mut scripted = Scripted::of(request(&[10, 11, 12], 9, settings), open);
    assert_eq!(scripted.said(&[20]), ["pages 0: 0..3 = 10 11 12! see back"]);
    assert_eq!(scripted.said(&[21, 40, 23]), ["pages 0 1: 3..7 = 20 ? ? ? see 7"]);
    // The first draft is right, the second one is corrected.
    assert_eq!(scripted.said(&[21, 22, 50, 51]), ["pages 0 1: 3..7 = 20! 21! 40! 23! see back"]);
    assert_eq!(scripted.said(&[23, 24, 25]), ["pages 0 1 2: 5..9 = 22 ? ? ? see 9"]);
    // All drafts are right, and the prediction behind them is one more token.
    assert_eq!(scripted.said(&[23, 24, 25, 26]), ["pages 0 1 2: 5..9 = 22! 23! 24! 25! see back"]);
    // Drafts of the last tokens come from a whole block.
    assert_eq!(scripted.said(&[27, 28, 29]), ["pages 0 1 2 3: 9..13 = 26 ? ? ? see 13"]);
}

/// A block begins with the token that the text before it predicts; its final tokens are encoded once,
/// and predict the next block's first token.
#[test]
fn an_open_block_is_encoded_from_left_to_right() {
    let open = (Attention::OpenBlock(4), LogitShift::None);
    let prompt = [10, 11, 12];
    let mut scripted =
        Scripted::of(request(&prompt, 6, "block_causal,commit=top_k,block_length=4"), open);
    assert_eq!(scripted.said(&[20]), ["pages 0: 0..3 = 10 11 12! see back"]);
    let block = |tokens: &str| format!("pages 0 1: 3..7 = {tokens} see 7");
    assert_eq!(scripted.said(&[21, 22, 23]), [block("20 ? ? ?")]);
    assert_eq!(scripted.said(&[22, 23]), [block("20 21 ? ?")]);
    assert_eq!(scripted.said(&[23]), [block("20 21 22 ?")]);
    assert_eq!(scripted.said(&[24]), ["pages 0 1: 3..7 = 20 21 22 23! see back"]);
    assert_eq!(scripted.said(&[25, 26, 27]), ["pages 0 1 2: 7..11 = 24 ? ? ? see 11"]);
}

/// Behind the layers of a causal model the open block only drafts: its passes are those of the drafter, and
/// no other decoder reads it.
#[test]
fn the_open_block_of_a_drafter_only_drafts() {
    let model = SimConfig { attention: Attention::OpenBlock(8), ..sim(100, 4) };
    let capabilities = Capabilities { block_drafts: true, ..Capabilities::default() };
    let config = EngineConfig { capabilities, ..config() };
    let mut lab = Lab::new(&config, SimExecutor::new(model.clone()).expect("a valid model"));
    for (settings, field, expected) in [
        (
            "block_causal",
            "schedule",
            "block_wise does not apply, this model's masks only draft: use preset self_speculation",
        ),
        ("self_speculation,window=9", "window", "must be at most 8, the drafter's block, got 9"),
    ] {
        let refused = lab.submit(request(&[10], 8, settings));
        let refusal = Refusal::Rule { field, message: expected.to_owned() };
        assert_eq!(refused, Err(refusal), "{settings}");
    }
    let weights = Engine::new(&config, SimExecutor::new(model).expect("a valid model").spec());
    let decoder = |named: &str| {
        let spec = DecodingSpec::parse(named).expect(named).suited_to(weights.limits().kind());
        spec.resolve().expect(named)
    };
    assert_eq!(decoder("").window(), Some(8));
    assert_eq!(decoder("self_speculation,window=4").window(), Some(4));
    assert_eq!(decoder("autoregressive").window(), Some(1));
}

/// A window of masks that see only what is before them is no block, and a block without masks drafts
/// nothing.
#[test]
fn an_open_block_refuses_other_windows() {
    let model = SimConfig { attention: Attention::OpenBlock(8), ..sim(100, 4) };
    let mut lab = Lab::new(&config(), SimExecutor::new(model).expect("a valid model"));
    for (settings, field, expected) in [
        (
            "autoregressive,window=2",
            "window",
            "must be 1: this model reads masks in whole blocks only",
        ),
        ("self_speculation,window=1", "window", "must be 2 to 64 for block_check, got 1"),
        ("self_speculation,window=65", "window", "must be 2 to 64 for block_check, got 65"),
        (
            "s2d2",
            "commit",
            "self_speculative does not go with this model's causal attention with one open block",
        ),
    ] {
        let refused = lab.submit(request(&[10], 8, settings));
        let refusal = Refusal::Rule { field, message: expected.to_owned() };
        assert_eq!(refused, Err(refusal), "{settings}");
    }
    let empty = lab.submit(request(&[], 8, "autoregressive"));
    let message = "must have at least one token".to_owned();
    assert_eq!(empty, Err(Refusal::Field { field: "prompt", message }));
}
