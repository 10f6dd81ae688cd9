//! The arrays of a batch, checked and uploaded to a device in one buffer.

mod canvas;
mod check;
mod extras;
mod shape;

pub use shape::BatchShape;

pub use canvas::CanvasRows;
pub(super) use extras::MOST_TOPS;

use super::array::Buffer;
use super::{Device, Result, refuse};
use crate::attention::Visible;
use crate::score::ScorerRow;
use std::ops::Range;
use step::{Bias, PageCopy, PageId, Sampling, Segment};

/// A batch on the host, with one entry per row unless noted otherwise.
#[derive(Clone, Copy)]
pub struct BatchArrays<'a> {
    /// Input tokens.
    pub tokens: &'a [u32],
    /// Positions.
    pub positions: &'a [u32],
    /// Physical slots.
    pub slots: &'a [u32],
    /// The slots that each row sees.
    pub visible: &'a [Visible],
    /// The segments, covering all rows.
    pub segments: &'a [Segment],
    /// Page tables of all segments.
    pub pages: &'a [PageId],
    /// Indices of the rows that are scored.
    pub scored: &'a [u32],
    /// One entry per scored row.
    pub scorers: &'a [ScorerRow],
    /// Logit biases that scored rows refer to.
    pub biases: &'a [Bias],
    /// Sets of allowed tokens that scored rows refer to.
    pub allowed: &'a [u32],
    /// The page copies.
    pub copies: &'a [PageCopy],
    /// The additional fields of a canvas model's rows; `None` for other models.
    pub canvas: Option<CanvasRows<'a>>,
}

impl<'a> BatchArrays<'a> {
    /// The sampling of a scored row.
    fn sampling(&self, row: &ScorerRow) -> &'a Sampling {
        &self.segments[row.segment as usize].sampling
    }
}

/// A range of a batch's scored rows.
#[derive(Clone)]
pub struct ScoredRows<'a> {
    /// The batch.
    pub batch: &'a DeviceBatch,
    /// Numbers of the rows among the scored ones.
    pub range: Range<usize>,
}

/// Exclusive upper bounds of a batch's indices, and its tile and padding sizes.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Rows of the embedding table.
    pub tokens: usize,
    /// Positions of the rotary table.
    pub positions: usize,
    /// Tokens with a logit.
    pub vocab: usize,
    /// Number of KV pages.
    pub pages: usize,
    /// Slots per page.
    pub page: usize,
    /// Maximum rows of an attention tile.
    pub tile: usize,
    /// Rows and scored rows are padded to multiples of this, `>= 1`. If it is 2 or more, the number of
    /// tiles and the context are rounded up too, so that few shapes cover all batches.
    pub pad: usize,
}

/// The sizes that determine the memory of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSizes {
    /// Number of rows with padding.
    pub rows: usize,
    /// Entries of all page tables.
    pub pages: usize,
    /// Number of biases.
    pub biases: usize,
    /// Words of all sets of allowed tokens.
    pub allowed: usize,
    /// True for the rows of a canvas model.
    pub canvas: bool,
}

impl BatchSizes {
    /// Bytes of the largest batch of these sizes without page copies: every row is scored, and has a
    /// tile of its own.
    fn bytes(&self) -> usize {
        // Token, position, slot; index and settings of a scored row.
        let row = 3 + 1 + SCORER_WORDS;
        // The slots that the row sees and its reach, for layers of each kind, then the kind of the row.
        let (row, kinds) = match self.canvas {
            true => (row + 2 * (VISIBLE_WORDS + 1) + 1, 2),
            false => (row + VISIBLE_WORDS + 1, 1),
        };
        // A power of two that is no power of four becomes twice as large.
        let tiles = match self.rows.checked_next_power_of_two() {
            Some(_) => BatchShape::tiles(self.rows),
            None => usize::MAX,
        };
        let words = self.rows.saturating_mul(row);
        let words = words.saturating_add(tiles.saturating_mul(kinds * TILE_WORDS));
        let words = words.saturating_add(self.biases.saturating_mul(BIAS_WORDS));
        let words = words.saturating_add(self.pages);
        words.saturating_add(self.allowed).saturating_mul(size_of::<u32>())
    }
}

/// The range of a section in the uploaded words.
#[derive(Clone, Copy, Default)]
struct WordRange {
    start: usize,
    count: usize,
}

/// A batch on the device. Its memory is reused between batches.
///
/// Sections indexed by row, scored row or tile come first and are padded, so that the shape
/// determines their addresses. Page tables, biases and sets of tokens follow; the first sections
/// contain their offsets.
#[derive(Default)]
pub struct DeviceBatch {
    buffer: Option<Buffer>,
    words: Vec<u32>,
    bytes: Vec<u8>,
    sections: [WordRange; 14],
    shape: BatchShape,
}

