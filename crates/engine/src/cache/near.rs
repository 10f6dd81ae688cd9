//! One table; masks have a row while a forward pass may change the decision about them.

use decode::{
    AttentionKind, Decoder, ForwardKind, NameFilter, Offset, Proposal, SettingInfo, Span, Value,
    as_index,
};

use super::compact::{self, Compact, REFRESH_COMMITS};
use super::rows::{open_rows, see_written};
use super::{CacheInfo, CachePolicy, ForwardPlan, Forwards, SHARED, View};

const REFRESH: SettingInfo = compact::refresh(Value::Integer(32));
const ROW_AHEAD: SettingInfo = SettingInfo::integer("row_ahead", 1..=1024, 24).says(
    "masks have no row until a token is committed this number of positions left of them, or nearer",
);
const ROW_REACH: SettingInfo = SettingInfo::integer("row_reach", 1..=1024, 12).says(
    "a commit gives masks a row again that lie up to this number of positions right of it, or up to a third of it left of it",
);

/// Masks of lower entropy keep their row, in nats: they are the next commits.
const SURE: f32 = 0.3;
/// The first masks of a lane always have a row: the text is read from left to right.
const FIRST: u32 = 4;

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "near",
    summary: "one table, every written slot; rows of the masks near the last commits",
    paper: "AsyncLane, arXiv 2606.08411, with one table",
    settings: &[REFRESH, REFRESH_COMMITS, ROW_AHEAD, ROW_REACH],
    schedules: NameFilter::Only(&["asynclane", "block_wise"]),
    forwards: Forwards { branches: true, ..Forwards::OPEN },
    attention: &[AttentionKind::Full],
    check: |_, _| Ok(()),
    // A guessed canvas may have a version of the prompt's rows too.
    pages: |footprint| footprint.shared_table(footprint.prompt + footprint.budget),
    build: |settings, _| {
        let ahead = settings.count(&ROW_AHEAD);
        let reach = settings.count(&ROW_REACH);
        Box::new(Near {
            compact: Compact::read(settings, &REFRESH, 0),
            ahead,
            right: reach,
            left: reach / 3,
            end: Offset::new(ahead),
            due: Vec::new(),
        })
    },
};

/// One table, as `fused`. A mask far from every commit since its last row would get nearly the same
/// candidate again, so it has no row; nor has a mask right of [`Self::end`], which the text has not
/// reached. Under a grammar every mask of the lanes has one.
#[derive(Debug)]
struct Near {
    compact: Compact,
    /// Positions right of a commit in which masks get their first row.
    ahead: u32,
    /// Positions right of a commit in which masks get a row again.
    right: u32,
    /// Positions left of a commit in which masks get a row again.
    left: u32,
    /// Masks from here on have never had a row; the slots before it are written.
    end: Offset,
    /// By offset: the mask has a row in the next forward. Offsets after the last are due.
    due: Vec<bool>,
}

impl Near {
    fn is_due(&self, offset: Offset) -> bool {
        offset < self.end && self.due.get(offset.index()).is_none_or(|due| *due)
    }

    fn mark_due(&mut self, offsets: Span<Offset>) {
        let end = offsets.end.index().min(self.due.len());
        self.due[offsets.start.index().min(end)..end].fill(true);
    }

    /// Notes which masks were scored, and wakes those near a commit.
    fn note(&mut self, decoder: &Decoder, scored: &[Proposal]) {
        let canvas = decoder.canvas();
        self.due.resize(as_index(canvas.budget()), true);
        for Proposal { offset, candidate } in scored {
            self.end = self.end.max(offset.next());
            self.due[offset.index()] = candidate.entropy <= SURE;
        }
        for Proposal { offset, .. } in scored {
            if canvas.written_at(*offset) == decoder.step() {
                let next = offset.next();
                self.end = self.end.max(next.plus(self.ahead));
                self.mark_due(offset.back(self.left).to(next.plus(self.right)));
            }
        }
    }
}

impl CachePolicy for Near {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        self.compact.kind(view)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        let canvas = view.decoder.canvas();
        let everywhere = view.decoder.is_constrained();
        if self.kind(view) != ForwardKind::Decode {
            let lanes = view.decoder.lanes().map(|lane| lane.lookahead.end).max();
            let lanes = lanes.unwrap_or_default();
            let end = if everywhere { lanes } else { lanes.min(self.end) };
            let end = end.max(canvas.pins_end().min(canvas.end()));
            return plan.full(view, view.place(end), SHARED);
        }
        plan.begin(ForwardKind::Decode);
        open_rows(view, &[], plan);
        if !everywhere {
            plan.rows.retain(|row| {
                let mask = view.layout.offset_of(row.place).filter(|at| canvas.is_mask(*at));
                mask.is_none_or(|offset| self.is_due(offset))
            });
        }
        see_written(view, plan);
        plan.push_branches(view);
    }

    fn observe(&mut self, _kind: ForwardKind, decoder: &Decoder, scored: &[Proposal]) {
        self.note(decoder, scored);
        for lane in decoder.lanes() {
            let masks = lane.range.iter().filter(|offset| decoder.canvas().is_mask(*offset));
            for offset in masks.take(as_index(FIRST)) {
                self.mark_due(offset.to(offset.next()));
                self.end = self.end.max(offset.next());
            }
        }
    }
}
