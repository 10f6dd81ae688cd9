//! Exact cache: under causal and block-causal attention the K/V of committed tokens left of the
//! frontier never change.

use decode::{AttentionKind, ForwardKind, NameFilter, Offset, Place, Rows, Span, as_count};
use step::Attention;

use super::checked::{CheckedGuesses, push_ahead};
use super::chunks::Chunks;
use super::open_block::OpenBlock;
use super::{
    CacheInfo, CachePolicy, Footprint, ForwardPlan, Forwards, PlanRow, Prediction, SHARED,
    TokenSource, View,
};
use crate::layout::slot_of;

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "exact",
    summary: "every committed token left of the frontier; each is forwarded once",
    paper: "WeDLM, arXiv 2512.22737 §3; SDAR; Fast-dLLM v2, arXiv 2509.26328; D2F, arXiv 2508.09192; \
            Nemotron-Labs-Diffusion",
    settings: &[],
    schedules: NameFilter::Only(&[
        "asynclane",
        "block_wise",
        "multi_block",
        "streaming",
        "speculative",
        "prompt_lookup",
        "canvas",
    ]),
    forwards: Forwards { rows: Rows::Lane, branches: true, checks: true, ..Forwards::OPEN },
    attention: &[
        AttentionKind::BlockCausal,
        AttentionKind::Causal,
        AttentionKind::OpenBlock,
        AttentionKind::Canvas,
    ],
    check: |_, _| Ok(()),
    pages: |footprint| {
        footprint.shared_table(guessed_slots(footprint)).max(footprint.drafted_table())
    },
    build: |_, input| {
        let chunks = |block| Chunks { most: input.prefill_chunk, block };
        match input.attention {
            Attention::Blocks(length) => {
                Box::new(Blocks { chunks: chunks(length), after_prompt: false })
            }
            // Every row of a prompt sees all of it.
            Attention::BlocksAfterPrompt(block) => {
                Box::new(Blocks { chunks: Chunks { most: 0, block }, after_prompt: true })
            }
            Attention::Causal | Attention::Full => Box::new(Causal(chunks(1))),
            Attention::OpenBlock(_) => {
                Box::new(OpenBlock::new(input.schedule, input.prefill_chunk))
            }
            Attention::Canvas(_) => Box::new(Canvases(chunks(1))),
        }
    },
};

/// Most slots that the rows of a guessed canvas write: the model's blocks that a lane lies in.
fn guessed_slots(footprint: &Footprint<'_>) -> u32 {
    match footprint.attention {
        Attention::Blocks(length) | Attention::BlocksAfterPrompt(length) => {
            footprint.schedule.longest_lane(footprint.budget) + 2 * length
        }
        Attention::Causal | Attention::OpenBlock(_) | Attention::Full | Attention::Canvas(_) => {
            footprint.budget
        }
    }
}

/// Causal weights (WeDLM §3): committed tokens in front by position, then masks by position, each
/// at its own position and seeing the rows before it. The run of committed tokens that begins at
/// the first unsealed place comes first, so it lies in its final slots: it is forwarded once.
/// Where a row predicts the next position, masks come only behind guesses that are checked. A long
/// prompt comes in chunks.
#[derive(Clone, Copy, Debug)]
struct Causal(Chunks);

impl CachePolicy for Causal {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(false)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        // A draft has a row, and where it is read at a mask, a row for that too.
        let each = if view.shifted { 1 } else { 2 };
        let drafted = each * as_count(view.decoder.drafts().len());
        let window_end = view.place(last(view)).back(u32::from(view.shifted));
        if let Some(chunk) = self.0.next(view, window_end.plus(drafted)) {
            return self.0.push(chunk, plan);
        }
        plan.begin(self.kind(view));
        let (layout, canvas) = (view.layout, view.decoder.canvas());
        // The prediction for the first place that is not sealed is read at the row before it.
        let before = view.shifted && view.wants(view.sealed);
        let given = view.sealed.back(u32::from(before));
        let given = given.to(layout.generation());
        let rows = given.iter().map(|place| PlanRow::at(place, place.next()));
        plan.rows.extend(rows);
        // Guesses that were right lie in their final slots, behind final tokens.
        let right = view.places(view.decoder.confirmed());
        let sealed = match right.start == view.sealed {
            true => view.sealed.max(right.end),
            false => view.sealed,
        };
        let first = sealed.max(layout.generation());
        let start = layout.offset_of(first).unwrap_or_default();
        let mut slot = slot_of(first);
        let mut push = |offset: Offset| {
            plan.rows.push(PlanRow {
                slot,
                visible_end: slot.next(),
                ..PlanRow::at(layout.place_of(offset), Place::ZERO)
            });
            slot = slot.next();
        };
        let filled = |offset: &Offset| canvas.get(*offset).is_some();
        let settled = start.to(last(view)).iter();
        settled.filter(filled).for_each(&mut push);
        plan.sealed = layout.place_of(canvas.emitted());
        if !view.decoder.drafts().is_empty() {
            push_drafts(view, plan);
            return plan.close(SHARED);
        }
        // The prediction for a window's only position is read at the row before it.
        let lanes = view.decoder.lanes().filter(|_| !view.shifted);
        let ahead = view.decoder.checks().is_some_and(|checks| checks.ahead || view.shifted);
        let ahead = ahead && canvas.frontier() < canvas.end();
        let ahead = ahead && view.place(canvas.frontier()) > Place::ZERO;
        match CheckedGuesses::of(view) {
            _ if ahead => push_ahead(view, layout.place_of(last(view)), plan),
            Some(checked) => {
                let all = lanes.flat_map(|lane| view.places(lane.range));
                checked.push(plan);
                checked.push_masks(all.filter(|place| checked.end() <= *place), plan);
            }
            None => {
                for lane in lanes {
                    let masks = lane.range.start.max(start).to(lane.scored().end).iter();
                    masks.filter(|offset| !filled(offset)).for_each(&mut push);
                }
            }
        }
        plan.close(SHARED);
    }
}

