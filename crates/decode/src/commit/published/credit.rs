//! CreditDecoding (arXiv 2510.06133): a token that stays the favourite gains confidence.

use crate::candidate::{Candidate, TokenId};
use crate::commit::prelude::*;
use crate::effect::LaneId;

/// τ.
const THRESHOLD: SettingInfo =
    SettingInfo::number("threshold", 0.0..=1.0, 0.9).says("confidence that a commit needs");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "credit",
    summary: "every mask whose confidence reaches the threshold; confidences grow while a token stays the favourite",
    paper: "CreditDecoding, arXiv 2510.06133",
    differs: "credits weigh on the two tokens that a candidate names; CreditDecoding adds them to the \
              logits of all tokens",
    settings: &[THRESHOLD],
    requires: Requirements::NONE,
    build: |settings, _| {
        Box::new(Credit { threshold: settings.number(&THRESHOLD), credits: Vec::new() })
    },
};

/// β: the fraction of a credit that remains after a step.
const DECAY: f64 = 0.8;
/// γ: a step adds the favourite's probability to this power.
const POWER: f64 = 0.2;
/// α: weight of the logarithm of a credit in the logit.
const WEIGHT: f64 = 0.7;

/// Credits C decay in every step, the favourite's grows by p^γ, and z' = z + α ln(1 + C) decides:
/// every mask whose confidence under z' reaches τ. A lane begins without credits.
///
/// A candidate tells the probabilities of two tokens. Credits of others have no weight in the
/// sum under the softmax, so a confidence is at most a little too high.
#[derive(Debug)]
struct Credit {
    threshold: f64,
    credits: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    lane: LaneId,
    offset: Offset,
    token: TokenId,
    credit: f64,
}

impl Credit {
    /// Decays the credits of `lane` and drops those that can never count again.
    fn decay(&mut self, lane: &Lane, masks: &[Proposal]) {
        let is_mask = |offset: Offset| {
            let found = masks.binary_search_by_key(&offset, |proposal| proposal.offset);
            found.is_ok()
        };
        let range = lane.range();
        self.credits.retain_mut(|entry| {
            if !range.contains(entry.offset) {
                return true;
            }
            entry.credit *= DECAY;
            entry.lane == lane.id && is_mask(entry.offset)
        });
    }

    fn add(&mut self, lane: LaneId, offset: Offset, token: TokenId, more: f64) {
        let known = |entry: &&mut Entry| entry.offset == offset && entry.token == token;
        match self.credits.iter_mut().find(known) {
            Some(entry) => entry.credit += more,
            None => self.credits.push(Entry { lane, offset, token, credit: more }),
        }
    }

    /// (1 + C)^α of a token.
    fn boost(&self, offset: Offset, token: TokenId) -> f64 {
        let known = |entry: &&Entry| entry.offset == offset && entry.token == token;
        let credit = self.credits.iter().find(known);
        libm::pow(1.0 + credit.map_or(0.0, |entry| entry.credit), WEIGHT)
    }

    /// The candidate under z'. A drawn token stays what was drawn.
    fn credited(&self, offset: Offset, candidate: Candidate) -> Candidate {
        let Candidate { token, probability, runner_up, runner_up_probability, .. } = candidate;
        let own = probability * self.boost(offset, token);
        let other = runner_up_probability * self.boost(offset, runner_up);
        let rest = (1.0 - probability - runner_up_probability).max(0.0);
        let total = own + other + rest;
        let overtaken = other > own && probability >= runner_up_probability;
        let (first, second) = if overtaken {
            ((runner_up, other), (token, own))
        } else {
            ((token, own), (runner_up, other))
        };
        Candidate {
            token: first.0,
            probability: first.1 / total,
            runner_up: second.0,
            runner_up_probability: second.1 / total,
            ..candidate
        }
    }
}

impl CommitRule for Credit {
    fn select(&mut self, lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        self.decay(lane, masks);
        for (index, proposal) in masks.iter_mut().enumerate() {
            let Proposal { offset, candidate } = *proposal;
            let more = libm::pow(candidate.probability, POWER);
            self.add(lane.id, offset, candidate.token, more);
            proposal.candidate = self.credited(offset, candidate);
            if proposal.candidate.probability >= self.threshold {
                chosen.push(index);
            }
        }
    }
}
