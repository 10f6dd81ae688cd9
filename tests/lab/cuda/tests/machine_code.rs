//! The compiled kernels: no register spills on any device, room for the blocks that the design needs,
//! the use of tensor cores, and PTX that later devices accept.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use asynclane_kernels::device::{MatrixFormat, ProductTile};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// The resources of a device's multiprocessor: its name, threads, blocks, and bytes of shared memory, of
/// which a block takes [`RESERVED`] more than it asks for. All have [`REGISTERS`].
const DEVICES: [(&str, u32, u32, u32); 4] = [
    ("sm_80", 2048, 32, 164 << 10),
    ("sm_86", 1536, 16, 100 << 10),
    ("sm_89", 1536, 24, 100 << 10),
    ("sm_90a", 2048, 32, 228 << 10),
];
const REGISTERS: u32 = 1 << 16;
const RESERVED: u32 = 1 << 10;
/// The report of ptxas on a kernel whose registers suffice.
const NO_SPILL: &str = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
/// Registers of a warp are given in multiples of this.
const UNIT: u32 = 256;

/// The blocks of a kernel that must fit onto a multiprocessor of [`DEVICES`], so that one loads while
/// another computes. Tiles on tensor cores fill the shared memory; with 0 a device has too little for
/// one, or no warpgroups, and the kernel is not loaded there.
const WANTED: [(&str, [u32; 4]); 212] = [
    ("attend_bf16_128x16", [2, 1, 1, 3]),
    ("attend_bf16_128x32", [2, 1, 1, 3]),
    ("attend_bf16_128x64", [2, 1, 1, 2]),
    ("attend_bf16_256", [3, 2, 2, 5]),
    ("attend_bf16_32x16", [8, 5, 5, 12]),
    ("attend_bf16_32x32", [8, 5, 5, 9]),
    ("attend_bf16_32x64", [4, 4, 4, 4]),
    ("attend_bf16_512", [1, 1, 1, 2]),
    ("attend_bf16_64x16", [4, 2, 2, 6]),
    ("attend_bf16_64x32", [4, 2, 2, 6]),
    ("attend_bf16_64x64", [3, 2, 2, 3]),
    ("attend_f32", [32, 16, 24, 32]),
    ("attend_f32_wide", [32, 16, 24, 24]),
    ("attend_int8_128x16", [2, 1, 1, 3]),
    ("attend_int8_128x32", [2, 1, 1, 3]),
    ("attend_int8_128x64", [2, 1, 1, 2]),
    ("attend_int8_256", [3, 2, 2, 4]),
    ("attend_int8_32x16", [8, 5, 5, 12]),
    ("attend_int8_32x32", [8, 5, 5, 8]),
    ("attend_int8_32x64", [4, 4, 4, 4]),
    ("attend_int8_512", [1, 1, 1, 2]),
    ("attend_int8_64x16", [4, 2, 2, 6]),
    ("attend_int8_64x32", [4, 2, 2, 6]),
    ("attend_int8_64x64", [3, 2, 2, 3]),
    ("attend_int8_f32", [32, 16, 24, 32]),
    ("attend_int8_f32_wide", [32, 16, 24, 23]),
    ("choose_experts", [18, 11, 11, 25]),
    ("clear_rows", [8, 6, 6, 8]),
    ("copy_pages", [8, 6, 6, 8]),
    ("count_experts", [8, 6, 6, 8]),
    ("downs_bf16_few", [3, 1, 1, 4]),
    ("downs_bf16_groups_64x128", [0, 0, 0, 1]),
    ("downs_bf16_groups_64x64", [0, 0, 0, 2]),
    ("downs_bf16_many", [1, 1, 1, 2]),
    ("downs_int8_few", [3, 1, 1, 4]),
    ("downs_int8_groups_64x128", [0, 0, 0, 1]),
    ("downs_int8_groups_64x64", [0, 0, 0, 2]),
    ("downs_int8_many", [1, 1, 1, 2]),
    ("downs_int8w_few", [5, 3, 3, 7]),
    ("downs_int8w_groups_16x128", [0, 0, 0, 2]),
    ("downs_int8w_groups_64x128", [0, 0, 0, 1]),
    ("downs_int8w_many", [2, 1, 1, 2]),
    ("downs_packed_few", [4, 2, 2, 6]),
    ("downs_packed_groups_16x128", [0, 0, 0, 2]),
    ("downs_packed_groups_64x128", [0, 0, 0, 1]),
    ("downs_packed_many", [2, 1, 1, 2]),
    ("embed_bf16", [8, 6, 6, 8]),
    ("embed_f32", [8, 6, 6, 8]),
    ("experts_f32", [4, 4, 4, 4]),
    ("filter_rows", [3, 3, 3, 3]),
    ("fold_partials", [9, 9, 9, 9]),
    ("gates_bf16_few", [3, 1, 1, 4]),
    ("gates_bf16_groups_64x128", [0, 0, 0, 1]),
    ("gates_bf16_groups_64x64", [0, 0, 0, 2]),
    ("gates_bf16_many", [1, 1, 1, 2]),
    ("gates_int8_few", [3, 1, 1, 4]),
    ("gates_int8_groups_64x128", [0, 0, 0, 1]),
    ("gates_int8_groups_64x64", [0, 0, 0, 2]),
    ("gates_int8_many", [1, 1, 1, 2]),
    ("gates_int8w_few", [5, 3, 3, 7]),
    ("gates_int8w_groups_16x128", [0, 0, 0, 2]),
    ("gates_int8w_groups_64x128", [0, 0, 0, 1]),
    ("gates_int8w_many", [2, 1, 1, 2]),
    ("gates_packed_few", [4, 2, 2, 6]),
    ("gates_packed_groups_16x128", [0, 0, 0, 2]),
    ("gates_packed_groups_64x128", [0, 0, 0, 1]),
    ("gates_packed_many", [2, 1, 1, 2]),
    ("gather_bf16", [16, 12, 12, 16]),
    ("gather_f32", [16, 12, 12, 16]),
    ("gather_int8", [16, 12, 12, 16]),
    ("gemm_bf16_128x128", [1, 1, 1, 1]),
    ("gemm_bf16_128x256", [0, 0, 0, 1]),
    ("gemm_bf16_64x128", [1, 1, 1, 2]),
    ("gemm_bf16_groups_128x128", [0, 0, 0, 1]),
    ("gemm_bf16_groups_128x192", [0, 0, 0, 1]),
    ("gemm_bf16_groups_128x256", [0, 0, 0, 1]),
    ("gemm_bf16_groups_64x128", [0, 0, 0, 1]),
    ("gemm_bf16_groups_64x192", [0, 0, 0, 1]),
    ("gemm_bf16_groups_64x64", [0, 0, 0, 2]),
    ("gemm_bf16_pair_128x128", [0, 0, 0, 1]),
    ("gemm_bf16_pair_128x192", [0, 0, 0, 1]),
    ("gemm_bf16_pair_128x256", [0, 0, 0, 1]),
    ("gemm_bf16_ring_128x128", [0, 0, 0, 1]),
    ("gemm_bf16_ring_64x128", [0, 0, 0, 2]),
    ("gemm_bf16_ring_64x64", [0, 0, 0, 2]),
    ("gemm_f32", [3, 3, 3, 3]),
    ("gemm_int8_128x128", [1, 1, 1, 2]),
    ("gemm_int8_128x256", [1, 1, 1, 1]),
    ("gemm_int8_64x128", [1, 1, 1, 2]),
    ("gemm_int8_groups_128x128", [0, 0, 0, 1]),
    ("gemm_int8_groups_128x192", [0, 0, 0, 1]),
    ("gemm_int8_groups_128x256", [0, 0, 0, 1]),
    ("gemm_int8_groups_64x128", [0, 0, 0, 1]),
    ("gemm_int8_groups_64x192", [0, 0, 0, 1]),
    ("gemm_int8_groups_64x64", [0, 0, 0, 2]),
    ("gemm_int8_pair_128x128", [0, 0, 0, 1]),
    ("gemm_int8_pair_128x192", [0, 0, 0, 1]),
    ("gemm_int8_pair_128x256", [0, 0, 0, 1]),
    ("gemm_int8_ring_128x128", [0, 0, 0, 1]),
    ("gemm_int8_ring_64x128", [0, 0, 0, 2]),
    ("gemm_int8_ring_64x64", [0, 0, 0, 2]),
    ("gemm_int8w_128x128", [1, 1, 1, 1]),
    ("gemm_int8w_128x256", [0, 0, 0, 1]),
    ("gemm_int8w_64x128", [2, 1, 1, 2]),
    ("gemm_int8w_groups_128x128", [0, 0, 0, 1]),
    ("gemm_int8w_groups_128x192", [0, 0, 0, 1]),
    ("gemm_int8w_groups_64x128", [0, 0, 0, 1]),
    ("gemm_int8w_groups_64x192", [0, 0, 0, 1]),
    ("gemm_packed_128x128", [1, 1, 1, 1]),
    ("gemm_packed_64x128", [1, 1, 1, 1]),
    ("gemm_packed_groups_128x128", [0, 0, 0, 1]),
    ("gemm_packed_groups_128x192", [0, 0, 0, 1]),
    ("gemm_packed_groups_64x128", [0, 0, 0, 1]),
    ("gemm_packed_groups_64x192", [0, 0, 0, 1]),
    ("group_rows", [8, 6, 6, 8]),
    ("head_bf16_128x128", [1, 1, 1, 1]),
    ("head_bf16_128x256", [0, 0, 0, 1]),
    ("head_bf16_64x128", [1, 1, 1, 1]),
    ("head_bf16_groups_128x128", [0, 0, 0, 1]),
    ("head_bf16_groups_128x256", [0, 0, 0, 1]),
    ("head_bf16_groups_64x128", [0, 0, 0, 1]),
    ("head_bf16_pair_128x128", [0, 0, 0, 1]),
    ("head_bf16_pair_128x256", [0, 0, 0, 1]),
    ("head_f32", [4, 3, 3, 4]),
    ("head_int8_128x128", [1, 1, 1, 1]),
    ("head_int8_128x256", [1, 0, 0, 1]),
    ("head_int8_64x128", [1, 1, 1, 1]),
    ("head_int8_groups_128x128", [0, 0, 0, 1]),
    ("head_int8_groups_128x256", [0, 0, 0, 1]),
    ("head_int8_groups_64x128", [0, 0, 0, 1]),
    ("head_int8_pair_128x128", [0, 0, 0, 1]),
    ("head_int8_pair_128x256", [0, 0, 0, 1]),
    ("head_int8w_128x128", [1, 1, 1, 1]),
    ("head_int8w_128x256", [0, 0, 0, 1]),
    ("head_int8w_64x128", [2, 1, 1, 2]),
    ("head_int8w_groups_128x128", [0, 0, 0, 1]),
    ("head_int8w_groups_64x128", [0, 0, 0, 1]),
    ("head_packed_128x128", [1, 1, 1, 1]),
    ("head_packed_64x128", [2, 1, 1, 2]),
    ("head_packed_groups_128x128", [0, 0, 0, 1]),
    ("head_packed_groups_64x128", [0, 0, 0, 1]),
    ("keep_means", [8, 6, 6, 8]),
    ("list_tops", [4, 4, 4, 4]),
    ("mix_experts", [8, 6, 6, 8]),
    ("norm_add", [8, 6, 6, 8]),
    ("norm_bf16", [4, 4, 4, 4]),
    ("norm_denoised", [8, 6, 6, 8]),
    ("norm_f32", [4, 4, 4, 4]),
    ("norm_int8", [4, 4, 4, 4]),
    ("qkv_bf16_128x128", [1, 1, 1, 1]),
    ("qkv_bf16_128x256", [0, 0, 0, 1]),
    ("qkv_bf16_64x128", [1, 1, 1, 2]),
    ("qkv_bf16_groups_128x128", [0, 0, 0, 1]),
    ("qkv_bf16_groups_128x192", [0, 0, 0, 1]),
    ("qkv_bf16_groups_128x256", [0, 0, 0, 1]),
    ("qkv_bf16_groups_64x128", [0, 0, 0, 1]),
    ("qkv_bf16_pair_128x128", [0, 0, 0, 1]),
    ("qkv_bf16_pair_128x192", [0, 0, 0, 1]),
    ("qkv_bf16_pair_128x256", [0, 0, 0, 1]),
    ("qkv_bf16_ring_128x128", [0, 0, 0, 1]),
    ("qkv_bf16_ring_64x128", [0, 0, 0, 1]),
    ("qkv_int8_128x128", [1, 1, 1, 1]),
    ("qkv_int8_128x256", [1, 0, 0, 1]),
    ("qkv_int8_64x128", [1, 1, 1, 2]),
    ("qkv_int8_groups_128x128", [0, 0, 0, 1]),
    ("qkv_int8_groups_128x256", [0, 0, 0, 1]),
    ("qkv_int8_groups_64x128", [0, 0, 0, 1]),
    ("qkv_int8_pair_128x128", [0, 0, 0, 1]),
    ("qkv_int8_pair_128x256", [0, 0, 0, 1]),
    ("qkv_int8_ring_128x128", [0, 0, 0, 1]),
    ("qkv_int8_ring_64x128", [0, 0, 0, 1]),
    ("qkv_int8w_128x128", [1, 1, 1, 1]),
    ("qkv_int8w_128x256", [0, 0, 0, 1]),
    ("qkv_int8w_64x128", [2, 1, 1, 2]),
    ("qkv_int8w_groups_128x128", [0, 0, 0, 1]),
    ("qkv_int8w_groups_64x128", [0, 0, 0, 1]),
    ("qkv_packed_128x128", [1, 1, 1, 1]),
    ("qkv_packed_64x128", [1, 1, 1, 1]),
    ("qkv_packed_groups_128x128", [0, 0, 0, 1]),
    ("qkv_packed_groups_64x128", [0, 0, 0, 1]),
    ("read_means", [8, 6, 6, 8]),
    ("residual_bf16_128x128", [1, 1, 1, 1]),
    ("residual_bf16_128x256", [0, 0, 0, 1]),
    ("residual_bf16_64x128", [1, 1, 1, 2]),
    ("residual_bf16_groups_128x128", [0, 0, 0, 1]),
    ("residual_bf16_groups_64x128", [0, 0, 0, 1]),
    ("residual_bf16_groups_64x64", [0, 0, 0, 2]),
    ("residual_bf16_pair_128x128", [0, 0, 0, 1]),
    ("residual_bf16_pair_128x256", [0, 0, 0, 1]),
    ("residual_bf16_ring_128x128", [0, 0, 0, 1]),
    ("residual_bf16_ring_64x128", [0, 0, 0, 1]),
    ("residual_bf16_ring_64x64", [0, 0, 0, 2]),
    ("residual_int8w_128x128", [1, 1, 1, 1]),
    ("residual_int8w_128x256", [0, 0, 0, 1]),
    ("residual_int8w_64x128", [2, 1, 1, 2]),
    ("residual_int8w_groups_128x128", [0, 0, 0, 1]),
    ("residual_int8w_groups_64x128", [0, 0, 0, 1]),
    ("residual_int8w_groups_64x192", [0, 0, 0, 1]),
    ("residual_packed_128x128", [1, 1, 1, 1]),
    ("residual_packed_64x128", [1, 1, 1, 1]),
    ("residual_packed_groups_128x128", [0, 0, 0, 1]),
    ("residual_packed_groups_64x128", [0, 0, 0, 1]),
    ("residual_packed_groups_64x192", [0, 0, 0, 1]),
    ("round_bf16", [1, 1, 1, 1]),
    ("round_f32", [1, 1, 1, 1]),
    ("route_bf16", [6, 6, 6, 6]),
    ("route_f32", [6, 6, 6, 6]),
    ("scale_rows", [8, 6, 6, 8]),
    ("softmax_bf16", [8, 6, 6, 8]),
    ("softmax_f32", [8, 6, 6, 8]),
    ("split_bf16", [12, 11, 11, 12]),
    ("split_f32", [12, 11, 11, 12]),
];

