//! Matrix products and their epilogues.

use super::data::{Ends, Random, array, kept, poisoned, tensor, values};
use super::{Check, FORMATS, Tell, cpu, rounding};
use crate::Result;
use candle_core::Device as Cpu;
use candle_core::quantized::{GgmlDType, QTensor};
use half::f16;
use kernels::device::{Array, Device, DeviceMatrix, MatrixFormat, Precision};
use kernels::{BlockRows, BlockType, Epilogue, Form, Linear, Matrix, WeightDtype};
use kernels::{float8, row_in_codes, row_to_bytes};

/// The relative error of sums of `k` products, relative to the largest result. In f32 every addition
/// rounds. A tensor core cuts off what is below the last fraction bit of the largest term, always
/// toward zero: for each 16 products at most 2 x (9 terms + 2 of the rounded result) x 2^-24 on
/// compute capability 8 (`cuda/sums.h`), which is more than 17 terms x 2^-25 on 9. Sums of integers are exact.
pub(super) fn sums(k: usize, precision: Precision) -> f64 {
    let last = f64::from(-24).exp2();
    let cut = match precision {
        Precision::F32 => k as f64,
        Precision::Bf16 => k.div_ceil(16) as f64 * 22.0,
        Precision::Int8 => return 0.0,
    };
    // The reference's own error, in another order.
    5e-6 + cut * last
}

/// Weights `[n, k]`, a bias and `r` rows, all exact in a precision.
pub(super) struct Layer {
    weight: Vec<f32>,
    bias: Vec<f32>,
    x: Vec<f32>,
    k: usize,
}

/// Sizes of a product of `x [r, k]` with weights `[n, k]`.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) r: usize,
    pub(super) k: usize,
    pub(super) n: usize,
}

impl Sizes {
    fn of([r, k, n]: [usize; 3]) -> Self {
        Self { r, k, n }
    }
}

impl Layer {
    pub(super) fn new(
        random: &mut Random,
        (device, precision): (&Device, Precision),
        Sizes { r, k, n }: Sizes,
    ) -> Result<Self> {
        Ok(Self {
            weight: kept(device, &random.numbers(n * k), precision)?,
            bias: random.numbers(n),
            x: kept(device, &random.numbers(r * k), precision)?,
            k,
        })
    }

    fn matrix(&self) -> Matrix<'_> {
        Matrix { weight: &self.weight, k: self.k, bias: Some(&self.bias) }
    }

    pub(super) fn on(
        &self,
        (device, format): (&Device, impl Into<MatrixFormat>),
        epilogue: Epilogue,
    ) -> Result<DeviceMatrix> {
        let format = format.into();
        let MatrixFormat::Packed(form) = format else {
            return DeviceMatrix::new(device, format, self.matrix(), epilogue);
        };
        let Some(quantized @ Quantized { kind, .. }) = self.quantized(form)? else {
            return DeviceMatrix::new(device, format, self.matrix(), epilogue);
        };
        let rows = self.weight.len() / self.k;
        let blocks = [BlockRows { kind, rows, bytes: &quantized.bytes }];
        DeviceMatrix::of_blocks(device, [rows, self.k], &blocks, Some(&self.bias), epilogue)
    }

    /// The weights in the blocks of a form; `None` if numbers are packed in it without blocks.
    fn quantized(&self, form: Form) -> Result<Option<Quantized>> {
        let (kind, dtype) = match form {
            Form::Four | Form::F16 => return Ok(None),
            Form::Five => (BlockType::Q5_0, GgmlDType::Q5_0),
            Form::Eight => return Ok(Some(Quantized::affine(&self.weight))),
            Form::FineFour => (BlockType::Q4_K, GgmlDType::Q4K),
            Form::FineFive => (BlockType::Q5_K, GgmlDType::Q5K),
            Form::FineSix => (BlockType::Q6_K, GgmlDType::Q6K),
            Form::Nvfp4 => return Ok(Some(Quantized::fours(&self.weight))),
            Form::Fp8 => return Ok(Some(Quantized::eights(&self.weight))),
            Form::FineTwo => (BlockType::Q2_K, GgmlDType::Q2K),
            Form::Iq4 => return Ok(Quantized::listed(&self.weight, BlockType::IQ4)),
            Form::Iq3S => return Ok(Quantized::listed(&self.weight, BlockType::IQ3_S)),
            Form::Iq3Xxs => return Ok(Quantized::listed(&self.weight, BlockType::IQ3_XXS)),
            Form::Iq2 => return Ok(Quantized::listed(&self.weight, BlockType::IQ2)),
        };
        let quantized = cpu(QTensor::quantize(&tensor(&self.weight, self.k)?, dtype))?;
        let bytes = cpu(quantized.data())?.into_owned();
        let numbers = values(&cpu(quantized.dequantize(&Cpu::Cpu))?)?;
        Ok(Some(Quantized { kind, bytes, numbers }))
    }

    /// The layer with the weights that a form stands for, rounded to bf16.
    pub(super) fn unpacked(mut self, device: &Device, form: Form) -> Result<Self> {
        let weight = match self.quantized(form)? {
            Some(quantized) => quantized.numbers,
            None => self.weight.chunks(self.k).flat_map(row_in_codes).collect(),
        };
        self.weight = kept(device, &weight, Precision::Bf16)?;
        Ok(self)
    }

    /// The layer with its weights rounded to int8 as on the CPU.
    pub(super) fn in_bytes(mut self) -> Self {
        for row in self.weight.chunks_mut(self.k) {
            let (bytes, scale) = row_to_bytes(row);
            for (weight, byte) in row.iter_mut().zip(bytes) {
                *weight = scale * f32::from(byte);
            }
        }
        self
    }

    #[cfg(test)]
    pub(super) fn weights(&self) -> &[f32] {
        &self.weight
    }

    #[cfg(test)]
    pub(super) fn inputs(&self) -> &[f32] {
        &self.x
    }

    #[cfg(test)]
    pub(super) fn bias(&self) -> &[f32] {
        &self.bias
    }

    /// Some of the rows with zero padding.
    pub(super) fn rows(
        &self,
        target: (&Device, Precision),
        range: std::ops::Range<usize>,
    ) -> Result<Array> {
        let x = &self.x[range.start * self.k..range.end * self.k];
        array(target, x, self.k, Ends::Padded)
    }

    /// The first `n` rows of the weights.
    fn cut(mut self, n: usize) -> Self {
        self.weight.truncate(n * self.k);
        self.bias.truncate(n);
        self
    }

    /// The results of the CPU, which computes in f32, or with integers as the device.
    pub(super) fn on_cpu(&self, inputs: Precision, epilogue: Epilogue) -> Result<Vec<f32>> {
        let dtype = match inputs {
            Precision::Int8 => WeightDtype::Int8,
            Precision::F32 | Precision::Bf16 => WeightDtype::F32,
        };
        let linear = cpu(Linear::new(self.matrix(), dtype, epilogue))?;
        values(&cpu(linear.forward(&tensor(&self.x, self.k)?))?)
    }
}

