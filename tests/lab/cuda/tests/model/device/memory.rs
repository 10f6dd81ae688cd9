//! The device memory of an executor, counted by the emulation.

use super::{checkpoint, dflash};
use crate::backends::{batch, shapes};
use crate::canvas_dtypes;
use crate::common::{Noise, Store, Tiny, execute};
use crate::official::Case;
use asynclane_cuda_lab::{emulated, emulated_with};
use asynclane_model::{
    Checkpoint, Device, DeviceConfig, DeviceExecutor, DeviceMemory, DeviceModel, Files, KvDtype,
    KvMemory, LoadError, Model, WeightDtype,
};
use step::{Executor, Sampling};

const MIB: u64 = 1 << 20;
const DTYPES: [WeightDtype; 4] =
    [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8, WeightDtype::Int8w];

fn config(kv: KvMemory) -> DeviceConfig {
    DeviceConfig { page_size: 8, rows: 100, positions: 48, sequences: 3, kv }
}

fn taken(device: &Device) -> u64 {
    let (free, total) = device.memory().unwrap();
    total - free
}

fn executor(
    (device, tiny): (&Device, &Tiny),
    config: DeviceConfig,
) -> Result<DeviceExecutor, LoadError> {
    let mut checkpoint = checkpoint(tiny, WeightDtype::F32);
    checkpoint.limit(Some(config.positions as usize));
    DeviceExecutor::new(DeviceModel::load(device, checkpoint)?, config)
}

/// Checks that the computed bytes equal the allocated bytes, in every dtype with kernels. Returns
/// the numbers of dtypes, with keys and values as queries and in int8.
fn check(open: &dyn Fn() -> Checkpoint, config: DeviceConfig, what: &str) -> [usize; 2] {
    let integers = || open().with_kv_dtype(KvDtype::Int8);
    [check_kv(open, None, config, what), check_kv(&integers, Some(KvDtype::Int8), config, what)]
}

fn check_kv(
    open: &dyn Fn() -> Checkpoint,
    kv: Option<KvDtype>,
    config: DeviceConfig,
    what: &str,
) -> usize {
    let fits = |dtype: &WeightDtype| {
        let info = open().survey(*dtype).unwrap().info;
        DeviceModel::unfit(&info, kv).is_none()
    };
    let mut seen = 0;
    for dtype in DTYPES.into_iter().filter(fits) {
        seen += 1;
        let mut checkpoint = open();
        let needed = DeviceMemory::needed(&mut checkpoint, dtype, &config).unwrap();
        let device = emulated_with(needed.sum());
        let model = DeviceModel::load(&device, checkpoint.with_dtype(dtype)).unwrap();
        assert_eq!(taken(&device), needed.weights, "{what}");
        let executor = DeviceExecutor::new(model, config).unwrap();
        assert_eq!(executor.memory(), needed, "{what}");
        assert_eq!(taken(&device), needed.sum(), "{what}");
        drop(executor);
        assert_eq!(taken(&device), 0, "{what}");
    }
    seen
}

#[test]
fn computed_bytes_equal_allocated_bytes() {
    let (mut seen, mut narrow) = (0, 0);
    for case in Case::all() {
        let open = || Checkpoint::open(&Files::folder(&case.folder)).unwrap();
        let kv = KvMemory::Bytes(MIB + 13);
        let [own, integers] = check(&open, config(kv), &case.name);
        (seen, narrow) = (seen + own, narrow + integers);
    }
    assert!(seen >= 13 && narrow >= 13, "{seen}, {narrow}");
    let open = || canvas_dtypes::checkpoint(WeightDtype::F32);
    assert_eq!(check(&open, config(KvMemory::Bytes(MIB + 13)), "canvas"), [4; 2]);
    let open = || dflash::pair(WeightDtype::F32);
    assert_eq!(check(&open, config(KvMemory::Bytes(MIB + 13)), "DFlash"), [4, 1]);
    for (seed, shape) in shapes().iter().enumerate() {
        let tiny = Tiny::new(seed as u64, shape);
        // A context of three tiles, and a row budget below its length.
        let long = DeviceConfig { rows: 7, positions: 1100, ..config(KvMemory::Bytes(8 * MIB)) };
        let open = || checkpoint(&tiny, WeightDtype::F32);
        let [own, integers] = check(&open, long, &format!("{shape}"));
        // The heads of one shape are a multiple of 16 numbers.
        assert_eq!((own, integers), (4, if seed == 0 { 4 } else { 1 }));
    }
}

#[test]
fn the_pool_takes_the_rest_of_its_share() {
    let tiny = Tiny::new(1, &shapes()[0]);
    for (total, share) in [(8 * MIB, 0.9), (12 * MIB, 0.75), (12 * MIB, 1.0)] {
        let device = emulated_with(total);
        let config = config(KvMemory::Share(share));
        let executor = executor((&device, &tiny), config).unwrap();
        let most = (total as f64 * share) as u64;
        assert_eq!(config.allowance(total, total), most);
        assert_eq!(config.allowance(MIB, total), MIB);
        let page = 8 * executor.model().kv_bytes_per_position() as u64;
        let left = most - taken(&device);
        // One hundredth of the free memory stays free.
        let spare = if share < 1.0 { page } else { page + total / 100 };
        assert!(left < spare, "{left} of {total}");
        let pages = u64::from(executor.spec().pages);
        assert_eq!(executor.memory().kv, pages * page);
        assert_eq!(executor.memory().sum(), taken(&device));
    }
}

