//! Products whose operands bulk copies load.

use super::super::data::{Ends, Random, poisoned};
use super::super::products::{Layer, Sizes};
use super::assert_all;
use super::products::{bits, plain_loop, shapes};
use crate::{Card, LaunchCost, Result, floor, planned};
use kernels::Epilogue;
use kernels::device::{
    Captured, Check, Device, DeviceLimits, Division, Driver, HeadColumns, Kernel, MatrixFormat,
    Precision, ProductLaunch, ProductSizes, ProductTile, RingCase, Store, segment,
};
use model::{Geometry, StepLoad, WeightDtype};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The formats of weights that bulk copies load.
const FORMATS: [MatrixFormat; 2] = [MatrixFormat::Bf16, MatrixFormat::Int8];

/// The tiles of rings.
fn tiles(format: MatrixFormat) -> impl Iterator<Item = &'static ProductTile> + Clone {
    ProductTile::all(format).iter().filter(|tile| tile.cluster > 0)
}

/// Every shape of the geometries with tiles and rows in turn, whole and divided.
#[test]
fn they_have_the_bits_of_a_plain_loop_and_of_the_others() {
    let (mut random, device) = (Random(12), crate::emulated_small());
    let all = FORMATS.into_iter().flat_map(|format| tiles(format).map(move |tile| (format, tile)));
    let mut turns = all.cycle().zip([1, 7, 33, 67].into_iter().cycle());
    for (n, k) in shapes() {
        let ((format, tile), most) = turns.next().unwrap();
        let target = (&device, format.inputs());
        let rows = if n > 8000 || k > 8000 { 3 } else { most };
        let layer = Layer::new(&mut random, target, Sizes { r: rows, k, n }).unwrap();
        let matrix = layer.on(target, Epilogue::None).unwrap();
        let given = layer.rows(target, 0..rows).unwrap();
        let [weights, x] = [bits(layer.weights()), bits(layer.inputs())];
        let run = |launch: &ProductLaunch| {
            let out = poisoned((&device, Precision::F32), (rows, n), Ends::Plain).unwrap();
            matrix.run_as(launch, &given, &out, Store::Overwrite).unwrap();
            out.read(rows).unwrap()
        };
        let present = matrix.launch(rows, Division::Divided);
        assert_eq!(present.tile.cluster, 0, "no card has them yet");
        let others = run(&present);
        for launch in ProductLaunch::ways(tile, present.sizes) {
            let got = run(&launch);
            assert!(got == others, "{launch:?}");
            // Sums of integers are exact, and the others have those of a plain loop.
            let sums = x.chunks(k).enumerate().filter(|_| format == MatrixFormat::Bf16);
            for (row, x) in sums {
                // The last ones of many columns.
                for column in n.saturating_sub(40)..n {
                    let weights = &weights[column * k..][..k];
                    let segment = segment(format, n, k.next_multiple_of(64));
                    let want = plain_loop(x, weights, segment) + layer.bias()[column];
                    assert_eq!(got[row * n + column].to_bits(), want.to_bits(), "{n}x{k}");
                }
            }
        }
    }
}

/// Many rows, on a device with fewer multiprocessors than there are tiles, with every store.
#[test]
fn many_rows_have_the_bits_of_the_others() {
    let sizes = [(300, 128), (300, 320), (513, 576), (640, 640), (1024, 128), (770, 320)];
    for format in FORMATS {
        assert_eq!(tiles(format).count(), sizes.len());
        for (tile, (rows, k)) in tiles(format).zip(sizes) {
            // A step of integers has twice the inner elements.
            let k = if format == MatrixFormat::Int8 { 2 * k } else { k };
            many_rows((format, tile), [rows, k]);
        }
    }
}

