//! The calls of a CUDA driver, on the fake driver of `examples/fake_driver`: orders of work, captures,
//! errors and what is left behind. Every test is a process of its own, because a process has one
//! context.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "driver/fake.rs"]
mod fake;
#[path = "driver/isolated.rs"]
mod isolated;

use asynclane_cuda_lab::{SelftestSizes, selftest};
use asynclane_kernels::device::{
    Array, Buffer, Check, Device, DeviceBatch, DeviceError, DeviceLimits, DeviceMatrix,
    MatrixFormat, Precision, RingCase, RowNorm, RowSet, kernels, norm,
};
use asynclane_kernels::{Epilogue, Matrix};
use isolated::isolated;

const WIDTH: usize = 40;
const ROWS: usize = 3;

/// Functions whose failure leaves something behind, because they release it or must be called before.
const RELEASES: [&str; 8] = [
    "cuCtxSetCurrent",
    "cuDevicePrimaryCtxRelease_v2",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuMemFree_v2",
    "cuMemFreeHost",
    "cuModuleUnload",
    "cuStreamSynchronize",
];
/// The other functions that the calls below need.
const CALLS: [&str; 21] = [
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDriverGetVersion",
    "cuDevicePrimaryCtxRetain",
    "cuStreamCreate",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemHostAlloc",
    "cuMemsetD8Async",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuLaunchKernel",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
];

/// Opens the device, computes norms directly and from a graph, and compares both.
fn norms() -> Result<(), DeviceError> {
    let device = Device::open(0)?;
    device.memory()?;
    let numbers: Vec<f32> = (0..ROWS * WIDTH).map(|i| i as f32 - 50.0).collect();
    let weight = Buffer::floats(&device, &numbers[..WIDTH])?;
    let array = || Array::new(&device, Precision::F32, ROWS, WIDTH);
    let (x, direct, graphed) = (array()?, array()?, array()?);
    x.write(0, &numbers)?;
    let batch = DeviceBatch::default();
    let scale = RowNorm { weight: &weight, eps: 1e-5 };
    let into = |out: &Array| norm(&x, &RowSet::First(ROWS), &batch, scale, out);
    into(&direct)?;
    let graph = device.capture(|| into(&graphed))?;
    assert!(graph.launch()?);
    let (direct, graphed) = (direct.read(ROWS)?, graphed.read(ROWS)?);
    assert_eq!(direct, graphed);
    let last = direct[ROWS * WIDTH - 1];
    assert!(last.is_finite() && last != 0.0, "{last}");
    Ok(())
}

#[test]
fn kernels_match_the_cpu() {
    isolated("kernels_match_the_cpu", "seed 3", |_| {
        let device = Device::open(0).unwrap();
        let sizes = SelftestSizes { rows: 20, columns: 128 };
        selftest(&device, sizes, &mut |check| {
            assert!(check.holds(), "{check:?}");
        });
    })
    .clean();
}

/// The product of 300 rows in bf16 where bulk copies may be chosen.
fn product(device: &Device) -> Vec<f32> {
    let numbers: Vec<f32> = (0..300 * 64).map(|i| (i % 251) as f32 - 125.0).collect();
    let matrix = Matrix { weight: &numbers[..40 * 64], k: 64, bias: None };
    let matrix = DeviceMatrix::new(device, MatrixFormat::Bf16, matrix, Epilogue::None).unwrap();
    let x = Array::padded(device, Precision::Bf16, 300, 64).unwrap();
    x.write(0, &numbers).unwrap();
    let out = Array::new(device, Precision::F32, 300, 40).unwrap();
    matrix.product(&x, 300, &out).unwrap();
    out.read(300).unwrap()
}

/// Bulk copies give the same numbers. A driver that refuses clusters, shared memory or tensor maps runs the other
/// kernels and says why.
#[test]
fn a_refusal_of_bulk_copies_is_told_and_other_kernels_run() {
    isolated("a_refusal_of_bulk_copies_is_told_and_other_kernels_run", "", |plan| {
        let case = RingCase { format: MatrixFormat::Bf16, rows: 130, k: 320, n: 264 };
        let device = Device::open(0).unwrap().with_ring(true);
        assert!(device.limits().ring && device.bulk_refusal().is_none());
        let checks = case.checks(&device).unwrap();
        assert!(!checks.is_empty() && checks.iter().all(Check::holds), "{checks:?}");
        let want = product(&device);
        drop(device);
        let functions = kernels().filter(|kernel| !kernel.bulk && kernel.shared > 48 << 10);
        let attributes = format!("fail cuFuncSetAttribute {} 1", functions.count() + 1);
        for (text, reason) in [
            ("fail cuOccupancyMaxActiveClusters 1 1", "_pair_"),
            (attributes.as_str(), "_ring_"),
            ("fail cuTensorMapEncodeTiled 1 1", "tensor map"),
            ("fail cuDeviceGetAttribute 5 1", "clusters"),
        ] {
            plan.write(text);
            let device = Device::open(0).unwrap().with_ring(true);
            assert_eq!(product(&device), want, "{text}");
            let said = device.bulk_refusal().unwrap();
            assert!(said.contains(reason) && said.lines().count() == 1, "{text}: {said}");
        }
    })
    .clean();
}

