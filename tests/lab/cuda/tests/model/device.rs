//! The device executor with emulated kernels, compared with the CPU executor.

mod canvas;
mod dflash;
mod integers;
mod kv;
mod memory;
mod overlap;
mod packed;
mod texts;

use crate::backends::{PAGES, batch, shapes};
use crate::common::{Noise, Store, Tiny, execute, push, row, sized};
use crate::families::rows;
use crate::official::Case;
use asynclane_cuda_lab::emulated;
use asynclane_model::{
    Checkpoint, DeviceConfig, DeviceExecutor, DeviceModel, ExecutorConfig, ExpertInfo,
    ExpertSharing, Files, KvMemory, ModelExecutor, ModelInfo, WeightDtype, selftest_of_models,
};
use step::{Batch, BatchOutput, Bias, Candidate, Executor, PageCopy, PageId, Sampling, Score};

fn checkpoint(tiny: &Tiny, dtype: WeightDtype) -> Checkpoint {
    let files = Files::memory(tiny.files(Store::F32));
    Checkpoint::open(&files).unwrap().with_dtype(dtype)
}

/// Rounds every row of a matrix to the numbers that `int8` represents.
fn rounded_to_bytes(mut tiny: Tiny) -> Tiny {
    let tensors = tiny.tensors.values_mut();
    for (shape, values) in tensors.filter(|(shape, _)| shape.len() == 2) {
        for row in values.chunks_exact_mut(shape[1]) {
            let most = row.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            let scale = most.max(f32::MIN_POSITIVE) / 127.0;
            row.iter_mut().for_each(|x| *x = (*x / scale).round() * scale);
        }
    }
    tiny
}

fn on_device(tiny: &Tiny, dtype: WeightDtype) -> DeviceExecutor {
    loaded(checkpoint(tiny, dtype))
}

fn loaded(checkpoint: Checkpoint) -> DeviceExecutor {
    let model = DeviceModel::load(&emulated(), checkpoint).unwrap();
    let config = sizes(&model);
    DeviceExecutor::new(model, config).unwrap()
}

/// An executor configuration with `PAGES` pages of 8 slots.
fn sizes(model: &DeviceModel) -> DeviceConfig {
    let slots = 8 * u64::from(PAGES);
    DeviceConfig {
        page_size: 8,
        rows: 160,
        positions: 80,
        sequences: 4,
        kv: KvMemory::Bytes(slots * model.kv_bytes_per_position() as u64),
    }
}

/// Compares probabilities within a tolerance, and tokens where there is no near tie.
fn near(got: &[Candidate], want: &[Candidate], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let errors = got.iter().zip(want).map(|(got, want)| (got.present - want.present).abs());
    let mean = errors.sum::<f64>() / got.len() as f64;
    assert!(mean < tolerance / 8.0, "{what}: {mean} on average");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let pairs = [
            (got.probability, want.probability),
            (got.runner_up_probability, want.runner_up_probability),
            (got.present, want.present),
            (f64::from(got.entropy), f64::from(want.entropy)),
        ];
        for (got, want) in pairs {
            assert!((got - want).abs() < tolerance, "{what}, candidate {i}: {got} for {want}");
        }
        if want.probability - want.runner_up_probability > 2.0 * tolerance {
            assert_eq!(got.token, want.token, "{what}, candidate {i}");
        }
    }
}

#[test]
fn candidates_match_the_cpu() {
    for (dtype, tolerance) in [
        (WeightDtype::F32, 1e-5),
        (WeightDtype::Bf16, 8e-2),
        (WeightDtype::Int8w, 8e-2),
        (WeightDtype::Int8, 0.4),
    ] {
        for (seed, shape) in shapes().iter().enumerate() {
            let tiny = Tiny::new(seed as u64 + 1, shape);
            // The CPU computes in f32 with the weights that the device has, or in int8 as the device.
            let tiny = match dtype {
                WeightDtype::Bf16 => tiny.rounded(Store::Bf16),
                WeightDtype::Int8w => rounded_to_bytes(tiny),
                _ => tiny,
            };
            let mut noise = Noise(7);
            let batch = batch(&mut noise, &[5, 1, 40, 23], Sampling::GREEDY);
            let mut cpu = match dtype {
                WeightDtype::Int8 => sized(tiny.model_as(dtype), PAGES, 1),
                _ => tiny.executor(PAGES, 1),
            };
            let want = execute(&mut cpu, &batch).candidates;
            let mut executor = on_device(&tiny, dtype);
            assert_eq!(executor.spec(), tiny.executor(PAGES, 1).spec());
            let got = execute(&mut executor, &batch).candidates;
            near(&got, &want, tolerance, &format!("{shape}"));
        }
    }
}

