//! The time of a step on a device, from its rows and the keys and values that they see.

use std::time::Duration;

use step::Batch;

use crate::args::DeviceArgs;

/// Bytes of a weight in bf16.
const WEIGHT: f64 = 2.0;

/// A model on a device. A step takes max(W / B, 2 P N / F) + KV / B + overhead: W bytes of weights
/// and KV bytes of keys and values read at B bytes per second, N rows through P parameters at F
/// operations per second. B and F are the shares of the data sheet that a step reaches.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Seconds to read the weights.
    weights: f64,
    /// Seconds of arithmetic per row.
    row: f64,
    /// Seconds to read the keys and values of a page.
    page: f64,
    /// Seconds beside the forward pass.
    overhead: f64,
}

impl Device {
    /// The device of `args`, with KV pages of `page_size` positions.
    pub fn new(args: &DeviceArgs, page_size: u32) -> Self {
        let bandwidth = args.bandwidth * 1e9 * args.bandwidth_share;
        let flops = args.tflops * 1e12 * args.flops_share;
        let parameters = args.parameters * 1e9;
        Self {
            weights: parameters * WEIGHT / bandwidth,
            row: 2.0 * parameters / flops,
            page: args.kv_position * 1024.0 * f64::from(page_size) / bandwidth,
            overhead: args.overhead / 1e3,
        }
    }

    /// The time of a step.
    pub fn step(&self, batch: &Batch) -> Duration {
        let pages: usize = batch
            .segments
            .iter()
            .map(|of| batch.table_of(of).len())
            .sum();
        let products = self.weights.max(self.row * batch.rows.len() as f64);
        Duration::from_secs_f64(products + self.page * pages as f64 + self.overhead)
    }
}
