//! Samples a token: filters, then the Gumbel-max trick with counter-based noise.

use std::cmp::Ordering;
use step::Sampling;

/// The largest variate. The last of the 2^53 intervals is rounded to 1, which would give infinity; the
/// largest other variate is 36.04.
const GUMBEL_MAX: f64 = 37.0;
/// More than the natural logarithm of 2, by far more than a variate's rounding.
const LN_2: f64 = 0.6932;
/// Tempered logits this far below the best have negligible mass for `top_p`.
const NEGLIGIBLE: f64 = 30.0;

/// Samples one of the tokens with a finite logit, or `best` if there is no other.
///
/// The distribution is `softmax(logits / temperature)` over the tokens that pass `min_p`, `top_k` and
/// `top_p`, applied in this order, each to the tokens left by the previous filter, with ties to the
/// lower id. `best` is the argmax of `logits [v]`; `kept` is scratch space.
pub(crate) fn draw(
    logits: &[f32],
    best: u32,
    draw: &Sampling,
    position: u32,
    kept: &mut Vec<(u32, f64)>,
) -> u32 {
    let inverse = 1.0 / f64::from(draw.temperature);
    let top = f64::from(logits[best as usize]);
    // Relative to the best logit, so that a tiny temperature cannot overflow.
    let tempered = |x: f32| (f64::from(x) - top) * inverse;
    let noise = Noise::new(draw, position);
    let mut winner = (gumbel(noise.bits(best)), best);
    let mut offer = |token: u32, x: f64| {
        let bits = noise.bits(token);
        if x + most(bits) >= winner.0 && token != best {
            let perturbed = x + gumbel(bits);
            if perturbed > winner.0 || (perturbed == winner.0 && token < winner.1) {
                winner = (perturbed, token);
            }
        }
    };
    if draw.min_p <= 0.0 && draw.top_k == 0 && draw.top_p >= 1.0 {
        for (token, &x) in logits.iter().enumerate() {
            if x > f32::NEG_INFINITY {
                offer(token as u32, tempered(x));
            }
        }
    } else {
        let all = logits.iter().enumerate().map(|(token, &x)| (token as u32, tempered(x)));
        filter(all, draw, kept);
        kept.iter().for_each(|&(token, x)| offer(token, x));
    }
    winner.1
}

/// Fills `kept` with the tokens that pass the filters.
fn filter(all: impl Iterator<Item = (u32, f64)>, draw: &Sampling, kept: &mut Vec<(u32, f64)>) {
    let least = if draw.min_p > 0.0 { f64::from(draw.min_p).ln() } else { f64::NEG_INFINITY };
    kept.clear();
    kept.extend(all.filter(|&(_, x)| x > f64::NEG_INFINITY && x >= least));
    let likelier = |a: &(u32, f64), b: &(u32, f64)| {
        b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0))
    };
    let top_k = draw.top_k as usize;
    if top_k > 0 && top_k < kept.len() {
        kept.select_nth_unstable_by(top_k - 1, likelier);
        kept.truncate(top_k);
    }
    if draw.top_p < 1.0 {
        let nucleus_mass = f64::from(draw.top_p) * kept.iter().map(|&(_, x)| x.exp()).sum::<f64>();
        kept.retain(|&(_, x)| x >= -NEGLIGIBLE);
        kept.sort_unstable_by(likelier);
        let mut mass = 0.0;
        let enough = kept.iter().position(|&(_, x)| {
            mass += x.exp();
            mass >= nucleus_mass
        });
        kept.truncate(enough.map_or(kept.len(), |last| last + 1));
    }
}

/// Noise of one row: a pure function of (seed, clock, position, token).
struct Noise(u64);

impl Noise {
    fn new(draw: &Sampling, position: u32) -> Self {
        let key = u64::from(draw.clock) << 32 | u64::from(position);
        Self(mix(mix(draw.seed).wrapping_add(mix(key ^ 0xA5A5_A5A5_5A5A_5A5A))))
    }

    /// The random bits of a token.
    fn bits(&self, token: u32) -> u64 {
        mix(self.0 ^ mix(u64::from(token)))
    }
}

/// The standard Gumbel variate of random bits, at most [`GUMBEL_MAX`].
fn gumbel(bits: u64) -> f64 {
    // The middle of one of 2^53 equal intervals of (0, 1); that of the last one is rounded to 1.
    let uniform = ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    (-(-uniform.ln()).ln()).min(GUMBEL_MAX)
}

