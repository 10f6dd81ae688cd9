//! A driver that allocates and computes nothing, and lists the launches.

mod routing;

use crate::cost::{self, LaunchCost};
use crate::{Result, refuse};
use kernels::device::{
    Captured, Device, DeviceLimits, Driver, Kernel, MapRows, TensorMap, host_map,
};
use model::{Checkpoint, DeviceModel, LoadError, StepLoad};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use step::Executor;

/// Bytes of a device that no model exhausts.
const TOTAL: u64 = 1 << 62;
/// Larger uploads are weights and not kept.
const MOST_KEPT: usize = 1 << 22;

/// The launches of a device that computes nothing, in their order.
#[derive(Clone, Default)]
pub struct Launches(Arc<Mutex<LaunchList>>);

#[derive(Default)]
struct LaunchList {
    launches: Vec<LaunchCost>,
    /// Launched kernels whose work depends on words that the host did not upload.
    unknown: BTreeSet<&'static str>,
}

impl Launches {
    fn listed(&self) -> MutexGuard<'_, LaunchList> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Takes the launches since the last call, and the names of launched kernels whose work depends on what
    /// a device computes.
    #[must_use]
    pub fn take(&self) -> (Vec<LaunchCost>, Vec<&'static str>) {
        let listed = std::mem::take(&mut *self.listed());
        (listed.launches, listed.unknown.into_iter().collect())
    }
}

/// A device that computes nothing and lists the launches of a device with these limits. Numbers are not
/// stored.
#[must_use]
pub fn planning(limits: DeviceLimits) -> (Device, Launches) {
    let launches = Launches::default();
    let driver = Planning::new(launches.clone(), limits);
    (Device::new(driver), launches)
}

/// The launches of a step on a device with these limits, in order, with the work
/// of each, where rows choose experts at random; and the names of launched kernels whose work depends on what
/// a device computes. No weight is read.
///
/// # Errors
/// If the model has no device kernels, or the step does not fit into its positions.
pub fn planned(
    load: &StepLoad,
    checkpoint: Checkpoint,
    limits: DeviceLimits,
) -> std::result::Result<(Vec<LaunchCost>, Vec<&'static str>), LoadError> {
    let (device, launches) = planning(limits);
    let mut executor = load.executor(DeviceModel::load(&device, checkpoint)?)?;
    // Launches of the setup are not part of a step.
    drop(launches.take());
    let begun = executor.begin(&load.batch(executor.spec()));
    begun.map_err(|error| LoadError::Setup(error.0))?;
    Ok(launches.take())
}

/// The memory of the device: sizes, and the contents of small uploads.
#[derive(Default)]
struct Memory {
    bytes: BTreeMap<u64, u64>,
    contents: BTreeMap<u64, Vec<u8>>,
    used: u64,
    next: u64,
    capturing: bool,
    /// The state of the choices of experts.
    choices: u64,
}

impl Memory {
    /// Words of one upload.
    fn words(&self, address: u64, count: usize) -> Option<Vec<u32>> {
        let (start, bytes) = self.contents.range(..=address).next_back()?;
        let offset = usize::try_from(address - start).ok()?;
        let words = bytes.get(offset..offset + 4 * count)?.as_chunks::<4>().0;
        Some(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }
}

/// The driver.
struct Planning {
    memory: Mutex<Memory>,
    launches: Launches,
    limits: DeviceLimits,
}

impl Planning {
    /// A device that adds its launches to `launches`.
    fn new(launches: Launches, limits: DeviceLimits) -> Self {
        Self { memory: Mutex::default(), launches, limits }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

/// Captured launches of a driver that launches nothing.
struct Nothing;

impl Captured for Nothing {
    unsafe fn launch(&self) -> Result<()> {
        Ok(())
    }
}

impl Driver for Planning {
    fn name(&self) -> &str {
        "model"
    }

    fn memory(&self) -> Result<(u64, u64)> {
        Ok((TOTAL - self.memory().used, TOTAL))
    }

    fn limits(&self) -> DeviceLimits {
        self.limits
    }

    fn is_counting(&self) -> bool {
        true
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        let mut all = self.memory();
        let bytes = bytes as u64;
        let used = all.used.checked_add(bytes).filter(|used| *used <= TOTAL);
        let Some(used) = used else {
            return refuse(format!("{bytes} bytes are more than any device has"));
        };
        // Addresses of different allocations are far enough from each other, and none is 0.
        let address = all.next.max(1 << 10);
        all.next = (address + bytes).next_multiple_of(1 << 10);
        all.bytes.insert(address, bytes);
        all.used = used;
        Ok(address)
    }

    fn free(&self, address: u64) {
        let mut all = self.memory();
        all.used -= all.bytes.remove(&address).unwrap_or(0);
        all.contents.remove(&address);
    }

    fn fill(&self, _: u64, _: u8, _: usize) -> Result<()> {
        Ok(())
    }

    fn upload(&self, address: u64, bytes: &[u8]) -> Result<()> {
        if bytes.len() <= MOST_KEPT {
            self.memory().contents.insert(address, bytes.to_vec());
        }
        Ok(())
    }

    fn download(&self, bytes: &mut [u8], _: u64) -> Result<()> {
        bytes.fill(0);
        Ok(())
    }

    fn tensor_map(&self, rows: MapRows) -> Result<TensorMap> {
        Ok(host_map(rows))
    }

    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 3], args: &[u8]) -> Result<()> {
        let mut memory = self.memory();
        if memory.capturing {
            return Ok(());
        }
        match kernel.name {
            "choose_experts" => memory.choose(&cost::view(args), grid[0] as usize),
            "group_rows" => memory.group(&cost::view(args)),
            _ => {}
        }
        let cost = cost::cost(kernel, grid, args, &|address, count| memory.words(address, count));
        let mut listed = self.launches.listed();
        match cost {
            Some(cost) => listed.launches.push(cost),
            None => _ = listed.unknown.insert(kernel.name),
        }
        Ok(())
    }

