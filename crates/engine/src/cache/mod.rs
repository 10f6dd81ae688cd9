//! Cache policies: which rows a forward computes, what they see, and under which page table.

mod checked;
mod chunks;
mod compact;
mod dual;
mod exact;
mod fused;
mod info;
mod leftward;
mod near;
mod none;
mod open_block;
mod prefix;
mod published;
mod rows;
mod snapshot;

use decode::{
    Decoder, Effect, ForwardKind, LaneId, Offset, Place, Proposal, Role, Slot, Span, as_count,
    as_index,
};

use crate::layout::{Layout, slot_of};
use crate::pages::Tables;

pub use info::{CacheConfig, CacheInfo, CacheInput, Footprint, Forwards};

/// Every cache policy, in the order in which requests fall back to them.
pub const CACHES: &[&CacheInfo] = &[
    &dual::INFO,
    &none::INFO,
    &prefix::INFO,
    &fused::INFO,
    &snapshot::INFO,
    &published::fresh::INFO,
    &published::elastic::INFO,
    &exact::INFO,
];

/// The key of a sequence's page table where all of its lanes share one.
pub const SHARED: LaneId = Tables::SHARED;

/// The facts of a sequence that a policy plans a forward from.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The layout of prompt, suffix and generation.
    pub(crate) layout: Layout,
    /// Lanes and canvas.
    pub decoder: &'a Decoder,
    /// No forward has run yet.
    pub first: bool,
    /// Forwards since the last refresh.
    pub since_refresh: u32,
    /// A generate lane has started since the last forward.
    pub lane_started: bool,
    /// End of the last refresh, or of the rightmost row that was forwarded since.
    pub written: Place,
    /// Holds every offset that the last step wrote; start right of the end if it wrote none.
    pub fresh: Span<Offset>,
    /// Places `[0, sealed)` have their final K/V in the table.
    pub sealed: Place,
    /// Predictions are read at the row before ([`step::LogitShift::One`]).
    pub shifted: bool,
}

impl View<'_> {
    /// The place after the canvas.
    pub fn end(&self) -> Place {
        self.layout.place_of(self.decoder.canvas().end())
    }

    /// The place of a generated offset.
    pub fn place(&self, offset: Offset) -> Place {
        self.layout.place_of(offset)
    }

    /// The places of generated offsets.
    pub fn places(&self, offsets: Span<Offset>) -> Span<Place> {
        self.layout.places_of(offsets)
    }

    /// Returns true if a candidate may be asked for at `place`.
    pub fn wants(&self, place: Place) -> bool {
        let offset = self.layout.offset_of(place);
        let is_open = offset.is_some_and(|offset| self.decoder.canvas().get(offset).is_none());
        let is_read =
            |offset: Offset| self.decoder.lanes().any(|lane| lane.committed.contains(offset));
        is_open || offset.is_some_and(is_read)
    }

    /// Tokens committed since the last refresh read the canvas, that of its own step included.
    pub fn committed_since_refresh(&self) -> u32 {
        let canvas = self.decoder.canvas();
        let since_step = self.decoder.step().saturating_sub(self.since_refresh).max(1);
        let since = canvas.span().iter();
        as_count(since.filter(|offset| canvas.written_at(*offset) >= since_step).count())
    }

    /// The kind of the next forward if a refresh is `due`, or not.
    pub fn kind(&self, due: bool) -> ForwardKind {
        match (self.first, due) {
            (true, _) => ForwardKind::Prefill,
            (false, true) => ForwardKind::Refresh,
            (false, false) => ForwardKind::Decode,
        }
    }
}

/// One query position of a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanRow {
    /// Whose token and position.
    pub place: Place,
    /// Where its K/V go; the slot of its place unless rows are reordered.
    pub slot: Slot,
    /// It sees the slots `[0, visible_end)`.
    pub visible_end: Slot,
    /// For every set bit `b`, it sees slot `visible_end + b` too.
    pub beyond: u64,
    /// The source of its token.
    pub source: TokenSource,
    /// The place that its candidate predicts, if one is wanted.
    pub prediction: Prediction,
    /// It belongs to an open block, of which no K/V are kept ([`step::Row::open`]).
    pub open: bool,
}

/// The source of a row's token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenSource {
    /// The text and the canvas as it stands, with the branch's guesses.
    #[default]
    Canvas,
    /// The guess for its place ([`Decoder::guesses_to_check`]).
    Guess,
    /// The draft at its place ([`Decoder::drafts`]).
    Draft,
}

/// The place that a row's candidate predicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prediction {
    /// The place that the weights were trained to predict there.
    #[default]
    Trained,
    /// The place after, as in an autoregressive model.
    Next,
    /// None: the row is there for its K/V.
    None,
}

impl PlanRow {
    /// A row in the slot of its place that sees the slots of the places left of `end`.
    pub fn at(place: Place, end: Place) -> Self {
        Self {
            place,
            slot: slot_of(place),
            visible_end: slot_of(end),
            beyond: 0,
            source: TokenSource::Canvas,
            prediction: Prediction::Trained,
            open: false,
        }
    }
}