/// Weights in blocks, and the numbers that they stand for.
struct Quantized {
    kind: BlockType,
    bytes: Vec<u8>,
    numbers: Vec<f32>,
}

impl Quantized {
    /// Codes of 8 bits with a scale and a minimum near numbers, a multiple of 32.
    fn affine(weights: &[f32]) -> Self {
        let kind = BlockType::AFFINE8;
        let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
        for block in weights.chunks_exact(kind.weights()) {
            let least = block.iter().copied().fold(f32::INFINITY, f32::min);
            let most = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let halves = [(most - least) / 255.0, least].map(f16::from_f32);
            let [scale, minimum] = halves.map(f16::to_f32);
            bytes.extend(halves.into_iter().flat_map(f16::to_le_bytes));
            for x in block {
                let code = ((x - minimum) / scale).round() as u8;
                bytes.push(code);
                numbers.push(scale * f32::from(code) + minimum);
            }
        }
        Self { kind, bytes, numbers }
    }

    /// 4-bit floats near numbers, a multiple of 32.
    fn fours(weights: &[f32]) -> Self {
        const SIZES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        let (kind, factor) = (BlockType::NVFP4, 0.003_7f32);
        let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
        for block in weights.chunks_exact(kind.weights()) {
            let scales = [0, 16].map(|first| {
                let most = block[first..][..16].iter().fold(0.0f32, |most, x| most.max(x.abs()));
                (1..=126).find(|byte| 6.0 * factor * float8(*byte) >= most).unwrap_or(126)
            });
            let mut codes = Vec::new();
            for (index, x) in block.iter().enumerate() {
                let scale = float8(scales[index / 16]) * factor;
                let size = (0u8..8).find(|code| SIZES[usize::from(*code)] * scale >= x.abs());
                let code = size.unwrap_or(7);
                codes.push(code | u8::from(*x < 0.0) << 3);
                numbers.push((SIZES[usize::from(code)] * scale).copysign(*x));
            }
            bytes.extend(factor.to_le_bytes());
            bytes.extend(scales);
            bytes.extend(codes.chunks(2).map(|pair| pair[0] | pair[1] << 4));
        }
        Self { kind, bytes, numbers }
    }

