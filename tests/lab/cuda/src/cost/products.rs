//! Matrix products, the LM head and its reduction.

use super::heads::HeadBlocks;
use super::{Launch, LaunchCost, PASS, SECTOR, Seen, Sum, Words, sectors, spanned};
use crate::layout::{FIELDS, PANEL, PARTIAL_BYTES, STRIP};
use crate::layout::{NONE, SCORER_WORDS};
use kernels::Form;
use kernels::device::args;
use kernels::device::{BOX_ROWS, MatrixFormat, ProductTile, row_instructions};
use std::collections::BTreeSet;

/// Words of a tile of grouped rows; `GroupTile` of the kernels: expert, first row, rows.
const GROUP_WORDS: usize = 3;
/// Instructions of a warp that reduces a strip without biases, filters and noise, counted in the PTX.
const STRIP_INSTRUCTIONS: f64 = 700.0;
/// Instructions of a warp for a row and 64 columns that are added to the residual stream before a norm, counted
/// in the PTX.
const ADDED_INSTRUCTIONS: f64 = 48.0;
/// Words of a scored row's settings; `Scored` of the kernels.
const BIASES: usize = 2;
const BIAS_COUNT: usize = 3;
const ALLOWED: usize = 4;
const EXTRAS: usize = 9;

/// The biases and sets of allowed tokens that the blocks of the head read.
fn limits(a: &args::Head, tile: &ProductTile, settings: &[[u32; SCORER_WORDS]]) -> Seen {
    let mut seen = Seen::default();
    let word = |index: u64| a.words + index * 4;
    if settings.iter().all(|row| row[BIAS_COUNT] == 0 && row[ALLOWED] == NONE) {
        return seen;
    }
    for rows in settings.chunks(tile.rows) {
        for first in (0..u64::from(a.operands.n)).step_by(tile.columns) {
            let columns = (u64::from(a.operands.n) - first).min(tile.columns as u64);
            for row in rows {
                // Three words each.
                seen.touch(word(row[BIASES].into()), u64::from(row[BIAS_COUNT]) * 12);
                if row[ALLOWED] != NONE {
                    let set = u64::from(row[ALLOWED]) + first / 32;
                    seen.touch(word(set), columns.div_ceil(32) * 4);
                }
            }
            seen.end();
        }
    }
    seen
}

/// The rows of a matrix `[n, k]`, or the panels of a packed one: the bytes of one, and their number.
fn stored(tile: &ProductTile, form: u32, [n, k]: [u64; 2]) -> [u64; 2] {
    match tile.format {
        MatrixFormat::Packed(_) => {
            let bits = Form::ALL[form as usize].bits() as u64 + 1;
            [PANEL * k * bits / 8, n.div_ceil(PANEL)]
        }
        format => [k * format.bits() as u64 / 8, n],
    }
}

/// The sums of the divided tiles of a product, which their blocks write and the last one of a tile reads again.
fn divided(operands: &args::Operands, share: &args::Share, tile: &ProductTile, tiles: u64) -> Sum {
    let divided = tiles - u64::from(share.whole).min(tiles);
    let segments = operands.k.div_ceil(operands.segment);
    let slots = match tile.format {
        MatrixFormat::Int8 => share.pieces,
        _ if divided == 0 => 0,
        _ => segments - share.lead + 1,
    };
    let sums = divided * u64::from(slots);
    Sum::default().add((tile.rows * tile.columns * size_of::<f32>()) as u64, sums, sums)
}

/// Tiles of a column that have rows.
fn with_rows(rows: u64, tile: &ProductTile) -> u64 {
    rows.div_ceil(tile.rows as u64)
}

/// The heads of the blocks of a tile.
fn head_blocks(tile: &ProductTile, width: u32, count: u32) -> HeadBlocks {
    let columns = tile.columns as u32;
    if !tile.cuts_heads() {
        return HeadBlocks::new(tile.rows, columns / width, count);
    }
    // Two tiles share the head between theirs.
    let firsts = (0..count).filter(|head| head % 3 < 2);
    let heads = firsts.map(|first| first..(first + 2).min(count)).collect();
    HeadBlocks { rows: tile.rows, heads }
}

/// Bytes of a result of a gated product.
fn gate_bytes(tile: &ProductTile) -> u64 {
    tile.format.gated().bytes() as u64
}

