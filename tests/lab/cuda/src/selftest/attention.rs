//! Splitting, rotation, pool writes and attention.

mod formats;

pub(super) use formats::Formats;

use super::data::{Ends, POSITIONS, Random, Rows, array, poisoned, tensor, values};
use super::{Check, Tell, cpu, rounding};
use crate::Result;
use candle_core::{Device as Cpu, Tensor};
use kernels::HeadNorm;
use kernels::KvSizes;
use kernels::PagedAttention;
use kernels::device::{
    AttentionScratch, Buffer, Device, DevicePool, DeviceRope, HeadRows, HeadTransform, PoolLayer,
    PoolSizes, Precision, RowNorm, split,
};
use kernels::{Pool, WriteRows};
use kernels::{QueryGrowth, Rope, RopeSpec, RopeTable};
use std::ops::Range;

const EPS: f32 = 1e-6;
const THETA: f64 = 1e4;

/// The heads of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) heads: usize,
    pub(super) num_kv_heads: usize,
    pub(super) c: usize,
    /// Number of elements of a head that are rotated.
    pub(super) rotated: usize,
    /// Norms of query and key heads.
    pub(super) norms: bool,
    /// Norms of value heads too.
    pub(super) values: bool,
}

/// Plain heads.
pub(super) const SHAPE: Shape =
    Shape { heads: 4, num_kv_heads: 2, c: 32, rotated: 32, norms: false, values: false };

/// Heads as wide as those of canvas models, in layers with a window and with full attention.
pub(super) const WIDE: [Shape; 3] = [
    Shape { heads: 6, num_kv_heads: 2, c: 136, rotated: 136, norms: true, values: true },
    Shape { heads: 4, num_kv_heads: 4, c: 256, rotated: 256, norms: true, values: false },
    Shape { heads: 16, num_kv_heads: 2, c: 512, rotated: 128, norms: true, values: true },
];

impl Shape {
    /// The width of a row's queries, keys and values.
    pub(super) fn width(&self) -> usize {
        (self.heads + 2 * self.num_kv_heads) * self.c
    }
}

/// One layer's input and the pool before the layer.
pub(super) struct Case {
    pub(super) shape: Shape,
    pub(super) rows: Rows,
    qkv: Vec<f32>,
    /// Offset of the first row in `qkv`.
    pub(super) first: usize,
    norms: Vec<f32>,
    pub(super) pool: DevicePool,
    formats: Formats,
}

pub(super) fn checks(
    random: &mut Random,
    target: (&Device, Formats),
    most: usize,
    tell: &mut Tell<'_>,
) {
    let shape = |heads, num_kv_heads, c, rotated, norms| Shape {
        heads,
        num_kv_heads,
        c,
        rotated,
        norms,
        values: false,
    };
    for shape in [
        shape(1, 1, 8, 8, false),
        shape(6, 2, 40, 24, true),
        shape(7, 1, 64, 64, false),
        shape(3, 3, 128, 128, true),
    ] {
        // Odd lengths, one row, a segment longer than a tile, page boundaries.
        let rows = Rows::new(random, 16, &[(1, 1), (5, 33), (70, 100), (1, 64)]);
        tell.case(
            "attention",
            Case::new(random, target, shape, rows).and_then(|case| case.checks()),
        );
    }
    for page in [1, 5, 64] {
        // Contexts of several partitions.
        let rows = Rows::new(random, target.1.page(page), &[(3, 511), (2, 1100), (4, 513)]);
        tell.case(
            "attention",
            Case::new(random, target, SHAPE, rows).and_then(|case| case.checks()),
        );
    }
    let rows = Rows::new(random, 16, &[(most, most + 9)]);
    tell.case(
        "attention",
        Case::new(random, target, SHAPE, rows).and_then(|mut case| {
            let mut checks = case.checks()?;
            checks.push(case.alone(0..most.div_ceil(8))?);
            Ok(checks)
        }),
    );
    for shape in WIDE {
        // Whole and partial tiles; a context of two partitions.
        let rows = Rows::new(random, 16, &[(1, 1), (9, 40), (3, 530)]);
        tell.case(
            "attention",
            Case::new(random, target, shape, rows).and_then(|case| case.checks()),
        );
    }
    for shape in [SHAPE, WIDE[0]] {
        let mut rows = Rows::new(random, 16, &[(9, 40), (2, 700)]);
        rows.windowed = true;
        tell.case(
            "attention",
            Case::new(random, target, shape, rows).and_then(|case| case.checks()),
        );
    }
}