/// True if a kernel is in the machine code for compute capability 9.0 only.
fn is_of_warpgroups(name: &str) -> bool {
    name.contains("_groups_") || is_of_ring(name)
}

/// True if bulk copies load a kernel's operands.
fn is_of_ring(name: &str) -> bool {
    name.contains("_pair_") || name.contains("_ring_")
}

/// The number before `unit` in a message of ptxas; 0 without one.
fn used(said: &str, unit: &str) -> u32 {
    let before = said.split(unit).next().filter(|before| *before != said);
    let number = before.and_then(|before| before.trim_end().rsplit(' ').next());
    number.map_or(0, |number| number.parse().unwrap())
}

/// The messages of ptxas by device and kernel.
fn resources() -> BTreeMap<(String, String), String> {
    parse(&std::fs::read_to_string(env!("ASYNCLANE_CUDA_RESOURCES")).unwrap())
}

/// The messages of a report by device and kernel.
fn parse(report: &str) -> BTreeMap<(String, String), String> {
    let (mut place, mut all) = (None, BTreeMap::<_, String>::new());
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let (kernel, device) = rest.split_once("' for '").unwrap();
            place = Some((device.trim_end_matches('\'').to_owned(), kernel.to_owned()));
        }
        if let Some(place) = &place {
            all.entry(place.clone()).or_default().push_str(line);
        }
    }
    all
}

