//! `asynclane inspect capacity`: upper bounds from memory, bandwidth and arithmetic.
//!
//! A step reads the weights and the K/V that its rows see once, and multiplies every row with the
//! weights it passes through. It takes at least max(W / B, 2 P N / F) + n c KV / B seconds, with W
//! bytes of weights read, P parameters per row, N rows, n sequences of c positions, B bytes per
//! second and F operations per second.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use model::{KvDtype, ModelInfo, WeightDtype};

use crate::exit;
use crate::memory;

/// The share of a device's memory that the estimate uses.
const USED_SHARE: f64 = 0.9;
/// Bytes reserved for the context, the kernels and the activations of a step on a GPU.
const OVERHEAD_BYTES: f64 = 1.5e9;
/// Positions of a sequence, if the model has as many.
const USUAL_CONTEXT: u32 = 1536;
/// Numbers of 8 bytes that [`measure`] reads at most: more than processors cache.
const READ_NUMBERS: usize = 32 << 20;
/// Time for which [`measure`] reads.
const READ_TIME: Duration = Duration::from_millis(100);

/// Data sheet of a device.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    name: &'static str,
    /// Bytes.
    memory: f64,
    /// Bytes that neither weights nor K/V can use.
    reserved: f64,
    /// Bytes per second.
    bandwidth: f64,
    /// Operations per second on dense bf16 matrices, if known.
    flops: Option<f64>,
    /// Bytes of a weight and of a number in K/V, if the device decides them.
    own: Option<OwnBytes>,
}

/// Bytes of numbers in the formats of a device.
#[derive(Clone, Copy, Debug)]
struct OwnBytes {
    weight: f64,
    kv: f64,
}

impl Device {
    const fn new(name: &'static str, gigabytes: f64, per_second: f64, tera: f64) -> Self {
        Self {
            name,
            memory: gigabytes * 1e9,
            reserved: OVERHEAD_BYTES,
            bandwidth: per_second * 1e9,
            flops: Some(tera * 1e12),
            own: None,
        }
    }
}

/// The processor of this machine for a model with matrices of `weight` bytes a weight, with its free memory
/// and the bandwidth at which all threads together read. `None` if the system does not report its memory.
pub fn measure(info: &ModelInfo, weight: f64) -> Option<Device> {
    let free = memory::free()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let numbers = READ_NUMBERS.min(usize::try_from(free / 64).unwrap_or(READ_NUMBERS));
    Some(Device {
        name: "this CPU",
        memory: free as f64,
        reserved: 0.0,
        bandwidth: read_bandwidth(numbers.max(threads), threads),
        flops: None,
        own: Some(OwnBytes { weight, kv: number_bytes(info) }),
    })
}

/// Mean bytes of a number in K/V in the surveyed format, with scales.
fn number_bytes(info: &ModelInfo) -> f64 {
    info.kv_bytes_per_position() as f64 / info.kv_numbers_per_position().max(1) as f64
}

/// Bytes per second that `threads` read together from `numbers` of 8 bytes.
fn read_bandwidth(numbers: usize, threads: usize) -> f64 {
    let data = vec![1u64; numbers];
    let parts = data.chunks(numbers.div_ceil(threads));
    let read = |part: &[u64]| {
        let (begun, mut rounds) = (Instant::now(), 0.0);
        while begun.elapsed() < READ_TIME {
            std::hint::black_box(part.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
            rounds += 1.0;
        }
        rounds * size_of_val(part) as f64 / begun.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = parts.map(|part| scope.spawn(move || read(part))).collect();
        let rates = readers.into_iter().filter_map(|reader| reader.join().ok());
        rates.sum()
    })
}

/// From the vendors' data sheets.
const CARDS: [Device; 6] = [
    Device::new("RTX 4090", 24.0, 1008.0, 165.0),
    Device::new("L40S", 48.0, 864.0, 362.0),
    Device::new("A100", 80.0, 2039.0, 312.0),
    Device::new("H100", 80.0, 3350.0, 989.0),
    Device::new("H200", 141.0, 4800.0, 989.0),
    Device::new("B200", 180.0, 8000.0, 2250.0),
];

