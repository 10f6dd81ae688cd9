//! The offsets for which a decoder wants candidates, and models that give them.

use asynclane_decode::{Candidate, Decoder, Offset, Proposal, Role, Span, TokenId};

/// Every offset the decoder wants a candidate for, ascending, with the role of its lane.
pub fn wanted(decoder: &Decoder) -> Vec<(Offset, Role)> {
    let canvas = decoder.canvas();
    let mut offsets = Vec::new();
    for lane in decoder.lanes() {
        let drafts = if lane.drafts { lane.lookahead } else { Span::default() };
        let read = lane.committed;
        let start = lane.range.start.min(read.start);
        let all = start.to(lane.range.end.max(drafts.end).max(read.end)).iter();
        let own = |offset: Offset| lane.range.contains(offset) || drafts.contains(offset);
        let is_wanted = |offset: &Offset| match canvas.is_mask(*offset) {
            true => own(*offset),
            false => read.contains(*offset),
        };
        offsets.extend(all.filter(is_wanted).map(|offset| (offset, lane.role)));
    }
    offsets
}

/// The guesses of every branch the decoder wants tried, in order.
pub fn branches(decoder: &Decoder) -> Vec<Vec<Proposal>> {
    let branches = decoder.branches();
    (1..=branches.count()).map(|branch| branches.filled(branch).to_vec()).collect()
}

/// A candidate with this token and probability and fixed other values.
pub fn candidate(token: TokenId, probability: f64) -> Candidate {
    Candidate {
        token,
        probability,
        runner_up: 0,
        runner_up_probability: (1.0 - probability) / 2.0,
        entropy: 1.0,
        gap: 1.0,
        present: 0.0,
    }
}

/// A random but reproducible model: its candidate for an offset depends on its seed, the offset and,
/// for some offsets, the step.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub seed: u64,
    /// One of this number of candidates is a stop token; 0 for none.
    pub stop_every: u64,
    /// Number of distinct probabilities, `>= 2`: few make many ties.
    pub levels: u64,
}

/// Tokens other than stop tokens; those that matter to boundaries occur several times.
const WORDS: &[&str] = &[
    "a", " b", "c", "a", " b", "c", "7", " 42", "7", ".", ".", ".", ".", " .", ").", "5.", ".\n",
    "\n", "\n", "\n", "\n\n", "(", ")", ")", ":", " ", "```", " =", "。", ":\n", ")\n",
];

impl Model {
    /// The candidate for `offset` in `step`; `ban` excludes the stop tokens.
    pub fn says(&self, offset: Offset, step: u32, ban: bool) -> Candidate {
        let steady = mix(self.seed, u64::from(offset.get()));
        let moody = mix(steady, u64::from(step));
        let choice = if steady.is_multiple_of(4) { moody } else { mix(steady, 1) };
        let stops = self.stop_every > 0 && choice.is_multiple_of(self.stop_every);
        let token = if stops && !ban {
            super::STOPS[(choice >> 20) as usize % super::STOPS.len()]
        } else {
            super::id(WORDS[(choice >> 24) as usize % WORDS.len()])
        };
        let level = (mix(moody, 2) >> 8) % self.levels;
        let probability = level as f64 / (self.levels - 1) as f64;
        Candidate { entropy: 2.0 * (1.0 - probability) as f32, ..candidate(token, probability) }
    }
}

/// The finalizer of splitmix64 over both words.
pub fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.rotate_left(29).wrapping_add(b).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