impl Launch {
    /// The operands of a product in `tall` by `broad` tiles, and what the tiles compute.
    fn product(
        &self,
        operands: &args::Operands,
        tile: &ProductTile,
        [tall, broad]: [u64; 2],
    ) -> (Sum, LaunchCost) {
        let [rows, n, k] = [operands.rows, operands.n, operands.k].map(u64::from);
        let [weight, count] = stored(tile, operands.form, [n, k]);
        let blocks = tile.cluster.max(1) as u64;
        let mut read = match tile.cluster {
            0 => Sum::default().add(k * self.wide, rows * broad, rows),
            // Whole copies: rows of other steps too, which change nothing.
            _ => {
                let copied = rows.next_multiple_of(BOX_ROWS as u64).min(self.x_rows);
                Sum::default().add(k * self.wide, copied * broad, copied)
            }
        };
        read = read.add(weight, count * tall / blocks, count);
        if operands.scales != 0 {
            read = read.add(n * 4, with_rows(rows, tile), 1);
        }
        if operands.row_scales != 0 {
            read = read.add(rows * 4, broad, 1);
        }
        if operands.squares != 0 {
            let tile_rows = (0..rows).step_by(tile.rows).map(|first| {
                let rows = (rows - first).min(tile.rows as u64);
                sectors(rows * u64::from(operands.parts) * 4)
            });
            let by_blocks = tile_rows.sum::<u64>() * broad;
            read = read.add(SECTOR, by_blocks, sectors(rows * u64::from(operands.parts) * 4));
        }
        let mut cost = LaunchCost {
            fresh: sectors(weight) * count,
            operations: 2.0 * (rows * n * k) as f64,
            ..LaunchCost::default()
        };
        self.compute(&mut cost, tile, (tall * broad) as f64 * k as f64);
        (read, cost)
    }

    /// Adds what `tile` computes; `inner`: the inner elements of all tiles.
    fn compute(&self, cost: &mut LaunchCost, tile: &ProductTile, inner: f64) {
        let outputs = (tile.rows * tile.columns) as f64;
        cost.ahead = [(tile.ahead() * tile.stage()) as f64, tile.resident as f64];
        cost.integers = tile.format == MatrixFormat::Int8;
        if self.wide < 4 {
            cost.rate = tile.rate;
            cost.tensor = 2.0 * inner * outputs;
            let steps = inner / tile.pipeline.depth as f64;
            let copied = tile.stage() as f64;
            let loaded = (tile.read() * tile.pipeline.depth) as f64;
            cost.passes = steps * (copied + loaded) / PASS as f64;
            // Copies of 16 bytes per lane; of warps also loads of four matrices, and products of
            // 16 x 8 and 32 bytes.
            let products = cost.tensor / (2 * 16 * 8 * 32 / self.wide) as f64;
            let weights = (tile.columns * tile.pipeline.depth) as f64;
            cost.instructions = match (tile.warpgroups, tile.format) {
                // Weights are loaded once, and four take five instructions to widen, packed ones 18.
                (true, MatrixFormat::Int8w) => steps * (copied + weights + 20.0 * weights) / 512.0,
                (true, MatrixFormat::Packed(_)) => {
                    steps * (copied + weights + 72.0 * weights) / 512.0
                }
                // One lane asks for whole rows.
                (true, _) if tile.cluster > 0 => steps * 50.0,
                (true, _) => steps * copied / 512.0,
                (false, _) => steps * (copied + loaded) / 512.0 + products,
            };
        } else {
            cost.instructions = inner * outputs / 32.0 * 1.5;
        }
    }

    pub(super) fn gemm(&self, a: &args::Gemm, tile: &ProductTile) -> LaunchCost {
        let tall = u64::from(a.share.tall);
        let broad = u64::from(a.operands.n).div_ceil(tile.columns as u64);
        let (mut read, mut cost) = self.product(&a.operands, tile, [tall, broad]);
        let [rows, n] = [a.operands.rows, a.operands.n].map(u64::from);
        if a.bias != 0 {
            read = read.add(n * 4, with_rows(rows, tile), 1);
        }
        // As `Store` of products.
        let (added, gated) = (a.finish == 1, a.finish >= 2);
        if added {
            read = read.add(n * 4, rows, rows);
        }
        let width = if gated { n / 2 * gate_bytes(tile) } else { n * 4 };
        let written = Sum::default().add(width, rows, rows);
        let sums = divided(&a.operands, &a.share, tile, tall * broad);
        (cost.read, cost.written) = (read.with(&sums).0, written.with(&sums).0);
        cost
    }

