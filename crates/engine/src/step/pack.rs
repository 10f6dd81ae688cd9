//! One sequence's forward as rows, segments, biases and pages of the batch.

use std::ops::Range;

use decode::{
    Branches, LaneId, LaneView, Offset, Proposal, Role, Slot, Span, TokenId, as_count, as_index,
    to_single,
};
use step::{Batch, Bias, Denoise, PageId, Row, Sampling, Score, Segment, noise_token};

use crate::cache::{ForwardPlan, PlanRow, PlanSegment, TokenSource};
use crate::pages::{OutOfPages, PagePool};
use crate::sequence::Sequence;

/// The batch of a step, and what packing a sequence into it needs.
pub(crate) struct Packer<'a> {
    pub(crate) batch: &'a mut Batch,
    /// Offsets of the scored rows.
    pub(crate) scored: &'a mut Vec<Offset>,
    /// The offsets that the lanes of the sequence want scored; reused.
    pub(crate) scored_lanes: &'a mut Vec<ScoredLane>,
    /// Entries of [`step::BatchOutput::tops`] that the rows ask for.
    pub(crate) tops: &'a mut usize,
    pub(crate) pool: &'a mut PagePool,
    pub(crate) mask: Option<step::TokenId>,
    /// Tokens with a logit.
    pub(crate) vocab_size: u32,
}

/// The offsets of a lane that want a candidate. Lanes are disjoint and in ascending order, as the
/// rows of a segment are.
#[derive(Clone, Debug)]
pub(crate) struct ScoredLane {
    id: LaneId,
    role: Role,
    /// The lane's own offsets.
    own: Span<Offset>,
    /// End of the masks that are scored, at or after the end of `own`.
    end: Offset,
    /// Committed tokens there are scored too.
    committed: Span<Offset>,
}

impl ScoredLane {
    fn of(lane: LaneView) -> Self {
        Self {
            id: lane.id,
            role: lane.role,
            end: lane.scored().end,
            own: lane.range,
            committed: lane.committed,
        }
    }
}

/// The scoring of a sequence's rows, and the progress of the packing of a segment.
#[derive(Clone)]
struct Scoring<'a> {
    score: Score,
    /// Range of the sequence's biases in the batch.
    plain: Range<u32>,
    /// The same biases with all stop tokens banned.
    unstopped: Range<u32>,
    /// The offset that the grammar constrains, and the number of its set in the batch.
    allowed: Option<(Offset, u32)>,
    /// The number of the set of the only tokens that may be written.
    written: Option<u32>,
    /// The draw of candidates.
    sampling: Sampling,
    /// The way the open offsets of a canvas are read, and these offsets; for weights trained on noise.
    denoised: Option<(Denoise, Span<Offset>)>,
    /// Guessed tokens on the segment's canvas.
    guesses: &'a [Proposal],
    /// Committed offsets that are scored for the cache policy.
    tracked: &'a [Offset],
    /// The first of [`Packer::scored_lanes`] that does not end left of `offset`.
    lane: usize,
    /// The last offset that was looked up.
    offset: Offset,
    /// The only lane whose offsets are scored, if every lane has a segment of its own.
    only: Option<LaneId>,
}