/// Two products in a row, directly and from a graph.
fn products(device: &Device) -> Vec<f32> {
    let numbers: Vec<f32> = (0..64 * 64).map(|i| (i % 13) as f32 - 6.0).collect();
    let matrix = Matrix { weight: &numbers, k: 64, bias: None };
    let matrix = DeviceMatrix::new(device, MatrixFormat::F32, matrix, Epilogue::None).unwrap();
    let arrays = [(); 3].map(|()| Array::new(device, Precision::F32, ROWS, 64).unwrap());
    arrays[0].write(0, &numbers[..ROWS * 64]).unwrap();
    let run = || {
        matrix.product(&arrays[0], ROWS, &arrays[1])?;
        matrix.product(&arrays[1], ROWS, &arrays[2])
    };
    run().unwrap();
    let direct = arrays[2].read(ROWS).unwrap();
    let graph = device.capture(run).unwrap();
    assert_eq!(graph.launch(), Ok(true));
    assert_eq!(arrays[2].read(ROWS).unwrap(), direct);
    direct
}

/// Launches that overlap give the same numbers. A driver that refuses the attribute, directly or in a graph, or a card
/// without such launches, runs them one after the other and says why.
#[test]
fn a_refusal_of_overlap_is_told_and_launches_run_alone() {
    let log = isolated("a_refusal_of_overlap_is_told_and_launches_run_alone", "", |plan| {
        let device = Device::open(0).unwrap();
        let want = products(&device);
        let device = device.with_overlap(true);
        assert!(device.limits().overlap && device.overlap_refusal().is_none());
        assert_eq!(products(&device), want);
        drop(device);
        for (text, reason) in [
            ("fail cuLaunchKernelEx 1 801", "operation not supported"),
            ("fail cuLaunchKernelEx 2 801", "operation not supported"),
            ("fail cuGraphInstantiateWithFlags 1 801", "operation not supported"),
            ("fail cuGraphLaunch 1 801", "operation not supported"),
            ("capability 8 9", "expected compute capability 9.0 or later"),
        ] {
            plan.write(text);
            let device = Device::open(0).unwrap().with_overlap(true);
            assert!(!device.limits().overlap, "{text}");
            let said = device.overlap_refusal().unwrap();
            assert!(said.contains(reason) && said.lines().count() == 1, "{text}: {said}");
            assert_eq!(products(&device), want, "{text}");
        }
    });
    log.clean();
    log.tells("calls: cuLaunchKernelEx");
}

#[test]
fn every_moment_of_execution_gives_the_same_numbers() {
    isolated("every_moment_of_execution_gives_the_same_numbers", "", |plan| {
        for seed in 0..40 {
            plan.write(&format!("seed {seed}"));
            norms().unwrap();
        }
    })
    .clean();
}

#[test]
fn later_devices_load_ptx() {
    let plan = "capability 12 0\nversion 12080";
    isolated("later_devices_load_ptx", plan, |_| norms().unwrap()).clean();
}

#[test]
fn a_failed_call_is_one_line_and_leaves_nothing() {
    isolated("a_failed_call_is_one_line_and_leaves_nothing", "", |plan| {
        norms().unwrap();
        for function in CALLS {
            let mut failed = 0;
            // Every call of the function in turn.
            while failed < 100 {
                plan.write(&format!("fail {function} {} 2", failed + 1));
                let Err(DeviceError(line)) = norms() else {
                    break;
                };
                failed += 1;
                assert!(line.contains("out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)"), "{line}");
                assert_eq!(line.lines().count(), 1, "{line}");
                let log = plan.log();
                let bad =
                    log.lines().find(|line| line.starts_with("leak") || line.starts_with("misuse"));
                assert_eq!(bad, None, "{function}, call {failed}");
            }
            assert!(failed > 0, "{function} is not called");
        }
    })
    .clean();
}

#[test]
fn a_failed_release_is_no_panic() {
    isolated("a_failed_release_is_no_panic", "", |plan| {
        for function in RELEASES {
            for call in 1..6 {
                plan.write(&format!("fail {function} {call} 2"));
                let _ = norms();
            }
        }
        plan.write("");
        norms().unwrap();
    });
}