    /// Numbers of a list near numbers, a multiple of 256.
    fn listed(weights: &[f32], kind: BlockType) -> Option<Self> {
        let list = kind.list()?.map(|byte| f32::from(byte) - 128.0);
        let most_of = |x: &[f32]| x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let (largest, power) = (most_of(&list), 0.125f32);
        let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
        for block in weights.chunks_exact(kind.weights()) {
            let scale = f16::from_f32(most_of(block) / (largest * 100.0 * power));
            bytes.extend([scale, f16::from_f32(power)].into_iter().flat_map(f16::to_le_bytes));
            let scale = scale.to_f32() * power;
            // Factors with both signs.
            let factors: Vec<i8> = (block.chunks(16).enumerate())
                .map(|(i, part)| (most_of(part) / (largest * scale)).ceil() as i8 * [1, -1][i % 2])
                .collect();
            bytes.extend(factors.iter().map(|factor| factor.cast_unsigned()));
            let codes = block.iter().enumerate().map(|(i, x)| {
                let scale = scale * f32::from(factors[i / 16]);
                let far = |code: &u8| (list[usize::from(*code)] * scale - x).abs();
                let code = (0..16).min_by(|a, b| far(a).total_cmp(&far(b))).unwrap_or(0);
                numbers.push(list[usize::from(code)] * scale);
                code
            });
            let codes: Vec<u8> = codes.collect();
            bytes.extend(codes.chunks(2).map(|pair| pair[0] | pair[1] << 4));
        }
        Some(Self { kind, bytes, numbers })
    }

    /// 8-bit floats near numbers, a multiple of 32.
    fn eights(weights: &[f32]) -> Self {
        let kind = BlockType::FP8;
        let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
        for block in weights.chunks_exact(kind.weights()) {
            let most = block.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let scale = most / 448.0;
            bytes.extend(scale.to_le_bytes());
            for x in block {
                let size = (0u8..126).find(|code| float8(*code) * scale >= x.abs()).unwrap_or(126);
                bytes.push(size | u8::from(*x < 0.0) << 7);
                numbers.push((float8(size) * scale).copysign(*x));
            }
        }
        Self { kind, bytes, numbers }
    }
}

/// The checks of products of weights in the precision of the inputs, and in int8w.
pub(super) fn unpacked(
    random: &mut Random,
    target: (&Device, Precision),
    most: usize,
    tell: &mut Tell<'_>,
) {
    for sizes in
        [[1, 5, 3], [7, 72, 33], [65, 130, 70], [130, 64, 129], [most, 130, 70]].map(Sizes::of)
    {
        let layer = Layer::new(random, target, sizes);
        tell.case("product", layer.and_then(|layer| plain(random, target, &layer, sizes)));
    }
    for sizes in [[1, 8, 6], [9, 64, 70], [140, 80, 132]].map(Sizes::of) {
        let layer = Layer::new(random, target, sizes);
        tell.case("gated product", layer.and_then(|layer| gated(target, &layer, sizes)));
    }
    if target.1 == Precision::Bf16 {
        for sizes in [[1, 5, 3], [66, 300, 70], [most, 130, 140]].map(Sizes::of) {
            let layer = Layer::new(random, target, sizes);
            tell.case("Int8w product", layer.and_then(|layer| bytes(target, layer, sizes)));
        }
    }
}

/// The checks of all products.
pub(super) fn checks(
    random: &mut Random,
    target: (&Device, Precision),
    most: usize,
    tell: &mut Tell<'_>,
) {
    unpacked(random, target, most, tell);
    if target.1 == Precision::Bf16 {
        let forms = FORMATS.into_iter().filter_map(|format| match format {
            MatrixFormat::Packed(form) => Some(form),
            _ => None,
        });
        let lists = BlockType::LISTED[1..].iter().map(|kind| kind.form());
        for form in forms.chain(lists) {
            let k = inner(MatrixFormat::Packed(form), 96);
            for sizes in [[1, k, 6], [66, 3 * k, 70], [most, k, 140]].map(Sizes::of) {
                let layer = Layer::new(random, target, sizes);
                tell.case(
                    "packed product",
                    layer.and_then(|layer| packed(target, layer, form, sizes)),
                );
            }
        }
    }
}

/// Columns of a matrix in a format, `k` or more.
pub(super) fn inner(format: MatrixFormat, k: usize) -> usize {
    match format {
        MatrixFormat::Packed(form) if form.is_fine() => k.next_multiple_of(256),
        MatrixFormat::Packed(_) => k.next_multiple_of(32),
        _ => k,
    }
}

