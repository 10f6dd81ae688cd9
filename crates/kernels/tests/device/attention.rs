//! Split, rotation, writes into the pool, and attention over it.

use crate::common::{BOTH, Random, Rows, array, near, poisoned, rounding, tensor, values};
use asynclane_kernels::device::{
    AttentionScratch, Buffer, Device, DevicePool, Heads, PoolSizes, Precision, split,
};
use asynclane_kernels::{HeadNorm, PagedAttention, Pool, Rope, RopeTable, WriteRows};
use candle_core::{DType, Device as Cpu, Tensor};

/// Heads of a layer.
#[derive(Clone, Copy, Debug)]
struct Shape {
    precision: Precision,
    heads: usize,
    groups: usize,
    c: usize,
    /// Numbers of a head that turn.
    turned: usize,
    norms: bool,
}

/// What both sides made of one batch.
struct Both {
    q: [Vec<f32>; 2],
    /// Keys, then values, in the device's order [pages, g, p, c].
    pools: [[Vec<f32>; 2]; 2],
    out: [Vec<f32>; 2],
}

fn pool(shape: Shape, rows: &Rows) -> DevicePool {
    let sizes = PoolSizes {
        precision: shape.precision,
        layers: 2,
        groups: shape.groups,
        head_width: shape.c,
        page: rows.page,
        pages: rows.pool,
    };
    DevicePool::new(&Device::emulated(), sizes).unwrap()
}

/// Keys and values of layer 1.
fn read(pool: &DevicePool) -> [Vec<f32>; 2] {
    let sizes = pool.sizes();
    let count = sizes.pages * sizes.groups * sizes.page * sizes.head_width;
    let size = sizes.precision.bytes();
    let mut bytes = vec![0; count * size * 4];
    pool.buffer().download(0, &mut bytes).unwrap();
    let number = |bytes: &[u8]| match *bytes {
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
        _ => f32::from_bits(u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 24),
    };
    let half = |from: usize| -> Vec<f32> {
        let part = &bytes[from * count * size..(from + 1) * count * size];
        part.chunks_exact(size).map(number).collect()
    };
    [half(2), half(3)]
}

/// A layer's qkv through the device; rows of the pool that no row writes hold `old`.
fn device(
    shape: Shape,
    rows: &Rows,
    qkv: &[f32],
    norms: &[f32],
    (old, pad): (&DevicePool, usize),
) -> [Vec<f32>; 2] {
    let Shape {
        heads, groups, c, ..
    } = shape;
    let gpu = Device::emulated();
    let batch = rows.upload(old.tile(heads).unwrap(), pad);
    let width = (heads + 2 * groups) * c;
    let mut qkv = qkv.to_vec();
    qkv.resize(batch.rows() * width, 0.25);
    let table = Heads::new(&gpu, &RopeTable::new(1e4, shape.turned, 64)).unwrap();
    let weights = Buffer::floats(&gpu, norms).unwrap();
    let q = poisoned(shape.precision, batch.rows(), heads * c, false);
    let qkv = array(Precision::F32, &qkv, width, false);
    let norms = shape.norms.then_some((&weights, 1e-6));
    split(&qkv, (&table, norms), &batch, &q, (old, 1)).unwrap();
    let out = poisoned(shape.precision, batch.rows(), heads * c, true);
    AttentionScratch::default()
        .attend(&q, (old, 1), &batch, &out)
        .unwrap();
    [q.read(rows.len()).unwrap(), out.read(rows.len()).unwrap()]
}

/// The CPU's pool with the device's numbers.
fn cpu_pool(which: Pool, rows: &Rows, shape: Shape, numbers: &[f32]) -> Tensor {
    let Shape { groups, c, .. } = shape;
    let dims = (rows.pool, groups, rows.page, c);
    let tensor = Tensor::from_slice(numbers, dims, &Cpu::Cpu).unwrap();
    match which {
        Pool::Keys => tensor.transpose(2, 3).unwrap().contiguous().unwrap(),
        Pool::Values => tensor,
    }
}

fn both(random: &mut Random, shape: Shape, rows: &Rows) -> Both {
    let Shape {
        heads, groups, c, ..
    } = shape;
    let width = (heads + 2 * groups) * c;
    let qkv = random.numbers(rows.len() * width);
    let norms = random.numbers((heads + groups) * c);
    let device_pool = pool(shape, rows);
    // What earlier batches left there.
    let numbers = random.numbers(4 * rows.pool * groups * rows.page * c);
    let old = array(shape.precision, &numbers, numbers.len(), false);
    let mut bytes = vec![0; numbers.len() * shape.precision.bytes()];
    old.buffer().download(0, &mut bytes).unwrap();
    device_pool.buffer().upload(&bytes).unwrap();
    let before = read(&device_pool);
    let plain = device(shape, rows, &qkv, &norms, (&device_pool, 1));
    let after = read(&device_pool);
    // Rows that pad the batch change no bit, of the pool neither.
    let padded = device(shape, rows, &qkv, &norms, (&device_pool, 32));
    assert_eq!(padded, plain);
    assert_eq!(read(&device_pool), after);
    let [q, out] = plain;

    let turned = tensor(&qkv, width);
    if shape.norms {
        let norm = HeadNorm {
            weights: &norms,
            width: c,
            eps: 1e-6,
        };
        turned.inplace_op1(&norm).unwrap();
    }
    let rope = Rope {
        table: &RopeTable::new(1e4, shape.turned, 64),
        positions: &rows.positions,
        heads: heads + groups,
        width: c,
    };
    turned.inplace_op1(&rope).unwrap();
    let mut pools = Vec::new();
    for (which, column, old) in [
        (Pool::Keys, heads * c, &before[0]),
        (Pool::Values, (heads + groups) * c, &before[1]),
    ] {
        let pool = cpu_pool(which, rows, shape, old);
        let write = WriteRows {
            pool: which,
            slots: &rows.slots,
            column,
        };
        pool.inplace_op2(&turned, &write).unwrap();
        let in_order = match which {
            Pool::Keys => pool.transpose(2, 3).unwrap().contiguous().unwrap(),
            Pool::Values => pool,
        };
        pools.push(values(&in_order));
    }
    let queries = turned
        .narrow(1, 0, heads * c)
        .unwrap()
        .contiguous()
        .unwrap();
    // Attention on what the device has really written, so that its own error alone is seen.
    let attention = PagedAttention {
        segments: &rows.segments,
        pages: &rows.pages,
        visible: &rows.visible,
        heads,
        scale: 1.0 / (c as f32).sqrt(),
    };
    let keys = cpu_pool(Pool::Keys, rows, shape, &after[0]);
    let held = cpu_pool(Pool::Values, rows, shape, &after[1]);
    let attended = tensor(&q, heads * c)
        .apply_op3_no_bwd(&keys, &held, &attention)
        .unwrap();
    assert_eq!(attended.dtype(), DType::F32);
    Both {
        q: [q, values(&queries)],
        pools: [after, [pools.remove(0), pools.remove(0)]],
        out: [out, values(&attended)],
    }
}