/// An upper bound of the variate that needs no logarithm: behind k ones the uniform number lies more than
/// 2^-(k + 1) below 1, and -ln u > 1 - u.
fn most(bits: u64) -> f64 {
    f64::from(bits.leading_ones().min(53) + 1) * LN_2
}

/// The finaliser of the splitmix64 generator after one increment.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::{draw, gumbel, most};
    use step::Sampling;

    const PLAIN: Sampling = Sampling { temperature: 1.0, seed: 1, ..Sampling::GREEDY };

    fn counts(logits: &[f32], settings: Sampling) -> Vec<usize> {
        let best = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        let mut counts = vec![0; logits.len()];
        for seed in 0..20_000u64 {
            let settings = Sampling { seed: seed / 100, clock: (seed % 10) as u32, ..settings };
            let position = (seed / 10 % 10) as u32;
            let best = best.unwrap() as u32;
            counts[draw(logits, best, &settings, position, &mut Vec::new()) as usize] += 1;
        }
        counts
    }

    #[test]
    fn no_variate_exceeds_its_bound() {
        let ones = (0..64).map(|count| !(u64::MAX >> 1 >> count));
        for bits in ones.flat_map(|bits| [bits, bits | 0x7FF, bits.saturating_sub(1), !bits]) {
            assert!(gumbel(bits) < most(bits), "{bits:x}");
        }
        assert_eq!(gumbel(u64::MAX), super::GUMBEL_MAX);
    }

    #[test]
    fn draws_follow_the_tempered_softmax() {
        let logits = [0.0, 1.0, f32::NEG_INFINITY, 2.0, -1.0];
        for temperature in [0.5, 1.0, 2.0] {
            let counts = counts(&logits, Sampling { temperature, ..PLAIN });
            let weights = logits.map(|x| f64::from(x / temperature).exp());
            let total: f64 = weights.iter().sum();
            for (count, weight) in counts.iter().zip(weights) {
                let (got, want) = (*count as f64 / 20_000.0, weight / total);
                assert!((got - want).abs() < 0.015, "{temperature}: {got} for {want}");
            }
            assert_eq!(counts[2], 0);
        }
    }

    #[test]
    fn filters_keep_the_expected_tokens() {
        // Probabilities 0.1, 0.2, 0.3, 0.4.
        let logits = [1.0f32, 2.0, 3.0, 4.0].map(f32::ln);
        let kept = |settings| counts(&logits, settings).iter().map(|&n| n > 0).collect::<Vec<_>>();
        assert_eq!(kept(Sampling { top_k: 2, ..PLAIN }), [false, false, true, true]);
        assert_eq!(kept(Sampling { top_p: 0.65, ..PLAIN }), [false, false, true, true]);
        assert_eq!(kept(Sampling { top_p: 0.75, ..PLAIN }), [false, true, true, true]);
        assert_eq!(kept(Sampling { top_p: 0.0, ..PLAIN }), [false, false, false, true]);
        assert_eq!(kept(Sampling { min_p: 0.6, ..PLAIN }), [false, false, true, true]);
        // top_p applies to the tokens left by top_k: 0.4 of 0.7 exceeds 0.55.
        let both = Sampling { top_k: 2, top_p: 0.55, ..PLAIN };
        assert_eq!(kept(both), [false, false, false, true]);
    }

    #[test]
    fn equal_keys_sample_equal_tokens_and_every_field_of_the_key_counts() {
        let logits = vec![0.0; 4096];
        let base = Sampling { seed: 7, clock: 3, ..PLAIN };
        let one =
            |settings: Sampling, position| draw(&logits, 0, &settings, position, &mut Vec::new());
        assert_eq!(one(base, 5), one(base, 5));
        let others = [
            one(Sampling { seed: 8, ..base }, 5),
            one(Sampling { clock: 4, ..base }, 5),
            one(base, 6),
            one(Sampling { clock: 5, ..base }, 3),
        ];
        assert!(others.iter().all(|&token| token != one(base, 5)), "{others:?}");
    }

    #[test]
    fn a_tiny_temperature_is_the_argmax() {
        let logits = [0.0, 0.5, 0.25];
        let counts = counts(&logits, Sampling { temperature: 1e-30, ..PLAIN });
        assert_eq!(counts, [0, 20_000, 0]);
    }
}