/// Memory of other users reduces the free memory, but not the share.
#[test]
fn a_device_may_be_shared() {
    let tiny = Tiny::new(1, &shapes()[0]);
    let device = emulated_with(16 * MIB);
    let first = executor((&device, &tiny), config(KvMemory::Share(0.5))).unwrap();
    let second = executor((&device, &tiny), config(KvMemory::Share(0.4))).unwrap();
    let page = 8 * first.model().kv_bytes_per_position() as u64;
    for (executor, share) in [(first, 8 * MIB), (second, 16 * MIB * 2 / 5)] {
        let sum = executor.memory().sum();
        assert!(sum <= share && share - sum < page, "{sum} of {share}");
    }
}

#[test]
fn a_fixed_number_of_bytes_is_used_as_configured() {
    let tiny = Tiny::new(1, &shapes()[0]);
    let model = |device: &Device| DeviceModel::load(device, checkpoint(&tiny, WeightDtype::F32));
    let page = 8 * model(&emulated()).unwrap().kv_bytes_per_position() as u64;
    let fitted = |bytes| executor((&emulated_with(16 * MIB), &tiny), config(bytes));
    let pages = |bytes| fitted(KvMemory::Bytes(bytes)).map(|executor| executor.spec().pages);
    assert_eq!(pages(20 * page).unwrap(), 20);
    assert_eq!(pages(21 * page - 1).unwrap(), 20);
    let error = pages(6 * page - 1).unwrap_err().to_string();
    let few = format!(
        "executor: KV pages: expected at least {} bytes for one sequence of 48 positions, found {}",
        6 * page,
        6 * page - 1
    );
    assert_eq!(error, few);
    let error = pages(64 * MIB).unwrap_err().to_string();
    let many = "executor: KV pages: expected at most the ";
    assert!(error.starts_with(many), "{error}");
}

/// Runs batches with the maximum number of rows and the maximum context.
#[test]
fn the_largest_step_allocates_nothing() {
    let tiny = Tiny::new(2, &shapes()[1]);
    let device = emulated_with(64 * MIB);
    let sizes = DeviceConfig { rows: 96, ..config(KvMemory::Bytes(4 * MIB)) };
    let mut executor = executor((&device, &tiny), sizes).unwrap();
    let before = taken(&device);
    let mut noise = Noise(3);
    for lengths in [&[1][..], &[48, 48], &[40, 8, 48]] {
        let mut batch = batch(&mut noise, lengths, Sampling::GREEDY);
        batch.allowed = vec![!0; 3 * step::set_words(executor.spec().vocab_size)];
        for (row, index) in batch.rows.iter_mut().zip([0, 1, 2].into_iter().cycle()) {
            row.allowed = Some(index);
        }
        assert_eq!(execute(&mut executor, &batch).candidates.len(), batch.rows.len());
        assert_eq!(taken(&device), before, "{lengths:?}");
    }
}

/// All weights are NaN, so loading would fail.
#[test]
fn needed_bytes_are_computed_without_reading_weights() {
    let mut tiny = Tiny::new(4, &shapes()[2]);
    let clean = checkpoint(&tiny, WeightDtype::F32);
    for (_, values) in tiny.tensors.values_mut() {
        values.fill(f32::NAN);
    }
    let open = || Checkpoint::open(&Files::memory(tiny.files(Store::F32))).unwrap();
    let config = config(KvMemory::Share(0.9));
    let needed = |mut checkpoint| DeviceMemory::needed(&mut checkpoint, WeightDtype::F32, &config);
    assert!(matches!(Model::load(open()), Err(LoadError::NotFinite { .. })));
    assert_eq!(needed(open()).unwrap(), needed(clean).unwrap());
    let halved = DeviceMemory::needed(&mut open(), WeightDtype::Bf16, &config).unwrap();
    assert!(halved.weights < needed(open()).unwrap().weights);
}

/// Running out of memory at any stage is a one-line error, and all memory is freed.
#[test]
fn running_out_of_memory_is_an_error_at_every_stage() {
    let tiny = Tiny::new(5, &shapes()[0]);
    let config = config(KvMemory::Share(1.0));
    let mut open = checkpoint(&tiny, WeightDtype::F32);
    let needed = DeviceMemory::needed(&mut open, WeightDtype::F32, &config).unwrap();
    for bytes in [needed.weights / 2, needed.weights + needed.step / 2, needed.sum() - 1] {
        let device = emulated_with(bytes);
        let error = executor((&device, &tiny), config).err().unwrap();
        let error = error.to_string();
        assert!(error.contains(" bytes"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert_eq!(taken(&device), 0);
    }
}