impl Packer<'_> {
    /// Appends one sequence's forward to the batch.
    ///
    /// # Errors
    /// If the sequence took more pages than it was promised; the batch must not run then.
    pub(crate) fn pack(
        &mut self,
        sequence: &mut Sequence,
        plan: &ForwardPlan,
    ) -> Result<(), OutOfPages> {
        self.scored_lanes.clear();
        self.scored_lanes.extend(sequence.decoder.lanes().map(ScoredLane::of));
        let biases = self.push_biases(sequence);
        for (segment, rows) in plan.rows_by_segment() {
            let pages = if plan.rewrites && segment.branch == 0 {
                self.rewrite(sequence, rows)?
            } else {
                self.write(sequence, segment, rows, !plan.rewrites)?
            };
            let branches = match segment.branch {
                0 => Branches::default(),
                _ => sequence.decoder.branches(),
            };
            let mut scoring = Scoring {
                guesses: branches.filled(as_index(segment.branch)),
                tracked: &plan.tracked,
                only: plan.lane_of(segment),
                ..biases.clone()
            };
            let first_row = as_count(self.batch.rows.len());
            for row in rows {
                self.push_row(sequence, *row, &mut scoring);
            }
            let sampling = scoring.sampling;
            let rows = first_row..as_count(self.batch.rows.len());
            self.batch.segments.push(Segment { rows, pages, sampling });
        }
        Ok(())
    }

    fn push_biases(&mut self, sequence: &Sequence) -> Scoring<'static> {
        let biases = &mut self.batch.biases;
        let start = as_count(biases.len());
        biases.extend_from_slice(sequence.penalties.as_slice());
        biases.extend_from_slice(&sequence.request.logits.biases);
        let plain = start..as_count(biases.len());
        let ban = |token: &u32| Bias::ban(*token);
        biases.extend(sequence.decoder.canvas().stops().iter().map(ban));
        let unstopped = start..as_count(biases.len());
        let frontier = sequence.decoder.canvas().frontier();
        let allowed = sequence.decoder.allowed();
        let (extras, only) = (&sequence.request.extras, sequence.request.logits.only.as_deref());
        let written = only.map(|tokens| self.push_tokens(tokens));
        let listed = extras.labels.as_ref().map(|labels| &labels.tokens).or(extras.listed.as_ref());
        Scoring {
            score: match (listed, extras.logprobs) {
                (Some(tokens), _) => Score::Among {
                    set: match written.filter(|_| only == Some(tokens)) {
                        Some(set) => set,
                        None => self.push_tokens(tokens),
                    },
                    count: u8::try_from(tokens.len()).unwrap_or(u8::MAX),
                },
                (None, None | Some(0)) => Score::Candidate,
                (None, Some(count)) => Score::Top(count),
            },
            written,
            plain,
            unstopped,
            allowed: allowed.map(|set| (frontier, self.push_set(set))),
            sampling: sampling(sequence),
            denoised: self.denoised(sequence),
            guesses: &[],
            tracked: &[],
            lane: 0,
            offset: Offset::ZERO,
            only: None,
        }
    }

    /// Appends a set of these tokens; returns its number.
    fn push_tokens(&mut self, tokens: &[TokenId]) -> u32 {
        let number = self.push_set(&[]);
        let words = step::set_words(self.vocab_size);
        let set = &mut self.batch.allowed[as_index(number) * words..];
        for token in tokens {
            set[as_index(token / u32::BITS)] |= 1 << (token % u32::BITS);
        }
        number
    }

    /// The way the next forward reads the open offsets of the canvas, and the canvas.
    fn denoised(&self, sequence: &Sequence) -> Option<(Denoise, Span<Offset>)> {
        let denoise =
            sequence.decoder.denoising().map(|noise| Denoise { conditioned: noise.conditioned });
        denoise.zip(self.scored_lanes.first().map(|lane| lane.own))
    }

    /// Appends a set of allowed tokens; returns the set's number.
    fn push_set(&mut self, set: &[u32]) -> u32 {
        let sets = &mut self.batch.allowed;
        let words = step::set_words(self.vocab_size);
        let number = sets.len() / words;
        sets.extend_from_slice(&set[..set.len().min(words)]);
        sets.resize((number + 1) * words, 0);
        as_count(number)
    }

    /// The page table for rows that write all slots of the sequence.
    fn rewrite(
        &mut self,
        sequence: &mut Sequence,
        rows: &[PlanRow],
    ) -> Result<Range<u32>, OutOfPages> {
        let end = rows.last().map_or(Slot::ZERO, |row| row.slot.next());
        let pages = sequence.kv.tables.rewrite(end, &sequence.decoder, self.pool)?;
        Ok(push_table(self.batch, pages))
    }

    /// The page table for rows that write their own slots; `sees_older`: they see older K/V too.
    fn write(
        &mut self,
        sequence: &mut Sequence,
        segment: &PlanSegment,
        rows: &[PlanRow],
        sees_older: bool,
    ) -> Result<Range<u32>, OutOfPages> {
        let slots = match rows {
            [] => Span::default(),
            [first, .., last] => first.slot.to(last.slot.next()),
            [only] => only.slot.to(only.slot.next()),
        };
        let copies = &mut self.batch.copies;
        let tables = &mut sequence.kv.tables;
        let pages = match segment.branch {
            0 => tables.write(segment.table, slots, self.pool, copies)?,
            _ => {
                let slots = rows.iter().map(|row| row.slot);
                tables.branch(slots, sees_older, self.pool, copies)?
            }
        };
        Ok(push_table(self.batch, pages))
    }

    fn push_row(&mut self, sequence: &Sequence, planned: PlanRow, scoring: &mut Scoring<'_>) {
        let offset = sequence.predicted_by(planned);
        let labels = sequence.request.extras.labels.as_ref();
        let scorer = offset.and_then(|offset| match labels {
            Some(labels) => labels.offsets.binary_search(&offset).ok().map(|_| Role::Generate),
            None => match sequence.token(sequence.layout.place_of(offset), scoring.guesses) {
                None => self.mask_scorer(offset, scoring),
                Some(_) => self.token_scorer(sequence, offset, scoring),
            },
        });
        let denoised = scoring.denoised.filter(|(_, canvas)| {
            let known = sequence.layout.offset_of(planned.place);
            known.is_some_and(|offset| canvas.contains(offset))
        });
        let token = match planned.source {
            TokenSource::Canvas => sequence.token(planned.place, scoring.guesses),
            TokenSource::Guess => {
                sequence.token(planned.place, sequence.decoder.guesses_to_check())
            }
            TokenSource::Draft => sequence.draft_at(planned.place),
        };
        let token = token.or_else(|| match denoised {
            Some(_) => Some(self.noised(sequence, planned, scoring.sampling)),
            None => self.mask,
        });
        debug_assert!(token.is_some(), "weights without a mask run no masked rows");
        let mut row = Row {
            biases: scoring.plain.clone(),
            beyond: planned.beyond,
            open: planned.open,
            denoise: denoised.map(|(denoise, _)| denoise),
            ..Row::new(
                token.unwrap_or_default(),
                sequence.layout.position_of(planned.place),
                planned.slot,
                planned.visible_end,
            )
        };
        if let (Some(role), Some(offset)) = (scorer, offset) {
            let allowed = scoring.allowed.filter(|(frontier, _)| *frontier == offset);
            row.allowed = allowed.map(|(_, set)| set).or(scoring.written);
            row.score = scoring.score;
            // Under a grammar, the grammar decides where a text may end.
            let least = sequence.decoder.canvas().pins_end().get();
            let least = least.max(sequence.request.min_tokens);
            let early = offset.get() < least && allowed.is_none();
            if role == Role::Refine || early {
                row.biases = scoring.unstopped.clone();
            }
            self.scored.push(offset);
            *self.tops += row.score.tops();
        }
        self.batch.rows.push(row);
    }

    /// The token at an open place of a canvas: a kept token or noise.
    fn noised(&self, sequence: &Sequence, planned: PlanRow, sampling: Sampling) -> TokenId {
        let offset = sequence.layout.offset_of(planned.place);
        let denoising = sequence.decoder.denoising();
        let kept = offset.and_then(|offset| match denoising?.conditioned {
            true => denoising?.token(offset),
            false => sequence.seed_at(offset),
        });
        let position = sequence.layout.position_of(planned.place);
        kept.unwrap_or_else(|| {
            noise_token(sampling.seed, sampling.clock, position, self.vocab_size)
        })
    }

    /// The role of the lane that wants a candidate for the mask at `offset`, if one does.
    fn mask_scorer(&self, offset: Offset, scoring: &mut Scoring<'_>) -> Option<Role> {
        let lane = self.lane_at(offset, scoring)?;
        Some(lane.role)
    }

    /// The role under which the token at `offset` is scored, if the commit rule or the cache
    /// policy wants a candidate for it.
    fn token_scorer(
        &self,
        sequence: &Sequence,
        offset: Offset,
        scoring: &mut Scoring<'_>,
    ) -> Option<Role> {
        if scoring.tracked.contains(&offset) {
            return Some(Role::Generate);
        }
        if !sequence.decoder.canvas().is_committed(offset) {
            return None;
        }
        let alone = |lane: &ScoredLane| scoring.only.is_none_or(|only| lane.id == only);
        let mut lanes = self.scored_lanes.iter();
        let lane = lanes.find(|lane| alone(lane) && lane.committed.contains(offset))?;
        Some(lane.role)
    }

    /// The lane with `offset` in its own or its scored lookahead offsets.
    fn lane_at(&self, offset: Offset, scoring: &mut Scoring<'_>) -> Option<&ScoredLane> {
        if offset < scoring.offset {
            scoring.lane = 0;
        }
        scoring.offset = offset;
        let passed = |lane: &&ScoredLane| lane.end <= offset;
        let rest = &self.scored_lanes[scoring.lane..];
        scoring.lane += rest.iter().take_while(passed).count();
        let lane = self.scored_lanes.get(scoring.lane)?;
        let alone = scoring.only.is_none_or(|only| lane.id == only);
        (alone && lane.own.start <= offset).then_some(lane)
    }
}

/// The draw of the candidates of the sequence's next forward.
fn sampling(sequence: &Sequence) -> Sampling {
    let denoising = sequence.decoder.denoising();
    Sampling {
        // Checked guesses are drawn with the noise of the candidates that check them.
        clock: match sequence.decoder.checks().is_some() {
            true => 0,
            false => sequence.decoder.step(),
        },
        scale: denoising.map_or(1.0, |denoising| to_single(denoising.temperature)),
        ..sequence.request.sampling
    }
}

fn push_table(batch: &mut Batch, pages: &[PageId]) -> Range<u32> {
    let begin = as_count(batch.pages.len());
    batch.pages.extend_from_slice(pages);
    begin..as_count(batch.pages.len())
}
