//! The arrays of a batch on a device, checked and uploaded at once.

use super::array::Buffer;
use super::{Device, Result, refuse};
use crate::attention::AttentionSegment;
use crate::score::{Draw, LogitBias, ScorerRow};

/// A batch on the host; one entry per row unless said otherwise.
#[derive(Clone, Copy)]
pub struct BatchArrays<'a> {
    /// Input tokens.
    pub tokens: &'a [u32],
    /// Positions.
    pub positions: &'a [u32],
    /// Physical slots.
    pub slots: &'a [u32],
    /// Slots each row sees.
    pub visible: &'a [u32],
    /// The segments, covering all rows.
    pub segments: &'a [AttentionSegment],
    /// Page tables of all segments.
    pub pages: &'a [u32],
    /// Rows that are scored.
    pub scored: &'a [u32],
    /// One entry per scored row.
    pub scorers: &'a [ScorerRow],
    /// Changes of logits that scored rows refer to.
    pub biases: &'a [LogitBias],
    /// Sets of tokens that scored rows refer to.
    pub allowed: &'a [u32],
    /// Words of a set: `v.div_ceil(32)`.
    pub set_words: usize,
    /// Rows whose logits the host wants.
    pub hosted: &'a [u32],
    /// Settings that scored rows refer to.
    pub draws: &'a [Draw],
    /// Source and destination page of each copy.
    pub copies: &'a [(u32, u32)],
}

/// What a batch's numbers must stay below.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Rows of the embedding table.
    pub tokens: usize,
    /// Positions of the rotary table.
    pub positions: usize,
    /// Tokens with a logit.
    pub vocab: usize,
    /// KV pages.
    pub pages: usize,
    /// Slots of a page.
    pub page: usize,
    /// Most rows of one attention tile.
    pub tile: usize,
    /// What rows and scored rows are padded to a multiple of, `>= 1`; from 2 on tiles and contexts
    /// are rounded up too, so that few shapes serve all batches.
    pub pad: usize,
}

/// What decides which kernels run on a batch, over how many blocks and at which addresses: batches of
/// one shape are the same launches over other contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Rows, padding included.
    pub rows: usize,
    /// Scored rows, padding included.
    pub scored: usize,
    /// Attention tiles, padding included.
    pub tiles: usize,
    /// Slots that some row may see.
    pub visible: usize,
    /// Most rows of a tile.
    pub tallest: usize,
    /// What rows are padded to a multiple of.
    pub pad: usize,
}

impl BatchShape {
    /// What the longest context of a padded batch is rounded up to.
    #[must_use]
    pub fn context(visible: usize) -> usize {
        visible.max(FEWEST_SLOTS).next_power_of_two()
    }
}

/// What lies where in the uploaded words.
#[derive(Clone, Copy, Default)]
struct Part {
    from: usize,
    count: usize,
}

/// A batch on the device. Its memory is used again.
///
/// What is indexed by row, scored row or tile comes first, padded, so that the shape tells where it
/// lies; page tables, biases and sets of tokens follow, and are found by numbers in the first half.
#[derive(Default)]
pub struct DeviceBatch {
    buffer: Option<Buffer>,
    words: Vec<u32>,
    bytes: Vec<u8>,
    parts: [Part; 10],
    shape: BatchShape,
}

/// The parts of a batch.
#[derive(Clone, Copy)]
pub(super) enum Of {
    Tokens,
    Positions,
    Slots,
    Visible,
    Scored,
    Scorers,
    Tiles,
    /// Page tables, then biases, then sets of tokens.
    Words,
    Hosted,
    Copies,
}

/// Words of a tile, of a scored row's settings and of a bias.
pub(super) const TILE_WORDS: usize = 4;
pub(super) const SCORER_WORDS: usize = 9;
const BIAS_WORDS: usize = 3;
/// Stands for nothing where a number is expected; `NONE` of the kernels.
const NONE: u32 = u32::MAX;
/// A padding row's settings: nothing is its input, nothing is changed or drawn.
const IDLE: [u32; SCORER_WORDS] = [NONE, 0, 0, 0, NONE, 0, 0, 0, 0];
/// Slots that contexts are rounded up to at least, of a padded batch.
const FEWEST_SLOTS: usize = 512;

