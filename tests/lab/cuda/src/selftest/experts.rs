//! Mixtures of experts.

use super::data::{Ends, Random, array, kept, plain, tensor, values};
use super::products::inner;
use super::{Check, Tell, cpu, rounding};
use crate::Result;
use kernels::WeightDtype;
use kernels::device::{
    Array, Device, DeviceExperts, DeviceMatrix, ExpertScratch, MatrixFormat, Precision,
};
use kernels::{Epilogue, Linear, Matrix};
use kernels::{Form, row_in_codes, row_to_bytes};
use kernels::{RouterFunction, Routing};

/// A mixture and rows for it.
struct Case {
    rows: usize,
    count: usize,
    chosen: usize,
    width: usize,
    inner: usize,
    score: RouterFunction,
    gate: Epilogue,
}

/// The weights of a mixture, rounded to its precision, and its input.
struct Numbers {
    router: Vec<f32>,
    /// Gate and up, and down, of each expert.
    experts: Vec<[Vec<f32>; 2]>,
    bias: Vec<f32>,
    scales: Vec<f32>,
    x: Vec<f32>,
    before: Vec<f32>,
}

pub(super) fn checks(
    random: &mut Random,
    target: (&Device, Precision),
    most: usize,
    tell: &mut Tell<'_>,
) {
    let sigmoid = |groups, best| RouterFunction::Sigmoid { groups, best, scale: 2.5 };
    let softmax = |normalised| RouterFunction::Softmax { normalised };
    let case = |[rows, count, chosen, width, inner]: [usize; 5], score, gate| Case {
        rows,
        count,
        chosen,
        width,
        inner,
        score,
        gate,
    };
    let cases = [
        case([1, 3, 1, 40, 8], softmax(false), Epilogue::SiluGate),
        case([most, 33, 4, 72, 24], softmax(true), Epilogue::GeluGate),
        case([most, 6, 3, 64, 70], sigmoid(3, 2), Epilogue::SiluGate),
        case([9, 40, 5, 24, 16], sigmoid(1, 1), Epilogue::SiluGate),
    ];
    for case in cases {
        for formats in formats(target.1) {
            let check = case.in_groups(formats).check(random, (target.0, formats));
            tell.case("experts", check.map(Some));
        }
    }
}

/// The formats of both matrices of experts with inputs in a precision.
fn formats(precision: Precision) -> Vec<[MatrixFormat; 2]> {
    let (int8w, int4) = (MatrixFormat::Int8w, MatrixFormat::Packed(Form::Four));
    match precision {
        Precision::F32 => vec![[MatrixFormat::F32; 2]],
        Precision::Bf16 => vec![[MatrixFormat::Bf16; 2], [int8w; 2], [int4; 2], [int4, int8w]],
        Precision::Int8 => vec![[MatrixFormat::Int8; 2]],
    }
}

/// Mixtures whose rows begin and end at sectors, with few and with many rows of every expert.
#[cfg(test)]
pub(super) fn aligned(random: &mut Random, target: (&Device, Precision), tell: &mut Tell<'_>) {
    for (rows, count, chosen) in [(40, 32, 4), (60, 4, 2)] {
        let case = Case {
            rows,
            count,
            chosen,
            width: 128,
            inner: 64,
            score: RouterFunction::Softmax { normalised: true },
            gate: Epilogue::GeluGate,
        };
        for formats in formats(target.1) {
            tell.case("experts", case.check(random, (target.0, formats)).map(Some));
        }
    }
}

/// Sums on two devices, with few and with many rows of every expert.
#[cfg(test)]
pub(super) fn pairs(
    random: &mut Random,
    devices: [&Device; 2],
    precision: Precision,
) -> Result<Vec<[Vec<f32>; 2]>> {
    let mut all = Vec::new();
    for ([rows, count, chosen], inner) in [([40, 32, 4], 96), ([150, 4, 2], 320)] {
        let score = RouterFunction::Softmax { normalised: true };
        let gate = Epilogue::SiluGate;
        let case = Case { rows, count, chosen, width: 320, inner, score, gate };
        let mixed = (precision == Precision::Bf16)
            .then_some([MatrixFormat::Bf16, MatrixFormat::Packed(Form::Four)]);
        for formats in formats(precision).into_iter().chain(mixed) {
            let case = case.in_groups(formats);
            let numbers = case.numbers(random, (devices[0], precision))?;
            let run = |device| case.run(&numbers, (device, formats));
            all.push([run(devices[0])?, run(devices[1])?]);
        }
    }
    Ok(all)
}