#[test]
fn a_fault_of_a_kernel_is_told_by_a_later_call_and_stays() {
    let name = "a_fault_of_a_kernel_is_told_by_a_later_call_and_stays";
    isolated(name, "fault 1 719", |_| {
        let device = Device::open(0).unwrap();
        assert_eq!(device.lost(), None);
        let weight = Buffer::floats(&device, &[1.0; WIDTH]).unwrap();
        let array = || Array::new(&device, Precision::F32, 1, WIDTH).unwrap();
        let (x, out) = (array(), array());
        let scale = RowNorm { weight: &weight, eps: 1e-5 };
        // The launch itself may succeed.
        let _ = norm(&x, &RowSet::First(1), &DeviceBatch::default(), scale, &out);
        let error = out.read(1).unwrap_err().0;
        let words = "unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED, 719)";
        assert!(error.starts_with("CUDA: ") && error.ends_with(words), "{error}");
        assert!(device.lost().unwrap().ends_with(words));
        assert!(Buffer::new(&device, 64).is_err());
        assert!(device.memory().is_err());
    });
}

/// The fake device copies at the rate of this machine's memory, far below that of its multiprocessors.
#[test]
fn the_memory_is_measured_if_there_is_room() {
    let name = "the_memory_is_measured_if_there_is_room";
    isolated(name, "", |plan| {
        let rate = || Device::open(0).unwrap().limits().memory_rate;
        let unmeasured = rate();
        assert_eq!(unmeasured, DeviceLimits::unmeasured(4).memory_rate);
        plan.write("memory 1073741824");
        let measured = rate();
        assert!(0 < measured && measured < unmeasured, "{measured}");
        norms().unwrap();
    })
    .clean();
}

#[test]
fn out_of_memory_is_no_loss() {
    isolated("out_of_memory_is_no_loss", "memory 1048576", |_| {
        let device = Device::open(0).unwrap();
        let error = Buffer::new(&device, 2 << 20).err().unwrap();
        let start = "CUDA: 2 MiB of device memory, 1 MiB free: out of memory";
        assert!(error.0.starts_with(start), "{error}");
        assert_eq!(device.lost(), None);
        drop(device);
        norms().unwrap();
    })
    .clean();
}

#[test]
fn what_a_capture_does_not_allow_is_refused_before_the_driver_sees_it() {
    let name = "what_a_capture_does_not_allow_is_refused_before_the_driver_sees_it";
    isolated(name, "", |_| {
        let device = Device::open(0).unwrap();
        let (kept, freed) = (Buffer::new(&device, 64).unwrap(), Buffer::new(&device, 64));
        let refused = |f: &dyn Fn() -> Result<(), DeviceError>| {
            let error = device.capture(f).err().unwrap();
            assert!(error.0.contains("capture"), "{error}");
        };
        refused(&|| Buffer::new(&device, 64).map(drop));
        refused(&|| kept.upload(&[1]));
        refused(&|| kept.download(0, &mut [0]));
        refused(&|| kept.fill(1));
        let mut freed = Some(freed.unwrap());
        let error = device.capture(|| {
            freed = None;
            Ok(())
        });
        assert!(error.err().unwrap().0.contains("freed during a capture"));
        drop(kept);
        drop(device);
        norms().unwrap();
    })
    .clean();
}

#[test]
fn devices_and_drivers_that_do_not_fit_are_named() {
    let name = "devices_and_drivers_that_do_not_fit_are_named";
    isolated(name, "", |plan| {
        for (text, want) in [
            ("devices 0", "the NVIDIA driver found no device"),
            ("capability 7 5", "expected compute capability 8.0 or later, found 7.5"),
            (
                "version 11080",
                "for CUDA 12.0 or later (version 525 or later), found one for CUDA 11.8",
            ),
            (
                "version 12040\ncapability 12 0",
                "for CUDA 12.8 or later (version 570 or later), found one for CUDA 12.4",
            ),
            (
                "version 12000\nfail cuModuleLoadData 1 209",
                "CUDA: kernels: no kernel image is available for execution on the device \
                 (CUDA_ERROR_NO_BINARY_FOR_GPU, 209): expected an NVIDIA driver for CUDA 12.0 or \
                 later (version 525 or later), found one for CUDA 12.0",
            ),
        ] {
            plan.write(text);
            let error = norms().unwrap_err();
            assert!(error.0.contains(want), "{text}: {error}");
            assert_eq!(error.0.lines().count(), 1);
        }
        plan.write("version 12000");
        norms().unwrap();
    })
    .clean();
}