/// The sections of an uploaded batch.
#[derive(Clone, Copy)]
pub(super) enum Section {
    Tokens,
    Positions,
    Slots,
    Reaches,
    Visible,
    Scored,
    Scorers,
    Tiles,
    /// The slots that rows see in layers with a window, and the kinds of rows; for canvas models only.
    Windows,
    WindowReaches,
    WindowTiles,
    Kinds,
    /// Page tables, then biases, then sets of tokens.
    Words,
    Copies,
}

impl Section {
    /// The sections of the slots that rows see, of their reaches and of their tiles.
    pub(super) fn seen(windowed: bool) -> [Self; 3] {
        match windowed {
            true => [Self::Windows, Self::WindowReaches, Self::WindowTiles],
            false => [Self::Visible, Self::Reaches, Self::Tiles],
        }
    }
}

/// Words of what a row sees, of a tile, of a scored row's settings, and of a bias.
const VISIBLE_WORDS: usize = 4;
pub(super) const TILE_WORDS: usize = 5;
pub(super) const SCORER_WORDS: usize = 18;
const BIAS_WORDS: usize = 3;
/// Marks an absent number; `NONE` of the kernels.
pub(super) const NONE: u32 = u32::MAX;
/// Settings of a padding row: no input token, no biases, no allowed set, temperature 0, no filters,
/// no most probable tokens, logits divided by 1, no set to list.
const IDLE: [u32; SCORER_WORDS] =
    [NONE, 0, 0, 0, NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x3F80_0000, NONE];

/// True if a scored row has additional results.
fn is_filtered(arrays: &BatchArrays<'_>) -> bool {
    let mut rows = arrays.scorers.iter();
    rows.any(|row| extras::extras(row, arrays.sampling(row)) != 0)
}

impl DeviceBatch {
    /// Allocates memory for batches up to these sizes; they then allocate nothing.
    pub fn reserve(&mut self, device: &Device, sizes: &BatchSizes) -> Result<()> {
        self.grow(device, sizes.bytes())
    }

    /// Checks all indices and uploads the batch.
    pub fn upload(
        &mut self,
        device: &Device,
        arrays: &BatchArrays<'_>,
        limits: &BatchLimits,
    ) -> Result<()> {
        check::check(arrays, limits)?;
        self.words.clear();
        let pad = limits.pad.max(1);
        let windows = arrays.canvas.map_or(&[][..], |canvas| canvas.windowed);
        let visible = arrays.visible.iter().chain(windows);
        let reach = visible.map(Visible::reach).max().unwrap_or(0);
        let rows = BatchShape::rows(arrays.tokens.len(), pad);
        self.shape = BatchShape {
            rows,
            scored: BatchShape::scored(arrays.scored.len(), rows, pad),
            reach: match pad {
                1 => reach,
                _ => BatchShape::context(reach),
            },
            pad,
            filtered: is_filtered(arrays),
            denoised: arrays.canvas.is_some_and(|canvas| !canvas.denoised.is_empty()),
            conditioned: arrays.canvas.is_some_and(|canvas| !canvas.conditioned.is_empty()),
            ..BatchShape::default()
        };
        for (section, words, padding) in [
            (Section::Tokens, arrays.tokens, 0),
            (Section::Positions, arrays.positions, 0),
            (Section::Slots, arrays.slots, NONE),
        ] {
            self.put(section, |out| {
                out.extend_from_slice(words);
                out.extend(std::iter::repeat_n(padding, rows - words.len()));
            });
        }
        self.put_visible(arrays.visible, false);
        self.put_scored(arrays, limits.vocab);
        self.put_tiles(arrays, limits, arrays.visible, false);
        if let Some(canvas) = &arrays.canvas {
            self.put_canvas(arrays, limits, canvas);
        }
        self.put(Section::Words, |out| {
            out.extend(arrays.pages.iter().map(|page| page.0));
            for bias in arrays.biases {
                out.extend([bias.token, bias.repetition.to_bits(), bias.amount.to_bits()]);
            }
            out.extend_from_slice(arrays.allowed);
        });
        self.put(Section::Copies, |out| {
            out.extend(arrays.copies.iter().flat_map(|copy| [copy.source.0, copy.destination.0]));
        });
        self.send(device)
    }

    fn put_visible(&mut self, visible: &[Visible], windowed: bool) {
        let padding = self.shape.rows - visible.len();
        let padded = || {
            let idle = std::iter::repeat_n(Visible::default(), padding);
            visible.iter().copied().chain(idle)
        };
        let [rows, reaches, _] = Section::seen(windowed);
        self.put(reaches, |out| {
            out.extend(padded().map(|row| row.reach() as u32));
        });
        self.put(rows, |out| {
            out.extend(padded().flat_map(Visible::words));
        });
    }