/// Rounds rows of `k` weights to a format, as on the CPU.
fn round(weight: &mut [f32], k: usize, device: &Device, format: MatrixFormat) -> Result<()> {
    for row in weight.chunks_mut(k) {
        match format {
            MatrixFormat::Int8w => {
                let (bytes, scale) = row_to_bytes(row);
                for (weight, byte) in row.iter_mut().zip(bytes) {
                    *weight = f32::from(byte) * scale;
                }
            }
            MatrixFormat::Packed(_) => {
                row.copy_from_slice(&kept(device, &row_in_codes(row), Precision::Bf16)?);
            }
            // The CPU rounds to the same integers.
            MatrixFormat::F32 | MatrixFormat::Bf16 | MatrixFormat::Int8 => {}
        }
    }
    Ok(())
}

impl Case {
    /// The same with sizes that a format's groups divide.
    fn in_groups(&self, formats: [MatrixFormat; 2]) -> Self {
        let size = |k| formats.into_iter().fold(k, |k, format| inner(format, k));
        Self { width: size(self.width), inner: size(self.inner), ..*self }
    }

    fn numbers(
        &self,
        random: &mut Random,
        (device, precision): (&Device, Precision),
    ) -> Result<Numbers> {
        let (d, inner) = (self.width, self.inner);
        let mut rounded = |count: usize| kept(device, &random.numbers(count), precision);
        let expert = |_| Ok([rounded(2 * inner * d)?, rounded(d * inner)?]);
        Ok(Numbers {
            experts: (0..self.count).map(expert).collect::<Result<_>>()?,
            x: rounded(self.rows * d)?,
            router: random.numbers(self.count * d),
            bias: random.numbers(self.count).iter().map(|x| x / 8.0).collect(),
            scales: random.numbers(self.count),
            before: random.numbers(self.rows * d),
        })
    }

