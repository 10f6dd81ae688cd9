//! The generated part of a sequence: which offsets hold a token, and what may be emitted.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::TokenId;
use crate::effect::CommitKind;

/// The generated offsets `0..len` of one sequence; a prompt never appears here.
///
/// Invariants: `emitted <= frontier <= len <= budget`; every offset left of `frontier` is
/// committed; a committed token is never a mask again.
#[derive(Clone, Debug)]
pub struct Canvas {
    cells: Vec<Cell>,
    len: u32,
    frontier: u32,
    emitted: u32,
    stops: Vec<TokenId>,
}

/// One committed offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    token: TokenId,
    /// Step of the last commit, from 1; 0 = still a mask.
    step: u32,
    draft: bool,
}

impl Canvas {
    /// `budget` masks; `stops` is the stop set E.
    pub(crate) fn new(budget: u32, stops: &[TokenId]) -> Self {
        Self {
            cells: vec![Cell::default(); budget as usize],
            len: budget,
            frontier: 0,
            emitted: 0,
            stops: stops.to_vec(),
        }
    }

    /// L, the offsets asked for.
    pub fn budget(&self) -> u32 {
        self.cells.len() as u32
    }

    /// Offsets left: the budget, or less once a stop token has cut the canvas.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no offset at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first offset without a committed token ([`Self::len`] if there is none).
    pub fn frontier(&self) -> u32 {
        self.frontier
    }

    /// End of what a client may have: left of the frontier and of the first stop token.
    pub fn emitted(&self) -> u32 {
        self.emitted
    }

    /// The committed token at `offset`; `None` is a mask.
    pub fn get(&self, offset: u32) -> Option<TokenId> {
        self.cells
            .get(offset as usize)
            .filter(|cell| cell.step > 0)
            .map(|cell| cell.token)
    }

    /// Whether `offset` is still a mask.
    pub fn is_mask(&self, offset: u32) -> bool {
        self.cells
            .get(offset as usize)
            .is_some_and(|cell| cell.step == 0)
    }

    /// The step of the last commit at `offset`, from 1; 0 for a mask.
    pub fn committed_at(&self, offset: u32) -> u32 {
        self.cells.get(offset as usize).map_or(0, |cell| cell.step)
    }

    /// Whether `offset` was committed as a draft.
    pub fn is_draft(&self, offset: u32) -> bool {
        self.cells
            .get(offset as usize)
            .is_some_and(|cell| cell.draft)
    }

    /// Whether `token` ends a generation.
    pub fn is_stop(&self, token: TokenId) -> bool {
        self.stops.contains(&token)
    }

    /// Whether a stop token is committed at `offset`.
    pub fn is_stop_at(&self, offset: u32) -> bool {
        self.get(offset).is_some_and(|token| self.is_stop(token))
    }

    /// The stop set E.
    pub fn stops(&self) -> &[TokenId] {
        &self.stops
    }

    /// The first mask in `range`, clipped to the canvas.
    pub fn first_mask(&self, range: Range<u32>) -> Option<u32> {
        (range.start..range.end.min(self.len)).find(|offset| self.is_mask(*offset))
    }

    /// Number of masks in `range`, clipped to the canvas.
    pub fn masks(&self, range: Range<u32>) -> u32 {
        let clipped = range.start..range.end.min(self.len);
        clipped.filter(|offset| self.is_mask(*offset)).count() as u32
    }

    /// The first mask or stop token in `range`, clipped to the canvas (else the clipped end).
    pub fn first_open(&self, range: Range<u32>) -> u32 {
        let end = range.end.min(self.len).max(range.start);
        (range.start..end)
            .find(|offset| self.is_mask(*offset) || self.is_stop_at(*offset))
            .unwrap_or(end)
    }

    /// Writes a token. Only an edit may write where a token stands.
    pub(crate) fn commit(&mut self, offset: u32, token: TokenId, step: u32, kind: CommitKind) {
        let cell = &mut self.cells[offset as usize];
        debug_assert!(
            cell.step == 0 || kind == CommitKind::Edit,
            "a commit is final"
        );
        *cell = Cell {
            token,
            step,
            draft: kind == CommitKind::Draft,
        };
    }

    /// Cuts the canvas to `len` offsets.
    pub(crate) fn shorten(&mut self, len: u32) {
        self.len = self.len.min(len);
    }

    /// Moves the frontier and the end of the emitted prefix to where they belong now; returns
    /// the newly emitted offsets and whether a stop token follows the prefix.
    pub(crate) fn advance(&mut self) -> (Range<u32>, bool) {
        self.frontier = self.first_mask(self.frontier..self.len).unwrap_or(self.len);
        let from = self.emitted;
        let to = (from..self.frontier).find(|offset| self.is_stop_at(*offset));
        self.emitted = to.unwrap_or(self.frontier);
        (from..self.emitted, to.is_some())
    }
}
