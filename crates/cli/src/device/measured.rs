//! The file of measured steps and launches.

use std::path::Path;

use anyhow::{Context, Result};
use model::{
    Device, Geometry, LaunchTime, LoadError, MatrixFormat, Roofline, StepTimes, step_floor,
};
use serde_json::{Value, json};

use super::steps::Step;
use crate::exit;

/// Number formats of the matrices whose launches are timed.
const FORMATS: [MatrixFormat; 2] = [MatrixFormat::Bf16, MatrixFormat::Int8];

/// What the steps were measured with.
pub(super) struct Found<'a> {
    /// `None`: nothing was measured.
    pub device: Option<&'a Device>,
    pub geometry: Geometry,
    pub rates: Roofline,
    /// Rows of the products of which every launch is timed.
    pub launches: &'a [u32],
}

impl Found<'_> {
    /// Writes the steps, and the times of all launches of the geometry's products.
    ///
    /// # Errors
    /// If the device fails or the file cannot be written.
    pub(super) fn write(&self, file: &Path, steps: &[Step]) -> Result<()> {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let steps: Vec<Value> = steps.iter().map(|step| self.step(step)).collect();
        let found = json!({
            "command": format!("asynclane {}", args.join(" ")),
            "device": self.device.map_or("none", Device::name),
            "geometry": self.geometry.name,
            "memory_tb_per_s": rounded(self.rates.memory / 1e12, 2),
            "steps": steps,
            "launches": self.timed()?,
        });
        let text = serde_json::to_string_pretty(&found)? + "\n";
        std::fs::write(file, text).with_context(|| format!("{} was not written", file.display()))
    }

    fn step(&self, step: &Step) -> Value {
        let ms = |seconds: f64| rounded(seconds * 1e3, 3);
        let times = step.times.as_ref();
        let kernels: Vec<Value> = step
            .sums(&self.rates)
            .iter()
            .map(|(name, sum)| {
                json!({
                    "kernel": name,
                    "launches": sum.launches,
                    "estimated_ms": ms(sum.seconds),
                    "measured_ms": times.map(|_| ms(sum.measured)),
                })
            })
            .collect();
        json!({
            "dtype": step.dtype.name(),
            "rows": step.load.rows,
            "slots": step.load.slots,
            "floor_ms": ms(step_floor(&step.launches, &self.rates)),
            "measured_ms": times.map(|StepTimes { step, .. }| ms(*step)),
            "kernels": kernels,
        })
    }

    /// The times of every launch of every product.
    fn timed(&self) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        let Some(device) = self.device else {
            return Ok(all);
        };
        for &rows in self.launches {
            for format in FORMATS {
                for (n, k) in self.geometry.matrices() {
                    let times = device.launch_times(format, [rows as usize, n, k]);
                    let times = times.map_err(|error| exit::refused(LoadError::Setup(error.0)))?;
                    all.extend(times.iter().map(launch));
                }
            }
        }
        Ok(all)
    }
}

/// `value` rounded to `digits` digits after the decimal point.
fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

fn launch(LaunchTime { launch, seconds }: &LaunchTime) -> Value {
    json!({
        "kernel": launch.tile.name(),
        "rows": launch.sizes.rows,
        "n": launch.sizes.n,
        "k": launch.sizes.k,
        "whole": launch.whole.min(launch.tiles()),
        "lead": launch.lead,
        "us": rounded(seconds * 1e6, 1),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{DeviceLimits, Division, ProductLaunch, ProductSizes};

    use super::*;

    /// The times measured on an H200 by kernel, division and sizes: of all launches, the chosen ones
    /// are nearly the fastest.
    #[test]
    fn the_chosen_launches_are_nearly_the_fastest_measured() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/lab/records/h200/launches.json"
        );
        let found: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let number = |of: &Value, key: &str| of[key].as_u64().unwrap() as usize;
        let mut products: BTreeMap<_, Vec<&Value>> = BTreeMap::new();
        for one in found["launches"].as_array().unwrap() {
            let is_int8 = one["kernel"].as_str().unwrap().contains("int8");
            let [rows, n, k] = ["rows", "n", "k"].map(|key| number(one, key));
            products.entry((is_int8, rows, n, k)).or_default().push(one);
        }
        assert_eq!(products.len(), 48);
        let (mut chosen, mut least, mut unmeasured) = (0.0, 0.0, 0);
        for ((is_int8, rows, n, k), all) in products {
            let format = if is_int8 {
                MatrixFormat::Int8
            } else {
                MatrixFormat::Bf16
            };
            let sizes = ProductSizes { rows, n, k, format };
            let launch = ProductLaunch::choose(sizes, DeviceLimits::default(), Division::Divided);
            let (kernel, whole) = (launch.tile.name(), launch.whole.min(launch.tiles()));
            let same = |one: &&&Value| {
                one["kernel"] == kernel
                    && number(one, "whole") == whole
                    && number(one, "lead") == launch.lead
            };
            let us = |one: &Value| one["us"].as_f64().unwrap();
            let Some(found) = all.iter().find(same) else {
                unmeasured += 1;
                continue;
            };
            chosen += us(found);
            least += all.iter().map(|one| us(one)).fold(f64::INFINITY, f64::min);
        }
        assert_eq!(unmeasured, 0);
        assert!(chosen < 1.03 * least, "{chosen} of {least} us");
    }
}