    fn begin_capture(&self) -> Result<()> {
        self.memory().capturing = true;
        Ok(())
    }

    fn end_capture(&self) -> Result<Box<dyn Captured>> {
        self.memory().capturing = false;
        Ok(Box::new(Nothing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Card, floor};
    use model::{Geometry, WeightDtype};

    #[test]
    fn rows_are_padded_where_a_graph_may_be_captured() {
        let geometry = Geometry::named("demo").unwrap();
        for (rows, padded) in [(60, 64), (500, 512), (513, 513), (700, 700)] {
            let load = StepLoad { rows, lane: 32, slots: 64 };
            let checkpoint = geometry.checkpoint(5, 1).unwrap().with_dtype(WeightDtype::Bf16);
            let (launches, _) = planned(&load, checkpoint, DeviceLimits::default()).unwrap();
            let embed = launches.iter().find(|launch| launch.kernel == "embed_bf16");
            assert_eq!(embed.unwrap().blocks, padded);
        }
    }

    /// The steps of LLaDA-8B in the README: bounds on the ratio of the estimate to the floor.
    #[test]
    fn steps_of_llada_8b_read_their_weights_once_and_are_near_their_floor() {
        let geometry = Geometry::named("llada-8b").unwrap();
        let readme = include_str!("../README.md");
        let mut missing = Vec::new();
        // Launches of a layer: in int8 two norms and two that round to integers, and where the fastest tile has
        // no whole heads and cuts none they are split alone.
        for (dtype, rows, layer, most) in [
            (WeightDtype::Bf16, 64, 5, 1.4),
            (WeightDtype::Bf16, 256, 5, 2.0),
            (WeightDtype::Int8, 64, 9, 2.0),
            (WeightDtype::Int8, 256, 10, 2.5),
            (WeightDtype::Int4, 64, 5, 3.3),
        ] {
            let load = StepLoad { rows, lane: 32, slots: 1024 };
            let checkpoint = geometry.checkpoint(5, 1).unwrap().with_dtype(dtype);
            let (launches, unknown) = planned(&load, checkpoint, DeviceLimits::default()).unwrap();
            assert_eq!(unknown, [""; 0]);
            // The embedding, the first norm unless every layer has its own, the last one, the head and its reduction.
            let count = 32 * layer + 4 + usize::from(dtype != WeightDtype::Int8);
            assert_eq!(launches.len(), count, "{dtype:?}, {rows} rows");
            let products = launches.iter().filter(|launch| !launch.kernel.starts_with("attend"));
            let operations: f64 = products.map(|launch| launch.operations).sum();
            let want = f64::from(rows) * geometry.info().unwrap().operations();
            assert!((operations / want - 1.0).abs() < 1e-3, "{operations}");
            let least = floor(&launches, &Card::H200);
            let seconds: f64 = launches.iter().map(|one| one.seconds(&Card::H200)).sum();
            let ratio = seconds / least;
            assert!((1.0..=most).contains(&ratio), "{ratio}");
            let row = format!(
                "| {} | {rows} | {:.1} | {:.1} | {ratio:.2} |",
                dtype.name(),
                1e3 * least,
                1e3 * seconds
            );
            missing.extend((!readme.contains(&row)).then_some(row));
        }
        assert!(missing.is_empty(), "README.md: expected {missing:#?}");
    }

    /// A fused step has five launches a layer, however many rows, and one reading of attention.
    #[test]
    fn fused_steps_have_few_launches() {
        let geometry = Geometry::named("llada-8b").unwrap();
        for rows in [1, 32, 64, 128, 256, 512, 1024] {
            let load = StepLoad { rows, lane: 32.min(rows), slots: 1024 };
            let checkpoint = geometry.checkpoint(5, 1).unwrap().with_dtype(WeightDtype::Bf16);
            let (launches, _) = planned(&load, checkpoint, DeviceLimits::default()).unwrap();
            assert!(launches.len() <= 168, "{rows} rows: {} launches", launches.len());
        }
    }

    /// A layer has seven launches without experts and 13 with them, 14 if its heads are split alone, and two more
    /// with a shared one. A canvas model reads its
    /// table for logits and for mean embeddings, of some rows at a time.
    #[test]
    fn steps_of_mixtures_read_the_experts_that_rows_touch_once() {
        for (name, launches, most) in [
            ("llada2-mini", 7 + 19 * 15 + 4, [0.01; 2]),
            ("qwen3-30b-a3b", 48 * 14 + 4, [0.01; 2]),
            ("diffusion-gemma", 30 * 24 + 8, [0.04, 0.09]),
        ] {
            let geometry = Geometry::named(name).unwrap();
            let info = geometry.info().unwrap();
            for (rows, most) in [32, 256].into_iter().zip(most) {
                let load = StepLoad { rows, lane: 32, slots: 1024 };
                let checkpoint = geometry.checkpoint(5, 1).unwrap().with_dtype(WeightDtype::Bf16);
                let (listed, unknown) =
                    planned(&load, checkpoint, DeviceLimits::default()).unwrap();
                assert_eq!(unknown, [""; 0], "{name}");
                // With many rows, the partial results of wide heads take several runs.
                assert!(listed.len() == launches || rows > 32, "{name}: {}", listed.len());
                let read: u64 = listed.iter().map(|launch| launch.fresh).sum();
                let positions = u64::from(load.sequences() * load.slots);
                let floor = info.read_bytes(16, rows, positions);
                let ratio = (read * crate::SECTOR) as f64 / floor as f64;
                assert!((ratio - 1.0).abs() < most, "{name}, {rows} rows: {ratio}");
            }
        }
    }

    /// A small mixture on the emulation: the launches are the listed ones, and every one moves what its formula
    /// says of the experts that its rows chose.
    #[test]
    fn a_step_with_experts_moves_what_its_formulas_say() {
        let config = r#"{"architectures": ["LLaDA2MoeModelLM"], "hidden_size": 128,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
            "num_hidden_layers": 2, "first_k_dense_replace": 1, "intermediate_size": 256,
            "moe_intermediate_size": 64, "num_experts": 16, "num_experts_per_tok": 4,
            "num_shared_experts": 1, "use_bias": false, "vocab_size": 512, "mask_token_id": 5,
            "eos_token_id": 1, "max_position_embeddings": 256}"#;
        let load = StepLoad { rows: 64, lane: 32, slots: 128 };
        for dtype in [WeightDtype::Bf16, WeightDtype::Int8, WeightDtype::Int4] {
            let open = || Checkpoint::synthetic(config, 1).unwrap().with_dtype(dtype);
            let (device, observations) = crate::observed();
            let model = DeviceModel::load(&device, open()).unwrap();
            let mut executor = load.executor(model).unwrap();
            drop(observations.take());
            let batch = load.batch(executor.spec());
            executor.execute(&batch, &mut step::BatchOutput::default()).unwrap();
            let all = observations.take();
            let (listed, _) = planned(&load, open(), device.limits()).unwrap();
            let names = |all: &[LaunchCost]| all.iter().map(|one| one.kernel).collect::<Vec<_>>();
            let seen: Vec<&str> = all.iter().map(|one| one.kernel()).collect();
            assert_eq!(seen, names(&listed), "{dtype:?}");
            let (mut formula, mut observed) = (0, 0);
            for one in &all {
                assert_eq!(one.failures().0, 0, "{dtype:?}");
                let cost = one.cost().unwrap();
                formula += cost.read.distinct + cost.written.distinct;
                observed += one.read().distinct + one.written().distinct;
            }
            let ratio = formula as f64 / observed as f64;
            assert!((ratio - 1.0).abs() < 0.02, "{dtype:?}: {ratio}");
        }
    }
}