/// Sizes of a model, in bytes unless stated otherwise.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    weights: f64,
    /// Read in every step: all but an embedding table that is not also the LM head.
    read: f64,
    /// The part of `read` that belongs to experts that no row used.
    idle: f64,
    /// Parameters that a row passes through.
    active: f64,
    /// Keys and values of one position.
    kv: f64,
}

impl Sizes {
    /// Sizes if a step uses `touched` experts per layer.
    fn new(info: &ModelInfo, weight: f64, kv: f64, touched: usize) -> Self {
        let [all, chosen] = match info.experts {
            None => [0; 2],
            Some(experts) => [experts.count, experts.chosen],
        };
        let [read, active, own] =
            [all, chosen, touched].map(|experts| info.read_parameters(experts as f64));
        Self {
            weights: info.parameters as f64 * weight,
            read: read * weight,
            idle: (read - own) * weight,
            active,
            kv: info.kv_numbers_per_position() as f64 * kv,
        }
    }

    /// W.
    fn bytes_read(&self) -> f64 {
        self.read - self.idle
    }

    /// Positions whose K/V fit beside the weights.
    fn positions(&self, device: &Device) -> f64 {
        let free = device.memory * USED_SHARE - device.reserved - self.weights;
        (free / self.kv).max(0.0)
    }

    /// Seconds of a step with few rows and short contexts.
    fn floor(&self, device: &Device) -> f64 {
        self.bytes_read() / device.bandwidth
    }

    /// The number of rows above which arithmetic takes longer than reading the weights.
    fn ridge(&self, device: &Device) -> Option<f64> {
        let flops = device.flops?;
        Some(self.bytes_read() * flops / (2.0 * self.active * device.bandwidth))
    }

    /// The number of sequences of this length whose K/V take as many bytes to read as the weights.
    fn heavy(&self, context: f64) -> f64 {
        self.bytes_read() / (self.kv * context)
    }
}

/// Bytes of a weight of a matrix: of blocks the mean of all, where all weights take `weights` bytes and the
/// embedding table `number` bytes a number, or as many as a matrix.
pub fn bytes_per_weight(info: &ModelInfo, weights: u64, number: Option<usize>) -> f64 {
    let table = (info.vocabulary.embedding_size * info.width) as f64;
    let stored = weights as f64 - table * number.unwrap_or(0) as f64;
    let matrices = info.parameters as f64 - if info.vocabulary.tied { 0.0 } else { table };
    let count = matrices + if number.is_some() { 0.0 } else { table };
    match info.formats.matrices {
        WeightDtype::F32 => 4.0,
        WeightDtype::Bf16 => 2.0,
        WeightDtype::Int8 | WeightDtype::Int8w => 1.0,
        WeightDtype::Int4 => 0.625,
        WeightDtype::Blocks => (stored / count).max(0.0),
    }
}

/// Mean bytes of a number in K/V on cards, with scales: the `given` ones, or those of the format that is
/// configured.
pub fn kv_bytes(info: &ModelInfo, given: Option<u8>, configured: Option<KvDtype>) -> f64 {
    match (given, configured) {
        (Some(bytes), _) => f64::from(bytes),
        (None, Some(_)) => number_bytes(info),
        (None, None) => 2.0,
    }
}

/// Positions of a sequence: the `given` ones, or a usual number, where the model's longest one has `longest`.
///
/// # Errors
/// More than the longest sequence has.
pub fn context(given: Option<u32>, longest: u32) -> Result<u32> {
    match given {
        Some(found) if found > longest => {
            let message = format!(
                "--context: expected at most {longest}, the model's context, found {found}"
            );
            Err(exit::failure(exit::USAGE, message))
        }
        given => Ok(given.unwrap_or(USUAL_CONTEXT.min(longest))),
    }
}