impl Case {
    pub(super) fn new(
        random: &mut Random,
        (device, formats): (&Device, Formats),
        shape: Shape,
        rows: Rows,
    ) -> Result<Self> {
        let shape = formats.fitting(shape);
        let kv = KvSizes {
            dtype: formats.kv,
            layers: 2,
            num_kv_heads: shape.num_kv_heads,
            head_width: shape.c,
            page: rows.page,
            pages: rows.pool,
        };
        let sizes = PoolSizes { precision: formats.precision, kv };
        let pool = DevicePool::new(device, sizes)?;
        pool.buffer().upload(&formats.contents(random, device, sizes)?)?;
        Ok(Self {
            qkv: random.numbers(rows.len() * shape.width()),
            first: 0,
            norms: random.numbers(match shape.values {
                true => shape.width(),
                false => (shape.heads + shape.num_kv_heads) * shape.c,
            }),
            shape,
            rows,
            pool,
            formats,
        })
    }

    fn precision(&self) -> Precision {
        self.formats.precision
    }

    /// Keeps some rows of the first segment of `all`.
    pub(super) fn keep(&mut self, all: &Rows, range: Range<usize>) {
        self.rows = all.clone();
        self.first = range.start * self.shape.width();
        for list in [&mut self.rows.positions, &mut self.rows.slots] {
            *list = list[range.clone()].to_vec();
        }
        self.rows.visible = all.visible[range.clone()].to_vec();
        self.rows.segments.truncate(1);
        self.rows.segments[0].rows = 0..range.len() as u32;
    }

    /// True if rows of the first segment have the same bits without the others: blocks have other
    /// parts of contexts then.
    fn alone(&mut self, range: Range<usize>) -> Result<Check> {
        let (all, width) = (self.rows.clone(), self.shape.heads * self.shape.c);
        let [_, many] = self.run(1)?;
        self.keep(&all, range.clone());
        let [_, few] = self.run(1)?;
        let same = few == many[range.start * width..range.end * width];
        Ok(Check {
            name: format!("{:?} attention of {} rows alone", self.precision(), range.len()),
            error: f64::from(u8::from(!same)),
            tolerance: 0.0,
        })
    }

    /// Queries and attention results of all rows; rows are padded to a multiple of `pad`.
    pub(super) fn run(&self, pad: usize) -> Result<[Vec<f32>; 2]> {
        let target = (self.pool.device(), self.precision());
        let (device, shape, rows) = (target.0, self.shape, &self.rows);
        let inner = shape.heads * shape.c;
        let batch = rows.upload(device, self.pool.tile(shape.heads)?, pad)?;
        let mut qkv = self.qkv[self.first..][..rows.len() * shape.width()].to_vec();
        qkv.resize(batch.rows() * shape.width(), 0.25);
        let qkv = array((device, Precision::F32), &qkv, shape.width(), Ends::Plain)?;
        let table = DeviceRope::new(device, &rope_table(shape.rotated))?;
        let weights = Buffer::floats(device, &self.norms)?;
        let norm = shape.norms.then_some(RowNorm { weight: &weights, eps: EPS });
        let layer = PoolLayer { pool: &self.pool, layer: 1, windowed: rows.windowed };
        let q = poisoned(target, (batch.rows(), inner), Ends::Plain)?;
        let transform = HeadTransform { rope: &table, norm };
        split(&qkv, HeadRows { transform, batch: &batch, layer }, &q)?;
        let out = poisoned(target, (batch.rows(), inner), Ends::Padded)?;
        AttentionScratch::default().attend(&q, layer, &batch, &out)?;
        Ok([q.read(rows.len())?, out.read(rows.len())?])
    }

    /// Bytes of the keys, and of the values, of layer 1.
    pub(super) fn bytes(&self) -> Result<[Vec<u8>; 2]> {
        let sizes = self.pool.sizes();
        let half = sizes.kv.slot_bytes() * sizes.kv.page * sizes.kv.pages / 4;
        let read = |part: usize| {
            let mut bytes = vec![0; half];
            self.pool.buffer().download(part * half, &mut bytes)?;
            Ok(bytes)
        };
        Ok([read(2)?, read(3)?])
    }

