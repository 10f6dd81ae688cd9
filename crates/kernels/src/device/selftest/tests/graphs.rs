//! Captured launches.

use super::super::data::{Ends, Random, array, poisoned};
use crate::device::{Buffer, Device, DeviceBatch, DeviceError, Places, Precision, norm};

const D: usize = 40;

#[test]
fn a_graph_repeats_its_launches_over_what_memory_holds_then() {
    let (device, mut random) = (Device::emulated(), Random(21));
    let weight = Buffer::floats(&device, &random.numbers(D)).unwrap();
    let on = (&device, Precision::F32);
    let x = array(on, &random.numbers(3 * D), D, Ends::Plain).unwrap();
    let out = || poisoned(on, (3, D), Ends::Plain).unwrap();
    let (once, again) = (out(), out());
    let batch = DeviceBatch::default();
    let norms = |out| norm((&x, &Places::First(3)), &batch, (&weight, 1e-5), out);
    let graph = device.capture(|| norms(&once)).unwrap();
    let untouched = once.read(3).unwrap();
    assert!(untouched.iter().all(|x| x.is_nan()), "kept, not run");
    for _ in 0..2 {
        x.write(0, &random.numbers(3 * D)).unwrap();
        assert_eq!(graph.launch(), Ok(true));
        norms(&again).unwrap();
        assert_eq!(once.read(3).unwrap(), again.read(3).unwrap());
    }
}

#[test]
fn a_graph_is_not_run_over_memory_that_may_be_gone() {
    let device = Device::emulated();
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
fn what_cannot_be_captured_is_an_error_and_the_device_goes_on() {
    let device = Device::emulated();
    let taken = device.capture(|| Buffer::new(&device, 64).map(drop));
    assert!(taken.is_err());
    let failed = device.capture(|| Err(DeviceError("none".to_owned())));
    assert_eq!(failed.err(), Some(DeviceError("none".to_owned())));
    assert!(Buffer::new(&device, 64).is_ok());
}
