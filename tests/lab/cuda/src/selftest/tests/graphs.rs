//! Captured launches.

use super::super::data::{Ends, Random, array, poisoned};
use kernels::device::{Buffer, DeviceBatch, DeviceError, Precision, RowNorm, RowSet, norm};

const D: usize = 40;

#[test]
fn a_graph_runs_on_the_current_memory_contents() {
    let (device, mut random) = (crate::emulated_small(), Random(21));
    let weight = Buffer::floats(&device, &random.numbers(D)).unwrap();
    let target = (&device, Precision::F32);
    let x = array(target, &random.numbers(3 * D), D, Ends::Plain).unwrap();
    let out = || poisoned(target, (3, D), Ends::Plain).unwrap();
    let (once, again) = (out(), out());
    let batch = DeviceBatch::default();
    let row_norm = RowNorm { weight: &weight, eps: 1e-5 };
    let norms = |out| norm(&x, &RowSet::First(3), &batch, row_norm, out);
    let graph = device.capture(|| norms(&once)).unwrap();
    let untouched = once.read(3).unwrap();
    assert!(untouched.iter().all(|x| x.is_nan()), "captured, not run");
    for _ in 0..2 {
        x.write(0, &random.numbers(3 * D)).unwrap();
        assert_eq!(graph.launch(), Ok(true));
        norms(&again).unwrap();
        assert_eq!(once.read(3).unwrap(), again.read(3).unwrap());
    }
}

#[test]
fn a_graph_is_not_run_after_an_allocation_or_a_free() {
    let device = crate::emulated_small();
    let graph = device.capture(|| Ok(())).unwrap();
    assert_eq!(graph.launch(), Ok(true));
    let buffer = Buffer::new(&device, 64).unwrap();
    assert_eq!(graph.launch(), Ok(false));
    let graph = device.capture(|| Ok(())).unwrap();
    assert_eq!(graph.launch(), Ok(true));
    drop(buffer);
    assert_eq!(graph.launch(), Ok(false));
}

#[test]
fn a_failed_capture_is_an_error_and_the_device_stays_usable() {
    let device = crate::emulated_small();
    let taken = device.capture(|| Buffer::new(&device, 64).map(drop));
    assert!(taken.is_err());
    let failed = device.capture(|| Err(DeviceError("none".to_owned())));
    assert_eq!(failed.err(), Some(DeviceError("none".to_owned())));
    assert!(Buffer::new(&device, 64).is_ok());
}