    /// Makes some heads so small that they count as zero, and one zero.
    #[cfg(test)]
    pub(super) fn shrink(&mut self) {
        for (number, head) in self.qkv.chunks_exact_mut(self.shape.c).enumerate() {
            let factor = [1.0, 1e-31, 1.0, 1.0, 0.0, 1e-3, 1e20][number % 7];
            head.iter_mut().for_each(|x| *x *= factor);
        }
    }

    /// Makes NaN of the scales of some slots of a segment in layer 1.
    #[cfg(test)]
    pub(super) fn poison(&self, segment: usize, slots: Range<usize>) {
        let kv = self.pool.sizes().kv;
        let head = kv.page * kv.dtype.head_bytes(kv.head_width);
        let mut all = vec![0; kv.slot_bytes() * kv.page * kv.pages];
        self.pool.buffer().download(0, &mut all).unwrap();
        let layer = all.len() / 2;
        let table = &self.rows.pages[self.rows.segments[segment].pages.start as usize..];
        for part in all[layer..].chunks_exact_mut(layer / 2) {
            for slot in slots.clone() {
                let page = table[slot / kv.page].index();
                for group in 0..kv.num_kv_heads {
                    let first = (page * kv.num_kv_heads + group) * head + kv.page * kv.head_width;
                    let scale = &mut part[first + slot % kv.page * 4..][..4];
                    scale.copy_from_slice(&f32::NAN.to_le_bytes());
                }
            }
        }
        self.pool.buffer().upload(&all).unwrap();
    }

    /// The bytes of keys and of values, `before` with the rows that the CPU writes to its own pools in int8.
    #[cfg(test)]
    pub(super) fn on_cpu_in_bytes(&self, before: [Vec<u8>; 2]) -> Result<[Vec<u8>; 2]> {
        let Shape { heads, num_kv_heads, c, .. } = self.shape;
        let (rows, page) = (&self.rows, self.rows.page);
        let rotated = self.rotated()?;
        // The CPU has the numbers of keys by element; scales are alike.
        let turned = |bytes: &mut [u8], columns: usize| {
            let rows = page * c / columns;
            for head in bytes.chunks_exact_mut(page * (c + 4)) {
                let numbers = head[..page * c].to_vec();
                for (i, number) in numbers.into_iter().enumerate() {
                    head[i % columns * rows + i / columns] = number;
                }
            }
        };
        let write = |pool: Pool, bytes: Vec<u8>, column: usize| {
            let shape = pool.shape(rows.pool, num_kv_heads, c + 4, page);
            let tensor = cpu(Tensor::from_vec(bytes, shape.as_slice(), &Cpu::Cpu))?;
            let write = WriteRows { pool, slots: &rows.slots, column };
            cpu(tensor.inplace_op2(&rotated, &write))?;
            cpu(tensor.flatten_all().and_then(|all| all.to_vec1::<u8>()))
        };
        let [mut keys, others] = before;
        turned(&mut keys, c);
        let mut keys = write(Pool::Keys, keys, heads * c)?;
        turned(&mut keys, page);
        Ok([keys, write(Pool::Values, others, (heads + num_kv_heads) * c)?])
    }

    /// Keys and values of layer 1, `[pages, g, p, c]`.
    pub(super) fn held(&self) -> Result<[Vec<f32>; 2]> {
        Ok(self.bytes()?.map(|bytes| self.formats.numbers(&bytes, self.pool.sizes())))
    }

    /// A CPU pool with the device's numbers.
    fn on_cpu(&self, which: Pool, numbers: &[f32]) -> Result<Tensor> {
        let dims = (self.rows.pool, self.shape.num_kv_heads, self.rows.page, self.shape.c);
        let tensor = cpu(Tensor::from_slice(numbers, dims, &Cpu::Cpu))?;
        match which {
            Pool::Keys => cpu(tensor.transpose(2, 3).and_then(|t| t.contiguous())),
            Pool::Values => Ok(tensor),
        }
    }

