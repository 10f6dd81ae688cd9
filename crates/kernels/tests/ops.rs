//! The small ops compared with plain loops: linear, norm, rope, pool writes.

use asynclane_kernels::{
    AddRows, HeadNorm, Llama3Scaling, QueryGrowth, RopeScaling, RopeSpec, rms_norm,
};
use asynclane_kernels::{CopyPages, KvDtype, KvSizes, Pool, Rope, RopeTable, WriteRows};
use asynclane_kernels::{Epilogue, Linear, Matrix, WeightDtype};
use candle_core::{Device, Tensor};
use step::{PageCopy, PageId};

/// Deterministic values in -1..1.
fn noise(seed: u32, len: usize) -> Vec<f32> {
    (0..len as u32)
        .map(|i| {
            let x = (i.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(40_503)).wrapping_mul(97);
            (x.wrapping_mul(x | 1) >> 8) as f32 / (1u32 << 23) as f32 - 1.0
        })
        .collect()
}

fn tensor(data: &[f32], rows: usize) -> Tensor {
    Tensor::from_slice(data, (rows, data.len() / rows), &Device::Cpu).expect("whole rows")
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().and_then(|flat| flat.to_vec1()).expect("f32 values")
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

fn linear(weight: &[f32], k: usize, bias: &[f32], epilogue: Epilogue) -> Linear {
    let bias = Some(bias);
    let matrix = Matrix { weight, k, bias };
    Linear::new(matrix, WeightDtype::F32, epilogue).expect("shapes fit")
}

#[test]
fn a_gated_linear_is_the_activation_of_the_gate_times_up() {
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let gelu = |x: f64| {
        let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
        0.5 * x * (1.0 + u.tanh())
    };
    gated(Epilogue::SiluGate, silu);
    gated(Epilogue::GeluGate, gelu);
}

fn gated(epilogue: Epilogue, activation: impl Fn(f64) -> f64) {
    for (rows, k, n) in [(1, 8, 3), (5, 72, 40), (65, 192, 512)] {
        let (x, w, b) = (noise(1, rows * k), noise(2, 2 * n * k), noise(3, 2 * n));
        let layer = linear(&w, k, &b, epilogue);
        let got = values(&layer.forward(&tensor(&x, rows)).expect("shapes fit"));
        for i in 0..rows {
            for j in 0..n {
                let x = &x[i * k..(i + 1) * k];
                let gate = dot(x, &w[j * k..(j + 1) * k]) + f64::from(b[j]);
                let up = dot(x, &w[(n + j) * k..(n + j + 1) * k]) + f64::from(b[n + j]);
                let want = activation(gate) * up;
                let error = (f64::from(got[i * n + j]) - want).abs();
                assert!(error < 1e-4 * (1.0 + want.abs()), "{rows}x{k}x{n} at {i},{j}: {error}");
            }
        }
    }
}

#[test]
fn a_linear_adds_bias_and_residual() {
    let (rows, k, n) = (7, 33, 70);
    let (x, w, b, r) = (noise(1, rows * k), noise(2, n * k), noise(3, n), noise(4, rows * n));
    let layer = linear(&w, k, &b, Epilogue::None);
    let got = values(&layer.forward_add(&tensor(&x, rows), &tensor(&r, rows)).unwrap());
    for (index, got) in got.iter().enumerate() {
        let (i, j) = (index / n, index % n);
        let product = dot(&x[i * k..(i + 1) * k], &w[j * k..(j + 1) * k]);
        let want = product + f64::from(b[j]) + f64::from(r[index]);
        assert!((f64::from(*got) - want).abs() < 1e-5, "{i},{j}: {got} for {want}");
    }
    let cut = Matrix { weight: &w[1..], k, bias: None };
    assert!(Linear::new(cut, WeightDtype::F32, Epilogue::None).is_err());
    assert!(layer.forward(&tensor(&noise(0, 34), 1)).is_err());
}

#[test]
fn rms_norm_divides_by_the_root_of_the_mean_square() {
    for (rows, d) in [(1, 1), (3, 72), (400, 192), (2, 37)] {
        let (x, w) = (noise(5, rows * d), noise(6, d));
        let got = values(&rms_norm(&tensor(&x, rows), &w, 1e-5).unwrap());
        for (i, x) in x.chunks(d).enumerate() {
            let scale = (dot(x, x) / d as f64 + 1e-5).sqrt();
            for j in 0..d {
                let want = f64::from(x[j]) / scale * f64::from(w[j]);
                assert!((f64::from(got[i * d + j]) - want).abs() < 1e-5, "{rows}x{d} {i},{j}");
            }
        }
    }
}

#[test]
fn head_norm_normalises_each_head_and_no_other_columns() {
    // Few rows, and enough rows for several threads; columns after the heads stay unchanged.
    for (rows, heads, c) in [(1, 1, 2), (3, 5, 6), (700, 7, 40)] {
        let width = heads * c + 3;
        let before = noise(11, rows * width);
        let weights = noise(12, heads * c);
        let x = tensor(&before, rows);
        let norm = HeadNorm { weights: &weights, width: c, eps: 1e-6 };
        x.inplace_op1(&norm).unwrap();
        let got = values(&x);
        for (got, before) in got.chunks(width).zip(before.chunks(width)) {
            for head in 0..heads {
                let columns = head * c..(head + 1) * c;
                let one = tensor(&before[columns.clone()], 1);
                let want = rms_norm(&one, &weights[columns.clone()], 1e-6).unwrap();
                assert_eq!(got[columns], values(&want));
            }
            assert_eq!(got[heads * c..], before[heads * c..]);
        }
    }
    let wide = HeadNorm { weights: &[1.0; 8], width: 4, eps: 0.0 };
    assert!(tensor(&noise(1, 12), 2).inplace_op1(&wide).is_err());
}

#[test]
fn rows_are_added_to_their_destinations() {
    for (rows, d, chosen) in [(5, 3, vec![0u32, 2, 4]), (300, 200, (7..300).collect())] {
        let (before, added) = (noise(13, rows * d), noise(14, chosen.len() * d));
        let weights = noise(15, chosen.len());
        let sums = tensor(&before, rows);
        let add = AddRows { rows: &chosen, weights: &weights };
        sums.inplace_op2(&tensor(&added, chosen.len()), &add).unwrap();
        let mut want = before;
        for (i, &row) in chosen.iter().enumerate() {
            for j in 0..d {
                want[row as usize * d + j] += weights[i] * added[i * d + j];
            }
        }
        assert_eq!(values(&sums), want);
    }
    let refused = |rows: &[u32]| {
        let add = AddRows { rows, weights: &[1.0, 1.0] };
        let sums = tensor(&noise(1, 6), 3);
        let refused = sums.inplace_op2(&tensor(&noise(2, 4), 2), &add).unwrap_err();
        refused.to_string()
    };
    assert!(refused(&[1, 3]).contains("row 3 of 3"));
    assert!(refused(&[1, 1]).contains("not strictly ascending"));
}

#[test]
fn rope_rotates_each_row_by_its_own_position() {
    let (heads, c) = (3, 8);
    // Complete heads, and only their first elements.
    for part in [c, 4] {
        let table = RopeTable::new(&RopeSpec::plain(10_000.0, part, 10));
        assert_eq!(table.positions(), 10);
        // Few rows, and enough rows for several threads.
        for count in [3, 2001] {
            let positions: Vec<u32> = (0..count).map(|i| i * 9 % 10).collect();
            rotate(&table, &positions, (heads, c, part));
        }
        let far = Rope { table: &table, positions: &[10, 0, 0], heads, queries: 1, width: c };
        let refused = tensor(&noise(7, 96), 3).inplace_op1(&far).unwrap_err();
        assert!(refused.to_string().contains("position 10 of 10"));
    }
}

/// `rope_type` `proportional`: only the leading frequencies turn, and their exponents are those of the
/// whole head.
#[test]
fn elements_of_still_frequencies_keep_their_values() {
    let spec = RopeSpec { turning: 2, ..RopeSpec::plain(1e6, 16, 40) };
    let frequencies = spec.frequencies();
    let slower = 1e6f32.powf(-2.0 / 16.0);
    assert_eq!(frequencies, [1.0, slower, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let before = noise(8, 3 * 16);
    let x = tensor(&before, 3);
    let table = RopeTable::new(&spec);
    let rope = Rope { table: &table, positions: &[39, 7, 1], heads: 1, queries: 1, width: 16 };
    x.inplace_op1(&rope).expect("positions and heads fit");
    for (index, (got, before)) in values(&x).iter().zip(&before).enumerate() {
        let still = index % 8 >= 2;
        assert_eq!(got.to_bits() == before.to_bits(), still, "element {index}");
    }
}

/// A divisor slows its frequency, after the scaling of Llama 3.1.
#[test]
fn frequencies_are_divided_one_by_one() {
    let plain = RopeSpec { turning: 3, ..RopeSpec::plain(1e4, 8, 1) };
    let divisors = vec![1.0, 2.0, 0.5, 8.0];
    let divided = RopeSpec { divisors: divisors.clone(), ..plain.clone() };
    let expected: Vec<f32> = plain
        .frequencies()
        .iter()
        .zip(&divisors)
        .map(|(frequency, divisor)| frequency / divisor)
        .collect();
    assert_eq!(divided.frequencies(), expected);
    assert_eq!(divided.frequencies()[3], 0.0, "what is still stays so");
    let llama3 = Llama3Scaling { factor: 4.0, low: 1.0, high: 4.0, original: 16 };
    let scaling = Some(RopeScaling::Llama3(llama3));
    let scaled = RopeSpec { scaling: scaling.clone(), ..plain.clone() };
    let both = RopeSpec { scaling, ..divided };
    for (both, (scaled, divisor)) in
        both.frequencies().iter().zip(scaled.frequencies().iter().zip(&divisors))
    {
        assert_eq!(*both, scaled / divisor);
    }
}

/// Llama 4's and Ministral 3's factor: query heads alone grow, from the original context on.
#[test]
fn queries_grow_with_the_position() {
    let growth = QueryGrowth { beta: 0.1, original: 16 };
    let plain = RopeSpec { turning: 0, ..RopeSpec::plain(1e4, 4, 40) };
    let spec = RopeSpec { growth: Some(growth), ..plain.clone() };
    let before = noise(9, 3 * 12);
    let rotated = |spec: &RopeSpec| {
        let x = tensor(&before, 3);
        let table = RopeTable::new(spec);
        let rope = Rope { table: &table, positions: &[15, 16, 39], heads: 3, queries: 2, width: 4 };
        x.inplace_op1(&rope).expect("positions and heads fit");
        values(&x)
    };
    assert_eq!(rotated(&plain), before);
    let factors = [1.0, 1.0 + 0.1 * 2f64.ln(), 1.0 + 0.1 * 3f64.ln()];
    for (index, (got, before)) in rotated(&spec).iter().zip(&before).enumerate() {
        let factor = if index % 12 < 8 { factors[index / 12] as f32 } else { 1.0 };
        assert_eq!(*got, before * factor, "element {index}");
    }
    let near = RopeSpec { growth: Some(QueryGrowth { original: 40, ..growth }), ..plain };
    assert_eq!(rotated(&near), before, "no position is beyond the original context");
}

/// Rotates `heads` heads of rows with one more head, and compares them with angles in f64.
fn rotate(table: &RopeTable, positions: &[u32], (heads, c, part): (usize, usize, usize)) {
    let width = (heads + 1) * c;
    let before = noise(7, positions.len() * width);
    let x = tensor(&before, positions.len());
    let rope = Rope { table, positions, heads, queries: 1, width: c };
    x.inplace_op1(&rope).expect("positions and heads fit");
    let got = values(&x);
    for (row, &position) in positions.iter().enumerate() {
        for j in 0..width {
            let index = row * width + j;
            let half = part / 2;
            let (i, high) = (j % c % half, j % c >= half);
            let angle = f64::from(position) * 10_000f64.powf(-2.0 * i as f64 / part as f64);
            let other = if high { index - half } else { index + half };
            let other = before.get(other).copied().map_or(0.0, f64::from);
            let turned = if high { other } else { -other } * angle.sin();
            let want = f64::from(before[index]) * angle.cos() + turned;
            let want = if j < heads * c && j % c < part { want } else { f64::from(before[index]) };
            assert!((f64::from(got[index]) - want).abs() < 1e-5, "row {row} column {j}");
        }
    }
}

#[test]
fn pool_writes_change_only_their_slots() {
    // Four pages of two slots, two heads of three elements.
    let (num_kv_heads, c, page) = (2, 3, 2);
    let rows = noise(9, 2 * 20);
    for kind in [Pool::Keys, Pool::Values] {
        let shape = kind.shape(4, num_kv_heads, c, page);
        let pool = Tensor::full(-1.0f32, shape.as_slice(), &Device::Cpu).unwrap();
        let number = |data: &[f32], slot: usize, group: usize, i: usize| {
            let block = (slot / page * num_kv_heads + group) * c * page;
            data[match kind {
                Pool::Keys => block + i * page + slot % page,
                Pool::Values => block + slot % page * c + i,
            }]
        };
        let write = WriteRows { pool: kind, slots: &[6, 1], column: 5 };
        pool.inplace_op2(&tensor(&rows, 2), &write).unwrap();
        let got = values(&pool);
        for slot in 0..8 {
            for (group, i) in (0..num_kv_heads).flat_map(|group| (0..c).map(move |i| (group, i))) {
                let want = match slot {
                    6 => rows[5 + group * c + i],
                    1 => rows[25 + group * c + i],
                    _ => -1.0,
                };
                assert_eq!(number(&got, slot, group, i), want, "{kind:?} slot {slot}");
            }
        }
        let copy = |pairs: &[(u32, u32)]| {
            let copies = pairs.iter().map(|&(source, destination)| PageCopy {
                source: PageId(source),
                destination: PageId(destination),
            });
            pool.inplace_op1(&CopyPages { copies: &copies.collect::<Vec<_>>() })
        };
        copy(&[(3, 0), (0, 2)]).unwrap();
        let copied = values(&pool);
        assert_eq!(copied[..12], got[36..48]);
        assert_eq!(copied[24..36], got[36..48]);
        assert_eq!(copied[12..24], got[12..24]);
        let bad = WriteRows { slots: &[8, 1], ..write };
        assert!(pool.inplace_op2(&tensor(&rows, 2), &bad).is_err());
        assert!(copy(&[(4, 0)]).is_err());
    }
}

#[test]
fn writing_many_rows_equals_writing_them_one_by_one() {
    // Runs within pages and across page boundaries, gaps, and slots that two rows write.
    let (num_kv_heads, c, page, rows) = (4, 8, 16, 1100);
    let slots: Vec<u32> = (0..rows).map(|i| (i * 3 / 2 + i / 50 * 7) % 900).collect();
    let width = num_kv_heads * c + 5;
    let x = noise(10, slots.len() * width);
    let formats = KvDtype::ALL.map(|dtype| [(dtype, Pool::Keys), (dtype, Pool::Values)]);
    for (dtype, kind) in formats.into_iter().flatten() {
        let sizes = KvSizes {
            dtype,
            layers: 1,
            num_kv_heads,
            head_width: c,
            page,
            pages: 900usize.div_ceil(page),
        };
        let pool = || kind.zeros(&sizes).unwrap();
        let (at_once, singly) = (pool(), pool());
        let write = |pool: &Tensor, slots: &[u32], x: &[f32]| {
            let column = 3;
            let write = WriteRows { pool: kind, slots, column };
            pool.inplace_op2(&tensor(x, slots.len()), &write).unwrap();
        };
        write(&at_once, &slots, &x);
        for (slot, x) in slots.chunks(1).zip(x.chunks(width)) {
            write(&singly, slot, x);
        }
        let [at_once, singly] = [at_once, singly].map(|pool| {
            let numbers = pool.to_dtype(candle_core::DType::F32).unwrap();
            values(&numbers)
        });
        assert!(at_once == singly, "{dtype:?} {kind:?}");
    }
}

/// The row of a failed sequence fails those that see it, and the next row in its slot is as good as in
/// a new pool.
#[test]
fn numbers_that_are_not_finite_are_kept_as_such() {
    for x in [f32::NAN, f32::INFINITY] {
        let sizes = KvSizes {
            dtype: KvDtype::Int8,
            layers: 1,
            num_kv_heads: 1,
            head_width: 4,
            page: 1,
            pages: 1,
        };
        let pool = Pool::Values.zeros(&sizes).unwrap();
        let write = |row: &[f32]| {
            let write = WriteRows { pool: Pool::Values, slots: &[0], column: 0 };
            pool.inplace_op2(&tensor(row, 1), &write).unwrap();
            let bytes = pool.flatten_all().unwrap().to_vec1::<u8>().unwrap();
            let scale = f32::from_ne_bytes(bytes[4..].try_into().unwrap());
            let number = |byte: &u8| f32::from(byte.cast_signed()) * scale;
            bytes[..4].iter().map(number).collect::<Vec<_>>()
        };
        let kept = write(&[1.0, x, 0.5, 0.0]);
        assert!(kept.iter().any(|x| !x.is_finite()), "{kept:?}");
        assert_eq!(write(&[127.0, -63.0, 0.0, 1.2]), [127.0, -63.0, 0.0, 1.0]);
        assert_eq!(write(&[0.0; 4]), [0.0; 4]);
    }
}