fn compare(random: &mut Random, shape: Shape, rows: &Rows) {
    let what = format!("{shape:?}, {} rows, pages of {}", rows.len(), rows.page);
    let share = rounding(shape.precision);
    let Both { q, pools, out } = both(random, shape, rows);
    near(&q[0], &q[1], share, &format!("queries, {what}"));
    near(&pools[0][0], &pools[1][0], share, &format!("keys, {what}"));
    near(
        &pools[0][1],
        &pools[1][1],
        share,
        &format!("values, {what}"),
    );
    // Weights are rounded too.
    near(&out[0], &out[1], 2.0 * share, &format!("attention, {what}"));
}

const SHAPE: Shape = Shape {
    precision: Precision::F32,
    heads: 4,
    groups: 2,
    c: 32,
    turned: 32,
    norms: false,
};

#[test]
fn ragged_batches_attend_as_on_the_cpu() {
    let mut random = Random(7);
    for precision in BOTH {
        for (heads, groups, c, turned, norms) in [
            (1, 1, 8, 8, false),
            (6, 2, 40, 24, true),
            (7, 1, 64, 64, false),
            (3, 3, 128, 128, true),
        ] {
            let shape = Shape {
                precision,
                heads,
                groups,
                c,
                turned,
                norms,
            };
            // Odd lengths, one row, a segment longer than a tile, page borders.
            let rows = Rows::new(&mut random, 16, &[(1, 1), (5, 33), (70, 100), (1, 64)]);
            compare(&mut random, shape, &rows);
        }
    }
}

#[test]
fn long_contexts_are_added_up_from_their_parts() {
    let mut random = Random(8);
    for precision in BOTH {
        for page in [1, 5, 64] {
            let rows = Rows::new(&mut random, page, &[(3, 511), (2, 1100), (4, 513)]);
            compare(&mut random, Shape { precision, ..SHAPE }, &rows);
        }
    }
}

#[test]
fn a_row_that_sees_nothing_is_zero() {
    let mut random = Random(9);
    for precision in BOTH {
        let shape = Shape { precision, ..SHAPE };
        let mut rows = Rows::new(&mut random, 16, &[(3, 30), (2, 600)]);
        rows.visible = vec![0, 30, 0, 600, 0];
        let out = both(&mut random, shape, &rows).out[0].clone();
        let zero = |row: usize| out[row * 128..(row + 1) * 128].iter().all(|x| *x == 0.0);
        assert_eq!([0, 1, 2, 3, 4].map(zero), [true, false, true, false, true]);
    }
}

/// One row of a batch of many bits by bit, in a batch alone.
#[test]
fn a_row_is_the_same_among_any_others() {
    let mut random = Random(10);
    for precision in BOTH {
        let shape = Shape { precision, ..SHAPE };
        let all = Rows::new(&mut random, 16, &[(40, 600), (30, 90)]);
        let width = (shape.heads + 2 * shape.groups) * shape.c;
        let qkv = random.numbers(all.len() * width);
        let shared = pool(shape, &all);
        let [_, many] = device(shape, &all, &qkv, &[], (&shared, 1));
        for row in [0, 17, 39] {
            let mut alone = all.clone();
            for list in [&mut alone.positions, &mut alone.slots, &mut alone.visible] {
                *list = vec![list[row]];
            }
            alone.segments.truncate(1);
            alone.segments[0].rows = 0..1;
            let [_, one] = device(
                shape,
                &alone,
                &qkv[row * width..(row + 1) * width],
                &[],
                (&shared, 1),
            );
            assert_eq!(one, many[row * 128..(row + 1) * 128], "{precision:?} {row}");
        }
    }
}

#[test]
fn heads_without_kernels_are_refused() {
    let rows = Rows::new(&mut Random(11), 16, &[(1, 1)]);
    let sizes = |c, precision| PoolSizes {
        head_width: c,
        precision,
        ..pool(SHAPE, &rows).sizes()
    };
    assert!(sizes(12, Precision::F32).check().is_ok());
    assert!(sizes(12, Precision::Bf16).check().is_err());
    assert!(sizes(136, Precision::Bf16).check().is_err());
    assert!(pool(SHAPE, &rows).tile(3).is_err());
    assert!(pool(SHAPE, &rows).tile(2 * 65).is_err());
}