/// The tables for one model with matrices of `bytes` bytes a weight and K/V of `kv` bytes a number on cards,
/// the device `here` first. `numbers` describe the only card; by default there are several.
///
/// # Errors
/// `--on` with a number that is not positive.
pub fn report(
    info: &ModelInfo,
    [bytes, kv]: [f64; 2],
    context: u32,
    numbers: &[f64],
    here: Option<Device>,
) -> Result<String> {
    let devices: Vec<Device> = here.into_iter().chain(devices(numbers)?).collect();
    let touched = match info.experts {
        None => vec![0],
        Some(experts) => vec![experts.chosen, experts.count],
    };
    let mut out = format!(
        "estimate: weights in {}, K/V of {} bytes a number, {} positions a sequence\n",
        info.formats.matrices.name(),
        (kv * 1e3).round() / 1e3,
        context
    );
    if here.is_some() {
        writeln!(
            out,
            "this CPU: its free memory, the bandwidth at which it reads, K/V in {}",
            info.formats.kv.name()
        )?;
    }
    for touched in touched {
        let sizes = |device: &Device| {
            let OwnBytes { weight, kv } = device.own.unwrap_or(OwnBytes { weight: bytes, kv });
            Sizes::new(info, weight, kv, touched)
        };
        if let Some(experts) = info.experts {
            writeln!(out, "\nsteps that touch {touched} of {} experts", experts.count)?;
        }
        let rows: Vec<_> = devices.iter().map(|device| (device, sizes(device))).collect();
        let sizes = Sizes::new(info, bytes, kv, touched);
        table(&mut out, &sizes, &rows, f64::from(context))?;
    }
    Ok(out)
}

fn devices(numbers: &[f64]) -> Result<Vec<Device>> {
    match *numbers {
        [] => Ok(CARDS.to_vec()),
        [memory, bandwidth, flops]
            if numbers.iter().all(|value| value.is_finite() && *value > 0.0) =>
        {
            Ok(vec![Device::new("yours", memory, bandwidth, flops)])
        }
        _ => {
            let message = format!("--on: expected three positive numbers, found {numbers:?}");
            Err(exit::failure(exit::USAGE, message))
        }
    }
}

/// A number of bytes in the units of data sheets.
fn size(bytes: f64) -> String {
    match bytes {
        1e9.. => format!("{:.1} GB", bytes / 1e9),
        _ => format!("{:.1} MB", bytes / 1e6),
    }
}

/// Milliseconds with three digits that count, and one behind the point at least.
fn milliseconds(seconds: f64) -> String {
    let time = 1e3 * seconds;
    let whole = time.max(1e-6).log10().floor() as i32;
    format!("{time:.*}", (2 - whole).max(1) as usize)
}