/// One forward of one sequence. Rows of all segments lie packed, by slot within a segment; no slot
/// occurs twice.
#[derive(Clone, Debug)]
pub struct ForwardPlan {
    /// The kind of the forward.
    pub kind: ForwardKind,
    /// The rows are `[0, end)` of the sequence: no older K/V is read.
    pub rewrites: bool,
    /// The rows are a part of the prompt, forwarded for its K/V alone: nothing is scored, and the
    /// decoder takes no step.
    pub is_chunk: bool,
    /// The query positions.
    pub rows: Vec<PlanRow>,
    /// Their page tables.
    pub segments: Vec<PlanSegment>,
    /// Offsets of committed tokens that are scored for the policy, ascending.
    pub tracked: Vec<Offset>,
    /// Places `[0, sealed)` have their final K/V once the forward has run.
    pub sealed: Place,
}

/// Rows under one page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSegment {
    /// Whose table; [`SHARED`] where a sequence has only one.
    pub table: LaneId,
    /// End of its rows in [`ForwardPlan::rows`]; they begin where the last segment ended.
    pub end: u32,
    /// Branch of [`Decoder::branches`]; 0 = the canvas as it stands. A branch has a table of its
    /// own for the time of the forward.
    pub branch: u32,
}

impl Default for ForwardPlan {
    fn default() -> Self {
        Self {
            kind: ForwardKind::Decode,
            rewrites: false,
            is_chunk: false,
            rows: Vec::new(),
            segments: Vec::new(),
            tracked: Vec::new(),
            sealed: Place::ZERO,
        }
    }
}

impl ForwardPlan {
    /// Starts an empty plan.
    pub fn begin(&mut self, kind: ForwardKind) {
        self.kind = kind;
        self.rewrites = false;
        self.is_chunk = false;
        self.rows.clear();
        self.segments.clear();
        self.tracked.clear();
        self.sealed = Place::ZERO;
    }

    /// Adds rows for `places`, each of which sees the places left of `end`.
    pub fn push_range(&mut self, places: Span<Place>, end: Place) {
        let rows = places.iter().map(|place| PlanRow::at(place, end));
        self.rows.extend(rows);
    }

    /// Returns true if its last rows are those of an open block.
    pub(crate) fn is_open(&self) -> bool {
        self.rows.last().is_some_and(|row| row.open)
    }

    /// The rows of each segment, in order.
    pub(crate) fn rows_by_segment(&self) -> impl Iterator<Item = (&PlanSegment, &[PlanRow])> {
        let ends = self.segments.iter().map(|segment| as_index(segment.end));
        let begins = std::iter::once(0).chain(ends.clone());
        let rows = begins.zip(ends).map(|(begin, end)| &self.rows[begin..end]);
        self.segments.iter().zip(rows)
    }

    /// The lane that a segment is about; none if it is about all of them.
    pub(crate) fn lane_of(&self, segment: &PlanSegment) -> Option<LaneId> {
        let tables = self.segments.iter().any(|other| other.table != segment.table);
        tables.then_some(segment.table)
    }

    /// Ends the segment of the rows added since the last one; none if there are no such rows.
    pub fn close(&mut self, table: LaneId) {
        let end = as_count(self.rows.len());
        let begin = self.segments.last().map_or(0, |segment| segment.end);
        if end > begin {
            let branch = 0;
            self.segments.push(PlanSegment { table, end, branch });
        }
    }

    /// Repeats the only segment for every branch that the decoder wants tried.
    pub fn push_branches(&mut self, view: &View<'_>) {
        let rows = self.rows.len();
        for branch in 1..=as_count(view.decoder.branches().count()) {
            self.rows.extend_from_within(..rows);
            let (table, end) = (SHARED, as_count(self.rows.len()));
            self.segments.push(PlanSegment { table, end, branch });
        }
    }

    /// A forward over `[0, end)` in which every row sees every other.
    pub fn full(&mut self, view: &View<'_>, end: Place, table: LaneId) {
        self.begin(if view.first { ForwardKind::Prefill } else { ForwardKind::Refresh });
        self.rewrites = true;
        self.push_range(Place::ZERO.to(end), end);
        self.close(table);
    }
}

/// Decides the rows of a sequence's next forward. Planning twice without an effect in between
/// gives the same plan: a sequence that does not fit into a step is planned again.
pub trait CachePolicy: std::fmt::Debug + Send {
    /// The kind of the next forward, the one that [`Self::plan`] gives it.
    fn kind(&self, view: &View<'_>) -> ForwardKind;

    /// The next forward, into `plan`.
    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan);

    /// Looks at what a forward of `kind` said, after the decoder has taken its step.
    fn observe(&mut self, _kind: ForwardKind, _decoder: &Decoder, _said: &[Proposal]) {}

    /// Returns true if lanes own page tables (fork snapshots); else all of a sequence share one.
    fn private_tables(&self) -> bool {
        false
    }
}

/// Returns true if `effects` start a generate lane, be it active, waiting or born finished.
pub(crate) fn starts_generate_lane(effects: &[Effect]) -> bool {
    let starts = |effect: &Effect| matches!(effect, Effect::Start { role: Role::Generate, .. });
    effects.iter().any(starts)
}