/// The PTX of every kernel by name.
fn ptx() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(env!("ASYNCLANE_CUDA_PTX")).unwrap();
    let kernels = text.split(".visible .entry ").skip(1);
    kernels
        .map(|kernel| {
            let name = kernel.split('(').next().unwrap();
            (name.to_owned(), kernel.to_owned())
        })
        .collect()
}

#[test]
fn no_kernel_spills_on_any_device() {
    let resources = resources();
    let devices: BTreeSet<&str> = resources.keys().map(|(device, _)| device.as_str()).collect();
    assert_eq!(devices, DEVICES.map(|device| device.0).into());
    let of_warpgroups = WANTED.iter().filter(|(name, _)| is_of_warpgroups(name));
    let all = DEVICES.len() * ptx().len() + of_warpgroups.count();
    assert_eq!(resources.len(), all);
    for ((device, kernel), said) in &resources {
        assert!(said.contains(NO_SPILL), "{kernel} on {device}: {said}");
    }
}

#[test]
fn the_blocks_that_the_design_needs_fit() {
    let (resources, wanted) = (resources(), BTreeMap::from(WANTED));
    let names: BTreeSet<String> =
        asynclane_kernels::device::kernels().map(|kernel| kernel.name.to_owned()).collect();
    let plain = names.iter().filter(|name| !is_of_warpgroups(name));
    assert_eq!(plain.cloned().collect::<BTreeSet<_>>(), ptx().into_keys().collect());
    assert_eq!(names, wanted.keys().map(|name| (*name).to_owned()).collect());
    for kernel in asynclane_kernels::device::kernels() {
        let (name, threads, dynamic) = (kernel.name, kernel.threads, kernel.shared);
        for ((device, most_threads, most_blocks, memory), wanted) in
            DEVICES.into_iter().zip(wanted[name])
        {
            if is_of_warpgroups(name) && device != "sm_90a" {
                continue;
            }
            let said = &resources[&(device.to_owned(), name.to_owned())];
            let (registers, fixed) = (used(said, "registers"), used(said, "bytes smem"));
            assert!(registers > 0, "{name} on {device}: {said}");
            let warps = threads / 32;
            let by_registers = REGISTERS / ((registers * 32).next_multiple_of(UNIT) * warps);
            let by_memory = memory / (dynamic + fixed + RESERVED);
            let fit = [by_registers, by_memory, most_threads / threads, most_blocks];
            let blocks = fit.into_iter().min().unwrap();
            assert!(
                blocks >= wanted,
                "{name} on {device}: {blocks} blocks per multiprocessor, expected {wanted}: \
                 {registers} registers, {dynamic} + {fixed} bytes of shared memory"
            );
        }
    }
}

