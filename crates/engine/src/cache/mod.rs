//! Cache policies: which rows a forward computes, what they see, and under which page table.

mod block;
mod compact;
mod elastic;
mod exact;

use std::ops::Range;

use decode::{Decoder, Effect, ForwardKind, LaneId, Proposal, Role};
use step::Attention;

use crate::decoding::{CacheConfig, RowSelection};
use crate::pages::Tables;

/// What a policy may know of its sequence when it plans a forward.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// P, tokens of prompt and suffix: slots left of the generation.
    pub(crate) prompt: u32,
    /// Lanes and canvas.
    pub(crate) decoder: &'a Decoder,
    /// No forward has run yet.
    pub(crate) first: bool,
    /// Forwards since the last refresh.
    pub(crate) since_refresh: u32,
    /// A generate lane has started since the last forward.
    pub(crate) lane_started: bool,
    /// Absolute end of the last refresh or of the rightmost row forwarded since.
    pub(crate) written: u32,
    /// Holds every offset that the last step wrote.
    pub(crate) fresh: &'a Range<u32>,
    /// Places `[0, sealed)` have their final K/V in the table.
    pub(crate) sealed: u32,
    /// Predictions are read at the row before ([`step::Readout::Previous`]).
    pub(crate) shifted: bool,
}

impl View<'_> {
    /// P + canvas, the absolute end of everything.
    fn end(&self) -> u32 {
        self.prompt + self.decoder.canvas().len()
    }

    /// Whether a candidate may be asked for at `place`.
    fn wants(&self, place: u32) -> bool {
        let offset = place.checked_sub(self.prompt);
        let is_open = offset.is_some_and(|at| self.decoder.canvas().get(at).is_none());
        is_open || self.decoder.lanes().any(|lane| lane.committed)
    }

    /// The kind of the next forward if a refresh is `due`, or not.
    fn kind(&self, due: bool) -> ForwardKind {
        match (self.first, due) {
            (true, _) => ForwardKind::Prefill,
            (false, true) => ForwardKind::Refresh,
            (false, false) => ForwardKind::Decode,
        }
    }
}

/// One query position of a forward. A *place* counts from the prompt's first token: offset 0 is
/// place P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanRow {
    /// Whose token and position.
    pub(crate) place: u32,
    /// Where its K/V go; the place itself unless rows are reordered.
    pub(crate) slot: u32,
    /// Slots that it sees, from the first.
    pub(crate) visible: u32,
}

impl PlanRow {
    /// A row in the slot of its place.
    pub(crate) fn at(place: u32, visible: u32) -> Self {
        let slot = place;
        Self {
            place,
            slot,
            visible,
        }
    }
}

/// One forward of one sequence. Rows of all segments lie packed, by slot within a segment; no slot
/// occurs twice.
#[derive(Clone, Debug)]
pub(crate) struct ForwardPlan {
    pub(crate) kind: ForwardKind,
    /// The rows are `[0, end)` of the sequence: no older K/V is read.
    pub(crate) rewrites: bool,
    pub(crate) rows: Vec<PlanRow>,
    pub(crate) segments: Vec<PlanSegment>,
    /// Offsets of committed tokens that are scored for the policy, ascending.
    pub(crate) tracked: Vec<u32>,
    /// Places `[0, sealed)` have their final K/V once the forward has run.
    pub(crate) sealed: u32,
}

/// Rows under one page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanSegment {
    /// Whose table; [`Tables::SHARED`] where a sequence has only one.
    pub(crate) table: LaneId,
    /// End of its rows in [`ForwardPlan::rows`]; they begin where the last segment ended.
    pub(crate) end: u32,
    /// Branch of [`Decoder::guesses`]; 0 = the canvas as it stands. A branch has a table of its
    /// own for the time of the forward.
    pub(crate) branch: u32,
}

impl Default for ForwardPlan {
    fn default() -> Self {
        Self {
            kind: ForwardKind::Decode,
            rewrites: false,
            rows: Vec::new(),
            segments: Vec::new(),
            tracked: Vec::new(),
            sealed: 0,
        }
    }
}