fn many_rows((format, tile): (MatrixFormat, &'static ProductTile), [rows, k]: [usize; 2]) {
    let (mut random, device) = (Random(13), crate::emulated_small());
    let (target, n) = ((&device, format.inputs()), 392);
    let layer = Layer::new(&mut random, target, Sizes { r: rows, k, n }).unwrap();
    let given = layer.rows(target, 0..rows).unwrap();
    for (epilogue, store) in [
        (Epilogue::None, Store::Overwrite),
        (Epilogue::None, Store::Add),
        (Epilogue::SiluGate, Store::Gate),
        (Epilogue::GeluGate, Store::GeluGate),
    ] {
        let matrix = layer.on(target, epilogue).unwrap();
        let run = |launch: &ProductLaunch| {
            let (written, width) = match epilogue {
                Epilogue::None => (Precision::F32, n),
                _ => (format.gated(), n / 2),
            };
            let ends = if written == Precision::F32 { Ends::Plain } else { Ends::Padded };
            let out = poisoned((&device, written), (rows, width), ends).unwrap();
            if matches!(store, Store::Add) {
                let before = layer.inputs().iter().cycle().take(rows * n).copied();
                out.write(0, &before.collect::<Vec<_>>()).unwrap();
            }
            matrix.run_as(launch, &given, &out, store).unwrap();
            out.read(rows).unwrap()
        };
        let want = run(&matrix.launch(rows, Division::Divided));
        for launch in ProductLaunch::ways(tile, matrix.launch(rows, Division::Divided).sizes) {
            assert!(run(&launch) == want, "{launch:?}");
        }
    }
}

/// The bytes of the L2 cache of a product of LLaDA-8B by the formula, with 1,024 rows: at most six tenths of
/// those of the other kernels, whatever is written. Of the smallest matrix it is three quarters, because the
/// sums of its segments are as many bytes.
#[test]
fn pairs_read_less_from_the_cache() {
    let plain = DeviceLimits::H200;
    let limits = DeviceLimits { ring: true, ..plain };
    let mut found = Vec::new();
    for (n, k) in [(12_288, 4096), (4096, 4096), (24_576, 4096), (4096, 12_288)] {
        let sizes = ProductSizes { rows: 1024, n, k, format: MatrixFormat::Bf16 };
        let bytes = |limits| {
            let launch = ProductLaunch::choose(sizes, limits, Division::Divided);
            (launch.cache_bytes() as f64, launch.tile.names.gemm)
        };
        let ((before, _), (after, name)) = (bytes(plain), bytes(limits));
        found.push((name, after / before));
    }
    let bounds = [0.6, 0.75, 0.6, 0.6];
    let holds = found.iter().zip(bounds).all(|((_, ratio), most)| *ratio <= most + 1e-9);
    assert!(holds, "{found:?}");
}

/// A step of LLaDA-8B where they may be chosen: as many launches, and no more time by the estimate.
#[test]
fn steps_of_rings_have_as_few_launches_and_are_estimated_faster() {
    let geometry = Geometry::named("llada-8b").unwrap();
    let dtypes = [(WeightDtype::Bf16, 168), (WeightDtype::Int8, 326)];
    for ((dtype, most), rows) in
        dtypes.into_iter().flat_map(|dtype| [32, 64, 128, 256, 512, 1024].map(|rows| (dtype, rows)))
    {
        let load = StepLoad { rows, lane: 32, slots: 1024 };
        let step = |ring| {
            let checkpoint = geometry.checkpoint(5, 1).unwrap().with_dtype(dtype);
            let limits = DeviceLimits { ring, ..DeviceLimits::H200 };
            planned(&load, checkpoint, limits).unwrap().0
        };
        let [plain, ring] = [step(false), step(true)];
        let time = |all: &[LaunchCost]| all.iter().map(|one| one.seconds(&Card::H200)).sum::<f64>();
        let what = format!("{dtype:?}, {rows} rows");
        assert!(ring.len() <= most, "{what}: {} launches", ring.len());
        assert!(time(&ring) <= time(&plain), "{what}: {} {}", time(&ring), time(&plain));
        let least = floor(&plain, &Card::H200);
        let ratios = [&plain, &ring].map(|all| time(all) / least);
        println!("{what}: floor {:.2} ms, of it {ratios:.2?}", least * 1e3);
    }
}

/// Whatever order bulk copies and warps have: launches take turns, and as many as these have all.
#[test]
fn the_order_of_copies_changes_no_bit() {
    let device = crate::emulated_small();
    for format in FORMATS {
        let case = RingCase { format, rows: 130, k: 320, n: 264 };
        let turns = (0..6).map(|_| case.checks(&device).unwrap());
        let turns: Vec<_> = turns.collect();
        // With the launch of the others beside them, every launch has another turn each time.
        assert!(matches!((turns[0].len() + 1) % 6, 1 | 5), "{}", turns[0].len());
        assert_all(turns.into_iter().flatten());
    }
}

/// The self-test of a card, with small sizes.
#[test]
fn the_selftest_of_cards_compares_every_tile() {
    let device = crate::emulated_small();
    for format in FORMATS {
        let mut names = BTreeSet::new();
        for [rows, k, n] in [[1, 700, 130], [130, 200, 520]] {
            let checks = RingCase { format, rows, k, n }.checks(&device).unwrap();
            let names_of = |check: &Check| check.name.split(',').next().map(str::to_owned);
            names.extend(checks.iter().filter_map(names_of));
            assert_all(checks);
        }
        assert_eq!(names, tiles(format).map(|tile| tile.names.gemm.to_owned()).collect());
    }
}

/// A driver that refuses tensor maps.
struct Refusing(Arc<dyn Driver>);

impl Driver for Refusing {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn memory(&self) -> Result<(u64, u64)> {
        self.0.memory()
    }

    fn limits(&self) -> DeviceLimits {
        DeviceLimits { ring: true, ..self.0.limits() }
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.0.allocate(bytes)
    }

    fn free(&self, address: u64) {
        self.0.free(address);
    }

    fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<()> {
        self.0.fill(address, byte, bytes)
    }

    fn upload(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.0.upload(address, bytes)
    }

    fn download(&self, bytes: &mut [u8], address: u64) -> Result<()> {
        self.0.download(bytes, address)
    }

    unsafe fn launch(&self, kernel: Kernel, grid: [u32; 3], args: &[u8]) -> Result<()> {
        // SAFETY: by the caller's promise.
        unsafe { self.0.launch(kernel, grid, args) }
    }

    fn begin_capture(&self) -> Result<()> {
        self.0.begin_capture()
    }

    fn end_capture(&self) -> Result<Box<dyn Captured>> {
        self.0.end_capture()
    }
}

/// A driver that refuses tensor maps, and a device that has no bulk copies, run the others; the first says why.
#[test]
fn a_device_without_them_runs_the_others() {
    let device = Device::new(Refusing(crate::emulated_small().driver()));
    let mut random = Random(14);
    let target = (&device, Precision::Bf16);
    let sizes = Sizes { r: 300, k: 64, n: 40 };
    let layer = Layer::new(&mut random, target, sizes).unwrap();
    let matrix = layer.on(target, Epilogue::None).unwrap();
    let out = poisoned((&device, Precision::F32), (300, 40), Ends::Plain).unwrap();
    matrix.product(&layer.rows(target, 0..300).unwrap(), 300, &out).unwrap();
    assert_eq!(device.bulk_refusal().as_deref(), Some("this device has no tensor maps"));
    assert_eq!(crate::emulated_small().bulk_refusal(), None);
    let limits = DeviceLimits { ring: true, bulk: false, ..DeviceLimits::H200 };
    let sizes = ProductSizes { rows: 1024, n: 12_288, k: 4096, format: MatrixFormat::Bf16 };
    let chosen = ProductLaunch::choose(sizes, limits, Division::Divided);
    assert_eq!(chosen.tile.cluster, 0);
    let heads = HeadColumns { width: 128, cut: true };
    assert!(ProductLaunch::fused(sizes, limits, heads).is_some_and(|one| one.tile.cluster == 0));
}
