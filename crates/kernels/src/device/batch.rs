//! The arrays of a batch, checked and uploaded to a device in one buffer.

mod check;

use super::array::Buffer;
use super::{Device, Result, filters, refuse};
use crate::attention::{AttentionSegment, Visible};
use crate::score::{Draw, LogitBias, ScorerRow};

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
    pub segments: &'a [AttentionSegment],
    /// Page tables of all segments.
    pub pages: &'a [u32],
    /// Indices of the rows that are scored.
    pub scored: &'a [u32],
    /// One entry per scored row.
    pub scorers: &'a [ScorerRow],
    /// Logit biases that scored rows refer to.
    pub biases: &'a [LogitBias],
    /// Sets of allowed tokens that scored rows refer to.
    pub allowed: &'a [u32],
    /// Words of a set: `v.div_ceil(32)`.
    pub set_words: usize,
    /// Sampling settings that scored rows refer to.
    pub draws: &'a [Draw],
    /// Source and destination page of each copy.
    pub copies: &'a [(u32, u32)],
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
    /// Rows and scored rows are padded to a multiple of this, `>= 1`. If it is 2 or more, the number
    /// of tiles and the context are rounded up too, so that few shapes cover all batches.
    pub pad: usize,
}

/// The sizes that determine the kernels, grids and addresses of a batch's launches. Batches of the
/// same shape have the same launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Number of rows with padding.
    pub rows: usize,
    /// Number of scored rows with padding.
    pub scored: usize,
    /// Number of attention tiles with padding.
    pub tiles: usize,
    /// The first slot after all that any row sees.
    pub reach: usize,
    /// Maximum rows of a tile, rounded up in a padded batch.
    pub tallest: usize,
    /// Rows are padded to a multiple of this.
    pub pad: usize,
    /// Whether a scored row has a filter or wants its most probable tokens.
    pub filtered: bool,
}

impl BatchShape {
    /// The longest context of a padded batch, rounded up.
    #[must_use]
    pub fn context(reach: usize) -> usize {
        reach.max(FEWEST_SLOTS).next_power_of_two()
    }
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
}

impl BatchSizes {
    /// Bytes of the largest batch of these sizes without page copies: every row is scored, and has a
    /// tile of its own.
    fn bytes(&self) -> usize {
        // Token, position, slot, reach; what the row sees; index and settings of a scored row.
        let row = 4 + VISIBLE_WORDS + 1 + SCORER_WORDS;
        let tiles = self.rows.checked_next_power_of_two().unwrap_or(usize::MAX);
        let words = self.rows.saturating_mul(row);
        let words = words.saturating_add(tiles.saturating_mul(TILE_WORDS));
        let words = words.saturating_add(self.biases.saturating_mul(BIAS_WORDS));
        let words = words.saturating_add(self.pages);
        words
            .saturating_add(self.allowed)
            .saturating_mul(size_of::<u32>())
    }
}

/// The range of a section in the uploaded words.
#[derive(Clone, Copy, Default)]
struct WordRange {
    from: usize,
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
    sections: [WordRange; 10],
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
    /// Page tables, then biases, then sets of tokens.
    Words,
    Copies,
}

