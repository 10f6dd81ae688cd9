//! Keys and values in every number format that a device has: near the CPU's, the same bits in every batch,
//! from chunks, from graphs and from copied pages.

use super::packed::{file, tiny as packed};
use super::{checkpoint, loaded, near};
use crate::backends::{PAGES, batch};
use crate::canvas_dtypes::{self, second_step};
use crate::common::{Noise, Tiny, execute, push, row};
use asynclane_cuda_lab::emulated;
use asynclane_model::{Checkpoint, DeviceModel, KvDtype, LoadError, WeightDtype};
use candle_core::quantized::GgmlDType;
use serde_json::{Value, json};
use step::{Batch, Executor, PageCopy, PageId, Sampling};

/// Every dtype of numbers.
const DTYPES: [WeightDtype; 5] =
    [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8, WeightDtype::Int8w, WeightDtype::Int4];
/// Block types of every form.
const KINDS: [GgmlDType; 6] = [
    GgmlDType::Q4_0,
    GgmlDType::Q5_0,
    GgmlDType::Q8_0,
    GgmlDType::Q4K,
    GgmlDType::Q5K,
    GgmlDType::Q6K,
];
/// The format of queries, and integers.
const FORMATS: [Option<KvDtype>; 2] = [None, Some(KvDtype::Int8)];

/// Heads of 32 in groups, biases.
fn shape() -> Value {
    json!({"d_model": 128, "n_heads": 4, "n_kv_heads": 2, "n_layers": 3, "mlp_hidden_size": 96,
        "include_bias": true, "bias_for_layer_norm": false})
}

fn in_format(checkpoint: Checkpoint, kv: Option<KvDtype>) -> Checkpoint {
    match kv {
        Some(kv) => checkpoint.with_kv_dtype(kv),
        None => checkpoint,
    }
}

/// Asserts that a sequence has the same bits alone, among others, and from a graph.
fn assert_invariant(open: &dyn Fn() -> Checkpoint, what: &str) {
    for kv in FORMATS {
        let mut device = loaded(in_format(open(), kv));
        let own = device.model().info().formats.kv;
        assert_eq!(own == KvDtype::Int8, kv.is_some(), "{what}");
        let alone = batch(&mut Noise(10), &[6], Sampling::GREEDY);
        let want = execute(&mut device, &alone).candidates;
        let mut many = alone.clone();
        let others = batch(&mut Noise(11), &[6, 70, 64], Sampling::GREEDY);
        for segment in &others.segments[1..] {
            let rows = segment.rows.start as usize..segment.rows.end as usize;
            let pages = segment.pages.start as usize..segment.pages.end as usize;
            let pages: Vec<u32> = others.pages[pages].iter().map(|page| page.0).collect();
            push(&mut many, others.rows[rows].to_vec(), &pages, Sampling::GREEDY);
        }
        for pass in 0..3 {
            let got = execute(&mut device, &many).candidates;
            assert_eq!(got[..6], want, "{what} {own:?}, pass {pass}");
        }
        assert_eq!(device.graphs(), 1, "{what} {own:?}");
    }
}

/// The number of rows changes the tiles but no bit of a result, in every dtype, with keys and values in every
/// format.
#[test]
fn neighbours_change_no_bit() {
    let tiny = Tiny::new(5, &shape());
    for dtype in DTYPES {
        assert_invariant(&|| checkpoint(&tiny, dtype), dtype.name());
    }
    for (number, kind) in KINDS.into_iter().enumerate() {
        let file = file(&format!("invariant-{kind:?}"), &packed(number % 2 == 0), |_| kind);
        assert_invariant(&|| file.checkpoint().unwrap(), &format!("{kind:?}"));
    }
}

#[test]
fn canvases_have_the_same_bits_in_every_batch() {
    for dtype in [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8] {
        let open = || canvas_dtypes::checkpoint(dtype).with_kv_dtype(KvDtype::Int8);
        let mut device = loaded(open());
        let alone = second_step(&mut device, false);
        assert_eq!(alone, second_step(&mut device, true), "{dtype:?}");
    }
}

