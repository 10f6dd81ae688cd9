//! Launches that begin while the one before runs.

use super::observed::{FAULTY, faulty_args};
use kernels::device::{Buffer, Device, Kernel};

/// Adds 1 to numbers in some launches in a row, of which all but the first overlap, and gives the last number. `fault`:
/// of `faulty.cu`.
fn added(device: &Device, fault: u32, launches: usize) -> f32 {
    let x = Buffer::floats(device, &[1.0; 128]).unwrap();
    let args = faulty_args(&x, fault);
    let kernel = Kernel { shared: 256, ..FAULTY };
    for _ in 0..launches {
        // SAFETY: the kernel stays within memory of the host.
        unsafe { device.driver().launch_over(kernel, [2, 1, 1], &args) }.unwrap();
    }
    let mut bytes = [0; 4];
    x.download(508, &mut bytes).unwrap();
    f32::from_le_bytes(bytes)
}

/// A block that reads before its wait gets the numbers from before the launch before: otherwise this emulation
/// would show nothing.
#[test]
fn what_is_read_too_early_changes_numbers() {
    for launches in [2, 3, 5] {
        let (right, early) = (16, 13);
        let over = || crate::emulated_small().with_overlap(true);
        assert_eq!(added(&over(), right, launches), 1.0 + launches as f32);
        // The second of two launches begins with the numbers before both; each later one with those of the last but one.
        assert_eq!(added(&over(), early, launches), 1.0 + launches.div_ceil(2) as f32);
        assert_eq!(added(&crate::emulated_small(), early, launches), 1.0 + launches as f32);
    }
}
