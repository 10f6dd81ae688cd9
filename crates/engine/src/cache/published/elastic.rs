//! Elastic cache (Elastic-Cache, arXiv 2510.14973): K/V are renewed when they have drifted.

use decode::{
    AttentionKind, Candidate, Decoder, ForwardKind, NameFilter, Offset, Proposal, SettingInfo,
    TokenId,
};

use crate::cache::compact::{self, MARGIN};
use crate::cache::rows::{open_rows, see_written};
use crate::cache::{CacheInfo, CachePolicy, ForwardPlan, Forwards, View};

/// γ.
const DRIFT_THRESHOLD: SettingInfo = SettingInfo::number("drift_threshold", 0.0..=1.0, 0.9)
    .says("similarity of the outputs of watched tokens below which K/V are renewed");

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "elastic",
    summary: "as `fused` with open rows; renewed when the outputs of watched tokens have drifted",
    paper: "Elastic-Cache, arXiv 2510.14973",
    settings: &[MARGIN, DRIFT_THRESHOLD],
    schedules: NameFilter::Only(&["asynclane", "block_wise", "window"]),
    forwards: Forwards::OPEN,
    attention: &[AttentionKind::Full],
    check: compact::check_margin,
    pages: |footprint| footprint.shared_table(footprint.budget),
    build: |settings, input| {
        Box::new(Elastic {
            margin: compact::margin(settings, input.schedule),
            threshold: settings.number(&DRIFT_THRESHOLD),
            tracked: Vec::new(),
            drifted: false,
        })
    },
};

/// Number of watched tokens.
const TRACKED: u32 = 4;

/// Open rows against one table, as `fused`, with a refresh as soon as a watched token's answer
/// has moved away from what it was after the last refresh.
///
/// The paper watches the most attended token of every layer and compares its attention rows. Here
/// the last settled tokens before the frontier are watched, which the open masks attend to most,
/// and their output distributions are compared: no attention row and no hidden state has to leave
/// the model. All layers are renewed together.
#[derive(Debug)]
struct Elastic {
    /// m of AsyncLane eq. 12.
    margin: u32,
    /// γ: the similarity below which K/V are renewed.
    threshold: f64,
    /// Offsets, ascending, each with what the model said there first.
    tracked: Vec<(Offset, Option<Candidate>)>,
    drifted: bool,
}

impl Elastic {
    fn watch(&mut self, decoder: &Decoder) {
        let frontier = decoder.canvas().frontier();
        self.tracked.clear();
        let last = frontier.back(TRACKED).to(frontier);
        self.tracked.extend(last.iter().map(|offset| (offset, None)));
    }
}

impl CachePolicy for Elastic {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(self.drifted)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        if self.kind(view) != ForwardKind::Decode {
            return compact::renew(self.margin, view, plan);
        }
        plan.begin(ForwardKind::Decode);
        plan.tracked.extend(self.tracked.iter().map(|(offset, _)| offset));
        let tracked = std::mem::take(&mut plan.tracked);
        open_rows(view, &tracked, plan);
        plan.tracked = tracked;
        see_written(view, plan);
    }

    fn observe(&mut self, kind: ForwardKind, decoder: &Decoder, said: &[Proposal]) {
        if kind != ForwardKind::Decode || self.tracked.is_empty() {
            self.drifted = false;
            return self.watch(decoder);
        }
        for (offset, first) in &mut self.tracked {
            let Ok(index) = said.binary_search_by_key(offset, |proposal| proposal.offset) else {
                continue;
            };
            let now = said[index].candidate;
            let before = first.get_or_insert(now);
            self.drifted |= similarity(before, &now) < self.threshold;
        }
    }
}

/// Upper bound of the Bhattacharyya coefficient of two distributions of which two tokens are
/// known each: 1 = the same as far as is known.
fn similarity(a: &Candidate, b: &Candidate) -> f64 {
    let tokens = [a.token, a.runner_up, b.token, b.runner_up];
    let (mut sum, mut rest) = (0.0, [1.0f64; 2]);
    for (index, token) in tokens.iter().enumerate() {
        if !tokens[..index].contains(token) {
            let (p, q) = (known(a, *token), known(b, *token));
            sum += (p * q).sqrt();
            rest = [rest[0] - p, rest[1] - q];
        }
    }
    sum + (rest[0].max(0.0) * rest[1].max(0.0)).sqrt()
}

/// The probability of `token`; of one that is not named, the most that it can be.
fn known(candidate: &Candidate, token: TokenId) -> f64 {
    let unnamed = (1.0 - candidate.probability - candidate.runner_up_probability).max(0.0);
    match token {
        _ if token == candidate.token => candidate.probability,
        _ if token == candidate.runner_up => candidate.runner_up_probability,
        _ => candidate.runner_up_probability.min(unnamed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(token: u32, probability: f64, runner_up: u32, second: f64) -> Candidate {
        Candidate {
            token,
            probability,
            runner_up,
            runner_up_probability: second,
            entropy: 0.0,
            gap: 0.0,
            present: 0.0,
        }
    }

    #[test]
    fn similarity_is_one_for_the_same_and_falls_with_the_shift() {
        let sure = said(7, 0.9, 8, 0.1);
        assert!((similarity(&sure, &sure) - 1.0).abs() < 1e-12);
        let turned = said(8, 0.9, 7, 0.1);
        let expected = 2.0 * (0.9f64 * 0.1).sqrt();
        assert!((similarity(&sure, &turned) - expected).abs() < 1e-12);
        // Nothing named in common, and little room for what is not named.
        let other = said(1, 0.9, 2, 0.1);
        assert_eq!(similarity(&sure, &other), 0.0);
        let unsure = said(1, 0.5, 2, 0.2);
        assert!(similarity(&sure, &unsure) < 0.6);
    }
}