impl DeviceBatch {
    /// Checks everything that kernels will index and uploads it.
    ///
    /// # Errors
    /// What is out of range, or what the device says.
    pub fn upload(
        &mut self,
        device: &Device,
        arrays: &BatchArrays<'_>,
        limits: &BatchLimits,
    ) -> Result<()> {
        check(arrays, limits)?;
        self.words.clear();
        let pad = limits.pad.max(1);
        let visible = arrays.visible.iter().max().map_or(0, |&most| most as usize);
        self.shape = BatchShape {
            rows: arrays.tokens.len().next_multiple_of(pad),
            scored: arrays.scored.len().next_multiple_of(pad),
            visible: match pad {
                1 => visible,
                _ => BatchShape::context(visible),
            },
            pad,
            ..BatchShape::default()
        };
        let rows = self.shape.rows;
        for (of, words, nothing) in [
            (Of::Tokens, arrays.tokens, 0),
            (Of::Positions, arrays.positions, 0),
            (Of::Slots, arrays.slots, NONE),
            (Of::Visible, arrays.visible, 0),
        ] {
            self.put(of, |to| {
                to.extend_from_slice(words);
                to.extend(std::iter::repeat_n(nothing, rows - words.len()));
            });
        }
        self.put_scored(arrays);
        self.put_tiles(arrays, limits);
        self.put(Of::Words, |to| {
            to.extend_from_slice(arrays.pages);
            for bias in arrays.biases {
                to.extend([bias.token, bias.repetition.to_bits(), bias.amount.to_bits()]);
            }
            to.extend_from_slice(arrays.allowed);
        });
        self.put(Of::Hosted, |to| to.extend_from_slice(arrays.hosted));
        self.put(Of::Copies, |to| {
            to.extend(arrays.copies.iter().flat_map(|&(from, into)| [from, into]));
        });
        self.send(device)
    }

    fn put_scored(&mut self, arrays: &BatchArrays<'_>) {
        let padding = self.shape.scored - arrays.scored.len();
        self.put(Of::Scored, |to| {
            to.extend_from_slice(arrays.scored);
            to.extend(std::iter::repeat_n(0, padding));
        });
        let biases = arrays.pages.len() as u32;
        let sets = biases + (arrays.biases.len() * BIAS_WORDS) as u32;
        let set = arrays.set_words as u32;
        self.put(Of::Scorers, |to| {
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
            }
            to.extend(std::iter::repeat_n(IDLE, padding).flatten());
        });
    }

    fn put(&mut self, of: Of, fill: impl FnOnce(&mut Vec<u32>)) {
        let from = self.words.len();
        fill(&mut self.words);
        let count = self.words.len() - from;
        self.parts[of as usize] = Part { from, count };
    }

    /// Cuts segments into runs of rows for one block of attention.
    fn put_tiles(&mut self, arrays: &BatchArrays<'_>, limits: &BatchLimits) {
        let (mut tallest, mut tiles, padded) = (0, 0_usize, limits.pad > 1);
        self.put(Of::Tiles, |to| {
            for segment in arrays.segments {
                let (from, end) = (segment.rows.start as usize, segment.rows.end as usize);
                for row in (from..end).step_by(limits.tile.max(1)) {
                    let rows = limits.tile.min(end - row);
                    let seen = arrays.visible[row..row + rows].iter().max();
                    let seen = seen.copied().unwrap_or(0);
                    to.extend([row as u32, rows as u32, segment.pages.start, seen]);
                    tallest = tallest.max(rows);
                    tiles += 1;
                }
            }
            if padded {
                let all = tiles.next_power_of_two();
                // They begin where the rows end, so that rows of tiles follow one another.
                let idle = [arrays.tokens.len() as u32, 0, 0, 0];
                to.extend(std::iter::repeat_n(idle, all - tiles).flatten());
                tiles = all;
                tallest = limits.tile;
            }
        });
        (self.shape.tallest, self.shape.tiles) = (tallest, tiles);
    }

    fn send(&mut self, device: &Device) -> Result<()> {
        self.bytes.clear();
        self.bytes
            .extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        let short = self
            .buffer
            .as_ref()
            .is_none_or(|buffer| buffer.bytes() < self.bytes.len());
        if short {
            let room = self.bytes.len().next_power_of_two();
            self.buffer = None;
            self.buffer = Some(Buffer::new(device, room)?);
        }
        match &self.buffer {
            Some(buffer) => buffer.upload(&self.bytes),
            None => Ok(()),
        }
    }

    /// Words of a part.
    pub(super) fn count(&self, of: Of) -> usize {
        self.parts[of as usize].count
    }

    /// The address of a part from a word on.
    pub(super) fn address(&self, of: Of, word: usize) -> Result<u64> {
        let Part { from, count } = self.parts[of as usize];
        let Some(buffer) = self.buffer.as_ref().filter(|_| word <= count) else {
            return refuse("the batch was not uploaded");
        };
        buffer.range((from + word) * 4, (count - word) * 4)
    }

    /// Its shape.
    #[must_use]
    pub fn shape(&self) -> BatchShape {
        self.shape
    }

    /// Rows, padding included.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape.rows
    }

    /// Scored rows, padding included.
    #[must_use]
    pub fn scored(&self) -> usize {
        self.shape.scored
    }
}