/// The blocks of a tile that the choice of launches reckons with fit onto an H200.
#[test]
fn tiles_are_resident_as_the_choice_of_launches_assumes() {
    let wanted = BTreeMap::from(WANTED);
    for format in MatrixFormat::KERNELS {
        for tile in ProductTile::all(format) {
            let fit = wanted[tile.names.gemm][3];
            assert!(fit as usize >= tile.resident, "{}: {fit}", tile.names.gemm);
        }
    }
}

/// Devices without machine code of their own compile the PTX when the kernels are loaded, and spill
/// nothing but a few bytes of attention, of one product with packed weights and of experts in f32.
#[test]
fn later_devices_accept_the_ptx() {
    let home = std::env::var_os("CUDA_HOME").map(PathBuf::from);
    let ptxas = home.map_or("ptxas".into(), |home| home.join("bin/ptxas"));
    for device in ["sm_100", "sm_120"] {
        let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(device);
        let run = Command::new(&ptxas)
            .args(["-v", "-arch", device, "-o"])
            .arg(&out)
            .arg(env!("ASYNCLANE_CUDA_PTX"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{device}: {said}");
        let all = parse(&said);
        assert_eq!(all.len(), ptx().len(), "{device}: {said}");
        let spills = all.iter().filter(|(_, said)| !said.contains(NO_SPILL));
        for ((_, kernel), said) in spills {
            // A register or two, where the assembler for later devices needs more.
            let few = kernel.starts_with("attend_")
                || kernel == "residual_packed_64x128"
                || kernel == "experts_f32";
            let few = few && used(said, "bytes spill stores") <= 16;
            assert!(few, "{device}: {said}");
        }
    }
}

/// The kinds of kernels with tiles of a number format.
fn kinds(dtype: &str) -> impl Iterator<Item = &'static str> {
    let others = (dtype != "int8").then_some("residual");
    ["gemm", "head", "qkv"].into_iter().chain(others)
}

#[test]
fn attention_and_products_use_tensor_cores() {
    let with = |what: &str| -> BTreeSet<String> {
        let kernels = ptx().into_iter().filter(|(_, text)| text.contains(what));
        kernels.map(|(name, _)| name).collect()
    };
    let mut want = BTreeSet::new();
    for kv in ["bf16", "int8"] {
        for width in [32, 64, 128] {
            want.extend([16, 32, 64].map(|queries| format!("attend_{kv}_{width}x{queries}")));
        }
        want.extend([256, 512].map(|width| format!("attend_{kv}_{width}")));
    }
    let large = ["bf16", "int8", "int8w"].map(|dtype| (dtype, "128x256"));
    let others = ["bf16", "int8", "int8w", "packed"]
        .into_iter()
        .flat_map(|dtype| ["64x128", "128x128"].map(|tile| (dtype, tile)));
    for (dtype, tile) in large.into_iter().chain(others) {
        want.extend(kinds(dtype).map(|kernel| format!("{kernel}_{dtype}_{tile}")));
    }
    for rows in ["few", "many"] {
        for dtype in ["bf16", "int8", "int8w", "packed"] {
            want.extend(["gates", "downs"].map(|kernel| format!("{kernel}_{dtype}_{rows}")));
        }
    }
    assert_eq!(with("cp.async.cg.shared.global"), want);
    // Keys and values in int8 are multiplied in bf16.
    let in_bytes = |name: &String| !name.starts_with("attend") && name.contains("_int8_");
    let (integers, floats): (BTreeSet<String>, _) = want.into_iter().partition(in_bytes);
    assert_eq!(with("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"), integers);
    assert_eq!(with("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"), floats);
    assert_eq!(with("tf32"), BTreeSet::new());
}

/// The lowest bits of instructions for compute capability 9.0, as NVIDIA's disassembler shows them: products of
/// warpgroups in bf16 and int8, bulk copies to one block and to all of a cluster, and changes of the number of
/// registers.
const HGMMA: u64 = 0x9F0;
const IGMMA: u64 = 0x9F1;
const UTMALDG: u64 = 0x5B4;
const UTMALDG_MULTICAST: u64 = 0x3B4;
const USETMAXREG: u64 = 0x9C8;
/// The wait for the launches before, and the permission of the next.
const ACQBULK: u64 = 0x82E;
const PREEXIT: u64 = 0x82D;
/// Reads of global memory, also to shared memory, and writes to it.
const LDG: u64 = 0x981;
const LDGSTS: u64 = 0xFAE;
const STG: u64 = 0x986;
/// Waits for all memory accesses of a thread.
const MEMBAR: u64 = 0x992;
const OPCODE: u64 = 0xFFF;

/// The instructions of every kernel in the machine code for compute capability 9.0, by their lowest bits.
fn opcodes() -> BTreeMap<String, Vec<u64>> {
    let code = PathBuf::from(env!("ASYNCLANE_CUDA_PTX")).with_file_name("kernels_90a.cubin");
    let elf = std::fs::read(code).unwrap();
    let number = |start: usize, bytes: usize| {
        let digits = elf[start..start + bytes].iter().rev();
        digits.fold(0, |all, byte| all << 8 | u64::from(*byte))
    };
    let (headers, count) = (number(40, 8) as usize, number(60, 2) as usize);
    let section = |index: usize| {
        let header = headers + 64 * index;
        let start = number(header + 24, 8) as usize;
        (number(header, 4) as usize, start, start + number(header + 32, 8) as usize)
    };
    let (_, names, _) = section(number(62, 2) as usize);
    let mut all = BTreeMap::new();
    for (name, start, end) in (0..count).map(section) {
        let name = elf[names + name..].split(|byte| *byte == 0).next().unwrap();
        let name = String::from_utf8_lossy(name);
        let Some(kernel) = name.strip_prefix(".text.") else { continue };
        let instructions = (start..end).step_by(16);
        all.insert(
            kernel.to_owned(),
            instructions.map(|start| number(start, 8) & OPCODE).collect(),
        );
    }
    all
}

/// Every kernel waits for the launches before, and permits the next. Before the wait nothing is written, attention
/// reads numbers of pages, and products copy weights, but for experts.
#[test]
fn kernels_wait_for_the_launches_before() {
    for (name, found) in opcodes() {
        let wait = found.iter().position(|opcode| *opcode == ACQBULK);
        let before = &found[..wait.expect(&name)];
        let has = |opcode| before.contains(&opcode);
        assert!(found.contains(&PREEXIT) && !has(STG), "{name}");
        assert!(!has(LDG) || name.starts_with("attend_"), "{name}");
        let of_experts = name.starts_with("gates_") || name.starts_with("downs_");
        assert_eq!(has(LDGSTS), name.contains("_groups_") && !of_experts, "{name}");
        if is_of_ring(&name) {
            let copy =
                found.iter().position(|opcode| [UTMALDG, UTMALDG_MULTICAST].contains(opcode));
            assert!(copy < found.iter().rposition(|opcode| *opcode == ACQBULK), "{name}");
        }
    }
}

#[test]
fn products_of_rings_use_bulk_copies_and_products_of_warpgroups() {
    let all = opcodes();
    assert_eq!(all.len(), WANTED.len());
    for (name, found) in all {
        let has = |opcode| found.contains(&opcode);
        let products = ["gemm", "qkv", "residual", "head", "gates", "downs"];
        // The loop over stages waits for no memory but that of the copies.
        if is_of_ring(&name) {
            let product = |opcode: &u64| [HGMMA, IGMMA].contains(opcode);
            let first = found.iter().position(product).unwrap();
            let last = found.iter().rposition(product).unwrap();
            assert!(!found[first..last].contains(&MEMBAR), "{name}");
        }
        // Kernels of other formats have other names.
        for (dtype, product) in [("_bf16_", HGMMA), ("_int8_", IGMMA)] {
            if name.contains(dtype) && products.iter().any(|one| name.starts_with(one)) {
                assert_eq!(has(product), is_of_warpgroups(&name), "{name}");
            }
        }
        assert_eq!(has(UTMALDG), is_of_ring(&name), "{name}");
        assert_eq!(has(USETMAXREG), is_of_ring(&name), "{name}");
        assert_eq!(has(UTMALDG_MULTICAST), name.contains("_pair_"), "{name}");
    }
}