impl ForwardPlan {
    fn begin(&mut self, kind: ForwardKind) {
        self.kind = kind;
        self.rewrites = false;
        self.rows.clear();
        self.segments.clear();
        self.tracked.clear();
        self.sealed = 0;
    }

    fn push_range(&mut self, positions: Range<u32>, visible: u32) {
        self.rows
            .extend(positions.map(|place| PlanRow::at(place, visible)));
    }

    /// The lane that a segment is about; none if it is about all of them.
    pub(crate) fn lane_of(&self, segment: &PlanSegment) -> Option<LaneId> {
        let tables = self
            .segments
            .iter()
            .any(|other| other.table != segment.table);
        tables.then_some(segment.table)
    }

    fn close(&mut self, table: LaneId) {
        let end = self.rows.len() as u32;
        let begin = self.segments.last().map_or(0, |segment| segment.end);
        if end > begin {
            let branch = 0;
            self.segments.push(PlanSegment { table, end, branch });
        }
    }

    /// Repeats the only segment for every branch that the decoder wants tried.
    fn push_branches(&mut self, view: &View<'_>) {
        let rows = self.rows.len();
        for branch in 1..=view.decoder.guesses().branches() as u32 {
            self.rows.extend_from_within(..rows);
            let (table, end) = (Tables::SHARED, self.rows.len() as u32);
            self.segments.push(PlanSegment { table, end, branch });
        }
    }

    /// A forward over `[0, end)` in which every row sees every other.
    fn full(&mut self, view: &View<'_>, end: u32, table: LaneId) {
        self.begin(if view.first {
            ForwardKind::Prefill
        } else {
            ForwardKind::Refresh
        });
        self.rewrites = true;
        self.push_range(0..end, end);
        self.close(table);
    }
}

/// Decides the rows of a sequence's next forward. Planning twice without an effect in between
/// gives the same plan: a sequence that does not fit into a step is planned again.
pub(crate) trait CachePolicy: std::fmt::Debug + Send {
    /// What the next forward is, the kind that [`Self::plan`] gives it.
    fn kind(&self, view: &View<'_>) -> ForwardKind;

    /// The next forward, into `plan`.
    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan);

    /// Looks at what a forward of `kind` said, after the decoder has taken its step.
    fn observe(&mut self, _kind: ForwardKind, _decoder: &Decoder, _said: &[Proposal]) {}

    /// Whether lanes own page tables (fork snapshots); else all of a sequence share one.
    fn private_tables(&self) -> bool {
        false
    }
}

/// The policy `config` describes, for weights trained with `attention`.
pub(crate) fn build(config: &CacheConfig, attention: Attention) -> Box<dyn CachePolicy> {
    match *config {
        CacheConfig::Exact => match attention {
            Attention::Blocks(length) => Box::new(exact::Blocks { length }),
            Attention::Causal | Attention::Full => Box::new(exact::Causal),
        },
        CacheConfig::None => Box::new(block::NoCache),
        CacheConfig::Prefix => Box::new(block::Prefix),
        CacheConfig::Dual => Box::new(block::Dual),
        CacheConfig::Window => Box::new(block::Window),
        CacheConfig::Snapshot(compact) => Box::new(compact::Lanes {
            compact,
            private: true,
        }),
        CacheConfig::Fresh(compact) => Box::new(compact::Lanes {
            compact,
            private: false,
        }),
        CacheConfig::Fused { compact, rows } => Box::new(compact::Fused {
            compact,
            open: rows == RowSelection::Open,
        }),
        CacheConfig::Elastic { margin, threshold } => {
            Box::new(elastic::Elastic::new(margin, threshold))
        }
    }
}

/// Whether `effects` start a generate lane, be it active, waiting or born finished.
pub(crate) fn starts_generate_lane(effects: &[Effect]) -> bool {
    let starts = |effect: &Effect| {
        matches!(
            effect,
            Effect::Start {
                role: Role::Generate,
                ..
            }
        )
    };
    effects.iter().any(starts)
}