/// Covers head norms, biases, partial rotation, block-causal and causal attention, and experts.
#[test]
fn every_family_matches_the_cpu() {
    let mut seen = 0;
    for case in Case::all() {
        let files = Files::folder(&case.folder);
        let checkpoint = Checkpoint::open(&files).unwrap();
        let cpu = case.model(WeightDtype::F32);
        let fit = DeviceModel::unfit(cpu.info(), None);
        let model = DeviceModel::load(&emulated(), checkpoint);
        assert_eq!(fit.is_none(), model.is_ok(), "{}", case.name);
        let Ok(model) = model else { continue };
        seen += 1;
        let config = ExecutorConfig { page_size: 8, pages: PAGES, threads: None };
        let mut cpu = ModelExecutor::new(cpu, config).unwrap();
        let mut batch = Batch::default();
        let rows = rows(&case, cpu.spec().attention);
        push(&mut batch, rows, &[5, 2, 0, 3, 1, 4], Sampling::GREEDY);
        let want = execute(&mut cpu, &batch).candidates;
        let on_device = sizes(&model);
        let mut device = DeviceExecutor::new(model, on_device).unwrap();
        near(&execute(&mut device, &batch).candidates, &want, 1e-5, &case.name);
    }
    assert_eq!(seen, Case::all().len());
}

#[test]
fn later_passes_read_written_pages_and_page_copies() {
    let tiny = Tiny::new(3, &shapes()[1]);
    let (mut cpu, mut device) = (tiny.executor(PAGES, 1), on_device(&tiny, WeightDtype::F32));
    let first = batch(&mut Noise(8), &[30, 9], Sampling::GREEDY);
    let mut second = Batch::default();
    // The first page of the first sequence is copied, and one row of the copy is replaced.
    let old = first.pages[0];
    second.copies.push(PageCopy { source: old, destination: PageId(0) });
    let table: Vec<u32> = [0].into_iter().chain(first.pages[1..4].iter().map(|p| p.0)).collect();
    push(&mut second, vec![row(9, 3, 30), row(11, 12, 30)], &table, Sampling::GREEDY);
    for (i, batch) in [&first, &second].into_iter().enumerate() {
        let (want, got) = (execute(&mut cpu, batch), execute(&mut device, batch));
        near(&got.candidates, &want.candidates, 1e-5, &format!("batch {i}"));
    }
}

#[test]
fn sampling_filters_tops_and_biases_match_the_cpu() {
    let tiny = Tiny::new(4, &shapes()[0]);
    let (mut cpu, mut device) = (tiny.executor(PAGES, 1), on_device(&tiny, WeightDtype::F32));
    let plain = Sampling { temperature: 0.8, seed: 1 << 50 | 5, clock: 3, ..Sampling::GREEDY };
    let filtered = Sampling { top_p: 0.8, top_k: 9, ..plain };
    for sampling in [Sampling::GREEDY, plain, filtered] {
        let mut batch = batch(&mut Noise(9), &[12, 3], sampling);
        batch.biases = vec![Bias::add(7, 2.5), Bias::ban(8)];
        batch.allowed = vec![0x0F0F_F0F0, 0x00FF_00FF];
        batch.rows[1].biases = 0..2;
        batch.rows[2].score = Score::Top(5);
        batch.rows[3].score = Score::None;
        batch.rows[4].allowed = Some(0);
        batch.rows[13].score = Score::Top(1);
        batch.rows[13].biases = 1..2;
        let (want, got) = (execute(&mut cpu, &batch), execute(&mut device, &batch));
        near(&got.candidates, &want.candidates, 1e-5, &format!("{sampling:?}"));
        assert_eq!(got.tops.len(), 6);
        for (got, want) in got.tops.iter().zip(&want.tops) {
            assert_eq!(got.token, want.token);
            assert!((got.logprob - want.logprob).abs() < 1e-4);
        }
    }
}