/// Whether everything that will be indexed exists.
fn check(arrays: &BatchArrays<'_>, limits: &BatchLimits) -> Result<()> {
    let rows = arrays.tokens.len();
    let lengths = [arrays.positions, arrays.slots, arrays.visible].map(<[u32]>::len);
    if lengths != [rows; 3] || arrays.scored.len() != arrays.scorers.len() {
        return refuse(format!("arrays of {lengths:?} entries for {rows} rows"));
    }
    let pages = arrays.copies.iter().flat_map(|&(from, to)| [from, to]);
    let pages = pages.chain(arrays.pages.iter().copied());
    below("page", pages, limits.pages)?;
    below("token", arrays.tokens.iter().copied(), limits.tokens)?;
    below(
        "position",
        arrays.positions.iter().copied(),
        limits.positions,
    )?;
    below(
        "slot",
        arrays.slots.iter().copied(),
        limits.pages * limits.page,
    )?;
    below("scored row", arrays.scored.iter().copied(), rows)?;
    below(
        "token",
        arrays.biases.iter().map(|bias| bias.token),
        limits.vocab,
    )?;
    below("row", arrays.hosted.iter().copied(), rows)?;
    let words = limits.vocab.div_ceil(32).max(1);
    if arrays.set_words != words {
        return refuse(format!(
            "sets of {} words, expected {words}",
            arrays.set_words
        ));
    }
    let sets = arrays.allowed.len() / words;
    for row in arrays.scorers {
        let biases = row.biases.start as usize..row.biases.end as usize;
        let known = arrays.biases.get(biases).is_some()
            && row.allowed.is_none_or(|set| (set as usize) < sets)
            && (row.draw as usize) < arrays.draws.len();
        if !known {
            return refuse("a scored row's biases, settings or allowed set are missing");
        }
    }
    let mut next = 0;
    for segment in arrays.segments {
        let (from, end) = (segment.rows.start as usize, segment.rows.end as usize);
        let table = segment.pages.start as usize..segment.pages.end as usize;
        let (Some(visible), Some(table)) = (arrays.visible.get(from..end), arrays.pages.get(table))
        else {
            return refuse("a segment's rows or pages are missing");
        };
        if from != next
            || visible
                .iter()
                .any(|&seen| seen as usize > table.len() * limits.page)
        {
            return refuse("a segment has a hole or sees more slots than it has");
        }
        next = end;
    }
    match next == rows {
        true => Ok(()),
        false => refuse(format!("segments end at row {next} of {rows}")),
    }
}

fn below(what: &str, mut numbers: impl Iterator<Item = u32>, limit: usize) -> Result<()> {
    match numbers.find(|&number| number as usize >= limit) {
        Some(number) => refuse(format!("{what} {number} of {limit}")),
        None => Ok(()),
    }
}