    /// A product that is added to the residual stream before a norm.
    pub(super) fn residual(&self, a: &args::Residual, tile: &ProductTile) -> LaunchCost {
        let tall = u64::from(a.share.tall);
        let broad = u64::from(a.operands.n).div_ceil(tile.columns as u64);
        let (mut read, mut cost) = self.product(&a.operands, tile, [tall, broad]);
        let [rows, n] = [a.operands.rows, a.operands.n].map(u64::from);
        let real = with_rows(rows, tile);
        if a.bias != 0 {
            read = read.add(n * 4, real, 1);
        }
        read = read.add(n * 4, real, 1).add(n * 4, rows, rows);
        // Squares of 64 columns each.
        let parts = n / STRIP as u64;
        let each = (tile.columns / STRIP) as u64;
        let firsts = (0..rows * parts).filter(|part| (part % parts).is_multiple_of(each));
        let by_blocks = firsts.map(|part| {
            let some = each.min(parts - part % parts);
            spanned(a.squares + part * 4, some * 4, 1)
        });
        let written = Sum::default().add(n * 4, rows, rows).add(n * 2, rows, rows).add(
            SECTOR,
            by_blocks.sum(),
            sectors(rows * parts * 4),
        );
        let sums = divided(&a.operands, &a.share, tile, tall * broad);
        (cost.read, cost.written) = (read.with(&sums).0, written.with(&sums).0);
        cost.after = (rows * parts) as f64 * ADDED_INSTRUCTIONS;
        cost
    }

    /// A product whose tiles are split into heads.
    pub(super) fn qkv(
        &self,
        a: &args::Qkv,
        tile: &ProductTile,
        words: Words<'_>,
    ) -> Option<LaunchCost> {
        let tall = u64::from(a.share.tall);
        let broad = u64::from(a.operands.n).div_ceil(tile.columns as u64);
        let (mut read, mut cost) = self.product(&a.operands, tile, [tall, broad]);
        if a.bias != 0 {
            let real = with_rows(a.operands.rows.into(), tile);
            read = read.add(u64::from(a.operands.n) * 4, real, 1);
        }
        let width = a.heads.heads.c;
        let blocks = head_blocks(tile, width, a.operands.n / width);
        let heads = self.split_heads(&a.heads, [a.operands.rows, 2], &blocks, words)?;
        let sums = divided(&a.operands, &a.share, tile, tall * broad);
        cost.read = read.with(&sums).with(&heads.read).0;
        cost.written = heads.written.with(&sums).0;
        cost.after =
            (u64::from(a.operands.rows) * broad) as f64 * row_instructions(tile, width as usize);
        Some(cost)
    }

    /// The LM head.
    pub(super) fn head(
        &self,
        a: &args::Head,
        tile: &ProductTile,
        words: Words<'_>,
    ) -> Option<LaunchCost> {
        let [rows, n] = [a.operands.rows, a.operands.n].map(u64::from);
        let real = with_rows(rows, tile);
        let tall = real.next_multiple_of(tile.cluster.max(1) as u64);
        let broad = n.div_ceil(tile.columns as u64);
        let (mut read, mut cost) = self.product(&a.operands, tile, [tall, broad]);
        if a.bias != 0 {
            read = read.add(n * 4, real, 1);
        }
        let scorers = sectors(rows * SCORER_WORDS as u64 * 4);
        read = read.add(SECTOR, scorers * broad, scorers);
        // A block has one record of a row, or several that are adjacent.
        let (record, count) = (PARTIAL_BYTES as u64, u64::from(a.count));
        let each = (tile.columns / STRIP) as u64;
        let firsts = (0..rows).flat_map(|row| {
            let blocks = (0..count).step_by(each as usize);
            blocks.map(move |first| (row * count + first, each.min(count - first)))
        });
        let by_blocks =
            firsts.map(|(first, some)| spanned(a.partials + first * record, some * record, 1));
        let mut written = Sum::default()
            .add(SECTOR, by_blocks.sum(), sectors(rows * count * record))
            .add(SECTOR, sectors(rows * 8), sectors(rows * 8));
        let settings = words(a.rows, rows as usize * SCORER_WORDS)?;
        let settings = settings.as_chunks::<SCORER_WORDS>().0;
        read = read.seen(&limits(a, tile, settings));
        let kept = settings.iter().filter(|row| row[EXTRAS] != 0).count() as u64;
        if kept > 0 {
            let columns = tile.columns as u64;
            let parts = (0..n).step_by(tile.columns).map(|first| {
                let end = n.min(first + columns);
                (0..rows)
                    .filter(|row| settings[*row as usize][EXTRAS] != 0)
                    .map(|row| spanned(a.logits + (row * n + first) * 4, (end - first) * 4, 1))
                    .sum::<u64>()
            });
            written = written.add(SECTOR, parts.sum(), 0).add(n * 4, 0, kept);
        }
        (cost.read, cost.written) = (read.0, written.0);
        cost.after = (rows.div_ceil(8) * count) as f64 * STRIP_INSTRUCTIONS;
        Some(cost)
    }

