//! The computations that a decoder asks of the next forward.

use super::Decoder;
use crate::candidate::Proposal;
use crate::commit::{Branches, Checks, Denoising, Guesses};
use crate::coordinates::{Offset, Span, as_count, as_index};
use crate::effect::{LaneId, Role};
use crate::lane::{Lane, Status};

/// The computation that one active lane asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// The lane.
    pub id: LaneId,
    /// Its role; the rows of a refine lane ban the stop set.
    pub role: Role,
    /// Offsets it owns, clipped to the canvas.
    pub range: Span<Offset>,
    /// Offsets after it that are forwarded as right context, clipped to the canvas.
    pub lookahead: Span<Offset>,
    /// True if the masks of the lookahead are scored, so that drafts may be committed.
    pub drafts: bool,
    /// Offsets whose committed tokens are scored as well, wherever the forward has their rows.
    pub committed: Span<Offset>,
    /// Tokens committed before this step keep their K/V between two full forwards; 0 if every forward
    /// renews the K/V of all tokens of the lane.
    pub renewed_from: u32,
    /// End of the offsets that its rows see between two full forwards: the end of the canvas for most
    /// schedules.
    pub horizon: Offset,
}

impl LaneView {
    /// The offsets whose masks are scored: its own, and the lookahead where drafts may be committed.
    pub fn scored(&self) -> Span<Offset> {
        match self.drafts {
            true => self.range.start.to(self.lookahead.end.max(self.range.end)),
            false => self.range,
        }
    }
}

impl Decoder {
    /// The active lanes, left to right; their ranges and lookaheads are disjoint and ascending.
    pub fn lanes(&self) -> impl Iterator<Item = LaneView> {
        let end = self.state.canvas.end();
        let reads = self.rule.reads();
        let drafted = as_count(self.drafts.len());
        let drafts = self.schedule.draft_threshold().is_some() || reads.canvas || drafted > 0;
        self.state.tree.active().iter().map(move |id| {
            let lane = self.state.tree.get(*id);
            let own_end = lane.range().end;
            let lookahead = match reads.canvas {
                _ if drafted > 0 => own_end.to(own_end.plus(drafted)),
                true => own_end.to(end),
                false => self.schedule.lookahead(lane),
            };
            let lookahead = lookahead.clip(end);
            LaneView {
                id: *id,
                role: lane.role,
                range: lane.range().clip(end),
                horizon: match self.schedule.drops_far_masks() {
                    true => lookahead.end,
                    false => end,
                },
                lookahead,
                drafts,
                committed: match reads.lane {
                    true => lane.range(),
                    false => reads.watched,
                }
                .clip(end),
                renewed_from: self.renewed_from(lane),
            }
        })
    }

    /// The first step whose commits in the lane are renewed by the next forward.
    fn renewed_from(&self, lane: &Lane) -> u32 {
        match self.schedule.renews_cycle() {
            // The next forward is the first after the lane's first step: it renews that commit too.
            true => self.step + 1 - lane.clock + u32::from(lane.clock > 1),
            false => 0,
        }
    }

    /// The way the next forward reads open offsets, for weights trained on noise.
    pub fn denoising(&self) -> Option<Denoising<'_>> {
        let canvas = self.state.tree.generate();
        self.rule.denoising(canvas.map_or(0, |lane| lane.clock))
    }

    /// Guessed canvases that the next forward may try; none under a grammar.
    pub fn branches(&self) -> Branches<'_> {
        let all = match self.rule.guesses() {
            Guesses::Branches(all) => all,
            Guesses::None => self.expected.branches(),
            Guesses::Checks(_) => return Branches::default(),
        };
        let canvas = &self.state.canvas;
        // A guessed canvas would see the offsets that a stop token cuts off.
        let holds = |guess: &&Proposal| {
            let inside = guess.offset < canvas.end() && canvas.is_mask(guess.offset);
            inside && !canvas.is_stop(guess.candidate.token)
        };
        let count = all.proposals.iter().take_while(holds).count();
        if count == 0 || self.guard.is_some() {
            return Branches::default();
        }
        // A canvas without masks scores nothing.
        let masks: u32 = self.lanes().map(|lane| canvas.masks(lane.scored())).sum();
        let count = count.min(as_index(masks.saturating_sub(1)));
        let branches = all.ends.partition_point(|end| *end <= count);
        let ends = &all.ends[..branches];
        Branches {
            proposals: &all.proposals[..ends.last().copied().unwrap_or_default()],
            ends,
            ..all
        }
    }

    /// The guesses that the next forward checks, on consecutive offsets from the first mask of a lane
    /// on; `None` if the rule never has guesses checked.
    pub fn checks(&self) -> Option<Checks<'_>> {
        let Guesses::Checks(all) = self.rule.guesses() else {
            return None;
        };
        let canvas = &self.state.canvas;
        let open = |guess: &&Proposal| {
            self.guard.is_none() && guess.offset < canvas.end() && canvas.is_mask(guess.offset)
        };
        let open = &all.guesses[..all.guesses.iter().take_while(open).count()];
        // Tokens after a stop token are of no use.
        let stop = open.iter().position(|guess| canvas.is_stop(guess.candidate.token));
        Some(Checks { guesses: &open[..stop.map_or(open.len(), |stop| stop + 1)], ..all })
    }

    /// The guesses of [`Self::checks`].
    pub fn guesses_to_check(&self) -> &[Proposal] {
        self.checks().map_or(&[], |checks| checks.guesses)
    }

    /// Number of guesses that the last forward checked.
    pub fn checked(&self) -> u32 {
        as_count(self.scratch.checked.len())
    }

    /// The offsets whose tokens the last forward computed as checked guesses that were right: they were
    /// forwarded behind the final tokens before them.
    pub fn confirmed(&self) -> Span<Offset> {
        let canvas = &self.state.canvas;
        let checked = &self.scratch.checked;
        let is_right = |guess: &&Proposal| {
            canvas.is_committed(guess.offset)
                && canvas.get(guess.offset) == Some(guess.candidate.token)
        };
        let count = as_count(checked.iter().take_while(is_right).count());
        Span::at(checked.first().map_or(Offset::ZERO, |guess| guess.offset), count)
    }

    /// End of the furthest valid token of any unfinished lane: the maximum over lanes of s + v
    /// (AsyncLane eq. 12).
    pub fn effective_end(&self) -> Offset {
        let tree = &self.state.tree;
        // A waiting continuation is the last leaf, so it was started last.
        let waiting = tree.lanes().last().filter(|lane| lane.status == Status::Waiting);
        let lanes = tree.active().iter().map(|id| tree.get(*id)).chain(waiting);
        lanes.map(|lane| self.state.canvas.first_open(lane.range())).max().unwrap_or_default()
    }
}
