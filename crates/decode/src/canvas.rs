//! The generated part of a sequence: which offsets hold a token, and which may be emitted.

use alloc::vec;
use alloc::vec::Vec;

use crate::TokenId;
use crate::coordinates::{Offset, Span, as_count, as_index};
use crate::effect::{Commit, CommitKind};

/// A token that stands on the canvas from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Its offset.
    pub offset: Offset,
    /// The token.
    pub token: TokenId,
    /// True if a rule that rewrites tokens may rewrite it. Otherwise it never changes.
    pub editable: bool,
}

impl Pin {
    /// A token that never changes.
    pub const fn fixed(offset: Offset, token: TokenId) -> Self {
        Self { offset, token, editable: false }
    }
}

/// The generated offsets `0..len` of one sequence, without the prompt.
///
/// Invariants: `emitted <= frontier <= len <= budget`; every offset left of `frontier` is
/// committed; a committed token never becomes a mask again. *Provisional* tokens exist only under
/// a grammar: the model reads them, but they are not committed and may become masks again.
#[derive(Clone, Debug)]
pub struct Canvas {
    cells: Vec<Cell>,
    len: u32,
    frontier: Offset,
    emitted: Offset,
    /// End of the last fixed pin.
    pins_end: Offset,
    stops: Vec<TokenId>,
}

/// One offset.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cell {
    state: CellState,
    token: TokenId,
    /// Step that wrote the token, from 1; 0 for a mask and a pin.
    step: u32,
    /// True if the token was committed in a lookahead window.
    draft: bool,
    /// Confidence of the candidate that wrote the token.
    probability: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CellState {
    #[default]
    Mask,
    Provisional,
    Committed,
    /// A fixed [`Pin`]; committed too.
    Pinned,
}

impl Canvas {
    /// A canvas of `budget` masks, but for the `pins` on it; `stops` is the stop set E.
    pub(crate) fn new(budget: u32, stops: &[TokenId], pins: &[Pin]) -> Self {
        let mut canvas = Self {
            cells: vec![Cell::default(); as_index(budget)],
            len: budget,
            frontier: Offset::ZERO,
            emitted: Offset::ZERO,
            pins_end: Offset::ZERO,
            stops: stops.to_vec(),
        };
        for pin in pins {
            if let Some(cell) = canvas.cells.get_mut(pin.offset.index()) {
                *cell = Cell::given(*pin);
                if !pin.editable {
                    canvas.pins_end = canvas.pins_end.max(pin.offset.next());
                }
            }
        }
        // The tokens before the first mask are emitted with the first step.
        canvas.frontier = canvas.first_uncommitted(canvas.span()).unwrap_or(canvas.end());
        canvas
    }

    /// L: number of offsets that the request asks for.
    pub fn budget(&self) -> u32 {
        as_count(self.cells.len())
    }

    /// Number of offsets: the budget, or less once a stop token has cut the canvas.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The first offset after the canvas: [`Self::len`] as an offset.
    pub fn end(&self) -> Offset {
        Offset::new(self.len)
    }

    /// Its offsets.
    pub fn span(&self) -> Span<Offset> {
        Span::first(self.len)
    }

    /// Returns true if the canvas has no offset.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first offset without a committed token ([`Self::end`] if there is none).
    pub fn frontier(&self) -> Offset {
        self.frontier
    }

    /// End of the emitted prefix: the frontier, or the first stop token left of it.
    pub fn emitted(&self) -> Offset {
        self.emitted
    }

    /// The token at `offset`, committed or provisional; `None` for a mask.
    pub fn get(&self, offset: Offset) -> Option<TokenId> {
        let cell = self.cell(offset)?;
        (cell.state != CellState::Mask).then_some(cell.token)
    }

    /// Returns true if `offset` holds a mask.
    pub fn is_mask(&self, offset: Offset) -> bool {
        self.cell(offset).is_some_and(|cell| cell.state == CellState::Mask)
    }

    /// Returns true if the token at `offset` is committed; only an edit rule may still change it.
    pub fn is_committed(&self, offset: Offset) -> bool {
        let states = [CellState::Committed, CellState::Pinned];
        self.cell(offset).is_some_and(|cell| states.contains(&cell.state))
    }

    /// The step that wrote the token at `offset`, from 1; 0 for a mask and a [`Pin`].
    pub fn written_at(&self, offset: Offset) -> u32 {
        self.cell(offset).map_or(0, |cell| cell.step)
    }

    /// Returns true if a fixed [`Pin`] stands at `offset`.
    pub fn is_pinned(&self, offset: Offset) -> bool {
        self.cell(offset).is_some_and(|cell| cell.state == CellState::Pinned)
    }

