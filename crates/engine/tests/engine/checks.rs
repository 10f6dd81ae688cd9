//! Guesses that a forward checks: exact batches, and the same text as without guesses.

use sim::{SimConfig, SimExecutor};
use step::{Attention, Readout};

use crate::common::{
    Lab, Outcome, Rng, Scripted, ShowSeed, config, decoding, random_wishes, request, seeds, sim,
};

const CAUSAL: (Attention, Readout) = (Attention::Causal, Readout::Own);

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
        [
            "pages 0 1 2: 5..7 = 40 23 see back; 6..7 at 7 = ? see 6 and 7; \
             7..8 at 8 = ? see 7 and 8; 8..9 at 9 = ? see 7 and 8 9; \
             9..10 at 10 = ? see 7 and 8 9 10"
        ]
    );
}

fn causal(seed: u64) -> SimConfig {
    let (attention, readout) = CAUSAL;
    SimConfig {
        attention,
        readout,
        seed,
        ..sim(4000, 4)
    }
}

/// The outcomes of requests in one batch, with `settings` in the place of their own.
fn outcomes(seed: u64, settings: &str, temperature: Option<f32>) -> Vec<Outcome> {
    let mut rng = Rng::new(seed);
    let executor = SimExecutor::new(causal(seed)).expect("a valid model");
    let mut lab = Lab::new(&config(), executor);
    let ids: Vec<_> = (0..8)
        .map(|number| {
            let mut request = random_wishes(&mut rng, number, "wedlm_exact");
            request.decoding = decoding(settings);
            request.suffix.clear();
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