    /// The products of groups of rows with their expert's matrix.
    pub(super) fn grouped(
        &self,
        a: &args::Grouped,
        tile: &ProductTile,
        words: Words<'_>,
    ) -> Option<LaunchCost> {
        let tiles = words(a.tiles, self.grid[0] as usize * GROUP_WORDS)?;
        let [n, k, broad] = [a.n, a.k, self.grid[1]].map(u64::from);
        let [weight, count] = stored(tile, a.form, [n, k]);
        // As `Store` of products.
        let gated = a.finish >= 2;
        let (mut lists, mut experts) = (Seen::default(), BTreeSet::new());
        let (mut read, mut written) = (Sum::default(), Sum::default());
        let (mut rows, mut groups) = (0, 0);
        let mut factors = Seen::default();
        for (number, [expert, first, some]) in (0..).zip(tiles.as_chunks::<GROUP_WORDS>().0) {
            let (some, matrix) = (u64::from(*some), u64::from(expert * a.step) * 8);
            factors.touch(a.row_scales + u64::from(*first) * 4, some * 4);
            factors.end_all(broad);
            for _ in 0..broad {
                lists.touch(a.tiles + number * GROUP_WORDS as u64 * 4, GROUP_WORDS as u64 * 4);
                if some > 0 {
                    lists.touch(a.matrices + matrix, 8);
                }
                if some > 0 && a.scales != 0 {
                    lists.touch(a.scales + matrix, 8);
                }
                lists.end();
            }
            if some > 0 {
                experts.insert(expert);
                (rows, groups) = (rows + some, groups + 1);
            }
        }
        read = read.seen(&lists).add(k * self.wide, rows * broad, rows).add(
            weight,
            groups * count,
            experts.len() as u64 * count,
        );
        if a.scales != 0 {
            read = read.add(n * 4, groups, experts.len() as u64);
        }
        if a.row_scales != 0 {
            read = read.seen(&factors);
        }
        let width = if gated { n / 2 * gate_bytes(tile) } else { n * 4 };
        written = written.add(width, rows, rows);
        let mut cost = LaunchCost {
            read: read.0,
            written: written.0,
            fresh: sectors(weight) * experts.len() as u64 * count,
            operations: 2.0 * (rows * n * k) as f64,
            ..LaunchCost::default()
        };
        self.compute(&mut cost, tile, (groups * broad * k) as f64);
        Some(cost)
    }

    pub(super) fn fold(&self, a: &args::Fold) -> LaunchCost {
        let [rows, count] = [self.grid[0], a.count].map(u64::from);
        let [scorer, record] = [SCORER_WORDS as u64 * 4, FIELDS as u64 * 8];
        let partials = count * PARTIAL_BYTES as u64;
        let scorers = spanned(a.rows, scorer, rows);
        let read = Sum::default()
            .add(SECTOR, spanned(a.partials, partials, rows), sectors(partials * rows))
            .add(SECTOR, scorers + rows, sectors(rows * scorer) + sectors(rows * 8));
        let written = spanned(a.out, record, rows);
        LaunchCost {
            read: read.0,
            written: Sum::default().add(SECTOR, written, sectors(rows * record)).0,
            ..LaunchCost::default()
        }
    }
}