    /// End of the last fixed [`Pin`]; no text ends before it.
    pub fn pins_end(&self) -> Offset {
        self.pins_end
    }

    /// Returns true if `offset` was committed as a draft.
    pub fn is_draft(&self, offset: Offset) -> bool {
        self.is_committed(offset) && self.cells[offset.index()].draft
    }

    /// Returns true if `token` ends a generation.
    pub fn is_stop(&self, token: TokenId) -> bool {
        self.stops.contains(&token)
    }

    /// Returns true if a stop token stands at `offset`.
    pub fn is_stop_at(&self, offset: Offset) -> bool {
        self.get(offset).is_some_and(|token| self.is_stop(token))
    }

    /// The stop set E.
    pub fn stops(&self) -> &[TokenId] {
        &self.stops
    }

    /// The first offset of `range`, clipped to the canvas, that is not committed.
    pub fn first_uncommitted(&self, range: Span<Offset>) -> Option<Offset> {
        let mut offsets = range.clip(self.end()).iter();
        offsets.find(|offset| !self.is_committed(*offset))
    }

    /// Number of masks in `range`, clipped to the canvas.
    pub fn masks(&self, range: Span<Offset>) -> u32 {
        let offsets = range.clip(self.end()).iter();
        as_count(offsets.filter(|offset| self.is_mask(*offset)).count())
    }

    /// The first offset of `range`, clipped to the canvas, that is not committed or holds a stop
    /// token; the clipped end if there is none.
    pub fn first_open(&self, range: Span<Offset>) -> Offset {
        let end = range.end.min(self.end()).max(range.start);
        let mut offsets = range.start.to(end).iter();
        offsets
            .find(|offset| !self.is_committed(*offset) || self.is_stop_at(*offset))
            .unwrap_or(end)
    }

    /// Commits a committed token. Only an edit may replace one.
    pub(crate) fn commit(&mut self, write: Commit, step: u32) {
        let cell = &mut self.cells[write.offset.index()];
        debug_assert!(
            cell.state != CellState::Pinned
                && (cell.state != CellState::Committed || write.kind == CommitKind::Edit),
            "a commit is final"
        );
        *cell = Cell::new(CellState::Committed, write, step);
    }

    /// Replaces a mask by a provisional token.
    pub(crate) fn place(&mut self, write: Commit, step: u32) {
        let cell = &mut self.cells[write.offset.index()];
        debug_assert!(cell.state == CellState::Mask, "only masks are drafted");
        *cell = Cell::new(CellState::Provisional, write, step);
    }

    /// The provisional token at `offset`.
    pub(crate) fn provisional(&self, offset: Offset) -> Option<Commit> {
        let cell = self.cell(offset)?;
        let kind = match cell.draft {
            true => CommitKind::Draft,
            false => CommitKind::Masked,
        };
        (cell.state == CellState::Provisional).then_some(Commit {
            offset,
            token: cell.token,
            probability: cell.probability,
            kind,
        })
    }

    /// Commits the provisional token at `offset`; its step stays that of its placement.
    pub(crate) fn keep(&mut self, offset: Offset) {
        self.cells[offset.index()].state = CellState::Committed;
    }

    /// Replaces the provisional token at `offset` by a mask.
    pub(crate) fn revoke(&mut self, offset: Offset) {
        self.cells[offset.index()] = Cell::default();
    }

    /// Cuts the canvas to `len` offsets.
    pub(crate) fn shorten(&mut self, len: u32) {
        self.len = self.len.min(len);
    }

    /// Updates the frontier and the end of the emitted prefix. Returns the newly emitted offsets
    /// and whether a stop token follows the prefix.
    pub(crate) fn advance(&mut self) -> (Span<Offset>, bool) {
        self.frontier = self.first_uncommitted(self.frontier.to(self.end())).unwrap_or(self.end());
        let start = self.emitted;
        let mut settled = start.to(self.frontier).iter();
        let stop = settled.find(|offset| self.is_stop_at(*offset));
        self.emitted = stop.unwrap_or(self.frontier);
        (start.to(self.emitted), stop.is_some())
    }

    fn cell(&self, offset: Offset) -> Option<&Cell> {
        self.cells.get(offset.index())
    }
}

impl Cell {
    fn given(pin: Pin) -> Self {
        let state = match pin.editable {
            true => CellState::Committed,
            false => CellState::Pinned,
        };
        Self { state, token: pin.token, step: 0, draft: false, probability: 1.0 }
    }

    fn new(state: CellState, write: Commit, step: u32) -> Self {
        Self {
            state,
            token: write.token,
            step,
            draft: write.kind == CommitKind::Draft,
            probability: write.probability,
        }
    }
}