    fn routing<'a>(&self, numbers: &'a Numbers) -> Routing<'a> {
        Routing {
            chosen: self.chosen,
            function: self.score,
            bias: Some(&numbers.bias),
            scales: Some(&numbers.scales),
            shared: false,
        }
    }

    /// Rows of sums with the experts that a device adds.
    fn run(
        &self,
        numbers: &Numbers,
        (device, formats): (&Device, [MatrixFormat; 2]),
    ) -> Result<Vec<f32>> {
        let precision = formats[0].inputs();
        let (rows, d) = (self.rows, self.width);
        let matrix = |weight: &[f32], k, format, epilogue| {
            let bias = None;
            DeviceMatrix::new(device, format, Matrix { weight, k, bias }, epilogue)
        };
        let gate = matrix(&numbers.router, d, MatrixFormat::F32, Epilogue::None)?;
        let experts = numbers.experts.iter().map(|[gate_up, down]| {
            Ok([
                matrix(gate_up, d, formats[0], self.gate)?,
                matrix(down, self.inner, formats[1], Epilogue::None)?,
            ])
        });
        let experts = experts.collect::<Result<_>>()?;
        let mixture = DeviceExperts::new(gate, experts, self.routing(numbers))?;
        let x = Array::inputs_of(device, [formats[0].gated(), precision], rows, d)?;
        x.write(0, &numbers.x)?;
        x.round(rows)?;
        let sum: Array = array((device, Precision::F32), &numbers.before, d, Ends::Plain)?;
        let mut scratch = ExpertScratch::default();
        mixture.choose(&x, rows, &plain(device, &vec![0; rows], &[], &[])?, &mut scratch)?;
        mixture.add(&x, rows, &scratch, &sum)?;
        sum.read(rows)
    }

    fn check(
        &self,
        random: &mut Random,
        (device, formats): (&Device, [MatrixFormat; 2]),
    ) -> Result<Check> {
        let precision = formats[0].inputs();
        let (rows, d) = (self.rows, self.width);
        let mut numbers = self.numbers(random, (device, precision))?;
        let got = self.run(&numbers, (device, formats))?;
        let name =
            format!("{formats:?} experts: {} of {}, {rows} rows of {d}", self.chosen, self.count);
        for [gate_up, down] in &mut numbers.experts {
            round(gate_up, d, device, formats[0])?;
            round(down, self.inner, device, formats[1])?;
        }
        let dtype = match precision {
            Precision::Int8 => WeightDtype::Int8,
            Precision::F32 | Precision::Bf16 => WeightDtype::F32,
        };
        let want = self.on_cpu(&numbers, dtype)?;
        // The gated products are rounded too.
        let tolerance = 4.0 * rounding(precision);
        Ok(Check::new(name, &got, &want, tolerance))
    }

    fn on_cpu(&self, numbers: &Numbers, dtype: WeightDtype) -> Result<Vec<f32>> {
        let (d, mut all) = (self.width, numbers.before.clone());
        let rows = numbers.x.chunks(d).zip(all.chunks_mut(d));
        for (x, sum) in rows {
            let logits = numbers.router.chunks(d).map(|gate| dot(gate, x)).collect();
            for (expert, weight) in self.choice(logits, numbers) {
                let [gate_up, down] = &numbers.experts[expert];
                let product = |weight: &[f32], k, epilogue, x: &_| {
                    let bias = None;
                    let linear = Linear::new(Matrix { weight, k, bias }, dtype, epilogue);
                    cpu(linear.and_then(|linear| linear.forward(x)))
                };
                let gated = product(gate_up, d, self.gate, &tensor(x, d)?)?;
                let result = values(&product(down, self.inner, Epilogue::None, &gated)?)?;
                sum.iter_mut().zip(result).for_each(|(sum, x)| *sum += weight * x);
            }
        }
        Ok(all)
    }

    /// The experts of a row, ascending, and their weights.
    fn choice(&self, logits: Vec<f32>, numbers: &Numbers) -> Vec<(usize, f32)> {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f32 = logits.iter().map(|x| (x - most).exp()).sum();
        let own: Vec<f32> = match self.score {
            RouterFunction::Softmax { .. } => {
                logits.iter().map(|x| (x - most).exp() / total).collect()
            }
            RouterFunction::Sigmoid { .. } => {
                logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect()
            }
        };
        let scores = own.iter().zip(&numbers.bias).map(|(x, bias)| x + bias);
        let scores: Vec<f32> = scores.collect();
        let (groups, best) = match self.score {
            RouterFunction::Softmax { .. } => (1, 1),
            RouterFunction::Sigmoid { groups, best, .. } => (groups, best),
        };
        let size = self.count / groups;
        let pair = |group: usize| {
            let largest_two = largest(&scores, (group * size..(group + 1) * size).collect(), 2);
            largest_two.iter().map(|e| scores[*e]).sum::<f32>()
        };
        let sums: Vec<f32> = (0..groups).map(pair).collect();
        let open = largest(&sums, (0..groups).collect(), best);
        let among = open.into_iter().flat_map(|group| group * size..(group + 1) * size);
        let mut picked = largest(&scores, among.collect(), self.chosen);
        let sum = |values: &[f32]| picked.iter().map(|e| values[*e]).sum::<f32>();
        let weight = |e: usize| match self.score {
            RouterFunction::Softmax { normalised: false } => scores[e],
            RouterFunction::Softmax { normalised: true } => scores[e] / sum(&scores),
            RouterFunction::Sigmoid { scale, .. } if self.chosen == 1 => own[e] * scale,
            RouterFunction::Sigmoid { scale, .. } => own[e] / sum(&own) * scale,
        };
        let weights: Vec<f32> = picked.iter().map(|e| weight(*e) * numbers.scales[*e]).collect();
        let mut pairs: Vec<(usize, f32)> = picked.drain(..).zip(weights).collect();
        pairs.sort_by_key(|pair| pair.0);
        pairs
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The `count` indices with the largest scores.
fn largest(scores: &[f32], mut among: Vec<usize>, count: usize) -> Vec<usize> {
    among.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    among.truncate(count);
    among
}
