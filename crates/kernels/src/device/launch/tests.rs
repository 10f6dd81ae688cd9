//! The launches of products: what they cover, what they need, and their estimated time.

use super::*;

const LIMITS: DeviceLimits = DeviceLimits::H200;
/// The matrices of LLaDA-8B, and their number: q/k/v, o, gate and up, down, LM head.
const MATRICES: [(usize, usize, usize, Division); 5] = [
    (12_288, 4096, 32, Division::Divided),
    (4096, 4096, 32, Division::Divided),
    (24_576, 4096, 32, Division::Divided),
    (4096, 12_288, 32, Division::Divided),
    (126_464, 4096, 1, Division::Whole),
];

fn sizes(rows: usize, (n, k): (usize, usize), format: MatrixFormat) -> ProductSizes {
    ProductSizes { rows, n, k, format }
}

/// The estimated time of the products of a step, in parts of the least time of any kernel.
fn ratio(rows: usize, format: MatrixFormat) -> f64 {
    let roofline = Roofline::of(LIMITS);
    let (mut sum, mut floor) = (0.0, 0.0);
    for (n, k, count, division) in MATRICES {
        let launch = ProductLaunch::choose(sizes(rows, (n, k), format), LIMITS, division);
        sum += count as f64 * roofline.seconds(&launch);
        // Every weight is read once, or the multiplications at the peak of the best products.
        let weights = (n * k) as f64;
        let memory = weights * format.bits() as f64 / 8.0 / roofline.memory;
        let peak = if format == MatrixFormat::Int8 { 1580e12 } else { 790e12 };
        floor += count as f64 * memory.max(2.0 * weights * rows as f64 / peak);
    }
    sum / floor
}

#[test]
fn a_step_of_an_8b_model_is_near_the_roofline() {
    let formats = [MatrixFormat::Bf16, MatrixFormat::Int8, MatrixFormat::Int8w];
    for (rows, bounds) in [
        (64, [1.20, 1.4, 2.1]),
        (128, [1.40, 1.55, 1.9]),
        (256, [1.60, 1.7, 1.6]),
        (512, [1.45, 1.45, 1.5]),
        (1024, [1.45, 1.4, 1.5]),
    ] {
        for (format, most) in formats.into_iter().zip(bounds) {
            let ratio = ratio(rows, format);
            assert!((1.0..=most).contains(&ratio), "{rows} {format:?}: {ratio}");
        }
    }
}

#[test]
fn launches_keep_the_multiprocessors_busy() {
    for rows in [64, 128, 256, 512, 1024] {
        for (n, k, _, division) in MATRICES {
            let sizes = sizes(rows, (n, k), MatrixFormat::Bf16);
            let launch = ProductLaunch::choose(sizes, LIMITS, division);
            let blocks = launch.blocks();
            assert!(blocks >= 90, "{rows}x{k}x{n}: {blocks} blocks");
            // Partial sums are less traffic than the operands.
            let partial = 2 * launch.partial_bytes();
            assert!(3 * partial <= 2 * launch.cache_bytes(), "{rows}x{k}x{n}");
        }
    }
}

/// The blocks of a launch compute every segment of every tile once.
#[test]
fn blocks_cover_every_segment_once() {
    for format in MatrixFormat::KERNELS {
        for tile in ProductTile::all(format) {
            let sizes = sizes(300, (1000, 1152), format);
            for launch in ProductLaunch::candidates(tile, sizes, LIMITS, Division::Divided) {
                let (all, tiles) = (launch.segments(), launch.tiles());
                let mut seen = vec![0; all * tiles];
                let (pieces, cluster) = (launch.pieces(), tile.blocks());
                // Blocks of a cluster have the same parts of adjacent tiles.
                for (number, rank) in (0..launch.blocks()).map(|i| (i / cluster, i % cluster)) {
                    let part = number.checked_sub(launch.whole / cluster);
                    let (tile, segments) = part.map_or((number, 0..all), |part| {
                        let first = part % pieces * launch.lead;
                        let end = (first + launch.lead).min(all);
                        (launch.whole / cluster + part / pieces, first..end)
                    });
                    let tile = tile * cluster + rank;
                    segments.for_each(|segment| seen[tile * all + segment] += 1);
                }
                assert!(seen.iter().all(|count| *count == 1), "{launch:?}");
            }
        }
    }
}

#[test]
fn launches_fit_every_device() {
    for shared in [99 << 10, 163 << 10, 227 << 10] {
        for multiprocessors in [16, 84, 108, 132, 160] {
            let limits = DeviceLimits {
                multiprocessors,
                shared,
                warpgroups: shared > 200 << 10 && multiprocessors == 132,
                ..LIMITS
            };
            for format in MatrixFormat::KERNELS {
                for (rows, n, k) in [(1, 8, 64), (64, 4096, 4096), (2000, 999, 12_288)] {
                    let sizes = sizes(rows, (n, k), format);
                    let launch = ProductLaunch::choose(sizes, limits, Division::Divided);
                    assert!(launch.tile.shared() <= shared);
                    let scored = ProductLaunch::choose(sizes, limits, Division::Whole);
                    assert!(scored.tile.head_kernel().unwrap().shared as usize <= shared);
                    assert!(
                        limits.warpgroups || !(launch.tile.warpgroups || scored.tile.warpgroups)
                    );
                    assert!(launch.partial_bytes() <= partial_bytes(format, n, k));
                }
            }
        }
    }
}

#[test]
fn a_segment_depends_on_the_matrix_alone() {
    let segments = [64, 256, 320, 1024, 2816, 4096, 11_008, 12_288];
    assert_eq!(
        segments.map(|k| segment(MatrixFormat::Bf16, 4096, k)),
        [256, 256, 256, 256, 704, 1024, 2752, 3072]
    );
    // Matrices of many rows have one.
    assert_eq!([64, 320, 4096].map(|k| segment(MatrixFormat::Bf16, 8192, k)), [256, 320, 4096]);
}

/// On an H200, 512 rows of bf16 reached the rate of 1,024 (`tests/lab/records/h200/steps.json`).
#[test]
fn enough_rows_reach_the_rate_of_many() {
    for (multiprocessors, format, expected) in [
        (132, MatrixFormat::Bf16, 512),
        (132, MatrixFormat::Int8w, 512),
        (132, MatrixFormat::Int8, 1024),
        (58, MatrixFormat::Bf16, 512),
    ] {
        let limits = DeviceLimits::unmeasured(multiprocessors);
        let found = Roofline::of(limits).enough_rows(limits, format);
        assert_eq!(found, expected, "{multiprocessors} {format:?}");
    }
}