/// Steps with more rows than graphs have are not padded, and have the bits of smaller ones.
#[test]
fn steps_beyond_graphs_change_no_bit() {
    let tiny = Tiny::new(5, &shapes()[1]);
    for dtype in [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8] {
        let model = DeviceModel::load(&emulated(), checkpoint(&tiny, dtype)).unwrap();
        let slots = 8 * 72 * model.kv_bytes_per_position() as u64;
        let config =
            DeviceConfig { rows: 560, sequences: 8, kv: KvMemory::Bytes(slots), ..sizes(&model) };
        let mut device = DeviceExecutor::new(model, config).unwrap();
        let (mut noise, mut many, mut want) = (Noise(20), Batch::default(), Vec::new());
        for number in 0..8 {
            let token = |noise: &mut Noise| noise.below(61) as u32;
            let rows: Vec<_> = (0..70).map(|i| row(token(&mut noise), i, 70)).collect();
            let pages: Vec<u32> = (9 * number..9 * number + 9).collect();
            let mut alone = Batch::default();
            push(&mut alone, rows.clone(), &pages, Sampling::GREEDY);
            push(&mut many, rows, &pages, Sampling::GREEDY);
            want.extend(execute(&mut device, &alone).candidates);
        }
        let graphs = device.graphs();
        for _ in 0..3 {
            assert_eq!(execute(&mut device, &many).candidates, want, "{dtype:?}");
        }
        assert_eq!((many.rows.len(), device.graphs()), (560, graphs));
    }
}

/// Passes without scored rows are awaited, and leave the keys and values of a whole prompt.
#[test]
fn chunks_have_the_bits_of_a_whole_prompt() {
    let tiny = Tiny::new(5, &shapes()[1]);
    for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
        crate::chunks::check(dtype.name(), || Box::new(on_device(&tiny, dtype)));
    }
}

/// The first pass of a shape is launched directly, the second one is captured, and later passes are
/// launched from the graph.
#[test]
fn passes_of_a_shape_share_a_graph_and_change_no_bit() {
    let tiny = Tiny::new(8, &shapes()[1]);
    for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
        let mut device = on_device(&tiny, dtype);
        let mut seen = Vec::new();
        for (i, lengths) in [[30, 9], [12, 31], [1, 29], [25, 25], [3, 3]].iter().enumerate() {
            let sampling = Sampling {
                temperature: if i % 2 == 0 { 0.0 } else { 0.9 },
                seed: i as u64,
                ..Sampling::GREEDY
            };
            let mut batch = batch(&mut Noise(20 + i as u64), lengths, sampling);
            batch.biases = (0..i as u32).map(|token| Bias::add(token, 0.5)).collect();
            batch.rows[0].biases = 0..i as u32;
            let want = execute(&mut on_device(&tiny, dtype), &batch);
            device.begin(&batch).unwrap();
            assert_eq!(execute(&mut device, &batch), want, "{dtype:?} pass {i}");
            seen.push(device.graphs());
        }
        assert_eq!(seen, [0, 1, 1, 1, 1], "{dtype:?}");
        assert_eq!(device.model().warnings(), [""; 0]);
    }
}

/// The output of a pass that was begun and never read is discarded.
#[test]
fn an_abandoned_pass_does_not_affect_the_next_one() {
    let tiny = Tiny::new(9, &shapes()[0]);
    let (first, second) = (
        batch(&mut Noise(30), &[8], Sampling::GREEDY),
        batch(&mut Noise(31), &[5], Sampling::GREEDY),
    );
    let want = execute(&mut on_device(&tiny, WeightDtype::F32), &second);
    let mut device = on_device(&tiny, WeightDtype::F32);
    device.begin(&first).unwrap();
    device.begin(&second).unwrap();
    assert_eq!(execute(&mut device, &second), want);
    assert_eq!(execute(&mut device, &second), want);
}

#[test]
fn the_selftest_of_models_holds() {
    let mut checks = Vec::new();
    selftest_of_models(&emulated(), 16, &mut |check| checks.push(check));
    assert_eq!(checks.len(), 4 * 4 * 7);
    for check in checks {
        println!("{}: {:.1e} of {:.0e}", check.name, check.error, check.tolerance);
        assert!(check.holds(), "{check:?}");
    }
}

