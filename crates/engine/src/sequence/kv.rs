//! A sequence's K/V: its cache policy, its page tables, and how current the K/V in them are.

use decode::{Decoder, Effect, ForwardKind, Offset, Place, Proposal, Span, TokenId};

use crate::cache::{self, CachePolicy, ForwardPlan};
use crate::layout::Layout;
use crate::pages::{Grid, Node, PagePool, Tables};

/// See the module.
#[derive(Debug)]
pub(crate) struct SequenceKv {
    pub(super) policy: Box<dyn CachePolicy>,
    pub(crate) tables: Tables,
    /// Most pages that the sequence can ever hold, promised to it when it starts.
    pub(crate) promised: u32,
    /// Forwards since the last refresh.
    pub(super) since_refresh: u32,
    /// A generate lane has started since the last forward.
    pub(super) lane_started: bool,
    /// End of the last refresh, or of the rightmost row that was forwarded since.
    pub(super) written: Place,
    /// Holds every offset that the last step wrote; start right of the end if it wrote none.
    pub(super) fresh: Span<Offset>,
    /// Places `[0, sealed)` have their final K/V.
    pub(super) sealed: Place,
    /// Whole pages of them that the prefix cache knows, and the text that they hold.
    pub(super) known: (u32, Node),
}

impl SequenceKv {
    /// No pages yet.
    pub(super) fn new(policy: Box<dyn CachePolicy>, layout: Layout, promised: u32) -> Self {
        Self {
            tables: Tables::new(policy.private_tables(), layout),
            policy,
            promised,
            since_refresh: 0,
            lane_started: true,
            written: Place::ZERO,
            fresh: Span::default(),
            sealed: Place::ZERO,
            known: (0, Node::default()),
        }
    }

    /// Follows a planned forward.
    pub(super) fn observe_forward(&mut self, plan: &ForwardPlan) {
        self.sealed = self.sealed.max(plan.sealed);
        if plan.is_chunk {
            // The first forward is still to come.
            return;
        }
        let last = plan.rows.last();
        let end = last.map_or(Place::ZERO, |row| row.place.next());
        if plan.kind == ForwardKind::Decode {
            self.since_refresh += 1;
            self.written = self.written.max(end);
        } else {
            self.since_refresh = 0;
            self.written = end;
        }
        self.lane_started = false;
    }

    /// Follows what a step changed; `end`: the end of the generation.
    pub(super) fn observe_effects(&mut self, effects: &[Effect], end: Offset) {
        self.fresh = end.to(Offset::ZERO);
        for effect in effects {
            if let Effect::Commit(commit) | Effect::Place(commit) = effect {
                let Span { start, end } = self.fresh;
                self.fresh = start.min(commit.offset).to(end.max(commit.offset.next()));
            }
        }
        self.lane_started |= cache::starts_generate_lane(effects);
    }

    /// Notes that the places `[0, end)` have their final K/V.
    pub(super) fn seal(&mut self, end: Place) {
        self.sealed = self.sealed.max(end);
    }

    /// Shows the policy what a forward of `kind` returned.
    pub(super) fn observe_output(
        &mut self,
        kind: ForwardKind,
        decoder: &Decoder,
        proposals: &[Proposal],
    ) {
        self.policy.observe(kind, decoder, proposals);
    }

    /// Takes cached pages that hold the beginning of `prompt`; the tokens in them.
    pub(super) fn recall(&mut self, prompt: &[TokenId], grid: Grid, pages: &mut PagePool) -> u32 {
        self.known = self.tables.shared().recall(prompt, grid, pages);
        let cached = self.known.0 * grid.page_size;
        self.sealed = Place::new(cached);
        cached
    }

    /// Gives every page and the promise back.
    pub(crate) fn release(&mut self, pages: &mut PagePool) {
        self.tables.release(pages);
        pages.unreserve(self.promised);
    }
}
