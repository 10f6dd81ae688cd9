//! Compares every kernel of the first CUDA device with the processor's:
//! `cargo run --release --features cuda --example selftest`.

use asynclane_cuda_lab::{SelftestSizes, selftest};
use asynclane_kernels::device::Device;

/// Rows of the largest batches, and the whole matrices of the large shapes.
const SIZES: SelftestSizes = SelftestSizes { rows: 2000, columns: usize::MAX };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::open(0)?;
    let (mut count, mut wrong) = (0, 0);
    selftest(&device, SIZES, &mut |check| {
        let verdict = if check.holds() { "ok" } else { "WRONG" };
        println!("{}: {:.1e} of {:.0e}, {verdict}", check.name, check.error, check.tolerance);
        count += 1;
        wrong += usize::from(!check.holds());
    });
    println!("{wrong} of {count} checks do not hold");
    std::process::exit(i32::from(wrong > 0));
}
