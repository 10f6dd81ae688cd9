//! Shares of weights, and products on ranks of the processor.

use super::shares::Share;
use super::{RankArray, Ranks};
use crate::backend::{
    Accelerator, ArrayKind, Backend, Counting, Cpu, Numbers, Rank, Storage, Stored, StoredVector,
    Table,
};
use crate::blocks::{BlockRows, BlockType};
use crate::cache::{KvDtype, KvSizes};
use crate::device::Device;
use crate::gemm::tests::noise;
use crate::linear::Epilogue;
use crate::simd::unit::WeightDtype;
use candle_core::Result;

const K: usize = 64;
/// Query, key and value.
const PARTS: [usize; 3] = [24, 12, 12];

fn ranks(count: usize) -> Ranks<Cpu> {
    Ranks::new((0..count).map(|_| Cpu::default()).collect()).unwrap()
}

/// The product of three rows and a matrix, in an array of sums.
fn product<B: Backend>(on: &B, matrix: Stored<'_>, x: &B::Array, width: usize) -> Result<Vec<f32>> {
    let mut out = on.array(ArrayKind::Sums, 3, width)?;
    on.linear(&on.matrix(matrix)?, (x, 3), &mut out)?;
    on.download(&out, 3)
}

/// Asserts that ranks of the processor have the bits of one.
fn check(matrix: Stored<'_>) {
    let numbers = noise(7, 3 * K);
    // The parts of the result.
    let parts = match matrix.epilogue {
        Epilogue::None => matrix.parts,
        _ => &matrix.parts[..1],
    };
    let width = parts.iter().sum();
    let mut x = Cpu::default().array(ArrayKind::Inputs, 3, K).unwrap();
    Cpu::default().overwrite(&mut x, K, &numbers).unwrap();
    let whole = product(&Cpu::default(), matrix, &x, width).unwrap();
    for count in [1, 2, 3] {
        let on = ranks(count);
        let mut x = RankArray::new(ArrayKind::Inputs, 3, K);
        for (on, x) in on.each().iter().zip(x.new_whole(on.each()).unwrap()) {
            on.overwrite(x, K, &numbers).unwrap();
        }
        let got = product(&on, matrix, &x, width).unwrap();
        let of = |rank| Share::new("columns", (rank, count), (parts, width)).unwrap();
        let row = |row: &[f32]| -> Vec<f32> {
            (0..count)
                .flat_map(|rank| of(rank).columns(row, width))
                .collect()
        };
        let want: Vec<f32> = whole.chunks(width).flat_map(row).collect();
        let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert!(
            bits(got) == bits(want),
            "{:?} {:?} {count}",
            matrix.dtype,
            matrix.epilogue
        );
    }
}

#[test]
fn products_have_the_bits_of_one_processor_in_every_dtype() {
    let rows = PARTS.iter().sum();
    let (weight, bias) = (noise(8, rows * K), noise(9, rows));
    for dtype in WeightDtype::ALL {
        for (epilogue, parts) in [
            (Epilogue::None, &PARTS[..]),
            (Epilogue::SiluGate, &[24, 24]),
            (Epilogue::GeluGate, &[24, 24]),
        ] {
            check(Stored {
                shape: (rows, K),
                numbers: Numbers::Floats(&weight),
                bias: Some(&bias),
                dtype,
                epilogue,
                parts,
            });
        }
    }
}

/// Blocks whose scales and minimums are small numbers.
fn blocks(kind: BlockType, rows: usize) -> Vec<u8> {
    let bytes = kind.row_bytes(K).unwrap() * rows;
    let mut bytes: Vec<u8> = (0..bytes).map(|i| (i * 37 % 251) as u8).collect();
    for block in bytes.chunks_exact_mut(kind.bytes()) {
        block[1] = 0x2C;
    }
    bytes
}

#[test]
fn rows_of_several_block_types_are_divided() {
    let types = [BlockType::Q4_0, BlockType::Q8_0, BlockType::Q5_0];
    let stored: Vec<_> = types
        .iter()
        .zip(PARTS)
        .map(|(of, n)| blocks(*of, n))
        .collect();
    let of = |i: usize| BlockRows {
        kind: types[i],
        rows: PARTS[i],
        bytes: &stored[i],
    };
    let matrix = Stored {
        shape: (PARTS.iter().sum(), K),
        numbers: Numbers::Blocks(&[of(0), of(1), of(2)]),
        bias: None,
        dtype: WeightDtype::Blocks,
        epilogue: Epilogue::None,
        parts: &PARTS,
    };
    check(matrix);
    // One tensor with all three.
    let fused = blocks(BlockType::Q8_0, 48);
    let fused = [BlockRows {
        kind: BlockType::Q8_0,
        rows: 48,
        bytes: &fused,
    }];
    check(Stored {
        numbers: Numbers::Blocks(&fused),
        ..matrix
    });
    let short = [BlockRows {
        bytes: &fused[0].bytes[..100],
        ..fused[0]
    }];
    let error = ranks(2).matrix(Stored {
        numbers: Numbers::Blocks(&short),
        ..matrix
    });
    assert!(error.is_err());
}