    /// Queries, keys and values of the rows after norms and rotation.
    fn rotated(&self) -> Result<Tensor> {
        let Shape { heads, num_kv_heads, c, .. } = self.shape;
        let rotated = tensor(&self.qkv, self.shape.width())?;
        if self.shape.norms {
            let norm = HeadNorm { weights: &self.norms, width: c, eps: EPS };
            cpu(rotated.inplace_op1(&norm))?;
        }
        let rope = Rope {
            table: &rope_table(self.shape.rotated),
            positions: &self.rows.positions,
            heads: heads + num_kv_heads,
            queries: heads,
            width: c,
        };
        cpu(rotated.inplace_op1(&rope))?;
        Ok(rotated)
    }

    /// The same with keys and values as they are kept.
    fn kept(&self, rotated: &Tensor) -> Result<Tensor> {
        let (mut numbers, width) = (values(rotated)?, self.shape.width());
        for row in numbers.chunks_exact_mut(width) {
            self.formats.kept(&mut row[self.shape.heads * self.shape.c..], self.shape.c);
        }
        tensor(&numbers, width)
    }

    /// The contents of the CPU pools after the rows are written.
    fn written(&self, rotated: &Tensor, before: &[Vec<f32>; 2]) -> Result<[Vec<f32>; 2]> {
        let Shape { heads, num_kv_heads, c, .. } = self.shape;
        let write = |which: Pool, column: usize, old: &[f32]| {
            let pool = self.on_cpu(which, old)?;
            let write = WriteRows { pool: which, slots: &self.rows.slots, column };
            cpu(pool.inplace_op2(rotated, &write))?;
            match which {
                Pool::Keys => values(&cpu(pool.transpose(2, 3).and_then(|t| t.contiguous()))?),
                Pool::Values => values(&pool),
            }
        };
        Ok([
            write(Pool::Keys, heads * c, &before[0])?,
            write(Pool::Values, (heads + num_kv_heads) * c, &before[1])?,
        ])
    }

    /// CPU attention over the pool that the device wrote, so that only attention's error counts.
    fn attended(&self, q: &[f32], held: &[Vec<f32>; 2]) -> Result<Vec<f32>> {
        let attention = PagedAttention {
            segments: &self.rows.segments,
            pages: &self.rows.pages,
            visible: &self.rows.visible,
            heads: self.shape.heads,
            scale: 1.0 / (self.shape.c as f32).sqrt(),
        };
        let keys = self.on_cpu(Pool::Keys, &held[0])?;
        let others = self.on_cpu(Pool::Values, &held[1])?;
        let q = tensor(q, self.shape.heads * self.shape.c)?;
        values(&cpu(q.apply_op3_no_bwd(&keys, &others, &attention))?)
    }

    pub(super) fn checks(&self) -> Result<Vec<Check>> {
        let Shape { heads, num_kv_heads, c, .. } = self.shape;
        let (precision, rows) = (self.precision(), &self.rows);
        let name = |what: &str| {
            let (count, page) = (rows.len(), rows.page);
            let windows = if rows.windowed { " with windows" } else { "" };
            format!(
                "{precision:?} {what} with {}: {heads}/{num_kv_heads} heads of {c}, {count} rows{windows}, \
                 pages of {page}",
                self.formats.kv.name()
            )
        };
        let before = self.held()?;
        let [q, out] = self.run(1)?;
        let after = self.held()?;
        // Padding rows change no bit of the results or of the pool.
        let idle = self.run(32)? == [q.clone(), out.clone()] && self.held()? == after;
        let mut rotated = self.rotated()?;
        let queries = rotated.narrow(1, 0, heads * c).and_then(|t| t.contiguous());
        let queries = values(&cpu(queries)?)?;
        rotated = self.kept(&rotated)?;
        let [keys, others] = self.written(&rotated, &before)?;
        let attended = self.attended(&q, &after)?;
        let share = rounding(precision);
        Ok(vec![
            Check::new(name("queries"), &q, &queries, share),
            Check::new(name("keys"), &after[0], &keys, self.formats.rounding()),
            Check::new(name("values"), &after[1], &others, self.formats.rounding()),
            // Attention weights are rounded too.
            Check::new(name("attention"), &out, &attended, 2.0 * share),
            Check { name: name("padding"), error: f64::from(u8::from(!idle)), tolerance: 0.0 },
        ])
    }
}

fn rope_table(width: usize) -> RopeTable {
    // Queries of one shape grow.
    let growth = (width == 136).then_some(QueryGrowth { beta: 0.4, original: POSITIONS / 5 });
    RopeTable::new(&RopeSpec { growth, ..RopeSpec::plain(THETA, width, POSITIONS) })
}