/// The drafts from the frontier on, each seeing all before it. Autoregressive weights predict the next
/// position at each of them. For weights that predict a position at its own mask, masks follow: that
/// of the n-th position sees the n drafts before it and, behind all drafts, itself.
fn push_drafts(view: &View<'_>, plan: &mut ForwardPlan) {
    let count = as_count(view.decoder.drafts().len());
    let first = view.place(view.decoder.canvas().frontier());
    let drafts = first.to(first.plus(count)).iter();
    let prediction = match view.shifted {
        true => Prediction::Trained,
        false => Prediction::None,
    };
    plan.rows.extend(drafts.map(|place| PlanRow {
        source: TokenSource::Draft,
        prediction,
        ..PlanRow::at(place, place.next())
    }));
    if view.shifted {
        return;
    }
    let masks = first.to(first.plus(count + 1)).iter();
    plan.rows.extend(masks.map(|place| PlanRow {
        slot: slot_of(place).plus(count),
        beyond: 1 << count,
        ..PlanRow::at(place, place)
    }));
}

/// Block-causal weights (SDAR, LLaDA2): a row sees its own block of positions and all before it. A
/// block is sealed by the first forward after its last commit, which is the next block's too, or,
/// where predictions are read a row before (Fast-dLLM v2), tells the next block's first token. The
/// block's rows are repeated for every guessed canvas. A long prompt comes in chunks of whole blocks.
///
/// Where blocks are counted from the prompt's end (D2F), the prompt is one block, forwarded at once.
/// Rows of unfinished blocks are computed in every forward.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    chunks: Chunks,
    after_prompt: bool,
}

impl Blocks {
    /// The place from which blocks are counted.
    fn origin(self, view: &View<'_>) -> Place {
        match self.after_prompt {
            true => view.layout.generation(),
            false => Place::ZERO,
        }
    }

    /// End of the block that holds `place`.
    fn end_of(self, place: Place, origin: Place) -> Place {
        let inside = place.checked_distance_from(origin);
        inside.map_or(origin, |inside| place.plus(self.chunks.block - inside % self.chunks.block))
    }

    /// Start of the block that begins at `place` or holds it.
    fn start_of(self, place: Place, origin: Place) -> Place {
        let inside = place.checked_distance_from(origin);
        inside.map_or(Place::ZERO, |inside| place.back(inside % self.chunks.block))
    }
}

impl CachePolicy for Blocks {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(false)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        let origin = self.origin(view);
        // The weights know blocks that are whole, masks and all; the last row that is read is in
        // the last of them.
        let read = view.layout.place_of(last(view));
        let read = read.back(1 + u32::from(view.shifted));
        let end = self.end_of(read, origin).min(view.end());
        if let Some(chunk) = self.chunks.next(view, end) {
            return self.chunks.push(chunk, plan);
        }
        plan.begin(self.kind(view));
        if let Some(checked) = CheckedGuesses::of(view) {
            return check(view, checked.alone(), plan);
        }
        // The prediction for a block's first position is read at the last row before it.
        let before = view.shifted && view.wants(view.sealed);
        let start = view.sealed.back(u32::from(before));
        let row = |place: Place| PlanRow::at(place, self.end_of(place, origin).min(end));
        plan.rows.extend(start.to(end).iter().map(row));
        plan.close(SHARED);
        plan.push_branches(view);
        let settled = view.layout.place_of(view.decoder.canvas().emitted());
        plan.sealed = self.start_of(settled, origin);
    }
}

/// A forward that checks guesses (S2D2, arXiv 2603.25702): the block's tokens see what is before them
/// alone, as in blocks of one position. The next forward of the block overwrites their K/V.
fn check(view: &View<'_>, checked: CheckedGuesses, plan: &mut ForwardPlan) {
    let settled = view.sealed.to(checked.start()).iter();
    let rows = settled.map(|place| PlanRow::at(place, place.next()));
    plan.rows.extend(rows);
    checked.push(plan);
    plan.close(SHARED);
}

/// Weights trained on noise (DiffusionGemma): final tokens see those up to themselves and are
/// forwarded once, with the first step of the canvas after them. A row of the canvas sees all of it;
/// its K/V are overwritten when its final token is forwarded. A long prompt comes in chunks.
#[derive(Clone, Copy, Debug)]
struct Canvases(Chunks);

impl CachePolicy for Canvases {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(false)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        let lanes = view.decoder.lanes();
        let canvas = lanes.fold(Span::default(), |_, lane| view.places(lane.range));
        if let Some(chunk) = self.0.next(view, canvas.end) {
            return self.0.push(chunk, plan);
        }
        plan.begin(self.kind(view));
        let settled = view.sealed.to(canvas.start).iter();
        let rows = settled.map(|place| PlanRow::at(place, place.next()));
        plan.rows.extend(rows);
        plan.push_range(canvas, canvas.end);
        plan.close(SHARED);
        plan.sealed = canvas.start;
    }
}

/// Offset after the last one that a forward is about.
fn last(view: &View<'_>) -> Offset {
    view.decoder.lanes().map(|lane| lane.scored().end).max().unwrap_or_default()
}