#[test]
fn bad_batches_are_errors_and_the_next_one_works() {
    let tiny = Tiny::new(6, &shapes()[0]);
    let mut device = on_device(&tiny, WeightDtype::F32);
    let good = batch(&mut Noise(12), &[4], Sampling::GREEDY);
    let want = execute(&mut device, &good);
    let mut bad = good.clone();
    bad.rows[2].token = 64;
    let error = device.execute(&bad, &mut BatchOutput::default()).unwrap_err();
    assert!(error.to_string().contains("token 64 of 64"), "{error}");
    assert_eq!(execute(&mut device, &Batch::default()).candidates, []);
    assert_eq!(execute(&mut device, &good), want);
}

#[test]
fn models_without_kernels_are_refused() {
    let tiny = Tiny::new(7, &shapes()[0]);
    let info = tiny.model().info().clone();
    assert_eq!(DeviceModel::unfit(&info, None), None);
    let with = |change: &dyn Fn(&mut ModelInfo)| {
        let mut info = info.clone();
        change(&mut info);
        DeviceModel::unfit(&info, None)
    };
    let experts = ExpertInfo { count: 8, chosen: 2, parameters: 0, shared_width: None };
    assert_eq!(with(&|info| info.experts = Some(experts)), None);
    let others = [WeightDtype::Int8w, WeightDtype::Blocks];
    for dtype in WeightDtype::ALL.into_iter().chain(others) {
        assert_eq!(with(&|info| info.formats.matrices = dtype), None);
    }
    assert_eq!(with(&|info| info.heads.head_width = 512), None);
    assert!(with(&|info| info.heads.head_width = 520).is_some());
}

/// A tiny checkpoint with experts, in which every expert gets rows.
fn mixture(name: &str, dtype: WeightDtype) -> Checkpoint {
    let case = Case::all().into_iter().find(|case| case.name == name);
    let files = Files::folder(&case.unwrap().folder);
    Checkpoint::open(&files).unwrap().with_dtype(dtype)
}

/// The number of rows changes which tiles and how many a mixture has, and whether it is captured, but
/// no bit of a result.
#[test]
fn experts_change_no_bit_among_neighbours_and_in_graphs() {
    for (name, dtype) in [
        ("llada-moe", WeightDtype::F32),
        ("llada2-mini", WeightDtype::Bf16),
        ("llada2-mini", WeightDtype::Int8),
        ("llada2-mini", WeightDtype::Int8w),
        ("llada21-bf16", WeightDtype::Bf16),
    ] {
        let load = || {
            let model = DeviceModel::load(&emulated(), mixture(name, dtype)).unwrap();
            let config = sizes(&model);
            DeviceExecutor::new(model, config).unwrap()
        };
        let (mut device, mut noise) = (load(), Noise(40));
        let vocab = device.spec().vocab_size;
        let mut batch = |lengths: &[u32]| {
            let mut batch = batch(&mut noise, lengths, Sampling::GREEDY);
            for row in &mut batch.rows {
                row.token %= vocab;
            }
            batch
        };
        let alone = batch(&[6]);
        let want = execute(&mut device, &alone).candidates;
        let mut many = alone.clone();
        let others = batch(&[6, 40, 30]);
        for segment in &others.segments[1..] {
            let rows = segment.rows.start as usize..segment.rows.end as usize;
            let pages = segment.pages.start as usize..segment.pages.end as usize;
            let pages: Vec<u32> = others.pages[pages].iter().map(|page| page.0).collect();
            push(&mut many, others.rows[rows].to_vec(), &pages, Sampling::GREEDY);
        }
        for pass in 0..3 {
            let got = execute(&mut device, &many).candidates;
            assert_eq!(got[..6], want, "{name} {dtype:?} {pass}");
        }
        assert_eq!(device.graphs(), 1);
        let other = batch(&[6, 40, 30]);
        let fresh = execute(&mut load(), &other);
        assert_eq!(execute(&mut device, &other), fresh, "{name} {dtype:?}");
    }
}

#[test]
fn expert_sharing_is_refused_by_name() {
    let sharing = Some(ExpertSharing::Sequence(1));
    let checkpoint = mixture("llada-moe", WeightDtype::F32).with_expert_sharing(sharing);
    let error = DeviceModel::load(&emulated(), checkpoint).err();
    let error = error.unwrap().to_string();
    assert!(error.contains("expert sharing"), "{error}");
}