/// The head for a model of these `sizes`, and a row per device with the sizes that it has there.
fn table(out: &mut String, sizes: &Sizes, rows: &[(&Device, Sizes)], context: f64) -> Result<()> {
    writeln!(
        out,
        "weights {}, of them {} read by a step; K/V {:.0} KiB a position, as much to read as the \
         weights from {:.0} sequences on",
        size(sizes.weights),
        size(sizes.bytes_read()),
        sizes.kv / 1024.0,
        sizes.heavy(context),
    )?;
    writeln!(
        out,
        "{:<8} {:>9} {:>11} {:>11} {:>14} {:>12}",
        "device", "memory GB", "positions", "sequences", "step ms (min)", "ridge (rows)"
    )?;
    for (device, sizes) in rows {
        let positions = sizes.positions(device);
        let ridge = sizes.ridge(device);
        let ridge = ridge.map_or("-".to_owned(), |rows| format!("{rows:.0}"));
        writeln!(
            out,
            "{:<8} {:>9.0} {:>11.0} {:>11.0} {:>14} {ridge:>12}",
            device.name,
            device.memory / 1e9,
            positions,
            (positions / context).floor(),
            milliseconds(sizes.floor(device)),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use model::{ExpertInfo, FormatInfo, HeadSizes, RowInfo, VocabularyInfo};
    use step::{Attention, LogitShift};

    use super::*;

    /// A model of a published configuration: layers, width, heads, key/value heads, width of
    /// an MLP, vocabulary.
    fn model(sizes: [usize; 6], experts: Option<ExpertInfo>, more: usize) -> ModelInfo {
        let [layers, width, heads, num_kv_heads, mlp, vocab] = sizes;
        let head = 128;
        let attention = width * head * (2 * heads + 2 * num_kv_heads);
        let dense = if experts.is_some() { 1 } else { layers };
        let all = experts.map_or(0, |experts| experts.count * experts.parameters);
        let parameters =
            layers * attention + dense * 3 * width * mlp + 2 * vocab * width + all + more;
        ModelInfo {
            family: "",
            layers,
            width,
            heads: HeadSizes { num_heads: heads, num_kv_heads, head_width: head },
            mlp_width: mlp,
            experts,
            canvas: None,
            vocabulary: VocabularyInfo {
                size: vocab,
                embedding_size: vocab,
                mask: Some(0),
                end: Vec::new(),
                tied: false,
            },
            max_positions: 4096,
            parameters,
            formats: FormatInfo { matrices: WeightDtype::Bf16, kv: KvDtype::F32 },
            rows: RowInfo {
                attention: Attention::Full,
                logit_shift: LogitShift::None,
                gate: None,
                drafter: None,
            },
        }
    }

    fn close(found: f64, expected: f64, by: f64) {
        assert!((found - expected).abs() <= by, "{found} for {expected}");
    }

    #[test]
    fn published_models_on_cards() {
        let llada = model([32, 4096, 32, 32, 12_288, 126_464], None, 0);
        let dream = model([28, 3584, 28, 4, 18_944, 152_064], None, 0);
        let wedlm = model([36, 4096, 32, 8, 12_288, 151_936], None, 0);
        let experts = ExpertInfo {
            count: 256,
            chosen: 8,
            parameters: 3 * 2048 * 512 * 19,
            shared_width: None,
        };
        let shared = 19 * (3 * 2048 * 512 + 256 * 2048);
        let mini = model([20, 2048, 16, 4, 5120, 157_184], Some(experts), shared);
        // Weights in GB, KiB of K/V a position, thousands of positions, sequences of 1,536
        // positions, sequences whose K/V weigh as much as the weights, and the shortest steps.
        let rows = [
            (&llada, 0, [16.0, 512.0, 104.0, 67.0, 19.0], [7.4, 4.5, 3.1, 1.9]),
            (&dream, 0, [15.2, 56.0, 964.0, 627.0, 161.0], [6.9, 4.2, 2.9, 1.8]),
            (&wedlm, 0, [16.4, 144.0, 367.0, 239.0, 67.0], [7.4, 4.5, 3.2, 1.9]),
            (&mini, 84, [32.5, 40.0, 927.0, 604.0, 180.0], [5.6, 3.4, 2.4, 1.4]),
            (&mini, 256, [32.5, 40.0, 927.0, 604.0, 507.0], [15.6, 9.5, 6.6, 4.0]),
        ];
        for (info, touched, [weights, kv, positions, fit, heavy], floors) in rows {
            let sizes = Sizes::new(info, 2.0, 2.0, touched);
            close(sizes.weights / 1e9, weights, 0.06);
            close(sizes.kv / 1024.0, kv, 0.0);
            close(sizes.positions(&CARDS[3]) / 1e3, positions, 1.0);
            close((sizes.positions(&CARDS[3]) / 1536.0).floor(), fit, 1.0);
            close(sizes.heavy(1536.0), heavy, 1.0);
            for (card, floor) in CARDS[2..].iter().zip(floors) {
                close(1e3 * sizes.floor(card), floor, 0.06);
            }
        }
        for (card, ridge) in CARDS[2..].iter().zip([153.0, 295.0, 206.0, 281.0]) {
            let sizes = Sizes::new(&llada, 2.0, 2.0, 0);
            close(sizes.ridge(card).unwrap(), ridge, 0.6);
            let int8 = Sizes::new(&llada, 1.0, 2.0, 0);
            close(int8.ridge(card).unwrap(), ridge / 2.0, 0.3);
        }
    }

    #[test]
    fn weights_of_any_size_can_be_read() {
        let line = |sizes| {
            let text = report(&model(sizes, None, 0), [2.0; 2], 1536, &[], None).unwrap();
            text.lines().nth(1).unwrap().to_owned()
        };
        let large = line([32, 4096, 32, 32, 12_288, 126_464]);
        let start = "weights 16.0 GB, of them 15.0 GB read by a step; K/V 512 KiB";
        assert!(large.starts_with(start), "{large}");
        let small = line([2, 128, 1, 1, 256, 1024]);
        let start = "weights 1.2 MB, of them 0.9 MB read by a step; K/V 1 KiB";
        assert!(small.starts_with(start), "{small}");
    }

    #[test]
    fn a_device_of_ones_own_has_positive_numbers() {
        let info = model([32, 4096, 32, 32, 12_288, 126_464], None, 0);
        let report = |numbers: &[f64]| report(&info, [2.0, 4.0], 1536, numbers, None);
        let text = report(&[48.0, 20.0, 0.19]).unwrap();
        assert!(text.contains("\nyours "), "{text}");
        let text = report(&[]).unwrap();
        let memory = text.lines().skip(3).map(|line| {
            let words: Vec<_> = line.split_whitespace().take(2).collect();
            words.join(" ")
        });
        assert!(memory.skip(2).eq(["A100 80", "H100 80", "H200 141", "B200 180"]), "{text}");
        assert_eq!(text.lines().count(), 9, "{text}");
        for wrong in [[0.0, 1.0, 1.0], [1.0, f64::NAN, 1.0], [1.0, 1.0, -1.0]] {
            assert!(report(&wrong).is_err());
        }
    }

    #[test]
    fn this_machine_comes_first_with_bytes_of_its_own() {
        let info = model([32, 4096, 32, 32, 12_288, 126_464], None, 0);
        let here = Device {
            name: "this CPU",
            memory: 100e9,
            reserved: 0.0,
            bandwidth: 20e9,
            flops: None,
            own: Some(OwnBytes { weight: 2.0, kv: number_bytes(&info) }),
        };
        let text = report(&info, [1.0, 2.0], 1536, &[], Some(here)).unwrap();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .skip_while(|line| !line.starts_with("device"))
            .map(|line| line.split_whitespace().collect())
            .collect();
        // 90 GB less the weights, in positions of 1 MiB; the weights at 20 GB/s.
        let expected = ["this", "CPU", "100", "70543", "45", "749.7", "-"];
        assert_eq!(rows[1], expected, "{text}");
        // A card has weights of one byte, at 1,008 GB/s.
        assert_eq!((&rows[2][..2], rows[2][5]), (&["RTX", "4090"][..], "7.44"));
    }

    #[test]
    fn short_steps_have_three_digits() {
        let cases = [(0.7497, "749.7"), (0.0744, "74.4"), (1e-3, "1.00"), (4.56e-6, "0.00456")];
        for (seconds, expected) in cases {
            assert_eq!(milliseconds(seconds), expected);
        }
    }

    #[test]
    fn sequences_are_no_longer_than_the_context() {
        assert_eq!(context(None, 4096).unwrap(), 1536);
        assert_eq!(context(None, 1024).unwrap(), 1024);
        assert_eq!(context(Some(1024), 1024).unwrap(), 1024);
        let refusal = context(Some(1025), 1024).unwrap_err().to_string();
        assert_eq!(refusal, "--context: expected at most 1024, the model's context, found 1025");
    }

    /// The configured format counts with its scales, unless a number of bytes is given.
    #[test]
    fn keys_and_values_of_cards_have_the_bytes_of_their_format() {
        let mut info = model([32, 4096, 32, 32, 12_288, 126_464], None, 0);
        info.formats.kv = KvDtype::Int8;
        let asked = Some(KvDtype::Int8);
        assert_eq!(kv_bytes(&info, None, None), 2.0);
        assert_eq!(kv_bytes(&info, Some(4), asked), 4.0);
        let bytes = kv_bytes(&info, None, asked);
        assert_eq!(bytes, 1.0 + 4.0 / 128.0);
        let text = report(&info, [2.0, bytes], 1536, &[], None).unwrap();
        assert!(text.contains("K/V of 1.031 bytes a number"), "{text}");
        assert!(text.contains("; K/V 264 KiB a position"), "{text}");
    }

    #[test]
    fn this_machine_is_measured() {
        let info = model([32, 4096, 32, 32, 12_288, 126_464], None, 0);
        let here = measure(&info, 2.0).expect("Linux reports its memory");
        assert!(here.memory > 0.0 && here.bandwidth > 1e6, "{here:?}");
    }
}