#[test]
fn shares_are_the_same_part_of_every_part() {
    let numbers: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let share = |rank| Share::new("a matrix", (rank, 2), (&[4, 2], 6)).unwrap();
    assert_eq!(share(0).count(), 3);
    assert_eq!(
        share(0).rows(&numbers, 2).unwrap(),
        [0., 1., 2., 3., 8., 9.]
    );
    assert_eq!(
        share(1).rows(&numbers, 2).unwrap(),
        [4., 5., 6., 7., 10., 11.]
    );
    assert_eq!(share(1).columns(&numbers, 6), [2., 3., 5., 8., 9., 11.]);
    // Only counted.
    assert!(share(1).rows(&[], 2).unwrap().is_empty());
    assert!(share(1).rows(&numbers[..8], 2).is_err());
    let refused = |parts: &[usize]| Share::new("a matrix", (0, 2), (parts, 6)).err().unwrap();
    for (parts, expected) in [
        (
            &[4, 4][..],
            "a matrix: expected parts of 6 together, found [4, 4]",
        ),
        (
            &[3, 3],
            "a matrix: expected a part that 2 ranks divide evenly, found 3",
        ),
    ] {
        let error = refused(parts).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn an_undivided_matrix_lies_on_the_first_rank() {
    let on = Ranks::new(vec![Counting::default(), Counting::default()]).unwrap();
    let matrix = Stored {
        shape: (64, K),
        numbers: Numbers::Floats(&[]),
        bias: None,
        dtype: WeightDtype::F32,
        epilogue: Epilogue::None,
        parts: &[],
    };
    on.matrix(matrix).unwrap();
    let whole = on.bytes();
    let each = || on.each().iter().map(Storage::bytes).collect::<Vec<_>>();
    assert_eq!(each(), [whole, 0]);
    on.matrix(Stored {
        parts: &[64],
        ..matrix
    })
    .unwrap();
    assert_eq!(each(), [whole + whole / 2, whole / 2]);
    let vector = StoredVector {
        count: 8,
        numbers: &[],
        parts: &[],
    };
    on.vector(vector).unwrap();
    on.vector(StoredVector {
        parts: &[4, 4],
        ..vector
    })
    .unwrap();
    let table = Table {
        rows: 10,
        width: 8,
        numbers: Vec::new(),
    };
    on.table(table).unwrap();
    let (vectors, table) = (4 * (8 + 4), 4 * 10 * 4);
    let each_more = vectors + table;
    assert_eq!(
        each(),
        [whole + whole / 2 + each_more, whole / 2 + each_more]
    );
}

#[test]
fn each_rank_has_keys_and_values_of_its_heads() {
    let device = |_| Accelerator::new(&Device::counting(), WeightDtype::Bf16).unwrap();
    let sizes = |groups| KvSizes {
        dtype: KvDtype::Bf16,
        layers: 2,
        groups,
        head_width: 32,
        page: 16,
        pages: 5,
    };
    let whole = device(0).kv(&[sizes(4)]).unwrap().bytes();
    let on = Ranks::new((0..2).map(device).collect()).unwrap();
    let kv = on.kv(&[sizes(4)]).unwrap();
    assert!(kv.iter().all(|own| 2 * own.bytes() == whole));
    let error = on.kv(&[sizes(3)]).err().unwrap().to_string();
    assert!(
        error.contains("that 2 ranks divide evenly, found 3"),
        "{error}"
    );
}

#[test]
fn products_out_of_order_are_not_gathered() {
    let on = ranks(2);
    let matrix = Stored {
        shape: (48, K),
        numbers: Numbers::Floats(&noise(8, 48 * K)),
        bias: None,
        dtype: WeightDtype::F32,
        epilogue: Epilogue::None,
        parts: &PARTS,
    };
    let matrix = on.matrix(matrix).unwrap();
    let mut x = RankArray::new(ArrayKind::Inputs, 3, K);
    x.new_whole(on.each()).unwrap();
    let mut out = RankArray::new(ArrayKind::Inputs, 3, 48);
    let error = on.linear(&matrix, (&x, 3), &mut out).err().unwrap();
    assert!(
        error.to_string().contains("in the order of the ranks"),
        "{error}"
    );
    let mut sum = RankArray::new(ArrayKind::Sums, 3, 48);
    let error = on.linear_add(&matrix, (&x, 3), &mut sum).err().unwrap();
    assert!(
        error.to_string().contains("in the order of the ranks"),
        "{error}"
    );
}

#[test]
fn an_array_is_read_where_it_was_written() {
    let on = ranks(2);
    let mut x = on.array(ArrayKind::Sums, 3, 4).unwrap();
    assert!(x.own().is_err() && x.whole().is_err() && on.download(&x, 3).is_err());
    for (rank, own) in x.new_own(on.each()).unwrap().iter_mut().enumerate() {
        let numbers = [rank as f32; 6];
        on.each()[rank].overwrite(own, 2, &numbers).unwrap();
    }
    assert!(x.whole().is_err());
    let rows = [0., 0., 1., 1.].repeat(3);
    assert_eq!(on.download(&x, 3).unwrap(), rows);
    on.gather(&mut x, 3).unwrap();
    for (on, whole) in on.each().iter().zip(x.whole().unwrap()) {
        assert_eq!(on.download(whole, 3).unwrap(), rows);
    }
    let mut odd = on.array(ArrayKind::Sums, 3, 5).unwrap();
    let error = odd.new_own(on.each()).err().unwrap().to_string();
    assert!(
        error.contains("that 2 ranks divide evenly, found 5"),
        "{error}"
    );
}