/// Checks that products with packed weights have the bits of products with the same weights in bf16.
fn packed(
    target: (&Device, Precision),
    layer: Layer,
    form: Form,
    Sizes { r, k, n }: Sizes,
) -> Result<[Check; 3]> {
    let x = layer.rows(target, 0..r)?;
    let epilogues = [Epilogue::None, Epilogue::SiluGate, Epilogue::GeluGate];
    let run = |matrix: DeviceMatrix, gated: bool| {
        let out = match gated {
            false => poisoned((target.0, Precision::F32), (r, n), Ends::Plain)?,
            true => poisoned(target, (r, n / 2), Ends::Padded)?,
        };
        matrix.product(&x, r, &out)?;
        out.read(r)
    };
    let each = |layer: &Layer, format: MatrixFormat| -> Result<Vec<Vec<f32>>> {
        let all = epilogues
            .iter()
            .map(|epilogue| run(layer.on((target.0, format), *epilogue)?, epilogue.is_gated()));
        all.collect()
    };
    let got = each(&layer, MatrixFormat::Packed(form))?;
    let want = each(&layer.unpacked(target.0, form)?, MatrixFormat::Bf16)?;
    Ok(std::array::from_fn(|i| {
        let differ = got[i].iter().zip(&want[i]).filter(|(a, b)| a.to_bits() != b.to_bits());
        Check {
            name: format!("{form:?} product of {r}x{k}x{n}, {:?}", epilogues[i]),
            error: differ.count() as f64,
            tolerance: 0.0,
        }
    }))
}

/// Checks products with weights in int8w, compared with exact products of the rounded weights.
fn bytes(
    target: (&Device, Precision),
    layer: Layer,
    Sizes { r, k, n }: Sizes,
) -> Result<[Check; 2]> {
    let (x, n) = (layer.rows(target, 0..r)?, n / 2 * 2);
    let layer = layer.cut(n);
    let matrices = [Epilogue::None, Epilogue::SiluGate]
        .map(|epilogue| layer.on((target.0, MatrixFormat::Int8w), epilogue));
    let [plain, gated] = matrices;
    let (plain, gated, layer) = (plain?, gated?, layer.in_bytes());
    let out = poisoned((target.0, Precision::F32), (r, n), Ends::Plain)?;
    plain.product(&x, r, &out)?;
    let name = |what: &str| format!("Int8w {what} of {r}x{k}x{n}");
    let want = layer.on_cpu(target.1, Epilogue::None)?;
    let stored = Check::new(name("product"), &out.read(r)?, &want, sums(k, target.1));
    let out = poisoned(target, (r, n / 2), Ends::Padded)?;
    gated.product(&x, r, &out)?;
    let want = layer.on_cpu(target.1, Epilogue::SiluGate)?;
    let tolerance = sums(k, target.1).max(rounding(target.1));
    let name = name("gated product");
    Ok([stored, Check::new(name, &out.read(r)?, &want, tolerance)])
}

/// Checks the product written to `out`, and added to `out`.
fn plain(
    random: &mut Random,
    (device, precision): (&Device, Precision),
    layer: &Layer,
    Sizes { r, k, n }: Sizes,
) -> Result<[Check; 2]> {
    let name = |what: &str| format!("{precision:?} {what} of {r}x{k}x{n}");
    let (target, tolerance) = ((device, precision), sums(k, precision));
    let want = layer.on_cpu(precision, Epilogue::None)?;
    let (x, matrix) = (layer.rows(target, 0..r)?, layer.on(target, Epilogue::None)?);
    let out = poisoned((device, Precision::F32), (r, n), Ends::Plain)?;
    matrix.product(&x, r, &out)?;
    let stored = Check::new(name("product"), &out.read(r)?, &want, tolerance);
    let before = random.numbers(r * n);
    out.write(0, &before)?;
    matrix.add_product(&x, r, &out)?;
    let want: Vec<f32> = want.iter().zip(before).map(|(x, y)| x + y).collect();
    let added = Check::new(name("added product"), &out.read(r)?, &want, tolerance);
    Ok([stored, added])
}

/// Checks gated products: SiLU, or GELU in its tanh form, of the gate, times up.
fn gated(
    (device, precision): (&Device, Precision),
    layer: &Layer,
    Sizes { r, k, n }: Sizes,
) -> Result<[Check; 2]> {
    let target = (device, precision);
    let check = |epilogue| {
        let want = layer.on_cpu(precision, epilogue)?;
        let written = MatrixFormat::from(precision).gated();
        let out = poisoned((device, written), (r, n / 2), Ends::Padded)?;
        let matrix = layer.on(target, epilogue)?;
        matrix.product(&layer.rows(target, 0..r)?, r, &out)?;
        let name = format!("{precision:?} {epilogue:?} product of {r}x{k}x{n}");
        let tolerance = sums(k, precision).max(rounding(written));
        Ok(Check::new(name, &out.read(r)?, &want, tolerance))
    };
    Ok([check(Epilogue::SiluGate)?, check(Epilogue::GeluGate)?])
}