    fn put_scored(&mut self, arrays: &BatchArrays<'_>, vocab: usize) {
        let padding = self.shape.scored - arrays.scored.len();
        self.put(Section::Scored, |out| {
            out.extend_from_slice(arrays.scored);
            out.extend(std::iter::repeat_n(0, padding));
        });
        let biases = arrays.pages.len() as u32;
        let sets = biases + (arrays.biases.len() * BIAS_WORDS) as u32;
        let set = vocab.div_ceil(32) as u32;
        let first_word = |set_number: u32| sets + set_number * set;
        let mut first_top = 0;
        self.put(Section::Scorers, |out| {
            for (number, row) in arrays.scorers.iter().enumerate() {
                let divisor = arrays.canvas.map_or(1.0, |canvas| canvas.scales[number]);
                let draw = arrays.sampling(row);
                out.extend([
                    row.input,
                    row.position,
                    biases + row.biases.start * BIAS_WORDS as u32,
                    row.biases.end.saturating_sub(row.biases.start),
                    row.allowed.map_or(NONE, first_word),
                    draw.temperature.to_bits(),
                    draw.seed as u32,
                    (draw.seed >> 32) as u32,
                    draw.clock,
                ]);
                out.extend(extras::words(row, draw, first_top));
                out.extend([divisor.to_bits(), row.among.map_or(NONE, first_word)]);
                first_top += row.tops;
            }
            out.extend(std::iter::repeat_n(IDLE, padding).flatten());
        });
    }

    fn put(&mut self, section: Section, fill: impl FnOnce(&mut Vec<u32>)) {
        let start = self.words.len();
        fill(&mut self.words);
        let count = self.words.len() - start;
        self.sections[section as usize] = WordRange { start, count };
    }

    /// Splits segments into tiles of rows; one block of attention processes one tile.
    fn put_tiles(
        &mut self,
        arrays: &BatchArrays<'_>,
        limits: &BatchLimits,
        seen: &[Visible],
        windowed: bool,
    ) {
        let (mut tallest, mut tiles, padded) = (0, 0_usize, limits.pad > 1);
        let [.., section] = Section::seen(windowed);
        self.put(section, |out| {
            for segment in arrays.segments {
                let (start, end) = (segment.rows.start as usize, segment.rows.end as usize);
                for row in (start..end).step_by(limits.tile.max(1)) {
                    let rows = limits.tile.min(end - row);
                    let visible = &seen[row..row + rows];
                    let reach = visible.iter().map(Visible::reach).max().unwrap_or(0) as u32;
                    let holes = u32::from(!visible.iter().all(Visible::is_prefix));
                    out.extend([row as u32, rows as u32, segment.pages.start, reach, holes]);
                    tallest = tallest.max(rows);
                    tiles += 1;
                }
            }
            if padded {
                let all = BatchShape::tiles(tiles);
                // Idle tiles start at the end of the rows, so that the rows of tiles are contiguous.
                let idle = [arrays.tokens.len() as u32, 0, 0, 0, 0];
                out.extend(std::iter::repeat_n(idle, all - tiles).flatten());
                tiles = all;
                // One number for each size of attention's tiles.
                let sizes = [limits.tile / 4, limits.tile / 2];
                let size = sizes.into_iter().find(|size| tallest <= *size);
                tallest = size.unwrap_or(limits.tile);
            }
        });
        (self.shape.tallest, self.shape.tiles) = (tallest, tiles);
    }

    fn send(&mut self, device: &Device) -> Result<()> {
        self.bytes.clear();
        self.bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        self.grow(device, self.bytes.len())?;
        match &self.buffer {
            Some(buffer) => buffer.upload(&self.bytes),
            None => Ok(()),
        }
    }

    /// Makes room for `bytes` bytes.
    fn grow(&mut self, device: &Device, bytes: usize) -> Result<()> {
        let short = |buffer: &Buffer| buffer.bytes() < bytes;
        if self.buffer.as_ref().is_none_or(short) {
            let room = bytes.checked_next_power_of_two().unwrap_or(usize::MAX);
            self.buffer = None;
            self.buffer = Some(Buffer::new(device, room)?);
        }
        Ok(())
    }

    /// Number of words of a section.
    pub(super) fn count(&self, section: Section) -> usize {
        self.sections[section as usize].count
    }

    pub(super) fn address(&self, section: Section, word: usize) -> Result<u64> {
        let WordRange { start, count } = self.sections[section as usize];
        let Some(buffer) = self.buffer.as_ref().filter(|_| word <= count) else {
            return refuse("the batch was not uploaded");
        };
        buffer.range((start + word) * 4, (count - word) * 4)
    }

    /// The shape of the batch.
    pub fn shape(&self) -> BatchShape {
        self.shape
    }

    /// Number of rows with padding.
    pub fn rows(&self) -> usize {
        self.shape.rows
    }

    /// Number of scored rows with padding.
    pub fn scored(&self) -> usize {
        self.shape.scored
    }
}