/// The CPU and the device round the same numbers, but for the last bit of a norm or a rotation. Queries and
/// weights are in f32 here, on some processors in bf16.
#[test]
fn candidates_in_int8_match_the_cpu() {
    let shapes = [shape(), json!({"d_model": 64}), json!({"n_heads": 2, "rope_theta": 500.0})];
    for (seed, shape) in shapes.into_iter().enumerate() {
        let tiny = Tiny::new(seed as u64 + 1, &shape);
        let first = batch(&mut Noise(7), &[5, 1, 40, 23], Sampling::GREEDY);
        let mut cpu = tiny.executor_kv(KvDtype::Int8, PAGES, 1);
        let want = execute(&mut cpu, &first).candidates;
        let exact = execute(&mut tiny.executor_kv(KvDtype::F32, PAGES, 1), &first).candidates;
        assert_ne!(want, exact);
        let open = checkpoint(&tiny, WeightDtype::F32).with_kv_dtype(KvDtype::Int8);
        let got = execute(&mut loaded(open), &first).candidates;
        near(&got, &want, 4e-2, &format!("{shape}"));
    }
}

/// A byte for every number, and a scale in f32 for every slot and head.
#[test]
fn bytes_of_a_position_contain_scales() {
    let tiny = Tiny::new(3, &shape());
    for (kv, head) in [(None, 32 * 2), (Some(KvDtype::Int8), 32 + 4)] {
        let device = loaded(in_format(checkpoint(&tiny, WeightDtype::Int8), kv));
        let position = 3 * 2 * 2 * head;
        assert_eq!(device.model().kv_bytes_per_position(), position);
        let slots = 8 * u64::from(PAGES);
        assert_eq!(device.memory().kv, slots * position as u64);
    }
}

/// A chunk reads what earlier ones wrote.
#[test]
fn chunks_have_the_bits_of_a_whole_prompt_in_int8() {
    let tiny = Tiny::new(5, &shape());
    for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
        let open = || checkpoint(&tiny, dtype).with_kv_dtype(KvDtype::Int8);
        crate::chunks::check(dtype.name(), || Box::new(loaded(open())));
    }
}

/// A copied page takes its scales along, in a prefix and in a fork.
#[test]
fn copied_pages_have_the_same_bits() {
    let tiny = Tiny::new(3, &shape());
    for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
        let mut device = loaded(checkpoint(&tiny, dtype).with_kv_dtype(KvDtype::Int8));
        let first = batch(&mut Noise(8), &[30, 9], Sampling::GREEDY);
        execute(&mut device, &first);
        let old: Vec<u32> = first.pages[..4].iter().map(|page| page.0).collect();
        let read = |device: &mut dyn Executor, copies: &[(u32, u32)], table: &[u32]| {
            let mut later = Batch::default();
            let copy = |(source, destination): &(u32, u32)| PageCopy {
                source: PageId(*source),
                destination: PageId(*destination),
            };
            later.copies = copies.iter().map(copy).collect();
            push(&mut later, vec![row(9, 28, 30), row(11, 29, 30)], table, Sampling::GREEDY);
            execute(device, &later).candidates
        };
        let want = read(&mut device, &[], &old);
        let copies = [(old[0], 0), (old[3], 1), (0, 2)];
        assert_eq!(read(&mut device, &copies, &[2, old[1], old[2], 1]), want, "{dtype:?}");
    }
}

#[test]
fn formats_without_kernels_are_refused_by_name() {
    let refusal = |tiny: &Tiny, dtype, kv| {
        let opened = checkpoint(tiny, dtype).with_kv_dtype(kv);
        let Some(LoadError::Setup(line)) = DeviceModel::load(&emulated(), opened).err() else {
            panic!("expected a refusal");
        };
        line
    };
    let tiny = Tiny::new(3, &shape());
    let line = refusal(&tiny, WeightDtype::Bf16, KvDtype::F32);
    assert_eq!(line, "no CUDA kernels for keys and values in f32 beside queries in bf16");
    let line = refusal(&tiny, WeightDtype::F32, KvDtype::Bf16);
    assert_eq!(line, "no CUDA kernels for keys and values in bf16 beside queries in f32");
    let narrow = Tiny::new(3, &json!({"d_model": 96}));
    let line = refusal(&narrow, WeightDtype::Int4, KvDtype::Int8);
    assert!(line.ends_with("in int8 a multiple of 16, found 24"), "{line}");
}