/// Words of what a row sees, of a tile, of a scored row's settings, and of a bias.
const VISIBLE_WORDS: usize = 4;
pub(super) const TILE_WORDS: usize = 5;
pub(super) const SCORER_WORDS: usize = 16;
const BIAS_WORDS: usize = 3;
/// Marks an absent number; `NONE` of the kernels.
pub(super) const NONE: u32 = u32::MAX;
/// Settings of a padding row: no input token, no biases, no allowed set, temperature 0, no filters,
/// no most probable tokens.
const IDLE: [u32; SCORER_WORDS] = [NONE, 0, 0, 0, NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Minimum slots of the rounded-up context of a padded batch.
const FEWEST_SLOTS: usize = 512;

/// Whether a scored row wants something besides its record.
fn is_filtered(arrays: &BatchArrays<'_>) -> bool {
    let draw = |row: &ScorerRow| &arrays.draws[row.draw as usize];
    let mut rows = arrays.scorers.iter();
    rows.any(|row| filters::besides(row, draw(row)) != 0)
}

impl DeviceBatch {
    /// Allocates memory for batches up to these sizes; they then allocate nothing.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn reserve(&mut self, device: &Device, sizes: &BatchSizes) -> Result<()> {
        self.grow(device, sizes.bytes())
    }

    /// Checks all indices and uploads the batch.
    ///
    /// # Errors
    /// If an index is out of bounds, or the device fails.
    pub fn upload(
        &mut self,
        device: &Device,
        arrays: &BatchArrays<'_>,
        limits: &BatchLimits,
    ) -> Result<()> {
        check::check(arrays, limits)?;
        self.words.clear();
        let pad = limits.pad.max(1);
        let reach = arrays.visible.iter().map(Visible::reach).max().unwrap_or(0);
        self.shape = BatchShape {
            rows: arrays.tokens.len().next_multiple_of(pad),
            scored: arrays.scored.len().next_multiple_of(pad),
            reach: match pad {
                1 => reach,
                _ => BatchShape::context(reach),
            },
            pad,
            filtered: is_filtered(arrays),
            ..BatchShape::default()
        };
        let rows = self.shape.rows;
        for (section, words, padding) in [
            (Section::Tokens, arrays.tokens, 0),
            (Section::Positions, arrays.positions, 0),
            (Section::Slots, arrays.slots, NONE),
        ] {
            self.put(section, |to| {
                to.extend_from_slice(words);
                to.extend(std::iter::repeat_n(padding, rows - words.len()));
            });
        }
        self.put_visible(arrays);
        self.put_scored(arrays);
        self.put_tiles(arrays, limits);
        self.put(Section::Words, |to| {
            to.extend_from_slice(arrays.pages);
            for bias in arrays.biases {
                to.extend([bias.token, bias.repetition.to_bits(), bias.amount.to_bits()]);
            }
            to.extend_from_slice(arrays.allowed);
        });
        self.put(Section::Copies, |to| {
            to.extend(arrays.copies.iter().flat_map(|&(from, into)| [from, into]));
        });
        self.send(device)
    }

    fn put_visible(&mut self, arrays: &BatchArrays<'_>) {
        let padding = self.shape.rows - arrays.visible.len();
        let padded = || {
            let idle = std::iter::repeat_n(Visible::default(), padding);
            arrays.visible.iter().copied().chain(idle)
        };
        self.put(Section::Reaches, |to| {
            to.extend(padded().map(|row| row.reach() as u32));
        });
        self.put(Section::Visible, |to| {
            to.extend(padded().flat_map(Visible::words));
        });
    }

    fn put_scored(&mut self, arrays: &BatchArrays<'_>) {
        let padding = self.shape.scored - arrays.scored.len();
        self.put(Section::Scored, |to| {
            to.extend_from_slice(arrays.scored);
            to.extend(std::iter::repeat_n(0, padding));
        });
        let biases = arrays.pages.len() as u32;
        let sets = biases + (arrays.biases.len() * BIAS_WORDS) as u32;
        let set = arrays.set_words as u32;
        let mut first_top = 0;
        self.put(Section::Scorers, |to| {
            for row in arrays.scorers {
                let draw = &arrays.draws[row.draw as usize];
                to.extend([
                    row.input,
                    row.position,
                    biases + row.biases.start * BIAS_WORDS as u32,
                    row.biases.end.saturating_sub(row.biases.start),
                    row.allowed.map_or(NONE, |number| sets + number * set),
                    draw.temperature.to_bits(),
                    draw.seed as u32,
                    (draw.seed >> 32) as u32,
                    draw.clock,
                ]);
                to.extend(filters::words(row, draw, first_top));
                first_top += row.tops;
            }
            to.extend(std::iter::repeat_n(IDLE, padding).flatten());
        });
    }

    fn put(&mut self, section: Section, fill: impl FnOnce(&mut Vec<u32>)) {
        let from = self.words.len();
        fill(&mut self.words);
        let count = self.words.len() - from;
        self.sections[section as usize] = WordRange { from, count };
    }

    /// Splits segments into tiles of rows; one block of attention processes one tile.
    fn put_tiles(&mut self, arrays: &BatchArrays<'_>, limits: &BatchLimits) {
        let (mut tallest, mut tiles, padded) = (0, 0_usize, limits.pad > 1);
        self.put(Section::Tiles, |to| {
            for segment in arrays.segments {
                let (from, end) = (segment.rows.start as usize, segment.rows.end as usize);
                for row in (from..end).step_by(limits.tile.max(1)) {
                    let rows = limits.tile.min(end - row);
                    let visible = &arrays.visible[row..row + rows];
                    let reach = visible.iter().map(Visible::reach).max().unwrap_or(0) as u32;
                    let holes = u32::from(!visible.iter().all(Visible::is_prefix));
                    to.extend([row as u32, rows as u32, segment.pages.start, reach, holes]);
                    tallest = tallest.max(rows);
                    tiles += 1;
                }
            }
            if padded {
                let all = tiles.next_power_of_two();
                // Idle tiles start at the end of the rows, so that the rows of tiles are contiguous.
                let idle = [arrays.tokens.len() as u32, 0, 0, 0, 0];
                to.extend(std::iter::repeat_n(idle, all - tiles).flatten());
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
        self.bytes
            .extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
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

    /// The address of a word of a section.
    pub(super) fn address(&self, section: Section, word: usize) -> Result<u64> {
        let WordRange { from, count } = self.sections[section as usize];
        let Some(buffer) = self.buffer.as_ref().filter(|_| word <= count) else {
            return refuse("the batch was not uploaded");
        };
        buffer.range((from + word) * 4, (count - word) * 4)
    }

    /// The shape of the batch.
    #[must_use]
    pub fn shape(&self) -> BatchShape {
        self.shape
    }

    /// Number of rows with padding.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape.rows
    }

    /// Number of scored rows with padding.
    #[must_use]
    pub fn scored(&self) -> usize {
        self.shape.scored
    }
}
