//! Whole steps whose launches overlap: the bits of launches that run one after the other, and no access that does
//! not wait for the launches before.

use super::{Case, batch, canvas, checkpoint, dflash, rows, shapes, sizes};
use crate::canvas_dtypes;
use crate::common::{Noise, Tiny, execute, push};
use asynclane_cuda_lab::{Observation, emulated, observed};
use asynclane_model::{
    Checkpoint, Device, DeviceExecutor, DeviceModel, Files, LoadError, WeightDtype,
    selftest_of_overlap,
};
use step::{Batch, Sampling};

/// The dtypes with kernels.
const DTYPES: [WeightDtype; 5] =
    [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8, WeightDtype::Int8w, WeightDtype::Int4];

/// A checkpoint that is opened again, and a batch for it.
type Opened = (Box<dyn Fn(WeightDtype) -> Checkpoint>, Batch);

/// Checkpoints of every family but canvas models, of plain shapes and of a drafter.
fn all() -> Vec<Opened> {
    let families = Case::all().into_iter().map(|case| {
        let attention = case.model(WeightDtype::F32).info().rows.attention;
        let mut batch = Batch::default();
        push(&mut batch, rows(&case, attention), &[5, 2, 0, 3, 1, 4], Sampling::GREEDY);
        let folder = case.folder;
        let open =
            move |dtype| Checkpoint::open(&Files::folder(&folder)).unwrap().with_dtype(dtype);
        (Box::new(open) as Box<dyn Fn(WeightDtype) -> Checkpoint>, batch)
    });
    let plain = shapes().into_iter().enumerate().map(|(seed, shape)| {
        let tiny = Tiny::new(seed as u64 + 1, &shape);
        let batch = batch(&mut Noise(7), &[5, 1, 12], Sampling::GREEDY);
        let open = move |dtype| checkpoint(&tiny, dtype);
        (Box::new(open) as Box<dyn Fn(WeightDtype) -> Checkpoint>, batch)
    });
    let pair = (Box::new(dflash::pair) as Box<dyn Fn(WeightDtype) -> Checkpoint>, dflash::mixed());
    families.chain(plain).chain([pair]).collect()
}

fn executor(device: &Device, checkpoint: Checkpoint) -> Result<DeviceExecutor, LoadError> {
    let model = DeviceModel::load(device, checkpoint)?;
    let config = sizes(&model);
    DeviceExecutor::new(model, config)
}

/// Direct, captured, and from a graph.
#[test]
fn overlapping_launches_change_no_bit() {
    let mut compared = 0;
    for (open, batch) in all() {
        for dtype in DTYPES {
            for ring in [false, true] {
                if ring && !matches!(dtype, WeightDtype::Bf16 | WeightDtype::Int8) {
                    continue;
                }
                let device = emulated().with_ring(ring);
                let Ok(mut alone) = executor(&device, open(dtype)) else { continue };
                let mut over = executor(&device.with_overlap(true), open(dtype)).unwrap();
                let want = execute(&mut alone, &batch);
                for pass in 0..3 {
                    assert_eq!(execute(&mut over, &batch), want, "{dtype:?} {ring} {pass}");
                }
                // One for the target and one for its drafter.
                assert!((1..3).contains(&over.graphs()));
                compared += 1;
            }
        }
    }
    println!("{compared} models");
    assert!(compared > 40, "{compared}");
}

/// No launch reads before its wait what another writes, nor writes before it; products fetch weights.
#[test]
fn no_launch_of_a_step_is_too_early() {
    let mut fetched = 0;
    for (open, batch) in all() {
        for dtype in DTYPES {
            let (device, observations) = observed();
            let device = device.with_overlap(true).with_ring(true);
            let Ok(mut over) = executor(&device, open(dtype)) else { continue };
            drop(observations.take());
            execute(&mut over, &batch);
            for one in observations.take() {
                let (count, text) = one.failures();
                assert_eq!(count, 0, "{text}");
                let product = |one: &Observation| one.kernel().contains("_groups_");
                fetched += u32::from(product(&one) && one.early() > 0);
            }
        }
    }
    assert!(fetched > 100, "{fetched}");
}

/// The same of canvas models.
#[test]
fn canvases_change_no_bit_and_are_not_too_early() {
    for dtype in [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8, WeightDtype::Int8w] {
        let load = |device: &Device| canvas::on_device(device, canvas_dtypes::checkpoint(dtype));
        let steps = |device: &Device| {
            let mut executor = load(device);
            [false, true].map(|again| canvas_dtypes::second_step(&mut executor, again))
        };
        let device = emulated();
        assert_eq!(steps(&device.clone().with_overlap(true)), steps(&device), "{dtype:?}");
        let (device, observations) = observed();
        canvas_dtypes::second_step(&mut load(&device.with_overlap(true)), true);
        for one in observations.take() {
            let (count, text) = one.failures();
            assert_eq!(count, 0, "{text}");
        }
    }
}

#[test]
fn the_selftest_of_overlap_holds() {
    let mut checks = Vec::new();
    selftest_of_overlap(&emulated(), 16, 1, &mut |check| checks.push(check));
    // In bf16 and int8 with bulk copies too.
    assert_eq!(checks.len(), (4 + 2) * 4 * 4);
    for check in checks {
        assert!(check.holds(), "{check:?}");
    }
}
