//! The exact cache of weights with one open block: final tokens are encoded from left to right, and a
//! block is read behind them.

use decode::{ForwardKind, Place, ScheduleConfig, Span, as_count};

use super::checked::CheckedGuesses;
use super::chunks::Chunks;
use super::{CachePolicy, ForwardPlan, PlanRow, Prediction, SHARED, TokenSource, View};

/// Weights that are causal over final tokens and see the whole of an open block
/// (Nemotron-Labs-Diffusion). Every final token is forwarded once as such, and the last one predicts the
/// next position: the first token of a block, or the only one of a window. Guesses and drafts behind it
/// are checked in the same forward. The rows of a block see all of it; their K/V are overwritten when
/// its final tokens are forwarded.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenBlock {
    chunks: Chunks,
    /// Positions of a block.
    length: u32,
    /// Blocks are counted from the prompt's end; otherwise one begins at the last final token.
    counted: bool,
}

impl OpenBlock {
    pub(super) fn new(schedule: &ScheduleConfig, prefill_chunk: u32) -> Self {
        let counted = schedule.info().shape.in_blocks;
        let name = if counted { "block_length" } else { "window" };
        let length = schedule.settings().get(name).and_then(|value| value.as_count());
        Self {
            chunks: Chunks { most: prefill_chunk, block: 1 },
            length: length.unwrap_or(1),
            counted,
        }
    }

    /// The places of the block that the next forward reads; `None` if final tokens predict the next one.
    fn block(self, view: &View<'_>) -> Option<Span<Place>> {
        let open = view.decoder.canvas().frontier();
        let start = match self.counted {
            true => Some(open.back(open.get() % self.length)).filter(|start| *start < open),
            false => {
                let drafts = view.decoder.checks().is_some_and(|checks| checks.guesses.is_empty());
                open.minus(1).filter(|_| drafts)
            }
        };
        let start = view.place(start?);
        Some(start.to(start.plus(self.length).min(view.end())))
    }
}

impl CachePolicy for OpenBlock {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(false)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        let open = view.place(view.decoder.canvas().frontier());
        let block = self.block(view);
        let (source, guessed) = match CheckedGuesses::of(view) {
            Some(checked) => (TokenSource::Guess, checked.end()),
            None => (TokenSource::Draft, open.plus(as_count(view.decoder.drafts().len()))),
        };
        // The last token of the prompt predicts.
        let read = View { shifted: true, ..*view };
        if let Some(chunk) = self.chunks.next(&read, block.map_or(guessed, |block| block.end)) {
            return self.chunks.push(chunk, plan);
        }
        plan.begin(self.kind(view));
        // Guesses that were right are final tokens behind final ones.
        let right = view.places(view.decoder.confirmed());
        let sealed = match right.start == view.sealed {
            true => view.sealed.max(right.end),
            false => view.sealed,
        };
        let (start, end, prediction) = match block {
            Some(block) => (sealed, block.start, Prediction::None),
            None => (sealed.min(open.back(1)), guessed, Prediction::Next),
        };
        plan.rows.extend(start.to(end).iter().map(|place| PlanRow {
            source: if place < open { TokenSource::Canvas } else { source },
            prediction,
            ..PlanRow::at(place, place.next())
        }));
        if let Some(block) = block {
            let row = |place| PlanRow { open: true, ..PlanRow::at(place, block.end) };
            plan.rows.extend(block.iter().map(row));
        }
        plan.close(SHARED);
        plan.sealed = block.map_or(open, |block| block.start);
    }
}
